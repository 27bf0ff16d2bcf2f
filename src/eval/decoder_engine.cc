#include "ropewalk/eval/decoder_engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "ropewalk/base/buffer.h"
#include "ropewalk/base/threads.h"
#include "src/base/parallel.h"
#include "src/eval/deal.h"
#include "src/eval/entropy.h"
#include "src/eval/finite.h"
#include "src/eval/lanes.h"
#include "src/eval/sequence_feeder.h"

namespace ropewalk {
namespace {

// 32 MiB of logits: 170 rows of a 49152-token vocabulary, enough for the GEMM to run at full rate.
constexpr int64_t kLogitsChunk = int64_t{8} << 20;

// Of the feed-forward part of a layer, what a token passes.
int64_t Width(const ModelConfig& c) {
  const ExpertsSpec& e = c.experts;
  const int64_t with = std::count(e.layers.begin(), e.layers.end(), true);
  const int64_t width = e.chosen * e.feed_forward + e.shared_feed_forward;
  return (with * width + (c.layers - with) * c.feed_forward) / std::max<int64_t>(1, c.layers);
}

// Of the linear parts of one layer, those that a token passes.
int64_t LayerWeights(const ModelConfig& c) {
  const int64_t heads = (c.heads + c.kv_heads) * (c.head_dim + c.value_dim());  // q, k, v and out
  return c.hidden * (heads + (c.layer.mlp.gated ? 3 : 2) * Width(c));
}

constexpr int64_t kProducts = 4;  // of a layer: q, k and v; out; up; down
bool IsSmall(const ModelConfig& c) {
  return LayerWeights(c) < kProducts * DecoderEngine::kLaneWeights;
}

// As many as there would be threads for work of any size: one inside a parallel region.
int MostLanes(const ModelConfig& c) {
  return IsSmall(c) ? internal::ThreadsFor(std::numeric_limits<int64_t>::max()) : 1;
}

// Of so many numbers of a KV cache; q8_0 has 34 bytes for 32 of them.
int64_t KvBytes(KvType kv, int64_t numbers) {
  if (kv == KvType::kQ8_0) return (numbers * 34 + 31) / 32;
  return numbers * (kv == KvType::kBf16 ? 2 : 4);
}

// Keys and values of every layer; in float32 one table of cos and sin, five more where there is a
// distance map (two for attention, up to three for its entropy).
int64_t CacheBytes(const ModelConfig& c, const PositionPlan& plan, int64_t length, KvType kv) {
  const bool maps = std::any_of(plan.layers.begin(), plan.layers.end(),
                                [](const LayerPlan& layer) { return layer.map.has_value(); });
  const int64_t tables = maps ? 3 : 1;  // of cos and sin: keys have up to two under a map
  return KvBytes(kv, length * c.layers * c.kv_heads * (c.head_dim + c.value_dim())) +
         length * tables * c.head_dim * 4;
}

// What a chunk needs: logits, states, activations; as much again for attention and oneDNN.
int64_t ScratchBytes(const ModelConfig& c) {
  const int64_t width = std::max({c.feed_forward, c.experts.feed_forward, Width(c)});
  const int64_t heads = (c.heads + c.kv_heads) * (c.head_dim + c.value_dim());
  const int64_t row = 5 * c.hidden + heads + 3 * width;
  return 4 * (std::max(kLogitsChunk, c.vocab) + 2 * Decoder::kChunkTokens * row);
}

int32_t Top(const float* logits, int64_t vocab) {
  return static_cast<int32_t>(std::max_element(logits, logits + vocab) - logits);
}

TokenScore ScoreRow(const float* logits, int64_t vocab, int32_t id) {
  const int32_t best = Top(logits, vocab);
  const float top = logits[best];
  double sum = 0;
  for (int64_t v = 0; v < vocab; ++v) sum += std::exp(logits[v] - top);
  const double nll = std::log(sum) + (static_cast<double>(top) - logits[id]);
  return {-static_cast<float>(nll), best};
}

std::vector<int32_t> Joined(const ScoreRequest& request) {
  std::vector<int32_t> ids(request.prefix.begin(), request.prefix.end());
  ids.insert(ids.end(), request.ids.begin(), request.ids.end());
  return ids;
}

// From states to scores. The head runs over the rows that are asked for alone, some at a time:
// memory is O(rows x vocabulary).
class Head {
 public:
  explicit Head(const Decoder& decoder)
      : decoder_(decoder),
        vocab_(decoder.config().vocab),
        rows_at_once_(std::clamp<int64_t>(kLogitsChunk / vocab_, 1, Decoder::kChunkTokens)),
        logits_(static_cast<size_t>(rows_at_once_ * vocab_)) {}

