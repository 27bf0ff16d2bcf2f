#include "ropewalk/attention/attention.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "ropewalk/base/error.h"
#include "ropewalk/base/threads.h"
#include "src/attention/attention_cpu.h"
#include "src/base/parallel.h"

namespace ropewalk {
namespace {

using internal::AttentionTile;
using internal::kTileKeys;
using internal::kTileRows;

// Few queries against many keys (decoding): the keys are cut into spans of at least this many, so
// that every thread has work; partial results are merged in a fixed order.
constexpr int64_t kMinSpanKeys = 512;
constexpr int64_t kEnoughJobs = 32;
constexpr int64_t kSmallestTileRows = kTileRows / 4;

[[noreturn]] void Refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, "Attention: " + message);
}

void CheckView(const char* name, const TensorView& view, int64_t head_dim) {
  if (view.dtype != DType::kF32 || view.device != Device::kCpu || view.rank != 3 ||
      view.shape[2] != head_dim || (head_dim > 1 && view.strides[2] != 1)) {
    Refuse(std::string(name) + ": expected float32 [tokens, heads, " + std::to_string(head_dim) +
           "] with a last stride of 1, got " + Name(view.dtype) + " " + view.ShapeString());
  }
}

// First and last byte that the view can touch.
std::pair<uintptr_t, uintptr_t> Extent(const TensorView& view) {
  int64_t low = 0, high = 0;
  for (int i = 0; i < view.rank; ++i) {
    const int64_t reach = (view.shape[i] - 1) * view.strides[i];
    (reach < 0 ? low : high) += reach;
  }
  const auto base = reinterpret_cast<uintptr_t>(view.data);
  return {base + low * sizeof(float), base + high * sizeof(float) + sizeof(float) - 1};
}

void Check(const AttentionArgs& args) {
  if (args.cache == nullptr) Refuse("cache: expected a KvCache, got null");
  const KvCache& cache = *args.cache;
  CheckView("q", args.q, cache.head_dim());
  CheckView("out", args.out, cache.head_dim());
  const int64_t tokens = args.q.shape[0], heads = args.q.shape[1];
  if (args.out.shape[0] != tokens || args.out.shape[1] != heads) {
    Refuse("out: expected the shape of q, " + args.q.ShapeString() + ", got " +
           args.out.ShapeString());
  }
  if (heads < 1 || heads % cache.kv_heads() != 0) {
    Refuse("q: expected a multiple of the cache's " + std::to_string(cache.kv_heads()) +
           " key heads, got " + std::to_string(heads) + " heads");
  }
  if (tokens < 0 || tokens > cache.tokens()) {
    Refuse("q: has " + std::to_string(tokens) + " tokens but the cache holds " +
           std::to_string(cache.tokens()) + "; append their keys and values first");
  }
  if (!std::isfinite(args.scale)) {
    Refuse("scale: expected a finite number, got " + std::to_string(args.scale));
  }
  if (args.window_tokens < 0) {
    Refuse("window_tokens: expected 0 (all) or more, got " + std::to_string(args.window_tokens));
  }
  if (tokens == 0) return;
  if (args.q.data == nullptr || args.out.data == nullptr)
    Refuse("q and out: expected data, got null");
  const auto [q_begin, q_end] = Extent(args.q);
  const auto [out_begin, out_end] = Extent(args.out);
  const bool same = args.q.data == args.out.data && args.q.strides[0] == args.out.strides[0] &&
                    args.q.strides[1] == args.out.strides[1];
  if (!same && q_begin <= out_end && out_begin <= q_end) {
    Refuse("out: overlaps q without being q; give it the same strides or memory of its own");
  }
}

// How a call is cut. Spans depend on shapes alone and tiles change no bit, so a result's bits do
// not depend on the number of threads.
struct Schedule {
  int64_t tile_tokens, tiles, spans, span_keys, jobs;
};

Schedule Plan(int64_t tokens, int64_t group, int64_t kv_heads, int64_t keys, int64_t threads) {
  Schedule s;
  const auto cut = [&](int64_t rows) {
    s.tile_tokens = std::max<int64_t>(1, rows / group);
    s.tiles = (tokens + s.tile_tokens - 1) / s.tile_tokens;
    s.jobs = s.tiles * kv_heads;
  };
  cut(kSmallestTileRows);
  s.spans = std::min((kEnoughJobs + s.jobs - 1) / s.jobs, (keys + kMinSpanKeys - 1) / kMinSpanKeys);
  const int64_t span = (keys + s.spans - 1) / s.spans;
  s.span_keys = (span + kTileKeys - 1) / kTileKeys * kTileKeys;
  s.spans = (keys + s.span_keys - 1) / s.span_keys;
  // Smaller tiles read keys more often, but idle threads cost more.
  for (int64_t rows = kTileRows; rows >= kSmallestTileRows; rows /= 2) {
    cut(rows);
    if (s.jobs * s.spans >= 4 * threads) break;
  }
  s.jobs *= s.spans;
  return s;
}

