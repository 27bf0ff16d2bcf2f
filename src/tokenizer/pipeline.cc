#include "src/tokenizer/pipeline.h"

#include <algorithm>
#include <array>

namespace ropewalk::internal {
namespace {

std::string ReplaceAll(const ReplaceStep& step, const std::string& text) {
  std::vector<Span> matches;
  step.pattern.FindAll(text, &matches);
  if (matches.empty()) return text;
  std::string out;
  std::size_t at = 0;
  for (const auto& [begin, end] : matches) {
    out.append(text, at, begin - at).append(step.content);
    at = end;
  }
  return out.append(text, at);
}

std::string Strip(const StripStep& step, const std::string& text) {
  std::size_t begin = 0, end = text.size();
  while (step.left && begin < end &&
         IsWhiteSpace(DecodeChar(std::string_view(text).substr(begin)))) {
    begin += CharBytes(text[begin]);
  }
  while (step.right && begin < end) {
    std::size_t last = end - 1;
    while (last > begin && IsContinuation(text[last])) --last;
    if (!IsWhiteSpace(DecodeChar(std::string_view(text).substr(last)))) break;
    end = last;
  }
  return text.substr(begin, end - begin);
}

template <class Append>
std::string EachChar(const std::string& text, const Append& append) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size(); at += CharBytes(text[at])) {
    append(DecodeChar(std::string_view(text).substr(at)), &out);
  }
  return out;
}

// The blocks that BERT's own tokenizer calls Chinese, to the letter: its gaps too.
bool IsChinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B81F) ||
         (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) ||
         (c >= 0x2F800 && c <= 0x2FA1F);
}

// BERT drops nonspacing marks, StripAccents every mark.
std::string Without(const std::string& text, bool (*is_mark)(char32_t)) {
  return EachChar(text, [is_mark](char32_t c, std::string* out) {
    if (!is_mark(c)) AppendUtf8(c, out);
  });
}

std::string ApplyBert(const BertStep& step, std::string text) {
  if (step.clean) {
    text = EachChar(text, [](char32_t c, std::string* out) {
      const bool space = c == '\t' || c == '\n' || c == '\r';
      if (c == 0 || c == 0xFFFD || (!space && IsControl(c))) return;
      AppendUtf8(space || IsWhiteSpace(c) ? U' ' : c, out);
    });
  }
  if (step.chinese) {
    text = EachChar(text, [](char32_t c, std::string* out) {
      if (IsChinese(c)) out->push_back(' ');
      AppendUtf8(c, out);
      if (IsChinese(c)) out->push_back(' ');
    });
  }
  if (step.strip_accents) text = Without(Normalize(text, NormalForm::kNfd), IsNonspacingMark);
  return step.lowercase ? EachChar(text, AppendLowercase) : text;
}

struct Part {
  Span span;
  bool match;
};

void Merge(SplitBehavior behavior, const std::vector<Part>& parts, std::vector<Span>* out) {
  const std::size_t first = out->size();
  bool previous = false;
  switch (behavior) {
    case SplitBehavior::kRemoved:
    case SplitBehavior::kIsolated:
      for (const Part& part : parts) {
        if (!(part.match && behavior == SplitBehavior::kRemoved)) out->push_back(part.span);
      }
      break;
    case SplitBehavior::kContiguous:
      for (const Part& part : parts) {
        if (out->size() > first && part.match == previous) {
          out->back().second = part.span.second;
        } else {
          out->push_back(part.span);
        }
        previous = part.match;
      }
      break;
    case SplitBehavior::kMergedWithPrevious:
      for (const Part& part : parts) {
        if (part.match && !previous && out->size() > first) {
          out->back().second = part.span.second;
        } else {
          out->push_back(part.span);
        }
        previous = part.match;
      }
      break;
    case SplitBehavior::kMergedWithNext:
      for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
        if (part->match && !previous && out->size() > first) {
          out->back().first = part->span.first;
        } else {
          out->push_back(part->span);
        }
        previous = part->match;
      }
      std::reverse(out->begin() + static_cast<std::ptrdiff_t>(first), out->end());
      break;
  }
}

void Apply(const SplitStep& step, bool /*at_start*/, Words* words) {
  std::vector<Span> result, matches;
  std::vector<Part> parts;
  for (const auto& [begin, end] : words->spans) {
    step.pattern.FindAll(std::string_view(words->text).substr(begin, end - begin), &matches);
    parts.clear();
    std::size_t at = begin;
    for (const auto& match : matches) {
      if (begin + match.first > at) parts.push_back({{at, begin + match.first}, step.invert});
      at = begin + match.second;
      parts.push_back({{begin + match.first, at}, !step.invert});
    }
    if (at < end) parts.push_back({{at, end}, step.invert});
    Merge(step.behavior, parts, &result);
  }
  std::erase_if(result, [](const Span& span) { return span.first == span.second; });
  words->at_front &= !result.empty() && result.front().first == 0;
  words->spans = std::move(result);
}

