#include "ropewalk/eval/decoder_engine.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "ropewalk/base/buffer.h"
#include "ropewalk/base/threads.h"
#include "src/base/parallel.h"
#include "src/eval/entropy.h"
#include "src/eval/finite.h"

namespace ropewalk {
namespace {

// 32 MiB of logits: 170 rows of a 49152-token vocabulary, enough for the GEMM to run at full rate.
constexpr int64_t kLogitsChunk = int64_t{8} << 20;

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

template <class Request>
std::vector<int32_t> Joined(const Request& request) {
  std::vector<int32_t> ids(request.prefix.begin(), request.prefix.end());
  ids.insert(ids.end(), request.ids.begin(), request.ids.end());
  return ids;
}

// Feeds one sequence after the other, in chunks, and keeps the chunks that the next one begins
// with. The chunks of a sequence end at multiples of kChunkTokens; with kWhole its prefix has
// chunks of its own, all but its last token, whose state predicts what is behind it. So a kept
// chunk has the bits that it would get again.
class SequenceFeeder {
 public:
  SequenceFeeder(const Decoder& decoder, const EngineCall& call)
      : decoder_(decoder),
        call_(call),
        sequence_(decoder, *call.plan, call.final_length, call.angles) {}

  Sequence& sequence() { return sequence_; }

  // Feeds `ids`, of which the first `prefix` are a shared prefix. States are wanted of the rows
  // from `first_row` on, `use(row, states, rows)` gets them chunk by chunk: [rows, hidden].
  template <class Use>
  void Feed(std::span<const int32_t> ids, int64_t prefix, int64_t first_row, Use&& use) {
    const int64_t hidden_size = decoder_.config().hidden;
    const auto fed = static_cast<int64_t>(ids.size());
    int64_t begin = Keep(ids, ChunkEnds(fed, prefix), first_row);
    if (begin > 0) Tick(begin);
    for (const int64_t end : ends_) {
      if (end <= begin) continue;
      const int64_t first = std::max(begin, first_row);
      const int64_t rows = std::max<int64_t>(0, end - first);
      if (rows > 0 && hidden_.size() == 0) {
        hidden_ = AlignedBuffer<float>(static_cast<size_t>(Decoder::kChunkTokens * hidden_size));
      }
      decoder_.Forward(sequence_, ids.subspan(begin, end - begin), hidden_.data(), rows);
      if (rows > 0) use(first, hidden_.data(), rows);
      Tick(end - begin);
      begin = end;
    }
  }

  void Tick(int64_t tokens) {
    if (call_.tick) call_.tick(tokens);
  }

 private:
  std::vector<int64_t> ChunkEnds(int64_t fed, int64_t prefix) const {
    const int64_t whole = call_.reuse == PrefixReuse::kWhole ? std::min(prefix - 1, fed) : 0;
    std::vector<int64_t> ends;
    for (int64_t end = 0; end < fed;) {
      end = std::min(end + Decoder::kChunkTokens, end < whole ? whole : fed);
      ends.push_back(end);
    }
    return ends;
  }

  // Forgets all but the chunks that `ids` begins with, none of them beyond `first_row`; how many
  // tokens that are.
  int64_t Keep(std::span<const int32_t> ids, std::vector<int64_t> ends, int64_t first_row) {
    const auto differ = std::mismatch(ids_.begin(), ids_.end(), ids.begin(), ids.end()).first;
    const int64_t most = std::min<int64_t>(differ - ids_.begin(), first_row);
    int64_t kept = 0;
    for (size_t i = 0; i < std::min(ends.size(), ends_.size()); ++i) {
      if (ends[i] != ends_[i] || ends[i] > most) break;
      kept = ends[i];
    }
    sequence_.Truncate(kept);
    ids_.assign(ids.begin(), ids.end());
    ends_ = std::move(ends);
    return kept;
  }