AttentionTile MakeTile(const AttentionArgs& args, const Schedule& s, int64_t tile, int64_t kv_head,
                       int64_t span) {
  const KvCache& cache = *args.cache;
  const int64_t tokens = args.q.shape[0], group = args.q.shape[1] / cache.kv_heads();
  const int64_t token = tile * s.tile_tokens, head = kv_head * group;
  AttentionTile t;
  t.q_token_stride = args.q.strides[0];
  t.q_head_stride = args.q.strides[1];
  t.q = static_cast<const float*>(args.q.data) + token * t.q_token_stride + head * t.q_head_stride;
  t.out_token_stride = args.out.strides[0];
  t.out_head_stride = args.out.strides[1];
  t.out =
      static_cast<float*>(args.out.data) + token * t.out_token_stride + head * t.out_head_stride;
  t.keys = AttentionAccess::Keys(cache, kv_head);
  t.values = AttentionAccess::Values(cache, kv_head);
  t.head_dim = cache.head_dim();
  t.value_stride = AttentionAccess::ValueStride(t.head_dim);
  t.panel_width = AttentionAccess::PanelWidth(t.head_dim);
  t.capacity = cache.capacity_tokens();
  t.tokens = std::min(s.tile_tokens, tokens - token);
  t.group = group;
  t.first_position = cache.tokens() - tokens + token;
  t.window =
      args.window_tokens == 0 ? cache.tokens() : std::min(args.window_tokens, cache.tokens());
  t.key_begin = span * s.span_keys;
  t.key_end = std::min(cache.tokens(), t.key_begin + s.span_keys);
  t.scale = args.scale;
  t.scratch = nullptr;
  t.partial = nullptr;
  return t;
}

// partial [spans, rows, value_stride + 2] -> out
void Merge(const AttentionTile& t, const float* partial, int64_t spans) {
  const int64_t rows = t.tokens * t.group, record = t.value_stride + 2;
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
    float sum = 0;
    std::fill_n(out, t.head_dim, 0.0f);
    for (int64_t s = 0; s < spans; ++s) {
      const float* from = first + s * rows * record;
      const float factor = std::exp2(from[t.value_stride] - max);
      sum += factor * from[t.value_stride + 1];
      for (int64_t i = 0; i < t.head_dim; ++i) out[i] += factor * from[i];
    }
    for (int64_t i = 0; i < t.head_dim; ++i) out[i] /= sum;
  }
}

}  // namespace

void Attention(const AttentionArgs& args) {
  Check(args);
  const int64_t tokens = args.q.shape[0];
  if (tokens == 0) return;
  const KvCache& cache = *args.cache;
  const int64_t kv_heads = cache.kv_heads(), group = args.q.shape[1] / kv_heads;
  const Schedule s = Plan(tokens, group, kv_heads, cache.tokens(), NumThreads());
  const int64_t max_rows = std::min(s.tile_tokens, tokens) * group;
  const int64_t record = AttentionAccess::ValueStride(cache.head_dim()) + 2;
  // Two multiplications for each, at some 50 a nanosecond.
  const int64_t work_ns = max_rows * s.tiles * kv_heads * cache.tokens() * cache.head_dim() / 25;
  const int threads = static_cast<int>(std::min<int64_t>(internal::ThreadsFor(work_ns), s.jobs));
  const int64_t scratch_floats = internal::ScratchFloats(max_rows, cache.head_dim());
  AlignedBuffer<float> scratch(static_cast<size_t>(threads * scratch_floats));
  AlignedBuffer<float> partials(static_cast<size_t>(s.spans > 1 ? s.jobs * max_rows * record : 0));

  // Jobs are independent, so handing them out as threads become free changes no bit; the last tiles
  // see most keys and go first.
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
  for (int64_t job = 0; job < s.jobs; ++job) {
    const int64_t span = job % s.spans, kv_head = job / s.spans % kv_heads;
    const int64_t tile = s.tiles - 1 - job / s.spans / kv_heads;
    AttentionTile t = MakeTile(args, s, tile, kv_head, span);
    t.scratch = scratch.data() + omp_get_thread_num() * scratch_floats;
    if (s.spans > 1) {
      const int64_t rows = t.tokens * t.group;
      t.partial = partials.data() + (job - span) * max_rows * record + span * rows * record;
    }
    internal::AttendTile(t);
  }
  if (s.spans == 1) return;
  for (int64_t job = 0; job < s.jobs; job += s.spans) {
    const int64_t kv_head = job / s.spans % kv_heads, tile = s.tiles - 1 - job / s.spans / kv_heads;
    const AttentionTile t = MakeTile(args, s, tile, kv_head, 0);
    Merge(t, partials.data() + job * max_rows * record, s.spans);
  }
}

}  // namespace ropewalk
