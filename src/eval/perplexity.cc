#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ropewalk/eval/eval.h"

namespace ropewalk {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kBuckets = 32;
constexpr int64_t kEntropyQueries = 4, kEntropyApart = 16;  // tokens

// Mean and its standard error with windows as clusters: tokens of one window share a context and
// are not independent. The linearised variance of a ratio of two sums over n windows, window w
// having S_w nats in m_w tokens: n / (n - 1) * sum (S_w - mean m_w)^2 / (sum m_w)^2.
void Summarise(PerplexityResult& result) {
  double nats = 0;
  std::vector<double> sums(static_cast<size_t>(result.windows), 0.0), counts(sums);
  for (const ScoredToken& token : result.tokens) {
    sums[token.window] += token.nll;
    counts[token.window] += 1;
  }
  for (const double sum : sums) nats += sum;
  const double tokens = static_cast<double>(result.tokens.size());
  result.mean_nll = nats / tokens;
  result.perplexity = std::exp(result.mean_nll);
  double square = 0;
  for (size_t w = 0; w < sums.size(); ++w) {
    const double off = sums[w] - result.mean_nll * counts[w];
    square += off * off;
    result.window_nll.push_back(sums[w] / counts[w]);
  }
  const double n = static_cast<double>(sums.size());
  result.standard_error = n < 2 ? kNaN : std::sqrt(square * n / (n - 1)) / tokens;
}

class Buckets {
 public:
  explicit Buckets(int64_t length) : length_(length), count_(std::min(kBuckets, length)) {
    sums_.assign(static_cast<size_t>(count_), 0.0);
    counts_.assign(static_cast<size_t>(count_), 0);
  }
  void Add(int64_t position, float nll) {
    // The bucket with edge(i) <= position < edge(i + 1), edge(i) = ceil(i length / count).
    const size_t i = static_cast<size_t>(position * count_ / length_);
    sums_[i] += nll;
    ++counts_[i];
  }
  void Write(PerplexityResult& result) const {
    for (int64_t i = 0; i <= count_; ++i) {
      result.bucket_edges.push_back((i * length_ + count_ - 1) / count_);
    }
    for (size_t i = 0; i < sums_.size(); ++i) {
      result.bucket_nll.push_back(counts_[i] == 0 ? kNaN : sums_[i] / counts_[i]);
    }
  }

 private:
  int64_t length_, count_;
  std::vector<double> sums_;
  std::vector<int64_t> counts_;
};

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

PerplexityResult MeasurePerplexity(const ScoringEngine& engine, const PositionPlan& plan,
                                   const TokenText& text, const Protocol& protocol, int64_t length,
                                   int64_t longest_length, const RunOptions& options) {
  const std::vector<EvalWindow> windows =
      MakeWindows(text, protocol, length, longest_length, options.bos_id);
  int64_t all_tokens = 0;
  for (const EvalWindow& w : windows) all_tokens += static_cast<int64_t>(w.ids.size()) - 1;
  int64_t done_tokens = 0;
  const auto tick = [&](int64_t tokens) {
    done_tokens += tokens;
    if (options.progress && !options.progress(done_tokens, all_tokens)) throw Interrupted();
  };
  tick(0);
  std::vector<ScoreRequest> requests;
  requests.reserve(windows.size());
  for (const EvalWindow& window : windows) requests.push_back(RequestFor(window, options));
  const Scores scores = engine.Score(
      {.plan = &plan, .final_length = length, .angles = options.angles, .tick = tick}, requests);

  PerplexityResult result;
  result.windows = static_cast<int64_t>(windows.size());
  Buckets buckets(length);
  double scored_bytes = 0;
  const int64_t bos = protocol.bos ? 1 : 0;
  for (size_t w = 0; w < windows.size(); ++w) {
    const EvalWindow& window = windows[w];
    for (size_t i = 0; i < requests[w].positions.size(); ++i) {
      const int64_t position = requests[w].positions[i];
      const float nll = -scores.tokens[w][i].log_prob;
      if (options.by_position) buckets.Add(position, nll);
      if (position < window.score_begin) continue;
      result.tokens.push_back({static_cast<int32_t>(w), static_cast<int32_t>(position),
                               window.ids[static_cast<size_t>(position)], nll});
      if (!text.token_bytes.empty()) {
        scored_bytes += text.token_bytes[window.text_begin + position - bos];
      }
    }
  }
  Summarise(result);
  const double nats = result.mean_nll * static_cast<double>(result.tokens.size());
  result.bits_per_byte = scored_bytes > 0 ? nats / std::log(2.0) / scored_bytes : kNaN;
  if (options.by_position) buckets.Write(result);
  result.entropy = scores.entropy;
  result.entropy_share = scores.entropy_share;
  return result;
}

}  // namespace ropewalk