  // Scores of the tokens behind rows first .. first + rows - 1, where they are among the positions
  // from positions[scores.size()] on. Moves wanted states to the front of `states`.
  void Score(const ScoreRequest& request, const std::vector<int32_t>& ids, int64_t first,
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
      const int threads = internal::ThreadsFor(n * vocab_ * 2);  // 2 ns an exponential
#pragma omp parallel for schedule(static) num_threads(threads)
      for (int64_t i = 0; i < n; ++i) {
        out[i] = ScoreRow(logits_.data() + i * vocab_, vocab_, ids[positions[i]]);
      }
      for (int64_t i = 0; i < n; ++i) internal::CheckFinite(out[i].log_prob, positions[i]);
    }
  }

  int32_t MostProbable(const float* state) {
    decoder_.Logits(state, 1, logits_.data());
    return Top(logits_.data(), vocab_);
  }

 private:
  const Decoder& decoder_;
  int64_t vocab_, rows_at_once_;
  AlignedBuffer<float> logits_;  // [rows_at_once, vocab]
};

struct Answer {
  std::vector<TokenScore> tokens;
  Continuation continuation;
  internal::EntropySums entropy;
};

// Answers one request after the other.
class Asker {
 public:
  Asker(const Decoder& decoder, const EngineCall& call, internal::TickFn tick)
      : feeder_(decoder, call, std::move(tick)), head_(decoder), hidden_(decoder.config().hidden) {}

  int64_t fed_tokens() const { return feeder_.fed_tokens(); }

