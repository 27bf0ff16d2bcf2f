#include "src/eval/ruler/haystack.h"

#include <algorithm>
#include <array>

#include "ropewalk/base/error.h"
#include "src/io/json.h"

namespace ropewalk::internal {
namespace {

[[noreturn]] void Refuse(const std::string& name, const std::string& what) {
  throw Error(ErrorCode::kInvalidFile, name + ": " + what);
}

// Bytes of the white space at `at` as Python's \s has it; 0: none.
size_t SpaceBytes(std::string_view text, size_t at) {
  const auto c = static_cast<unsigned char>(text[at]);
  if ((c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20)) return 1;
  if (c < 0x80) return 0;
  static constexpr std::array<std::string_view, 19> kSpaces = {
      "\u0085", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003",
      "\u2004", "\u2005", "\u2006", "\u2007", "\u2008", "\u2009", "\u200a",
      "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"};
  for (const std::string_view space : kSpaces) {
    if (text.substr(at).starts_with(space)) return space.size();
  }
  return 0;
}

std::string WithSingleSpaces(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t space = SpaceBytes(text, at);
    if (space == 0) {
      out += text[at++];
    } else {
      if (!out.ends_with(' ')) out += ' ';
      at += space;
    }
  }
  return out;
}

bool IsAbbreviation(std::string_view word) {
  static constexpr std::array<std::string_view, 10> kTitles = {
      "Mr.", "Mrs.", "Ms.", "Dr.", "St.", "Prof.", "Jr.", "Sr.", "vs.", "etc."};
  const bool initial = word.size() == 2 && word[0] >= 'A' && word[0] <= 'Z' && word[0] != 'I';
  return initial || std::ranges::find(kTitles, word) != kTitles.end();
}

bool EndsSentence(std::string_view word, std::string_view next) {
  while (word.ends_with('"') || word.ends_with('\'') || word.ends_with(')') ||
         word.ends_with(']')) {
    word.remove_suffix(1);
  }
  if (word.ends_with('!') || word.ends_with('?')) return true;
  if (!word.ends_with('.') || IsAbbreviation(word)) return false;
  return next.empty() || next[0] < 'a' || next[0] > 'z';
}

}  // namespace

Haystack::Haystack(std::string_view text, const std::vector<std::string>& sentences,
                   const std::string& name)
    : text_(WithSingleSpaces(text)) {
  if (text_.find_first_not_of(' ') == std::string::npos) Refuse(name, "a haystack without words");
  FindWords();
  if (sentences.empty()) {
    FindSentences();
  } else {
    TakeSentences(sentences, name);
  }
}

// A space at either end has an empty word beside it, as split(" ") gives.
void Haystack::FindWords() {
  for (size_t at = text_.find(' '); at != std::string::npos; at = text_.find(' ', at + 1)) {
    word_ends_.push_back(at);
  }
  word_ends_.push_back(text_.size());
}

void Haystack::FindSentences() {
  const std::string_view text = text_;
  size_t sentence = 0, word = 0;
  for (size_t i = 0; i < word_ends_.size(); ++i) {
    const size_t end = word_ends_[i];
    const bool last = i + 1 == word_ends_.size();
    const size_t next = last ? end : end + 1;
    if (last ||
        EndsSentence(text.substr(word, end - word), text.substr(next, word_ends_[i + 1] - next))) {
      if (end > sentence) sentences_.push_back({sentence, end});
      sentence = next;
    }
    word = next;
  }
}

void Haystack::TakeSentences(const std::vector<std::string>& sentences, const std::string& name) {
  size_t at = 0;
  for (const std::string& sentence : sentences) {
    while (at < text_.size() && text_[at] == ' ') ++at;
    if (sentence.empty() || !std::string_view(text_).substr(at).starts_with(sentence)) {
      Refuse(name, "\"sentences\": number " + std::to_string(sentences_.size()) +
                       " is not what stands in \"text\" there");
    }
    sentences_.push_back({at, at + sentence.size()});
    at += sentence.size();
  }
  if (text_.find_first_not_of(' ', at) != std::string::npos) {
    Refuse(name, "\"sentences\" end before \"text\" does");
  }
}

void Haystack::Repeat(int64_t times) {
  const std::string text = text_;
  const std::vector<size_t> word_ends = word_ends_;
  const std::vector<Span> sentences = sentences_;
  for (int64_t i = 1; i < times; ++i) {
    text_ += ' ';
    const size_t from = text_.size();
    text_ += text;
    for (const size_t end : word_ends) word_ends_.push_back(from + end);
    for (const Span& span : sentences) sentences_.push_back({from + span.begin, from + span.end});
  }
}

std::vector<std::string_view> Haystack::Sentences(int64_t words) {
  const auto known = static_cast<int64_t>(word_ends_.size());
  if (words > known) Repeat((words + known - 1) / known);
  const size_t end = word_ends_[static_cast<size_t>(words - 1)];
  const std::string_view text = text_;
  std::vector<std::string_view> sentences;
  for (const Span& span : sentences_) {
    if (span.begin >= end) break;
    std::string_view sentence = text.substr(span.begin, std::min(span.end, end) - span.begin);
    while (sentence.starts_with(' ')) sentence.remove_prefix(1);
    while (sentence.ends_with(' ')) sentence.remove_suffix(1);
    if (!sentence.empty()) sentences.push_back(sentence);
  }
  return sentences;
}

std::string Haystack::Beginning(int64_t words, size_t bytes) const {
  std::string text;
  for (auto left = static_cast<size_t>(words); left > 0 && text.size() <= bytes;) {
    const size_t here = std::min(left, word_ends_.size());
    if (!text.empty()) text += ' ';
    text += std::string_view(text_).substr(0, std::min(word_ends_[here - 1], bytes + 1));
    left -= here;
  }
  if (text.size() <= bytes) return text;
  const auto continues = [&](size_t at) {  // a character of UTF-8
    return (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80;
  };
  while (bytes > 0 && continues(bytes)) --bytes;
  text.resize(bytes);
  return text;
}

Haystack ReadHaystack(const RulerFile& file) {
  const size_t first = file.content.find_first_not_of(" \t\r\n");
  if (first == std::string::npos || file.content[first] != '{') {
    return Haystack(file.content, {}, file.name);
  }
  const nlohmann::json json = ParseJson(file.content, file.name);
  if (!json.contains("text") || !json["text"].is_string()) {
    Refuse(file.name, "expected {\"text\": \"...\"} or a plain text");
  }
  std::vector<std::string> sentences;
  if (json.contains("sentences")) {
    if (!json["sentences"].is_array()) Refuse(file.name, "\"sentences\": expected an array");
    for (const auto& sentence : json["sentences"]) {
      if (!sentence.is_string()) Refuse(file.name, "\"sentences\": expected strings");
      sentences.push_back(sentence.get<std::string>());
    }
    if (sentences.empty()) Refuse(file.name, "\"sentences\": the array is empty");
  }
  return Haystack(json["text"].get_ref<const std::string&>(), sentences, file.name);
}

}  // namespace ropewalk::internal
