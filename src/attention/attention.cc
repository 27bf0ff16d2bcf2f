#include "ropewalk/attention/attention.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "ropewalk/base/threads.h"
#include "src/attention/kernel/pairs.h"
#include "src/attention/kernel/tile.h"
#include "src/attention/schedule.h"
#include "src/base/parallel.h"

namespace ropewalk {
namespace {

using internal::AttentionTile;
using internal::Schedule;

constexpr double kLn2InDouble = 0.69314718055994531;

// CoPE positions are running sums over keys, so the key range cannot be split.
bool Contextual(const ScoreForm* form) {
  const auto* running = form == nullptr ? nullptr : std::get_if<RunningForm>(form);
  return running != nullptr && running->kind == RunningForm::Kind::kContextual;
}

AttentionTile TileOfJob(const AttentionArgs& args, const internal::AttentionRun& run,
                        const Schedule& s, const Schedule::Job& job) {
  const int64_t token = job.tile * s.tile_tokens;
  const int64_t tokens = std::min(s.tile_tokens, args.q.shape[0] - token);
  AttentionTile t = internal::MakeTile(args, run, token, tokens, job.kv_head);
  t.key_begin = job.span * s.span_keys;
  t.key_end = std::min(t.key_end, t.key_begin + s.span_keys);
  return t;
}

// partial [spans, rows, value_stride + kRowSums] -> out
void Merge(const AttentionTile& t, const float* partial, int64_t spans) {
  const int64_t rows = t.tokens * t.group, record = t.value_stride + internal::kRowSums;
  for (int64_t r = 0; r < rows; ++r) {
    const float* first = partial + r * record;
    float max = -std::numeric_limits<float>::infinity();
    bool numbers = true;
    for (int64_t s = 0; s < spans; ++s) {
      const float m = first[s * rows * record + t.value_stride];
      numbers = numbers && !std::isnan(m);
      max = std::max(max, m);
    }
    if (!numbers) max = std::numeric_limits<float>::quiet_NaN();
    float* out = t.out + r / t.group * t.out_token_stride + r % t.group * t.out_head_stride;
    float sum = 0, weighted_score = 0;
    std::fill_n(out, t.value_dim, 0.0f);
    for (int64_t s = 0; s < spans; ++s) {
      const float* from = first + s * rows * record;
      const float below = from[t.value_stride] - max, factor = std::exp2(below);
      sum += factor * from[t.value_stride + 1];
      if (factor != 0) {
        weighted_score += factor * (from[t.value_stride + 2] + below * from[t.value_stride + 1]);
      }
      for (int64_t i = 0; i < t.value_dim; ++i) out[i] += factor * from[i];
    }
    if (t.sinks == nullptr && t.log_sum_exp == nullptr && sum != 0) {
      for (int64_t i = 0; i < t.value_dim; ++i) out[i] /= sum;
    } else {
      const float factor = internal::FinishRow(t, r % t.group, r / t.group, {max, sum});
      for (int64_t i = 0; i < t.value_dim; ++i) out[i] *= factor;
    }
    internal::WriteEntropy(t, r % t.group, r / t.group, {max, sum, weighted_score});
  }
}

}  // namespace

void internal::Prepare(const AttentionArgs& args, AttentionRun& run) {
  run.kv_type = args.cache->type();
  run.bf16 = args.compute == ComputeType::kBFloat16 && HasBf16Attention();
  // By the call, not by its tiles: how it is cut changes no bit.
  run.pair_tiles = run.bf16 && HasPairTiles() &&
                   args.q.shape[0] * (args.q.shape[1] / args.cache->kv_heads()) >= kPairTileRows;
  run.ranges = FindRanges(args);
  if (FormOf(args) != nullptr) run.form = PrepareForm(args, run.ranges);
  if (args.rotation != nullptr) run.rotation = PrepareRotation(args);
  // A row starts no view before its first unmasked key.
  std::vector<int64_t>& begin = run.rotation.begin;
  for (size_t i = 0; i < begin.size(); ++i) {
    begin[i] = std::max(begin[i], run.ranges.begin[i % run.ranges.begin.size()]);
  }
  if (run.form.form != nullptr) CheckDistances(*run.form.form, run.ranges, run.rotation);
}

internal::KvScratch::KvScratch(KvType type, bool bf16, int64_t views, int64_t rows,
                               const HeadDims& dims) {
  const auto lines = [](int64_t floats) { return (floats + 15) / 16 * 16; };
  const int64_t panel = AttentionAccess::PanelWidth(dims.value);
  if (type != KvType::kF32) {
    key_block = dims.key * AttentionAccess::kBlock;
    values = kValueSlice * panel;
  }
  if (!bf16) return;
  key_pairs = (dims.key + 1) / 2 * AttentionAccess::kBlock;
  value_pairs = kTileKeys / 2 * dims.value_stride();
  queries = lines((views * rows + WholeRows(rows) - rows) * dims.key_stride() / 2);
  weights = lines(WholeRows(rows) * kPairStride / 2);
}

int64_t internal::TileScratchFloats(const AttentionRun& run, int64_t rows, int64_t group,
                                    const HeadDims& dims) {
  int64_t floats = ScratchFloats(rows, dims);
  if (run.form.form != nullptr) floats += FormScratchFloats(run.form, rows, group, dims.key);
  floats = (floats + 15) / 16 * 16;
  floats += run.KvScratchFor(rows, dims).floats();
  if (run.rotation.rotation == nullptr) return floats;
  return floats + RotationScratchFloats(run.rotation.views, rows, dims.key_stride(), dims.key);
}

void internal::SetScratch(AttentionTile& t, const AttentionRun& run, float* scratch) {
  t.scratch = scratch;
  const int64_t rows = t.tokens * t.group;
  float* end = scratch + TileScratchFloats(run, rows, t.group, t.dims);
  if (run.rotation.rotation != nullptr) {
    end -= RotationScratchFloats(run.rotation.views, rows, t.key_stride, t.head_dim);
    t.rotation_scratch = end;
  }
  t.kv_scratch = end - run.KvScratchFor(rows, t.dims).floats();
}

AttentionTile internal::MakeTile(const AttentionArgs& args, const AttentionRun& run, int64_t token,
                                 int64_t tokens, int64_t kv_head) {
  const KvCache& cache = *args.cache;
  const int64_t group = args.q.shape[1] / cache.kv_heads(), head = kv_head * group;
  AttentionTile t;
  t.q_token_stride = args.q.strides[0];
  t.q_head_stride = args.q.strides[1];
  t.q = static_cast<const float*>(args.q.data) + token * t.q_token_stride + head * t.q_head_stride;
  t.out_token_stride = args.out.strides[0];
  t.out_head_stride = args.out.strides[1];
  t.out =
      static_cast<float*>(args.out.data) + token * t.out_token_stride + head * t.out_head_stride;
  t.kv = AttentionAccess::Head(cache, kv_head);
  t.dims = HeadDims(cache);
  t.head_dim = t.dims.key;
  t.value_dim = t.dims.value;
  t.key_stride = t.dims.key_stride();
  t.value_stride = t.dims.value_stride();
  t.panel_width = t.kv.panel_width;
  t.bf16 = run.bf16;
  t.pair_tiles = run.pair_tiles;
  t.tokens = tokens;
  t.group = group;
  t.first_token = token;
  t.first_head = head;
  t.seen_begin = run.ranges.begin.data() + token;
  t.seen_end = run.ranges.end.data() + token;
  t.form = run.form.form == nullptr ? nullptr : &run.form;
  t.rotation = args.rotation == nullptr ? nullptr : &run.rotation;
  t.soft_cap = args.soft_cap;
  t.temperatures = args.temperatures.empty() ? nullptr : args.temperatures.data() + token;
  t.sinks = args.sinks.empty() ? nullptr : args.sinks.data() + head;
  t.log_sum_exp_stride = args.q.shape[1];
  t.log_sum_exp = args.log_sum_exp.empty()
                      ? nullptr
                      : args.log_sum_exp.data() + token * t.log_sum_exp_stride + head;
  t.entropy =
      args.entropy.empty() ? nullptr : args.entropy.data() + token * t.log_sum_exp_stride + head;
  t.wants_entropy = !args.entropy.empty();
  t.key_begin = 0;
  t.key_end = cache.tokens();
  t.scale = ScaleOf(args);
  t.scratch = nullptr;
  t.rotation_scratch = nullptr;
  t.kv_scratch = nullptr;
  t.partial = nullptr;
  return t;
}

float internal::FinishRow(const AttentionTile& t, int64_t group_head, int64_t token, RowSums row) {
  const float max = row.max;
  float sum = row.sum;
  float factor = sum == 0 ? 0.0f : 1.0f / sum;
  double top = max;
  if (t.sinks != nullptr) {
    const double sink = t.sinks[group_head] / kLn2InDouble;
    top = std::max(top, sink);
    const double part = sum == 0 ? 0 : std::exp2(max - top);
    const double total = part * sum + std::exp2(sink - top);
    factor = static_cast<float>(part / total);
    sum = static_cast<float>(total);
  }
  if (t.log_sum_exp != nullptr) {
    const double value = sum == 0 ? -std::numeric_limits<double>::infinity()
                                  : kLn2InDouble * top + std::log(double{sum});
    t.log_sum_exp[token * t.log_sum_exp_stride + group_head] = static_cast<float>(value);
  }
  return factor;
}

// H = log-sum-exp - sum of w s; with z = sum of 2^(s - max), that is
// ln z - ln 2 / z sum of 2^(s - max) (s - max).
void internal::WriteEntropy(const AttentionTile& t, int64_t group_head, int64_t token,
                            RowSums row) {
  if (t.entropy == nullptr) return;
  double sum = row.sum, weighted_score = row.weighted_score;
  if (t.sinks != nullptr) {
    const double sink = t.sinks[group_head] / kLn2InDouble, top = std::max(double{row.max}, sink);
    const double below = row.max - top, part = sum == 0 ? 0 : std::exp2(below);
    const double sink_weight = std::exp2(sink - top);
    weighted_score = (part == 0 ? 0 : part * (weighted_score + below * sum)) +
                     (sink_weight == 0 ? 0 : sink_weight * (sink - top));
    sum = part * sum + sink_weight;
  }
  const double entropy = sum == 0 ? 0 : std::log(sum) - kLn2InDouble * weighted_score / sum;
  // Rounding can leave a row of one weight below 0.
  t.entropy[token * t.log_sum_exp_stride + group_head] =
      entropy < 0 ? 0.0f : static_cast<float>(entropy);
}

namespace internal {
namespace {

// One call: how it is divided, and its memory.
class Call {
 public:
  explicit Call(const AttentionArgs& args)
      : args_(args), dims_(*args.cache), record_(dims_.value_stride() + kRowSums) {
    Prepare(args, run_);
    const KvCache& cache = *args.cache;
    const int64_t tokens = args.q.shape[0], kv_heads = cache.kv_heads();
    group_ = args.q.shape[1] / kv_heads;
    s_ = PlanSchedule(tokens, group_, kv_heads, std::max<int64_t>(1, cache.tokens()), NumThreads(),
                      Contextual(run_.form.form),
                      run_.pair_tiles && run_.form.form == nullptr ? kPairTileMostRows : kTileRows);
    max_rows_ = std::min(s_.tile_tokens, tokens) * group_;
  }