  const Decoder& decoder_;
  const EngineCall& call_;
  Sequence sequence_;
  std::vector<int32_t> ids_;   // of the last sequence
  std::vector<int64_t> ends_;  // of its chunks
  AlignedBuffer<float> hidden_;
};

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

Continuation Continue(SequenceFeeder& feeder, const Decoder& decoder, Head& head,
                      const GenerateRequest& request) {
  Continuation made;
  if (request.max_tokens == 0) return made;
  const std::vector<int32_t> prompt = Joined(request);
  std::vector<float> state(static_cast<size_t>(decoder.config().hidden));
  feeder.Feed(prompt, static_cast<int64_t>(request.prefix.size()),
              static_cast<int64_t>(prompt.size()) - 1, [&](int64_t, const float* states, int64_t) {
                std::copy_n(states, state.size(), state.begin());
              });
  for (;;) {
    const int32_t id = head.MostProbable(state.data());
    made.stopped = std::find(request.stop.begin(), request.stop.end(), id) != request.stop.end();
    if (made.stopped) return made;
    made.ids.push_back(id);
    if (static_cast<int64_t>(made.ids.size()) == request.max_tokens) return made;
    decoder.Forward(feeder.sequence(), std::span(&id, 1), state.data(), 1);
    feeder.Tick(1);
  }
}

}  // namespace

EngineFacts DecoderEngine::Facts() const {
  const ModelConfig& c = decoder_.config();
  const auto hidden = static_cast<double>(c.hidden);
  const auto queries = static_cast<double>(c.heads * c.head_dim);
  const auto keys = static_cast<double>(c.kv_heads * c.head_dim);
  const double weights =  // of one layer
      hidden *
      (2 * queries + 2 * keys + (c.layer.mlp.gated ? 3 : 2) * static_cast<double>(c.feed_forward));
  return {.name = "ropewalk decoder",
          .vocab = c.vocab,
          .compute = Name(decoder_.compute()),
          .threads = NumThreads(),
          .token_flops = static_cast<double>(c.layers) * 2 * weights,
          .pair_flops = 4 * queries,
          .head_flops = 2 * hidden * static_cast<double>(c.vocab)};
}

// float32: keys and values of every layer, one table of cos and sin, five more where there is a
// distance map (two for attention, up to three for its entropy); and what a chunk needs.
int64_t DecoderEngine::MemoryBytes(const PositionPlan& plan, int64_t length) const {
  const ModelConfig& c = decoder_.config();
  const bool maps = std::any_of(plan.layers.begin(), plan.layers.end(),
                                [](const LayerPlan& layer) { return layer.map.has_value(); });
  const int64_t tables = maps ? 3 : 1;  // of cos and sin: keys have up to two under a map
  const int64_t cache = length * (2 * c.layers * c.kv_heads + tables) * c.head_dim * 4;
  const int64_t scratch = int64_t{128} << 20;  // logits, activations, pages of the file
  return decoder_.weight_bytes() + cache + scratch;
}

Scores DecoderEngine::DoScore(const EngineCall& call,
                              std::span<const ScoreRequest> requests) const {
  Scores scores;
  SequenceFeeder feeder(decoder_, call);
  Head head(decoder_);
  const bool watched =
      std::any_of(requests.begin(), requests.end(),
                  [](const ScoreRequest& request) { return !request.entropy_queries.empty(); });
  std::optional<internal::EntropyMeter> entropy;
  if (watched) entropy.emplace(feeder.sequence());
  for (const ScoreRequest& request : requests) {
    std::vector<TokenScore>& tokens = scores.tokens.emplace_back();
    if (request.positions.empty()) continue;
    const std::vector<int64_t>& queries = request.entropy_queries;
    if (entropy) entropy->Choose({queries.rbegin(), queries.rend()});
    const std::vector<int32_t> ids = Joined(request);
    // The state of a token predicts the next; the last one that is scored is not fed.
    feeder.Feed(std::span(ids).first(request.positions.back()),
                static_cast<int64_t>(request.prefix.size()), request.positions.front() - 1,
                [&](int64_t first, float* states, int64_t rows) {
                  head.Score(request, ids, first, states, rows, tokens);
                });
  }
  if (entropy) {
    scores.entropy = entropy->Nats();
    scores.entropy_share = entropy->Share();
  }
  return scores;
}

std::vector<Continuation> DecoderEngine::DoGenerate(
    const EngineCall& call, std::span<const GenerateRequest> requests) const {
  std::vector<Continuation> made;
  SequenceFeeder feeder(decoder_, call);
  Head head(decoder_);
  made.reserve(requests.size());
  for (const GenerateRequest& request : requests) {
    made.push_back(Continue(feeder, decoder_, head, request));
  }
  return made;
}

}  // namespace ropewalk
