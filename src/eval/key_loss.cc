// The loss of key tokens.
#include <algorithm>
#include <cmath>

#include "ropewalk/base/error.h"
#include "ropewalk/eval/key_tokens.h"

namespace ropewalk {
namespace {

// As that of perplexity (perplexity.cc): the linearised variance of a ratio of two sums, over the
// windows that have key tokens.
double StandardError(const KeyTokenResult& result) {
  double square = 0, windows = 0;
  for (size_t w = 0; w < result.window_keys.size(); ++w) {
    if (result.window_keys[w] == 0) continue;
    const double off =
        (result.window_nll[w] - result.mean_nll) * static_cast<double>(result.window_keys[w]);
    square += off * off;
    windows += 1;
  }
  if (windows < 2) return std::numeric_limits<double>::quiet_NaN();
  return std::sqrt(square * windows / (windows - 1)) / static_cast<double>(result.key_tokens);
}

}  // namespace

KeyTokenResult ScoreKeyTokens(const PerplexityResult& scored, std::span<const EvalWindow> windows,
                              bool bos, std::span<const int64_t> key) {
  if (scored.windows != static_cast<int64_t>(windows.size())) {
    throw Error(ErrorCode::kMismatch, "key tokens: " + std::to_string(scored.windows) +
                                          " windows were measured, " +
                                          std::to_string(windows.size()) + " are given");
  }
  KeyTokenResult result;
  result.scored_tokens = static_cast<int64_t>(scored.tokens.size());
  result.window_keys.assign(windows.size(), 0);
  std::vector<double> sums(windows.size(), 0.0);
  double nats = 0;
  for (const ScoredToken& token : scored.tokens) {
    const auto w = static_cast<size_t>(token.window);
    const auto p = static_cast<size_t>(token.position);
    if (w >= windows.size() || p >= windows[w].ids.size() || windows[w].ids[p] != token.id) {
      throw Error(ErrorCode::kMismatch, "key tokens: the windows are not those that were measured");
    }
    const int64_t index = windows[w].text_begin + token.position - (bos ? 1 : 0);
    if (!std::binary_search(key.begin(), key.end(), index)) continue;
    ++result.window_keys[w];
    ++result.key_tokens;
    sums[w] += token.nll;
    nats += token.nll;
  }
  for (size_t w = 0; w < sums.size(); ++w) {
    result.window_nll.push_back(sums[w] /
                                static_cast<double>(result.window_keys[w]));  // 0 / 0: NaN
  }
  if (result.key_tokens == 0) return result;
  result.mean_nll = nats / static_cast<double>(result.key_tokens);
  result.longppl = std::exp(result.mean_nll);
  result.standard_error = StandardError(result);
  return result;
}

}  // namespace ropewalk
