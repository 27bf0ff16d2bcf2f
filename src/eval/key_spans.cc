#include "src/eval/key_spans.h"

#include <algorithm>
#include <string>

#include "ropewalk/base/error.h"
#include "ropewalk/base/hash.h"

namespace ropewalk {
namespace internal {
namespace {

// Whether a character goes on at byte `i`. None has more than three such bytes.
bool GoesOn(std::string_view text, int64_t i) {
  return i > 0 && i < static_cast<int64_t>(text.size()) &&
         (static_cast<unsigned char>(text[static_cast<size_t>(i)]) & 0xc0) == 0x80;
}

}  // namespace

std::vector<ByteSpan> TokenSpans(std::string_view text, const TokenText& tokens) {
  if (tokens.token_bytes.size() != tokens.ids.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                "key tokens need a text: of given ids it is not known which bytes each stands for");
  }
  std::vector<ByteSpan> spans;
  spans.reserve(tokens.ids.size());
  int64_t at = 0;
  for (const int32_t bytes : tokens.token_bytes) {
    spans.push_back({at, at + bytes});
    at += bytes;
  }
  if (at != static_cast<int64_t>(text.size())) {
    throw Error(ErrorCode::kMismatch, "key tokens: the text has " + std::to_string(text.size()) +
                                          " bytes, its tokens have " + std::to_string(at) +
                                          ": they do not belong together");
  }
  return spans;
}

ByteSpan Widened(std::string_view text, ByteSpan span) {
  for (int i = 0; i < 3 && GoesOn(text, span.begin); ++i) --span.begin;
  for (int i = 0; i < 3 && GoesOn(text, span.end); ++i) ++span.end;
  return span;
}

std::vector<ByteSpan> Merged(std::span<const ByteSpan> spans) {
  std::vector<ByteSpan> merged;
  for (const ByteSpan& span : spans) {
    if (span.begin == span.end) continue;
    if (!merged.empty() && span.begin <= merged.back().end) {
      merged.back().end = std::max(merged.back().end, span.end);
    } else {
      merged.push_back(span);
    }
  }
  return merged;
}

}  // namespace internal

std::string KeySpans::Hash() const {
  Hasher hasher;
  const auto add = [&](const std::string& value) {
    hasher.UpdateValue(static_cast<uint64_t>(value.size()));
    hasher.Update(value);
  };
  for (const std::string& value :
       {std::string("ropewalk-key-tokens-1"), text_hash, evaluator.name, evaluator.model_hash,
        evaluator.tokenizer, evaluator.tokenizer_hash, settings.Name()}) {
    add(value);
  }
  for (const std::vector<ByteSpan>* list : {&spans, &covered}) {
    hasher.UpdateValue(static_cast<uint64_t>(list->size()));
    for (const ByteSpan& span : *list) hasher.UpdateValue(span);
  }
  return hasher.Hex();
}

std::vector<int64_t> KeyTokenIndices(std::string_view text, const TokenText& tokens,
                                     const KeySpans& keys) {
  if (keys.text_hash != HashHex(text)) {
    throw Error(ErrorCode::kMismatch,
                "the key tokens are those of another text (hash " + keys.text_hash + ")");
  }
  std::vector<int64_t> indices;
  const std::vector<ByteSpan> spans = internal::TokenSpans(text, tokens);
  size_t key = 0;
  for (size_t i = 0; i < spans.size(); ++i) {
    if (spans[i].begin == spans[i].end) continue;
    const ByteSpan token = internal::Widened(text, spans[i]);
    while (key < keys.spans.size() && keys.spans[key].end < token.end) ++key;
    if (key == keys.spans.size()) break;
    if (token.begin >= keys.spans[key].begin) indices.push_back(static_cast<int64_t>(i));
  }
  return indices;
}

std::vector<ByteSpan> ScoredSpans(const TokenText& tokens, std::span<const EvalWindow> windows,
                                  bool bos) {
  std::vector<int64_t> begin = {0};  // of each token, and the end of the last
  for (const int32_t bytes : tokens.token_bytes) begin.push_back(begin.back() + bytes);
  std::vector<ByteSpan> scored;
  for (const EvalWindow& window : windows) {
    const int64_t first = window.text_begin - (bos ? 1 : 0);  // where position 0 would stand
    const int64_t end = first + static_cast<int64_t>(window.ids.size());
    if (end >= static_cast<int64_t>(begin.size())) {
      throw Error(ErrorCode::kMismatch, "key tokens: a window ends behind the bytes of the text");
    }
    scored.push_back(
        {begin[static_cast<size_t>(first + window.score_begin)], begin[static_cast<size_t>(end)]});
  }
  std::sort(scored.begin(), scored.end(),
            [](const ByteSpan& a, const ByteSpan& b) { return a.begin < b.begin; });
  return internal::Merged(scored);
}

bool Covers(const KeySpans& keys, std::span<const ByteSpan> wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const ByteSpan& span) {
    return span.begin == span.end ||
           std::any_of(keys.covered.begin(), keys.covered.end(), [&](const ByteSpan& c) {
             return c.begin <= span.begin && span.end <= c.end;
           });
  });
}

}  // namespace ropewalk
