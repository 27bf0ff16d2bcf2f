#include "ropewalk/model/ranked.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ropewalk/base/error.h"
#include "src/model/decoder_impl.h"

namespace ropewalk {
namespace {

constexpr int64_t kChunk = Decoder::kChunkTokens;

// Calls use(first, tokens) for the chunks of `tokens` tokens.
template <class Use>
void ForChunks(int64_t tokens, const Use& use) {
  for (int64_t t = 0; t < tokens; t += kChunk) use(t, std::min(kChunk, tokens - t));
}

// Where attention ran for all tokens before the rest of the layer runs for any, the norm that parallel
// blocks share with attention has to be made again.
bool SharesNorm(const LayerSpec& spec) {
  return spec.residual == Residual::kParallel && !spec.pre_mlp.exists() &&
         spec.pre_attention.exists();
}

}  // namespace

// A run of this rank.
struct RankedSequence::Run {
  TokenRun at;
  AlignedBuffer<float> x, q;        // [tokens, hidden]; [tokens, heads, key_dim]
  std::vector<CosSinTable> tables;  // of its positions, as Sequence::tables_
  std::vector<float> temperatures, log_gates;
  int64_t wanted = 0;  // queries of the layer that runs: its last ones
};

struct RankedSequence::Part {
  std::array<Run, 2> runs;
  std::unique_ptr<Ring> ring;
  std::array<AttentionSums, 2> sums;
  std::unique_ptr<internal::LayerScratch> scratch;
  AlignedBuffer<float> room;  // [chunk, hidden]
};

RankedSequence::RankedSequence(const Decoder& decoder, const PositionPlan& plan,
                               int64_t final_length, AnglePrecision precision, KvType kv,
                               RankGroup& group)
    : decoder_(decoder), group_(group), kv_(kv), precision_(precision) {
  const ModelConfig& c = decoder.config();
  if (c.layer.cross_attention) {
    throw Error(
        ErrorCode::kUnsupported,
        "RankedSequence: a decoder with cross-attention reads an encoder, whose states are not "
        "dealt over ranks; run it on one");
  }
  CheckKvType(kv, c.key_dim(), c.value_dim());
  shared_.reset(new Sequence(decoder, plan, final_length, precision, Sequence::WithoutCaches()));
}
RankedSequence::~RankedSequence() = default;

int64_t RankedSequence::BytesFor(const ModelConfig& c, int ranks, int64_t tokens, KvType kv) {
  const Deal deal(std::max<int64_t>(1, tokens), ranks);
  const int64_t mine = 2 * deal.run_tokens();
  const int64_t floats = c.hidden + c.heads * (c.key_dim() + c.value_dim() + 16);
  const int64_t elements = c.kv_heads * (c.key_dim() + c.value_dim());
  const int64_t bytes = kv == KvType::kF32 ? 4 : kv == KvType::kBf16 ? 2 : 1;
  const int64_t blocks = ranks > 1 ? 2 : 1;
  return mine * (floats * 4 + blocks * elements * bytes + c.key_dim() * 4);
}

void RankedSequence::Forward(std::span<const int32_t> ids, int64_t first_row,
                             const RankedVisitor& visitor) {
  const Decoder::Impl& m = *decoder_.impl_;
  const ModelConfig& c = m.config;
  const auto tokens = static_cast<int64_t>(ids.size());
  m.CheckIds(ids);
  if (tokens < 1 || tokens > shared_->final_length() || first_row < 0 || first_row >= tokens) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("RankedSequence: expected 1 to {} tokens, and a first_row among them, got "
                    "{} and {}",
                    shared_->final_length(), tokens, first_row));
  }
  shared_->GrowLoads(tokens);
  const Deal deal(tokens, group_.size());
  const bool gates = !shared_->gates_.empty();
  Part part;
  part.ring = std::make_unique<Ring>(group_, deal,
                                     RingSizes{.kv_heads = c.kv_heads,
                                               .key_dim = c.key_dim(),
                                               .value_dim = c.value_dim(),
                                               .kv = kv_,
                                               .gate_heads = gates ? c.heads : 0});
  part.scratch = std::make_unique<internal::LayerScratch>(c, std::min(kChunk, deal.run_tokens()));
  part.room = AlignedBuffer<float>(static_cast<std::size_t>(kChunk * c.hidden));
  for (std::size_t r = 0; r < 2; ++r) {
    Run& run = part.runs[r];
    run.at = deal.Run(deal.RunsOf(group_.rank())[r]);
    if (run.at.tokens() == 0) continue;
    run.x = AlignedBuffer<float>(static_cast<std::size_t>(run.at.tokens() * c.hidden));
    run.q = AlignedBuffer<float>(static_cast<std::size_t>(run.at.tokens() * c.heads * c.key_dim()));
    part.sums[r] = AttentionSums(run.at.tokens(), c.heads, c.value_dim());
    const auto add_table = [&](const Frequencies& f) {
      run.tables.emplace_back(f, run.at.first, run.at.tokens(), precision_);
    };
    for (const ResolvedRotation& rotation : shared_->resolved_.rotations) {
      add_table(rotation.frequencies);
    }
    if (shared_->encoding_) add_table(*shared_->encoding_);
  }
  Embed(ids, part);
  int64_t ticked = 0;
  for (std::size_t l = 0; l < m.layers.size(); ++l) {
    RunLayer(l, l + 1 < m.layers.size() ? 0 : first_row, visitor, part);
    const int64_t done =
        tokens * static_cast<int64_t>(l + 1) / static_cast<int64_t>(m.layers.size());
    if (visitor.tick) visitor.tick(done - ticked);
    ticked = done;
  }
  for (Run& run : part.runs) {
    const int64_t skipped = std::clamp<int64_t>(first_row - run.at.first, 0, run.at.tokens());
    ForChunks(run.at.tokens() - skipped, [&](int64_t t, int64_t rows) {
      float* x = run.x.data() + (skipped + t) * c.hidden;
      ApplyNorm(c.final_norm, m.final_norm, c, x, rows, x);
      visitor.states(run.at.first + skipped + t, x, rows);
    });
  }
}

