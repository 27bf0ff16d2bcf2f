#include "src/tokenizer/ruby_pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "ropewalk/base/error.h"
#include "src/tokenizer/unicode.h"

namespace ropewalk::internal {
namespace {

// White_Space. PCRE2's \s also has U+180E, which left that property with Unicode 6.3.
constexpr char kSpaces[] =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
// Unicode's words, letters in circles and squares among them. Oniguruma's \w has the numbers of
// Latin-1 too, but not within brackets.
#define WORD                                         \
  R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24b6}-\x{24e9})" \
  R"(\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})"
constexpr char kWord[] = WORD R"(\xb2\xb3\xb9\xbc-\xbe)";
constexpr char kWordOfClass[] = WORD;
constexpr char kHex[] = "0-9A-Fa-f";

// The brackets of POSIX as Oniguruma has them, of which PCRE2 has others: properties of Unicode,
// with the characters that got them after Unicode 14, PCRE2 10.42's.
#define ALPHABETIC \
  R"(\p{Alphabetic}\x{363}-\x{36f}\x{c04}\x{f82}\x{f83}\x{1dd3}-\x{1de6}\x{11080}\x{11081})"
constexpr std::pair<std::string_view, const char*> kBrackets[] = {
    {"alpha", ALPHABETIC},
    {"alnum", ALPHABETIC R"(\p{Nd})"},
    {"upper", R"(\p{Uppercase})"},
    {"lower", R"(\p{Lowercase}\x{10fc}\x{a7f2}-\x{a7f4}\x{ab69})"},
    {"punct", R"(\p{P}\p{S})"},
    {"space", kSpaces},
    {"blank", R"(\p{Zs}\x{9})"},
    {"word", WORD},
    {"graph", R"(\p{L}\p{M}\p{N}\p{P}\p{S}\p{Cf}\p{Co})"},
    {"print", R"(\p{L}\p{M}\p{N}\p{P}\p{S}\p{Cf}\p{Co}\p{Zs})"},
    {"digit", R"(\p{Nd})"}};
#undef ALPHABETIC
#undef WORD
// The same in both, negated too.
constexpr std::string_view kSameBrackets[] = {"cntrl", "xdigit", "ascii"};

class Translator {
 public:
  Translator(std::string_view in, const std::string& where) : in_(in), where_(where) {}