// Rewrites every word by `append(word, index, &text)`.
template <class Append>
void Rewrite(Words* words, const Append& append) {
  Words out;
  out.at_front = words->at_front;
  out.text.reserve(words->text.size() + words->text.size() / 4);
  out.spans.reserve(words->spans.size());
  for (std::size_t i = 0; i < words->spans.size(); ++i) {
    const auto [begin, end] = words->spans[i];
    const std::size_t start = out.text.size();
    append(std::string_view(words->text).substr(begin, end - begin), i, &out.text);
    out.spans.emplace_back(start, out.text.size());
  }
  *words = std::move(out);
}

void Apply(const PrefixSpaceStep&, bool /*at_start*/, Words* words) {
  Rewrite(words, [](std::string_view word, std::size_t, std::string* out) {
    if (word.front() != ' ') out->push_back(' ');
    out->append(word);
  });
}

void Apply(const ByteMapStep&, bool /*at_start*/, Words* words) {
  Rewrite(words, [](std::string_view word, std::size_t, std::string* out) {
    for (const char byte : word) out->append(ByteToChar(static_cast<uint8_t>(byte)));
  });
}

void Apply(const MetaspaceStep& step, bool at_start, Words* words) {
  using Prefix = MetaspaceStep::Prefix;
  // As the original has it: a word that begins at offset 0, not the first one behind white space.
  const bool first = step.prefix == Prefix::kFirst && at_start && words->at_front;
  Rewrite(words, [&](std::string_view word, std::size_t index, std::string* out) {
    const bool wanted = step.prefix == Prefix::kAlways || (first && index == 0);
    if (wanted && word.front() != ' ' && !word.starts_with(step.mark)) out->append(step.mark);
    for (const char byte : word) {
      if (byte == ' ') {
        out->append(step.mark);
      } else {
        out->push_back(byte);
      }
    }
  });
  if (!step.split) return;
  std::vector<Span> result;
  for (const auto& [begin, end] : words->spans) {
    std::size_t start = begin;
    // A mark begins a word; marks in a row are one word each.
    for (std::size_t at = words->text.find(step.mark, begin); at < end;
         at = words->text.find(step.mark, at + step.mark.size())) {
      if (at > start) result.emplace_back(start, at);
      start = at;
    }
    if (start < end) result.emplace_back(start, end);
  }
  words->spans = std::move(result);
}

// Printable Latin-1 stands for itself; the other 68 bytes, in order, for U+0100 and on.
struct ByteMap {
  std::array<std::string, 256> chars;
  std::array<int, 0x144> bytes{};

  ByteMap() {
    bytes.fill(-1);
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
                             (byte >= 0xAE && byte <= 0xFF);
      const char32_t c = printable ? static_cast<char32_t>(byte) : next++;
      AppendUtf8(c, &chars[static_cast<std::size_t>(byte)]);
      bytes[c] = byte;
    }
  }
};
const ByteMap& TheByteMap() {
  static const ByteMap map;
  return map;
}

}  // namespace

const char kGpt2Pattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

const std::string& ByteToChar(uint8_t byte) { return TheByteMap().chars[byte]; }
int CharToByte(char32_t c) { return c < 0x144 ? TheByteMap().bytes[c] : -1; }

std::string Normalize(const std::vector<NormalizerStep>& steps, std::string text) {
  for (const NormalizerStep& step : steps) {
    if (text.empty()) break;
    if (const auto* form = std::get_if<NormalForm>(&step)) {
      text = Normalize(text, *form);
    } else if (const auto* replace = std::get_if<ReplaceStep>(&step)) {
      text = ReplaceAll(*replace, text);
    } else if (const auto* prepend = std::get_if<PrependStep>(&step)) {
      text.insert(0, prepend->prefix);
    } else if (const auto* strip = std::get_if<StripStep>(&step)) {
      text = Strip(*strip, text);
    } else if (std::holds_alternative<StripAccentsStep>(step)) {
      text = Without(text, IsMark);
    } else if (std::holds_alternative<LowercaseStep>(step)) {
      text = EachChar(text, AppendLowercase);
    } else if (const auto* charsmap = std::get_if<Charsmap>(&step)) {
      text = charsmap->Apply(text);
    } else {
      text = ApplyBert(std::get<BertStep>(step), std::move(text));
    }
  }
  return text;
}

Words CutWords(const std::vector<WordStep>& steps, std::string text, bool at_start) {
  Words words;
  words.text = std::move(text);
  if (words.text.empty()) return words;
  words.spans.emplace_back(0, words.text.size());
  for (const WordStep& step : steps) {
    std::visit([&](const auto& one) { Apply(one, at_start, &words); }, step);
  }
  return words;
}

}  // namespace ropewalk::internal
