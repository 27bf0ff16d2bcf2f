#include "src/tokenizer/regex.h"

#include <fmt/format.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdint>
#include <cstring>

#include "ropewalk/base/error.h"
#include "src/tokenizer/unicode.h"

namespace ropewalk::internal {
namespace {

constexpr std::size_t kMaxPatternBytes = 1 << 16;
// Backtracking steps of one match: linear in the text for sane patterns (\s*[\r\n]+ over a run of
// spaces), exponential for hostile ones. 2M steps take some 50 ms.
constexpr uint32_t kBaseSteps = 2'000'000;
constexpr uint32_t kMaxSteps = 2'000'000'000;
constexpr uint32_t kHeapKibibytes = 512 * 1024;

// White_Space. PCRE2's \s also has U+180E, which left that property with Unicode 6.3.
constexpr char kSpaces[] =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
// Oniguruma's \w: also the numbers of Latin-1, and letters in circles and squares.
constexpr char kWord[] =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\xb2\xb3\xb9\xbc-\xbe\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";
constexpr char kHex[] = "0-9A-Fa-f";

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
        if (Difference()) continue;
        in_class_ = true;
        Copy(1);
        if (Peek(0) == '^') Copy(1);
        if (Peek(0) == ']') Copy(1);  // a bracket right after the opening one is literal
      } else if (c == '(') {
        Group();
      } else if (c == '{') {
        Repeat();
      } else {
        Copy(1);
      }
    }
    return std::move(out_);
  }

 private:
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
  void Class(const char* content, bool negated) {
    if (in_class_) {
      if (negated) Refuse("a negated escape inside a character class");
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
    if (next == 'S' && in_class_) {
      out_ += R"(\S\x{180e})";
      at_ += 2;
    } else if (next == 's' || next == 'S') {
      Class(kSpaces, next == 'S');
    } else if (next == 'w' || next == 'W') {
      Class(kWord, next == 'W');
    } else if (next == 'h' || next == 'H') {
      Class(kHex, next == 'H');
    } else if ((next == 'b' || next == 'B') && !in_class_) {
      Boundary(next == 'B');
    } else if (next == 'v') {
      out_ += "\\x0b";
      at_ += 2;
    } else if (next == 'u') {
      Unicode();
    } else if (next == '\0' || (std::isalpha(static_cast<unsigned char>(next)) &&
                                !std::strchr("dDpPrntfeaAzZGx", next))) {
      Refuse(fmt::format("the escape '\\{}'", next));
    } else if (std::strchr("pPx", next) && Peek(2) == '{') {  // its braces are no repetition
      const std::size_t end = in_.find('}', at_);
      if (end == std::string_view::npos) Refuse("an unfinished '{'");
      std::size_t name = 3;
      if (Peek(name) == '^') ++name;
      Copy(name);
      // A script by its name alone would be its extensions in PCRE2, as \p{Han} with the comma 、.
      if (next != 'x' && end - at_ > 2) out_ += "sc:";
      Copy(end + 1 - at_);
    } else {
      Copy(2);
    }
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
  void InClass(char c) {
    if (c == '[' && Peek(1) == ':') {
      const std::size_t end = in_.find(":]", at_);
      if (end == std::string_view::npos) Refuse("an unfinished '[:'");
      Copy(end + 2 - at_);
      return;
    }
    if (c == '[') {  // what both have: the same without its brackets
      const bool plain = Peek(1) != '^' && Peek(1) != ']' && out_.back() != '-';
      if (!plain) Refuse("a negated or unusual character class inside another");
      ++nested_;
      ++at_;
      return;
    }
    if (c == ']' && nested_ > 0) {
      --nested_;
      ++at_;
      return;
    }
    if (c == '&' && Peek(1) == '&') Refuse("the class intersection '&&'");
    if (c == ']') in_class_ = false;
    Copy(1);
  }
  void Group() {
    if (Peek(1) == '*') Refuse("'(*'");
    if (Peek(1) != '?') return Copy(1);
    const char kind = Peek(2);
    if (std::strchr(":=!><#", kind) && kind != '\0') return Copy(3);
    std::size_t end = 2;  // inline options: only i and x mean the same to both
    while (std::strchr("ix-", Peek(end)) && Peek(end) != '\0') ++end;
    if (end == 2 || (Peek(end) != ':' && Peek(end) != ')')) {
      Refuse(fmt::format("the group '{}'", in_.substr(at_, 4)));
    }
    Copy(end + 1);
  }
  void Repeat() {
    const std::size_t end = in_.find('}', at_);
    if (end != std::string_view::npos && end + 1 < in_.size() && in_[end + 1] == '+') {
      Refuse("a '+' after '}'");
    }
    Copy(1);
    if (Peek(0) == ',') out_ += '0';
  }

  std::string_view in_;
  const std::string& where_;
  std::string out_;
  std::size_t at_ = 0;
  bool in_class_ = false;
  int nested_ = 0;  // classes open within it
};

std::string MessageOf(int code) {
  PCRE2_UCHAR buffer[256];
  if (pcre2_get_error_message(code, buffer, sizeof(buffer)) < 0) return std::to_string(code);
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }
};

