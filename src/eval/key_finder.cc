// Key tokens of a sweep: by whom they are found, what that costs, and which of them are scored.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "ropewalk/base/error.h"
#include "ropewalk/eval/key_tokens.h"
#include "src/eval/work_meter.h"

namespace ropewalk {
namespace {

KeyTokens Find(const KeyTokenFinder& finder, const ScoringEngine& engine, std::string_view text,
               std::span<const ByteSpan> wanted, RunOptions options) {
  if (finder.trained_length == 0) {
    throw Error(ErrorCode::kUnsupported,
                finder.name + ": the trained length of the evaluator of key tokens is unknown");
  }
  const Tokenizer& tokenizer = *finder.tokenizer;
  KeyTokenSettings settings = KeyTokenSettings::For(finder.trained_length, finder.short_context);
  settings.bos = tokenizer.adds_bos();
  options.bos_id = tokenizer.bos_id();
  return FindKeyTokens(
      engine, finder.plan, text, TokenizeText(tokenizer, text, finder.encoding), settings,
      {finder.name, finder.model_hash, tokenizer.kind(), tokenizer.hash()}, wanted, options);
}

}  // namespace

KeyTokens FindKeyTokens(const KeyTokenFinder& finder, std::string_view text,
                        std::span<const ByteSpan> wanted, const RunOptions& options) {
  return Find(finder, *finder.engine, text, wanted, options);
}

CellCost CostOfKeyTokens(const KeyTokenFinder& finder, std::string_view text,
                         std::span<const ByteSpan> wanted, const RunOptions& options) {
  const internal::WorkMeter meter(*finder.engine);
  RunOptions quiet = options;
  quiet.progress = {};
  Find(finder, meter, text, wanted, quiet);
  return meter.Take();
}

KeyTokenTask KeyTokenTaskOf(const KeySpans& keys, std::string_view text, const TokenText& tokens,
                            std::span<const EvalWindow> windows, bool bos) {
  KeyTokenTask task{.protocol = fmt::format("{}, by {} {}", keys.settings.Name(),
                                            keys.evaluator.name, keys.evaluator.model_hash),
                    .data_hash = keys.Hash()};
  const std::vector<int64_t> all = KeyTokenIndices(text, tokens, keys);
  for (const EvalWindow& window : windows) {
    const auto end = window.text_begin + static_cast<int64_t>(window.ids.size()) - (bos ? 1 : 0);
    const auto scored = static_cast<int64_t>(window.ids.size()) - window.score_begin;
    std::copy_if(all.begin(), all.end(), std::back_inserter(task.tokens),
                 [&](int64_t token) { return token >= end - scored && token < end; });
  }
  std::sort(task.tokens.begin(), task.tokens.end());
  return task;
}

}  // namespace ropewalk