  // `sums` and its first row; null: to args.out.
  void Run(float* sums, bool want_entropy) {
    // A multiplication for each element of a key and of a value, at some 50 a nanosecond.
    const KvCache& cache = *args_.cache;
    const int64_t work_ns =
        max_rows_ * s_.tiles * cache.kv_heads() * cache.tokens() * (dims_.key + dims_.value) / 50;
    const int threads = static_cast<int>(std::min<int64_t>(ThreadsFor(work_ns), s_.jobs));
    const int64_t scratch_floats = TileScratchFloats(run_, max_rows_, group_, dims_);
    const int64_t rows_of_span = max_rows_ * record_;
    const bool direct = s_.spans == 1 && sums == nullptr;
    // Of each job, or of each thread where a job is all of its rows.
    const int64_t kept = direct ? 0 : s_.spans > 1 ? s_.jobs : threads;
    AlignedBuffer<float> scratch(static_cast<size_t>(threads * scratch_floats));
    AlignedBuffer<float> partials(static_cast<size_t>(kept * rows_of_span));

    // Jobs are independent, so handing them out as threads become free changes no bit.
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int64_t job = 0; job < s_.jobs; ++job) {
      const int64_t span = job % s_.spans;
      AttentionTile t = TileOf(job, want_entropy);
      SetScratch(t, run_, scratch.data() + omp_get_thread_num() * scratch_floats);
      if (s_.spans > 1) {
        const int64_t rows = t.tokens * t.group;
        t.partial = partials.data() + (job - span) * rows_of_span + span * rows * record_;
      } else if (!direct) {
        t.partial = partials.data() + omp_get_thread_num() * rows_of_span;
      }
      AttendTile(t);
      if (s_.spans == 1 && sums != nullptr) AddTo(sums, t, t.partial);
    }
    if (s_.spans == 1) return;
    for (int64_t job = 0; job < s_.jobs; job += s_.spans) {
      const AttentionTile t = TileOf(job, want_entropy);
      const float* partial = partials.data() + job * rows_of_span;
      if (sums == nullptr) {
        Merge(t, partial, s_.spans);
        continue;
      }
      for (int64_t span = 0; span < s_.spans; ++span) {
        AddTo(sums, t, partial + span * t.tokens * t.group * record_);
      }
    }
  }

