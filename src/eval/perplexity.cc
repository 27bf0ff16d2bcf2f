#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "src/eval/asked.h"
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

// What a window scores, and its last few queries for the entropy of attention. A window with
// questions is their shared prefix.
ScoreRequest RequestFor(const AskedWindow& asked, int64_t prefix, const RunOptions& options) {
  const EvalWindow& window = asked.window;
  const auto length = static_cast<int64_t>(window.ids.size());
  ScoreRequest request;
  (asked.questions.empty() ? request.ids : request.prefix) = window.ids;
  const int64_t first = options.by_position ? std::max<int64_t>(prefix, 1) : window.score_begin;
  request.positions.resize(static_cast<size_t>(length - first));
  std::iota(request.positions.begin(), request.positions.end(), first);
  if (!options.entropy) return request;
  for (int64_t i = kEntropyQueries - 1; i >= 0; --i) {
    const int64_t query = length - 2 - i * kEntropyApart;  // the last token predicts nothing
    if (query >= window.score_begin - 1 && query > 0) request.entropy_queries.push_back(query);
  }
  return request;
}

bool IsHidden(const AskedWindow& asked, int64_t position) {
  return std::any_of(asked.hidden.begin(), asked.hidden.end(), [&](const auto& range) {
    return range.first <= position && position < range.second;
  });
}

// `scores` of the positions of the request of window `w`; without answers and entropy.
WindowScore WindowScoreOf(int64_t w, const AskedWindow& asked, const ScoreRequest& request,
                          const std::vector<TokenScore>& scores, const TokenText& text, int64_t bos,
                          int64_t length, const RunOptions& options) {
  WindowScore score;
  if (options.by_position) {
    score.bucket_nats.assign(static_cast<size_t>(BucketsOf(length)), 0.0);
    score.bucket_tokens.assign(score.bucket_nats.size(), 0);
  }
  for (size_t i = 0; i < scores.size(); ++i) {
    const int64_t position = request.positions[i];
    const float nll = -scores[i].log_prob;
    if (options.by_position && !IsHidden(asked, position)) {
      score.bucket_nats[BucketOf(position, length)] += nll;
      ++score.bucket_tokens[BucketOf(position, length)];
    }
    if (position < asked.window.score_begin) continue;
    score.nats += nll;
    ++score.tokens;
    const int64_t index = asked.window.text_begin + position - bos;
    if (std::binary_search(options.key_tokens.begin(), options.key_tokens.end(), index)) {
      score.key_answers.push_back(
          {.prompt = static_cast<int32_t>(w),
           .question = static_cast<int32_t>(score.key_answers.size()),
           .nll = nll,
           .tokens = 1,
           .exact = scores[i].top == asked.window.ids[static_cast<size_t>(position)]});
    }
    if (!text.token_bytes.empty()) score.bytes += text.token_bytes[static_cast<size_t>(index)];
  }
  return score;
}

// The requests of windows and questions, and what they view.
struct WindowRequests {
  std::vector<ScoreRequest> requests;  // of each window, then of its questions
  std::vector<Asked> asked;            // of all questions, in this order
  int64_t tokens = 0;                  // shared prefixes as often as they are asked behind
};

WindowRequests RequestsOf(std::span<const AskedWindow> windows, int64_t prefix,
                          const RunOptions& options) {
  WindowRequests out;
  size_t questions = 0;
  for (const AskedWindow& window : windows) questions += window.questions.size();
  out.asked.reserve(questions);
  out.requests.reserve(windows.size() + questions);
  for (const AskedWindow& window : windows) {
    const auto ids = static_cast<int64_t>(window.window.ids.size());
    out.requests.push_back(RequestFor(window, prefix, options));
    out.tokens += ids - 1;
    for (const TaskQuestion& question : window.questions) {
      const Asked& asked = out.asked.emplace_back(Ask(window.window.ids, question));
      out.requests.push_back(RequestOf(asked));
      out.tokens += ids + static_cast<int64_t>(asked.ids.size());
    }
  }
  return out;
}

}  // namespace

std::vector<AskedWindow> Unasked(std::vector<EvalWindow> windows) {
  std::vector<AskedWindow> out;
  out.reserve(windows.size());
  for (EvalWindow& window : windows) out.push_back({.window = std::move(window)});
  return out;
}

std::vector<WindowScore> ScoreWindows(const ScoringEngine& engine, const PositionPlan& plan,
                                      const TokenText& text, const Protocol& protocol,
                                      std::span<const AskedWindow> windows, int64_t begin,
                                      int64_t end, int64_t length, const RunOptions& options,
                                      std::vector<ScoredToken>* tokens) {
  const std::span<const AskedWindow> chosen =
      windows.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  const WindowRequests asking = RequestsOf(chosen, protocol.prefix, options);
  int64_t done_tokens = 0;
  const auto tick = [&](int64_t count) {
    done_tokens += count;
    if (options.progress && !options.progress(std::min(done_tokens, asking.tokens), asking.tokens))
      throw Interrupted();
  };
  tick(0);
  const Scores scores =
      engine.Score({.plan = &plan,
                    .final_length = length,
                    .angles = options.angles,
                    .kv = options.kv,
                    .reuse = asking.asked.empty() ? PrefixReuse::kSameBits : PrefixReuse::kWhole,
                    .tick = tick},
                   asking.requests);
  std::vector<WindowScore> out;
  size_t next = 0, question = 0;  // request, and question
  for (int64_t w = begin; w < end; ++w) {
    const AskedWindow& window = windows[static_cast<size_t>(w)];
    const ScoreRequest& request = asking.requests[next];
    const MeanEntropy entropy = scores.entropy.empty() ? MeanEntropy() : scores.entropy[next];
    const std::vector<TokenScore>& here = scores.tokens[next++];
    WindowScore& score = out.emplace_back(
        WindowScoreOf(w, window, request, here, text, protocol.bos ? 1 : 0, length, options));
    score.entropy = entropy.nats;
    score.entropy_share = entropy.share;
    for (size_t q = 0; q < window.questions.size(); ++q) {
      score.answers.push_back(
          AnswerOf(asking.asked[question++], scores.tokens[next++], w, static_cast<int64_t>(q)));
    }
    if (tokens == nullptr) continue;
    for (size_t i = 0; i < here.size(); ++i) {
      const int64_t position = request.positions[i];
      if (position < window.window.score_begin) continue;
      tokens->push_back({static_cast<int32_t>(w), static_cast<int32_t>(position),
                         window.window.ids[static_cast<size_t>(position)], -here[i].log_prob});
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
  const std::vector<AskedWindow> windows =
      internal::Unasked(MakeWindows(text, protocol, length, longest_length, options.bos_id));
  std::vector<ScoredToken> tokens;
  const std::vector<internal::WindowScore> scores =
      internal::ScoreWindows(engine, plan, text, protocol, windows, 0,
                             static_cast<int64_t>(windows.size()), length, options, &tokens);
  PerplexityResult result = internal::Summarise(scores, length);
  result.tokens = std::move(tokens);
  return result;
}

}  // namespace ropewalk