// What reads earlier tokens in front of the layers (a convolution, a recurrent layer) follows from the
// ids alone: each rank computes it from the first token to its last one.
void RankedSequence::Embed(std::span<const int32_t> ids, Part& part) const {
  const Decoder::Impl& m = *decoder_.impl_;
  const int64_t hidden = m.config.hidden;
  const ResolvedPlan& plan = shared_->resolved_;
  const bool from_first =
      internal::KeepsConvolved(plan.absolute) || plan.recurrent_layer.has_value();
  const auto embed = [&](int64_t first, int64_t tokens, internal::EmbeddingState* state, float* x) {
    m.Embed(ids.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(tokens)),
            {.first_position = first, .tables = {}, .embedding = state}, x, part.room.data());
  };
  internal::EmbeddingState state;
  if (!from_first) {
    for (Run& run : part.runs) {
      ForChunks(run.at.tokens(), [&](int64_t t, int64_t tokens) {
        embed(run.at.first + t, tokens, &state, run.x.data() + t * hidden);
      });
    }
    return;
  }
  AlignedBuffer<float> others(static_cast<std::size_t>(kChunk * hidden));
  int64_t done = 0;
  for (Run& run : part.runs) {
    if (run.at.tokens() == 0) continue;
    for (; done < run.at.first; done += std::min(kChunk, run.at.first - done)) {
      embed(done, std::min(kChunk, run.at.first - done), &state, others.data());
    }
    ForChunks(run.at.tokens(), [&](int64_t t, int64_t tokens) {
      embed(run.at.first + t, tokens, &state, run.x.data() + t * hidden);
    });
    done = run.at.end;
  }
}