  Answer Ask(const ScoreRequest& request) {
    Answer answer;
    const internal::FeedExtent extent = internal::ExtentOf(request);
    if (extent.needed == 0) return answer;
    std::optional<internal::EntropyMeter> entropy;
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

 private:
  // Behind the prompt, whose last state is `state`.
  Continuation Continue(const ScoreRequest& request, const float* state) {
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

  internal::SequenceFeeder feeder_;
  Head head_;
  int64_t hidden_;
};

// The mean of enough passes to average over other load; where they are short, behind one that meets
// cold memory.
double TimePass(const Decoder& decoder, const PositionPlan& plan, const EnginePass& pass) {
  constexpr double kLongEnough = 0.1;  // seconds
  const std::vector<int32_t> ids(static_cast<size_t>(pass.tokens) + 1);
  const int64_t rows = pass.scored ? pass.tokens : 0;
  AlignedBuffer<float> states(static_cast<size_t>(rows * decoder.config().hidden));
  ScoreRequest request{.positions = std::vector<int64_t>(static_cast<size_t>(rows))};
  std::iota(request.positions.begin(), request.positions.end(), 1);
  Head head(decoder);
  Sequence sequence(decoder, plan, pass.behind + pass.tokens, AnglePrecision::kExact);
  sequence.Skip(pass.behind);
  const auto once = [&] {
    const auto begin = std::chrono::steady_clock::now();
    decoder.Forward(sequence, std::span(ids).first(ids.size() - 1), states.data(), rows);
    std::vector<TokenScore> scores;
    head.Score(request, ids, 0, states.data(), rows, scores);
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    sequence.Truncate(pass.behind);
    return spent.count();
  };
  const double first = once();
  if (first >= kLongEnough) return first;
  double sum = 0;
  int passes = 0;
  for (; sum < kLongEnough; ++passes) sum += once();
  return sum / passes;
}

}  // namespace

EngineFacts DecoderEngine::Facts() const {
  const ModelConfig& c = decoder_.config();
  const auto elements = static_cast<double>(c.heads * (c.head_dim + c.value_dim()));
  return {.name = "ropewalk decoder",
          .vocab = c.vocab,
          .compute = decoder_.arithmetic(),
          .threads = NumThreads(),
          .lanes = MostLanes(c),
          .token_flops = static_cast<double>(c.layers) * 2 * static_cast<double>(LayerWeights(c)),
          .pair_flops = 2 * elements,
          .head_flops = 2 * static_cast<double>(c.hidden) * static_cast<double>(c.vocab),
          .mapped_bytes = decoder_.mapped_bytes()};
}

void DecoderEngine::CheckKv(KvType kv) const {
  CheckKvType(kv, decoder_.config().head_dim, decoder_.config().value_dim());
}

int DecoderEngine::Lanes(const PositionPlan& plan, int64_t length, KvType kv) const {
  const ModelConfig& c = decoder_.config();
  const int64_t fit = kLaneBytes / (CacheBytes(c, plan, length, kv) + ScratchBytes(c));
  return static_cast<int>(std::min<int64_t>(MostLanes(c), 1 + fit));
}

int64_t DecoderEngine::MemoryBytes(const PositionPlan& plan, int64_t length) const {
  return MemoryBytesWith(KvType::kF32, plan, length);
}

int64_t DecoderEngine::MemoryBytesWith(KvType kv, const PositionPlan& plan, int64_t length) const {
  const ModelConfig& c = decoder_.config();
  const int64_t scratch = int64_t{128} << 20;  // of the first lane, and pages of the file
  const int64_t cache = CacheBytes(c, plan, length, kv);
  return decoder_.weight_bytes() + cache + scratch +
         (Lanes(plan, length, kv) - 1) * (cache + ScratchBytes(c));
}

double DecoderEngine::PassSeconds(const PositionPlan& plan, const EnginePass& pass) const {
  const int lanes = Lanes(plan, pass.behind + pass.tokens);
  const int products = IsSmall(decoder_.config()) ? 1 : NumThreads();
  std::vector<double> seconds(static_cast<size_t>(lanes));
  internal::RunLanes(
      lanes, [](int64_t) {},
      [&](int lane, const internal::TickFn&) {
        const internal::ScopedProductThreads limit(products);
        seconds[static_cast<size_t>(lane)] = TimePass(decoder_, plan, pass);
      });
  return *std::max_element(seconds.begin(), seconds.end());
}

Scores DecoderEngine::DoScore(const EngineCall& call,
                              std::span<const ScoreRequest> requests) const {
  const std::vector<internal::RequestRun> runs =
      internal::DealRequests(requests, call.reuse, Lanes(*call.plan, call.final_length, call.kv));
  const int products = IsSmall(decoder_.config()) ? 1 : NumThreads();
  std::vector<Answer> answers(requests.size());
  std::vector<int64_t> fed(runs.size());
  const internal::TickFn tick = [&](int64_t tokens) {
    if (call.tick) call.tick(tokens);
  };
  if (!runs.empty()) {
    internal::RunLanes(static_cast<int>(runs.size()), tick,
                       [&](int lane, const internal::TickFn& lane_tick) {
                         const internal::ScopedProductThreads limit(products);
                         Asker asker(decoder_, call, lane_tick);
                         for (size_t i = runs[lane].begin; i < runs[lane].end; ++i) {
                           answers[i] = asker.Ask(requests[i]);
                         }
                         fed[lane] = asker.fed_tokens();
                       });
  }
  Scores scores;
  scores.fed_tokens = std::accumulate(fed.begin(), fed.end(), int64_t{0});
  internal::EntropySums entropy;  // request by request, whichever lane had it
  for (Answer& answer : answers) {
    scores.tokens.push_back(std::move(answer.tokens));
    scores.continuations.push_back(std::move(answer.continuation));
    entropy += answer.entropy;
  }
  const bool continued = std::any_of(requests.begin(), requests.end(), [](const auto& request) {
    return request.continue_tokens > 0;
  });
  if (!continued) scores.continuations.clear();
  scores.entropy = entropy.Nats();
  scores.entropy_share = entropy.Share();
  return scores;
}

std::vector<Continuation> DecoderEngine::DoGenerate(
    const EngineCall& call, std::span<const GenerateRequest> requests) const {
  std::vector<ScoreRequest> prompts;
  prompts.reserve(requests.size());
  for (const GenerateRequest& r : requests) {
    prompts.push_back(
        {.prefix = r.prefix, .ids = r.ids, .continue_tokens = r.max_tokens, .stop = r.stop});
  }
  std::vector<Continuation> made = DoScore(call, prompts).continuations;
  made.resize(requests.size());  // none where every max_tokens is 0
  return made;
}

}  // namespace ropewalk
