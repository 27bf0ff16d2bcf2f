#include "src/eval/asker.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "src/base/parallel.h"
#include "src/eval/finite.h"
#include "src/model/elementwise.h"

namespace ropewalk::internal {
namespace {

TokenScore ScoreRow(const float* logits, int64_t vocab, int32_t id) {
  const int64_t best = Largest(logits, vocab);
  const float top = logits[best];
  const double nll = std::log(SumExp(logits, vocab, top)) + (double{top} - logits[id]);
  return {-static_cast<float>(nll), static_cast<int32_t>(best)};
}

std::vector<int32_t> Joined(const ScoreRequest& request) {
  std::vector<int32_t> ids(request.prefix.begin(), request.prefix.end());
  ids.insert(ids.end(), request.ids.begin(), request.ids.end());
  return ids;
}

}  // namespace

StateScorer::StateScorer(const Decoder& decoder)
    : decoder_(decoder),
      vocab_(decoder.config().vocab),
      rows_at_once_(std::clamp<int64_t>(kLogitsChunk / vocab_, 1, Decoder::kChunkTokens)),
      logits_(static_cast<size_t>(rows_at_once_ * vocab_)) {}

void StateScorer::Score(const ScoreRequest& request, const std::vector<int32_t>& ids, int64_t first,
                        float* states, int64_t rows, std::vector<TokenScore>& scores) {
  const int64_t hidden = decoder_.config().hidden;
  const size_t begin = scores.size();
  int64_t wanted = 0;
  for (size_t i = begin; i < request.positions.size(); ++i, ++wanted) {
    const int64_t row = request.positions[i] - 1 - first;
    if (row >= rows) break;
    if (row > wanted) std::copy_n(states + row * hidden, hidden, states + wanted * hidden);
  }
  scores.resize(begin + static_cast<size_t>(wanted));
  for (int64_t done = 0; done < wanted; done += rows_at_once_) {
    const int64_t n = std::min(rows_at_once_, wanted - done);
    const int64_t* positions = request.positions.data() + begin + done;
    TokenScore* out = scores.data() + begin + done;
    decoder_.Logits(states + done * hidden, n, logits_.data());
    const int threads = ThreadsFor(n * vocab_ / 4);  // 0.25 ns an exponential
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < n; ++i) {
      out[i] = ScoreRow(logits_.data() + i * vocab_, vocab_, ids[positions[i]]);
    }
    for (int64_t i = 0; i < n; ++i) CheckFinite(out[i].log_prob, positions[i]);
  }
}

int32_t StateScorer::MostProbable(const float* state) {
  decoder_.Logits(state, 1, logits_.data());
  return static_cast<int32_t>(Largest(logits_.data(), vocab_));
}

Answer Asker::Ask(const ScoreRequest& request) {
  Answer answer;
  const FeedExtent extent = ExtentOf(request);
  if (extent.needed == 0) return answer;
  std::optional<EntropyMeter> entropy;
  if (const auto& queries = request.entropy_queries; !queries.empty()) {
    entropy.emplace(feeder_.sequence(), queries);
  }
  const std::vector<int32_t> ids = Joined(request);
  std::vector<float> last(static_cast<size_t>(hidden_));
  feeder_.Feed(ids, static_cast<int64_t>(request.prefix.size()), extent,
               [&](int64_t first, float* states, int64_t rows) {
                 std::copy_n(states + (rows - 1) * hidden_, hidden_, last.begin());
                 head_.Score(request, ids, first, states, rows, answer.tokens);
               });
  if (entropy) answer.entropy = entropy->sums();
  entropy.reset();
  if (request.continue_tokens > 0) answer.continuation = Continue(request, last.data());
  return answer;
}

Continuation Asker::Continue(const ScoreRequest& request, const float* state) {
  Continuation made;
  for (;;) {
    const int32_t id = head_.MostProbable(state);
    made.stopped = std::find(request.stop.begin(), request.stop.end(), id) != request.stop.end();
    if (made.stopped) return made;
    made.ids.push_back(id);
    if (static_cast<int64_t>(made.ids.size()) == request.continue_tokens) return made;
    state = feeder_.Next(id);
  }
}

Scores ScoresOf(std::vector<Answer> answers, std::span<const int64_t> fed,
                std::span<const ScoreRequest> requests) {
  Scores scores;
  scores.fed_tokens = std::accumulate(fed.begin(), fed.end(), int64_t{0});
  for (Answer& answer : answers) {
    scores.tokens.push_back(std::move(answer.tokens));
    scores.continuations.push_back(std::move(answer.continuation));
    scores.entropy.push_back({.nats = answer.entropy.Nats(), .share = answer.entropy.Share()});
  }
  const bool continued = std::any_of(requests.begin(), requests.end(), [](const auto& request) {
    return request.continue_tokens > 0;
  });
  if (!continued) scores.continuations.clear();
  return scores;
}

}  // namespace ropewalk::internal