void RankedSequence::RunLayer(std::size_t l, int64_t first_row, const RankedVisitor& visitor,
                              Part& part) const {
  const Decoder::Impl& m = *decoder_.impl_;
  const ModelConfig& c = m.config;
  internal::LayerScratch& s = *part.scratch;
  const int64_t row = c.heads * c.key_dim();
  RingBlock& block = part.ring->Begin();
  for (std::size_t r = 0; r < 2; ++r) {
    Run& run = part.runs[r];
    run.wanted = std::clamp<int64_t>(run.at.end - first_row, 0, run.at.tokens());
    run.temperatures.clear();
    run.log_gates.clear();
    ForChunks(run.at.tokens(), [&](int64_t t, int64_t tokens) {
      const Decoder::Impl::Place place = {
          .first_position = run.at.first + t, .tables = run.tables, .embedding = nullptr};
      const Decoder::Impl::Encoded encoded =
          m.Encode(*shared_, l, tokens, tokens, place, run.x.data() + t * c.hidden, s);
      block.cache[r].Append(encoded.k, encoded.v);
      for (int64_t i = 0; i < tokens; ++i) {
        const float* q = static_cast<const float*>(encoded.q.data) + i * encoded.q.strides[0];
        std::copy_n(q, row, run.q.data() + (t + i) * row);
      }
      run.temperatures.insert(run.temperatures.end(), encoded.temperatures.begin(),
                              encoded.temperatures.end());
      if (shared_->gates_.empty()) return;
      const std::vector<float> gates = m.GatesOf(l, tokens, s).log_gates;
      run.log_gates.insert(run.log_gates.end(), gates.begin(), gates.end());
    });
  }
  AttentionArgs args = m.ArgsOf(*shared_, l);
  ScoreForm gates = RunningForm{};
  std::array<std::vector<double>, 2> gate_sums;
  if (!shared_->gates_.empty()) {
    part.ring->SumGates({part.runs[0].log_gates, part.runs[1].log_gates});
    for (std::size_t r = 0; r < 2; ++r) {
      gate_sums[r].assign(
          block.gate_sums[r].begin(),
          block.gate_sums[r].begin() + static_cast<std::ptrdiff_t>(part.runs[r].log_gates.size()));
    }
    args.form = &gates;
  }
  std::array<RingQueries, 2> queries;
  for (std::size_t r = 0; r < 2; ++r) {
    const Run& run = part.runs[r];
    if (run.wanted == 0) continue;
    const int64_t skipped = run.at.tokens() - run.wanted;
    const auto from = [&](const auto& all, int64_t each) {
      return all.empty() ? std::span(all) : std::span(all).subspan(skipped * each);
    };
    part.sums[r].Clear();
    queries[r] = {
        .q = TensorView::Of(const_cast<float*>(run.q.data()) + skipped * row,
                            {run.wanted, c.heads, c.key_dim()}),
        .first_position = run.at.first + skipped,
        .temperatures = from(run.temperatures, 1),
        .gate_sums = from(gate_sums[r], c.heads),
        .entropy = visitor.entropy ? visitor.entropy_queries : std::span<const int64_t>()};
  }
  part.ring->Attend(args, shared_->resolved_.layers[l].chunk_tokens, queries, part.sums);
  for (std::size_t r = 0; r < 2; ++r) FinishRun(l, visitor, r, part);
}

// The second half of a layer, for the tokens of a run that are wanted.
void RankedSequence::FinishRun(std::size_t l, const RankedVisitor& visitor, std::size_t r,
                               Part& part) const {
  const Decoder::Impl& m = *decoder_.impl_;
  const ModelConfig& c = m.config;
  const internal::LayerWeights& layer = m.layers[l];
  internal::LayerScratch& s = *part.scratch;
  Run& run = part.runs[r];
  const int64_t skipped = run.at.tokens() - run.wanted;
  const auto asked = visitor.entropy_queries;
  ForChunks(run.wanted, [&](int64_t t, int64_t rows) {
    const int64_t first = run.at.first + skipped + t;
    float* x = run.x.data() + (skipped + t) * c.hidden;
    const auto begin = std::lower_bound(asked.begin(), asked.end(), first);
    const auto end = std::lower_bound(asked.begin(), asked.end(), first + rows);
    const bool observed = visitor.entropy && begin != end;
    std::vector<float> entropy(static_cast<std::size_t>(observed ? rows * c.heads : 0));
    const TensorView out = AttendedView(c, rows, s);
    FinishParts(part.sums[r], t,
                {.out = out,
                 .sinks = {layer.sinks.data(), layer.sinks.size()},
                 .log_sum_exp = {},
                 .entropy = entropy});
    const Decoder::Impl::Place place = {
        .first_position = first, .tables = run.tables, .embedding = nullptr};
    m.RotateBack(*shared_, l, place, first, out);
    for (auto at = begin; observed && at != end; ++at) {
      visitor.entropy(*at, Seen(l, *at) + (layer.sinks.size() > 0 ? 1 : 0),
                      std::span(entropy).subspan(static_cast<std::size_t>((*at - first) * c.heads),
                                                 static_cast<std::size_t>(c.heads)));
    }
    if (SharesNorm(c.layer)) {
      ApplyNorm(c.layer.pre_attention, layer.pre_attention, c, x, rows, s.normed.data());
    }
    FinishLayer(c, layer, rows, rows, x, s);
  });
}

// The number of keys that a query sees.
int64_t RankedSequence::Seen(std::size_t l, int64_t position) const {
  const ResolvedLayer& plan = shared_->resolved_.layers[l];
  int64_t begin = 0;
  if (plan.window_tokens > 0) begin = std::max(begin, position - plan.window_tokens + 1);
  if (plan.chunk_tokens > 0) begin = std::max(begin, position - position % plan.chunk_tokens);
  if (!plan.map) return position + 1 - begin;
  int64_t seen = 0;
  for (int v = 0; v < static_cast<int>(Views(*plan.map).size()); ++v) {
    const KeyInterval keys = KeysOfView(*plan.map, v, position);
    seen += std::max<int64_t>(0, std::min(keys.end, position + 1) - std::max(keys.first, begin));
  }
  return seen;
}

}  // namespace ropewalk