Regex::Regex(std::string_view pattern, std::string where) : where_(std::move(where)) {
  if (pattern.size() > kMaxPatternBytes) {
    throw Error(ErrorCode::kInvalidFile,
                fmt::format("{}: a pattern of {} bytes; at most {} are expected", where_,
                            pattern.size(), kMaxPatternBytes));
  }
  Compile(Translator(pattern, where_).Run());
}

Regex Regex::Literal(std::string_view text, std::string where) {
  std::string pattern;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x80 && !std::isalnum(static_cast<unsigned char>(c))) {
      pattern += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    } else {
      pattern += c;
    }
  }
  Regex regex;
  regex.where_ = std::move(where);
  regex.Compile(pattern);
  return regex;
}

void Regex::Compile(const std::string& pattern) {
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_shared<Code>();
  // Ruby's ^ and $ are anchors of lines, always.
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                             &error, &offset, context.get());
  if (code->code == nullptr) {
    throw Error(ErrorCode::kInvalidFile,
                fmt::format("{}: the pattern does not compile: {} (at byte {} of '{}')", where_,
                            MessageOf(error), offset, pattern.substr(0, 200)));
  }
  // Without JIT (no executable memory, say) the interpreter gives the same matches, slower.
  pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);
  code_ = std::move(code);
}

void Regex::FindAll(std::string_view text, std::vector<Span>* matches) const {
  matches->clear();
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create(1, nullptr), &pcre2_match_data_free);
  const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> context(
      pcre2_match_context_create(nullptr), &pcre2_match_context_free);
  if (!data || !context) throw std::bad_alloc();
  const uint64_t steps = kBaseSteps + 16 * static_cast<uint64_t>(text.size());
  pcre2_set_match_limit(context.get(),
                        steps > kMaxSteps ? kMaxSteps : static_cast<uint32_t>(steps));
  pcre2_set_heap_limit(context.get(), kHeapKibibytes);

  std::size_t at = 0;
  std::size_t last_end = std::string_view::npos;
  while (at <= text.size()) {
    const auto match = [&](uint32_t options) {
      return pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                         PCRE2_NO_UTF_CHECK | options, data.get(), context.get());
    };
    int rc = match(0);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) rc = match(PCRE2_NO_JIT);
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0) {
      throw Error(ErrorCode::kInvalidFile,
                  fmt::format("{}: matching the pattern failed at byte {} of a text of {}: {}; a "
                              "pattern that backtracks this much is refused",
                              where_, at, text.size(), MessageOf(rc)));
    }
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data.get());
    const Span span{ends[0], ends[1]};
    if (span.first == span.second && span.first == last_end) {
      at = span.first < text.size() ? span.first + CharBytes(text[span.first]) : text.size() + 1;
      continue;
    }
    matches->push_back(span);
    at = last_end = span.second;
  }
}

}  // namespace ropewalk::internal
