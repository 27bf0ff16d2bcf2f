#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/eval/statistics.h"
#include "src/eval/window_score.h"

namespace ropewalk {
namespace internal {
namespace {

constexpr int64_t kBuckets = 32;
constexpr int64_t kEntropyQueries = 4, kEntropyApart = 16;  // tokens

int64_t BucketsOf(int64_t length) { return std::min(kBuckets, length); }

// The bucket with edge(i) <= position < edge(i + 1), edge(i) = ceil(i length / count).
size_t BucketOf(int64_t position, int64_t length) {
  return static_cast<size_t>(position * BucketsOf(length) / length);
}

// Windows are the clusters: tokens of one window share a context and are not independent.
void AddMean(std::span<const WindowScore> windows, PerplexityResult& result) {
  std::vector<double> sums, counts;
  for (const WindowScore& window : windows) {
    sums.push_back(window.nats);
    counts.push_back(static_cast<double>(window.tokens));
    result.window_nll.push_back(sums.back() / counts.back());
  }
  const ClusteredMean mean = MeanOfClusters(sums, counts);
  result.mean_nll = mean.mean;
  result.standard_error = mean.standard_error;
  result.perplexity = std::exp(result.mean_nll);
}

void AddBuckets(std::span<const WindowScore> windows, int64_t length, PerplexityResult& result) {
  if (windows.empty() || windows[0].bucket_nats.empty()) return;
  const int64_t count = BucketsOf(length);
  for (int64_t i = 0; i <= count; ++i) {
    result.bucket_edges.push_back((i * length + count - 1) / count);
  }
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    double nats = 0;
    int64_t tokens = 0;
    for (const WindowScore& window : windows) {
      nats += window.bucket_nats[i];
      tokens += window.bucket_tokens[i];
    }
    result.bucket_nll.push_back(tokens == 0 ? kNaN : nats / static_cast<double>(tokens));
  }
}

// What a window scores, and its last few queries for the entropy of attention.
ScoreRequest RequestFor(const EvalWindow& window, const RunOptions& options) {
  const auto length = static_cast<int64_t>(window.ids.size());
  ScoreRequest request{.ids = window.ids};
  const int64_t first = options.by_position ? 1 : window.score_begin;
  request.positions.resize(static_cast<size_t>(length - first));
  std::iota(request.positions.begin(), request.positions.end(), first);
  if (!options.entropy) return request;
  for (int64_t i = kEntropyQueries - 1; i >= 0; --i) {
    const int64_t query = length - 2 - i * kEntropyApart;  // the last token predicts nothing
    if (query >= window.score_begin - 1 && query > 0) request.entropy_queries.push_back(query);
  }
  return request;
}

}  // namespace

std::vector<WindowScore> ScoreWindows(const ScoringEngine& engine, const PositionPlan& plan,
                                      const TokenText& text, const Protocol& protocol,
                                      std::span<const EvalWindow> windows, int64_t begin,
                                      int64_t end, int64_t length, const RunOptions& options,
                                      std::vector<ScoredToken>* tokens) {
  const std::span<const EvalWindow> chosen =
      windows.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  int64_t all_tokens = 0;
  for (const EvalWindow& w : chosen) all_tokens += static_cast<int64_t>(w.ids.size()) - 1;
  int64_t done_tokens = 0;
  const auto tick = [&](int64_t count) {
    done_tokens += count;
    if (options.progress && !options.progress(done_tokens, all_tokens)) throw Interrupted();
  };
  tick(0);
  std::vector<ScoreRequest> requests;
  requests.reserve(chosen.size());
  for (const EvalWindow& window : chosen) requests.push_back(RequestFor(window, options));
  const Scores scores = engine.Score(
      {.plan = &plan, .final_length = length, .angles = options.angles, .tick = tick}, requests);

  std::vector<WindowScore> out(chosen.size());
  const int64_t bos = protocol.bos ? 1 : 0;
  for (size_t w = 0; w < chosen.size(); ++w) {
    const EvalWindow& window = chosen[w];
    WindowScore& score = out[w];
    score.entropy = scores.entropy;
    score.entropy_share = scores.entropy_share;
    if (options.by_position) {
      score.bucket_nats.assign(static_cast<size_t>(BucketsOf(length)), 0.0);
      score.bucket_tokens.assign(score.bucket_nats.size(), 0);
    }
    for (size_t i = 0; i < requests[w].positions.size(); ++i) {
      const int64_t position = requests[w].positions[i];
      const float nll = -scores.tokens[w][i].log_prob;
      if (options.by_position) {
        score.bucket_nats[BucketOf(position, length)] += nll;
        ++score.bucket_tokens[BucketOf(position, length)];
      }
      if (position < window.score_begin) continue;
      score.nats += nll;
      ++score.tokens;
      if (!text.token_bytes.empty()) {
        score.bytes += text.token_bytes[window.text_begin + position - bos];
      }
      if (tokens == nullptr) continue;
      tokens->push_back({static_cast<int32_t>(begin) + static_cast<int32_t>(w),
                         static_cast<int32_t>(position), window.ids[static_cast<size_t>(position)],
                         nll});
    }
  }
  return out;
}

PerplexityResult Summarise(std::span<const WindowScore> windows, int64_t length) {
  PerplexityResult result;
  result.windows = static_cast<int64_t>(windows.size());
  AddMean(windows, result);
  AddBuckets(windows, length, result);
  double nats = 0, bytes = 0, entropy = 0, share = 0;
  for (const WindowScore& window : windows) {
    nats += window.nats;
    bytes += window.bytes;
    entropy += window.entropy;
    share += window.entropy_share;
  }
  result.bits_per_byte = bytes > 0 ? nats / std::log(2.0) / bytes : kNaN;
  result.entropy = entropy / static_cast<double>(windows.size());
  result.entropy_share = share / static_cast<double>(windows.size());
  return result;
}

}  // namespace internal

PerplexityResult MeasurePerplexity(const ScoringEngine& engine, const PositionPlan& plan,
                                   const TokenText& text, const Protocol& protocol, int64_t length,
                                   int64_t longest_length, const RunOptions& options) {
  const std::vector<EvalWindow> windows =
      MakeWindows(text, protocol, length, longest_length, options.bos_id);
  std::vector<ScoredToken> tokens;
  const std::vector<internal::WindowScore> scores =
      internal::ScoreWindows(engine, plan, text, protocol, windows, 0,
                             static_cast<int64_t>(windows.size()), length, options, &tokens);
  PerplexityResult result = internal::Summarise(scores, length);
  result.tokens = std::move(tokens);
  return result;
}

}  // namespace ropewalk