 private:
  AttentionTile TileOf(int64_t job, bool want_entropy) const {
    AttentionTile t = TileOfJob(args_, run_, s_, s_.At(job));
    t.wants_entropy = want_entropy;
    return t;
  }

  // sums [tokens, heads, record] and those of a tile's rows: each row's larger maximum scales both.
  void AddTo(float* sums, const AttentionTile& t, const float* partial) const {
    const int64_t heads = args_.q.shape[1], values = dims_.value_stride();
    for (int64_t r = 0; r < t.tokens * t.group; ++r, partial += record_) {
      const int64_t token = t.first_token + r / t.group, head = t.first_head + r % t.group;
      float* to = sums + (token * heads + head) * record_;
      float &max = to[values], &sum = to[values + 1], &weighted = to[values + 2];
      const float added = partial[values + 1];
      if (added == 0) continue;  // it sees none of these keys
      const bool numbers = !std::isnan(max) && !std::isnan(partial[values]);
      const float top =
          numbers ? std::max(max, partial[values]) : std::numeric_limits<float>::quiet_NaN();
      const float below = max - top, other_below = partial[values] - top;
      const float factor = sum == 0 ? 0.0f : std::exp2(below), other = std::exp2(other_below);
      weighted = (factor == 0 ? 0.0f : factor * (weighted + below * sum)) +
                 (other == 0 ? 0.0f : other * (partial[values + 2] + other_below * added));
      sum = factor * sum + other * added;
      max = top;
      for (int64_t i = 0; i < values; ++i) to[i] = factor * to[i] + other * partial[i];
    }
  }

  const AttentionArgs& args_;
  AttentionRun run_;
  const HeadDims dims_;
  const int64_t record_;
  Schedule s_;
  int64_t group_ = 0, max_rows_ = 0;
};

}  // namespace

void RunAttention(const AttentionArgs& args, float* sums, bool want_entropy) {
  Call(args).Run(sums, want_entropy);
}

}  // namespace internal

void Attention(const AttentionArgs& args) {
  internal::CheckAttention(args);
  if (args.q.shape[0] == 0) return;
  internal::RunAttention(args, nullptr, !args.entropy.empty());
}

}  // namespace ropewalk