  std::string Run() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        Escape();
      } else if (in_class_) {
        InClass(c);
      } else if (c == '[') {
        before_ = 0;
        if (Difference()) continue;
        in_class_ = true;
        place_ = Place::kStart;
        Copy(1);
        if (Peek(0) == '^') Copy(1);
        if (Peek(0) == ']') Value(1);  // a bracket right after the opening one is literal
      } else if (c == '(') {
        Group();
      } else if (c == ')') {
        if (scopes_.size() > 1) Close();
        Copy(1);
      } else if (c == '{') {
        Repeat();
      } else if (std::strchr(".|^$*+?", c)) {
        before_ = 0;
        Copy(1);
      } else {
        Literal(DecodeChar(in_.substr(at_)));
        Copy(CharBytes(c));
      }
    }
    Close();
    return std::move(out_);
  }

 private:
  // A group, or the whole pattern.
  struct Scope {
    bool caseless;
    int options;  // groups that options like (?i) began in it: they end where it ends
  };
  // What stands before a place in a class: only behind a value does a dash make a range.
  enum class Place { kStart, kValue, kDash, kRange, kSet };

  char Peek(std::size_t ahead) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
  void Copy(std::size_t count) {
    out_ += in_.substr(at_, count);
    at_ += count;
  }
  [[noreturn]] void Refuse(const std::string& what) const {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{}: the pattern has {} at byte {}, which is not understood here; "
                            "tokenize elsewhere and give the ids with --ids",
                            where_, what, at_));
  }
  bool Caseless() const { return scopes_.back().caseless; }
  void Close() {
    out_.append(static_cast<std::size_t>(scopes_.back().options), ')');
    scopes_.pop_back();
  }
  // Where case does not count, Oniguruma matches some letters against several: \u00df against "ss".
  void Literal(char32_t c) {
    const char32_t lower = c < 0x80 ? static_cast<char32_t>(std::tolower(static_cast<int>(c))) : c;
    if (Caseless()) {
      if (c >= 0x80 && IsWordChar(c)) Refuse("a letter beyond ASCII where case does not count");
      for (const std::u32string_view pair : {U"ss", U"st", U"ff", U"fi", U"fl"}) {
        if (before_ == pair[0] && lower == pair[1]) {
          Refuse("letters that make a ligature, where case does not count,");
        }
      }
    }
    before_ = lower;
  }
  // A character of a class, `bytes` long here.
  void Value(std::size_t bytes) {
    const char32_t c = DecodeChar(in_.substr(at_));
    if (Caseless() && c >= 0x80 &&
        (IsWordChar(c) || place_ == Place::kDash || Peek(bytes) == '-')) {
      Refuse("letters beyond ASCII in a class where case does not count");
    }
    place_ = place_ == Place::kDash ? Place::kRange : Place::kValue;
    Copy(bytes);
  }
  // Several characters of a class at once, `bytes` long here. In Oniguruma no range begins or ends
  // with them.
  void Set(std::size_t bytes) {
    if (place_ == Place::kDash) Refuse("a '-' before a class");
    if (Peek(bytes) == '-' && Peek(bytes + 1) != ']') Refuse("a '-' behind a class");
    place_ = Place::kSet;
  }
  void Class(const char* content, bool negated) {
    if (in_class_) {
      if (negated) Refuse("a negated escape inside a character class");
      Set(2);
      out_ += content;
    } else {
      out_ += fmt::format("[{}{}]", negated ? "^" : "", content);
    }
    at_ += 2;
  }
  void Boundary(bool negated) {
    const char* form = negated ? "(?:(?<=[{0}])(?=[{0}])|(?<![{0}])(?![{0}]))"
                               : "(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))";
    out_ += fmt::format(fmt::runtime(form), kWord);
    at_ += 2;
  }
  void Escape() {
    const char next = Peek(1);
    const bool property = next == 'p' || next == 'P';
    const bool number = next == 'x' || next == 'u';
    if (Caseless() && (number || (in_class_ && (property || std::strchr("wSD", next))))) {
      Refuse(fmt::format("the escape '\\{}' where case does not count", next));
    }
    if (in_class_ && number) {
      place_ = place_ == Place::kDash ? Place::kRange : Place::kValue;
    } else if (!in_class_ && !std::isdigit(static_cast<unsigned char>(next))) {
      before_ = 0;
    }
    if (next == 'S' && in_class_) {
      Set(2);
      out_ += R"(\S\x{180e})";
      at_ += 2;
    } else if (next == 's' || next == 'S') {
      Class(kSpaces, next == 'S');
    } else if (next == 'w' || next == 'W') {
      Class(in_class_ ? kWordOfClass : kWord, next == 'W');
    } else if (next == 'h' || next == 'H') {
      Class(kHex, next == 'H');
    } else if ((next == 'b' || next == 'B') && !in_class_) {
      Boundary(next == 'B');
    } else if (next == 'v') {
      if (in_class_) Set(2);
      out_ += "\\x0b";
      at_ += 2;
    } else if (next == 'u') {
      Unicode();
    } else if (property) {
      Property();
    } else if (next == 'x') {
      Number();
    } else if (std::isdigit(static_cast<unsigned char>(next))) {
      // A group or an octal number, which the two tell apart by different rules.
      if (in_class_ || std::isdigit(static_cast<unsigned char>(Peek(2)))) {
        Refuse(fmt::format("the escape '{}'", in_.substr(at_, 3)));
      }
      Copy(2);
    } else if (next == '\0' || (std::isalpha(static_cast<unsigned char>(next)) &&
                                !std::strchr("dDrntfeaAzZG", next))) {
      Refuse(fmt::format("the escape '\\{}'", next));
    } else if (std::isalpha(static_cast<unsigned char>(next))) {
      if (in_class_ && (next == 'd' || next == 'D')) Set(2);
      if (in_class_ && next != 'd' && next != 'D') return Value(2);
      Copy(2);
    } else {  // stands for itself
      const std::size_t bytes = 1 + CharBytes(next);
      if (in_class_) return Value(bytes);
      Literal(DecodeChar(in_.substr(at_ + 1)));
      Copy(bytes);
    }
  }
  void Property() {
    const std::size_t end = in_.find('}', at_);
    if (Peek(2) != '{') Refuse(fmt::format("the escape '\\{}' without '{{'", Peek(1)));
    if (end == std::string_view::npos) Refuse("an unfinished '{'");
    const std::size_t name = Peek(3) == '^' ? 4 : 3;
    if (!std::all_of(in_.begin() + static_cast<std::ptrdiff_t>(at_ + name),
                     in_.begin() + static_cast<std::ptrdiff_t>(end), [](char c) {
                       return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
                     })) {
      Refuse(fmt::format("the property '{}'",
                         in_.substr(at_, std::min<std::size_t>(end + 1 - at_, 40))));
    }
    if (in_class_) Set(end + 1 - at_);
    Copy(name);
    // A script by its name alone would be its extensions in PCRE2, as \p{Han} with the comma 、.
    if (end - at_ > 2) out_ += "sc:";
    Copy(end + 1 - at_);
  }
  // \x41 or \x{41}.
  void Number() {
    if (Peek(2) == '{') {
      const std::size_t end = in_.find('}', at_);
      if (end == std::string_view::npos) Refuse("an unfinished '{'");
      return Copy(end + 1 - at_);
    }
    const auto hex = [this](std::size_t i) {
      return std::isxdigit(static_cast<unsigned char>(Peek(i))) != 0;
    };
    // From 80 on it is a byte to Oniguruma, and no character.
    if (!hex(2) || (hex(3) && Peek(2) > '7')) {
      Refuse(fmt::format("the escape '{}'", in_.substr(at_, 4)));
    }
    Copy(hex(3) ? 4 : 3);
  }
  // [A&&[^B]]: what A has and B has not.
  bool Difference() {
    constexpr std::string_view kWithout = "&&[^";
    const std::size_t minus = in_.find(kWithout, at_);
    if (minus == std::string_view::npos) return false;
    const std::string_view all = in_.substr(at_ + 1, minus - at_ - 1);
    const std::size_t from = minus + kWithout.size(), end = in_.find("]]", from);
    if (end == std::string_view::npos || all.empty() || all[0] == '^') return false;
    const std::string_view without = in_.substr(from, end - from);
    if ((std::string(all) += without).find_first_of("[]") != std::string::npos) return false;
    const auto translated = [this](std::string_view set) {
      const std::string alone = fmt::format("[{}]", set);
      return Translator(alone, where_).Run();
    };
    out_ += fmt::format("(?:(?!{}){})", translated(without), translated(all));
    at_ = end + 2;
    return true;
  }
  void Unicode() {
    for (std::size_t i = 2; i < 6; ++i) {
      if (!std::isxdigit(static_cast<unsigned char>(Peek(i)))) Refuse("a malformed '\\u' escape");
    }
    out_ += fmt::format("\\x{{{}}}", in_.substr(at_ + 2, 4));
    at_ += 6;
  }
  // [:alpha:] within a class.
  void Bracket() {
    const std::size_t end = in_.find(":]", at_);
    if (end == std::string_view::npos) Refuse("an unfinished '[:'");
    std::string_view name = in_.substr(at_ + 2, end - at_ - 2);
    const std::string_view whole = in_.substr(at_, end + 2 - at_);
    const bool negated = name.starts_with('^');
    if (negated) name.remove_prefix(1);
    if (std::ranges::find(kSameBrackets, name) != std::end(kSameBrackets)) {
      Set(whole.size());
      return Copy(whole.size());
    }
    const auto* known = std::ranges::find(kBrackets, name, [](const auto& b) { return b.first; });
    if (known == std::end(kBrackets) || negated || Caseless()) {
      Refuse(fmt::format("the class '{}'{}", whole.substr(0, 40),
                         Caseless() ? " where case does not count" : ""));
    }
    Set(whole.size());
    out_ += known->second;
    at_ += whole.size();
  }
  void InClass(char c) {
    if (c == '[' && Peek(1) == ':') return Bracket();
    if (c == '[') {  // what both have: the same without its brackets
      if (Peek(1) == '^' || Peek(1) == ']') {
        Refuse("a negated or unusual character class inside another");
      }
      if (place_ == Place::kDash) Refuse("a '-' before a class");
      place_ = Place::kStart;
      ++nested_;
      ++at_;
      return;
    }
    if (c == ']' && nested_ > 0) {
      Set(1);
      --nested_;
      ++at_;
      return;
    }
    if (c == '&' && Peek(1) == '&') Refuse("the class intersection '&&'");
    if (c == '-') {
      if (place_ == Place::kRange && Peek(1) == '-') Refuse("a '-' behind a range");
      if (place_ == Place::kValue && Peek(1) != ']') {
        place_ = Place::kDash;
        return Copy(1);
      }
      out_ += '\\';  // is itself, whatever gets next to it
      if (place_ == Place::kDash || place_ == Place::kStart) return Value(1);
      return Copy(1);
    }
    if (c != ']') return Value(CharBytes(c));
    in_class_ = false;
    Copy(1);
  }
  void Group() {
    if (Peek(1) == '*') Refuse("'(*'");
    if (Peek(1) != '?' || (std::strchr(":=!><", Peek(2)) && Peek(2) != '\0')) {
      scopes_.push_back({Caseless(), 0});
      return Copy(Peek(1) == '?' ? 3 : 1);
    }
    // Inline options: only i means the same to both.
    const bool caseless = Peek(2) != '-';
    const std::size_t end = caseless ? 3 : 4;
    if (Peek(end - 1) != 'i' || (Peek(end) != ':' && Peek(end) != ')')) {
      Refuse(fmt::format("the group '{}'", in_.substr(at_, 4)));
    }
    if (Peek(end) == ':') {
      scopes_.push_back({caseless, 0});
      return Copy(end + 1);
    }
    // To Oniguruma x(?i)y|z is x(?i:y|z).
    scopes_.back().caseless = caseless;
    ++scopes_.back().options;
    Copy(end);
    out_ += ':';
    ++at_;
  }
  void Repeat() {
    std::size_t digits = 0, commas = 0, end = 1;
    for (; std::isdigit(static_cast<unsigned char>(Peek(end))) || (Peek(end) == ',' && commas == 0);
         ++end) {
      ++(Peek(end) == ',' ? commas : digits);
    }
    if (Peek(end) != '}' || digits == 0) {  // no repetition to Oniguruma, but a brace
      Literal('{');
      out_ += '\\';
      return Copy(1);
    }
    if (Peek(end + 1) == '+') Refuse("a '+' after '}'");
    if (Peek(end + 1) == '?' && commas == 0) Refuse("a '?' after '{n}'");
    before_ = 0;
    Copy(1);
    if (Peek(0) == ',') out_ += '0';
    Copy(end);
  }

  std::string_view in_;
  const std::string& where_;
  std::string out_;
  std::size_t at_ = 0;
  bool in_class_ = false;
  Place place_ = Place::kStart;
  int nested_ = 0;  // classes open within it
  std::vector<Scope> scopes_ = {{false, 0}};
  char32_t before_ = 0;  // the letter, in lower case, that the next one stands behind, or 0
};

}  // namespace

std::string PcrePattern(std::string_view pattern, const std::string& where) {
  return Translator(pattern, where).Run();
}

}  // namespace ropewalk::internal
