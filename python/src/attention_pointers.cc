// Attention of ropewalk.torch, a batch at a time, and its gradient.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "python/src/pointers.h"
#include "ropewalk/attention/attention.h"
#include "ropewalk/attention/backward.h"
#include "ropewalk/relative/distance_map.h"

namespace ropewalk::python {
namespace {

std::optional<DistanceMap> MapOf(const std::vector<int64_t>& map) {
  if (map.empty() || map[0] < 0) return std::nullopt;
  const int64_t a = map.at(1), b = map.at(2);
  switch (map[0]) {
    case 0:
      return Rerope{.window = a};
    case 1:
      return LeakyRerope{.window = a, .factor = b};
    case 2:
      return SelfExtend{.window = a, .group = b};
    case 3:
      return DualChunk{.chunk = a, .limit = b};
    case 4:
      return AttentionSinks{.sinks = a, .window = b};
    case 5:
      return StringMap{.shift = a, .window = b};
    case 6:
      return Lampe{.head = a, .mapped = b, .tail = map.at(3), .length = map.at(4)};
    case 7:
      return Dpe{.window = a,
                 .group1 = b,
                 .group2 = map.at(3),
                 .group3 = map.at(4),
                 .group4 = map.at(5),
                 .group5 = map.at(6),
                 .group6 = map.at(7),
                 .group7 = map.at(8),
                 .group8 = map.at(9)};
    default:
      throw Error(ErrorCode::kInvalidArgument,
                  "remap: expected a map that is known, got " + std::to_string(map[0]));
  }
}

// The cache of a call that has ended, for the next one: a training step calls twice for each layer,
// and the system would clear new pages for each call: 8 % of the time of 1024 tokens, 8 heads of 128.
// Between calls there is at most one, of kMostBytes or less.
class SpareCache {
 public:
  KvCache Take(int64_t kv_heads, int64_t head_dim, int64_t value_dim, int64_t tokens) {
    std::optional<KvCache> spare;
    {
      const std::scoped_lock lock(mutex_);
      spare.swap(spare_);
    }
    if (spare && spare->kv_heads() == kv_heads && spare->head_dim() == head_dim &&
        spare->value_dim() == value_dim && spare->capacity_tokens() >= tokens) {
      return std::move(*spare);
    }
    spare.reset();  // before there is another
    return KvCache(kv_heads, head_dim, tokens, KvType::kF32, value_dim);
  }

  void Give(KvCache cache) {
    if (cache.bytes() > kMostBytes) return;
    const std::scoped_lock lock(mutex_);
    spare_.emplace(std::move(cache));
  }

 private:
  static constexpr int64_t kMostBytes = int64_t{32} << 20;  // 8 heads of 128: 4096 tokens
  std::mutex mutex_;
  std::optional<KvCache> spare_;
};

SpareCache& Spare() {
  static auto* const spare = new SpareCache;  // outlives threads that end with the process
  return *spare;
}

// One batch of attention, forward and backward. Sequences go one after another, each with a cache
// that is filled anew.
struct Batch {
  TensorView q, k, v;   // [batch, tokens, heads, head_dim], last stride 1
  TensorView out;       // [batch, tokens, heads, value_dim], row-major
  Pointer lse = 0;      // [batch, tokens, heads]
  Pointer entropy = 0;  // the same; 0: not wanted
  bool causal = true;
  std::optional<double> scale;
  int64_t window = 0;
  double soft_cap = 0;
  Pointer sinks = 0, temperatures = 0, query_positions = 0, key_positions = 0;
  Pointer document_starts = 0, query_document_starts = 0;
  int64_t documents = 0, query_documents = 0;
  // Of the lists above: elements from one sequence of the batch to the next; 0: all share them.
  int64_t temperature_stride = 0, query_position_stride = 0, key_position_stride = 0;
  PointerBias bias;
  std::optional<LoadRotation> rotation;
  std::optional<PreparedForm> shared;
  std::optional<ScoreForm> own;
  KvCache cache;  // of Prepare

  Batch() = default;
  Batch(Batch&&) = default;
  Batch& operator=(Batch&&) = delete;
  ~Batch() {
    if (cache.kv_heads() > 0) Spare().Give(std::move(cache));
  }

  int64_t batch() const { return q.shape[0]; }
  int64_t tokens() const { return q.shape[1]; }
  int64_t heads() const { return q.shape[2]; }
  int64_t keys() const { return k.shape[1]; }
  int64_t kv_heads() const { return k.shape[2]; }
  int64_t head_dim() const { return q.shape[3]; }

  // What positions of keys end before: as many as there are keys, unless they begin elsewhere.
  int64_t KeyEnd() const {
    int64_t end = keys();
    if (key_positions == 0 || keys() == 0) return end;
    for (int64_t b = 0; b < (key_position_stride == 0 ? 1 : batch()); ++b) {
      const int64_t* mine = At<const int64_t>(key_positions) + b * key_position_stride;
      // Others than consecutive ones are refused when the sequence is computed.
      const int64_t last = mine[keys() - 1];
      if (mine[0] >= 0 && last - mine[0] == keys() - 1) end = std::max(end, last + 1);
    }
    return end;
  }

  static TensorView Sequence(const TensorView& view, int64_t b) {
    TensorView one = view;
    one.rank = 3;
    one.data = static_cast<float*>(view.data) + b * view.strides[0];
    std::copy_n(view.shape + 1, 3, one.shape);
    std::copy_n(view.strides + 1, 3, one.strides);
    return one;
  }

  void Check() const {
    const auto refuse = [](const char* name, const TensorView& view, const char* expected) {
      throw Error(ErrorCode::kInvalidArgument, std::string("attention: ") + name + ": expected " +
                                                   expected + ", got " + view.ShapeString());
    };
    if (q.rank != 4) refuse("q", q, "[batch, tokens, heads, head_dim]");
    if (k.rank != 4 || k.shape[0] != q.shape[0] || k.shape[3] != q.shape[3] || k.shape[2] < 1) {
      refuse("k", k, "[batch, keys, kv_heads, head_dim] with q's batch and head_dim");
    }
    if (v.rank != 4 || !std::equal(k.shape, k.shape + 3, v.shape) || v.shape[3] < 1) {
      refuse("v", v, "k's batch, keys and heads, and elements in them");
    }
  }

  void Prepare() {
    Check();
    cache = Spare().Take(kv_heads(), head_dim(), v.shape[3], std::max<int64_t>(1, keys()));
    if (rotation) rotation->Grow(KeyEnd());
    if (bias.given() && !bias.by_sequence()) {
      shared.emplace(FormOf(bias, heads(), keys(), 0), heads(), head_dim());
    }
  }

  // The arguments of sequence b, with its keys in the cache.
  AttentionArgs Args(int64_t b) {
    cache.Truncate(0);
    cache.Append(Sequence(k, b), Sequence(v, b));
    AttentionArgs args{.q = Sequence(q, b), .out = Sequence(out, b), .cache = &cache};
    if (scale) args.scale = static_cast<float>(*scale);
    args.window_tokens = window;
    args.mask = causal ? AttentionMask::kCausal : AttentionMask::kBidirectional;
    args.soft_cap = static_cast<float>(soft_cap);
    args.sinks = SpanAt<float>(sinks, heads());
    const auto list = [b]<class T>(Pointer data, int64_t stride, int64_t size, T) {
      return data == 0 ? std::span<const T>()
                       : std::span<const T>(At<const T>(data) + b * stride,
                                            static_cast<std::size_t>(size));
    };
    args.temperatures = list(temperatures, temperature_stride, tokens(), 0.0f);
    args.query_positions = list(query_positions, query_position_stride, tokens(), int64_t{0});
    args.key_positions = list(key_positions, key_position_stride, keys(), int64_t{0});
    args.document_starts = SpanAt<int64_t>(document_starts, documents);
    args.query_document_starts = SpanAt<int64_t>(query_document_starts, query_documents);
    const int64_t rows = tokens() * heads();
    args.log_sum_exp = {At<float>(lse) + b * rows, static_cast<std::size_t>(rows)};
    if (entropy != 0) args.entropy = {At<float>(entropy) + b * rows, args.log_sum_exp.size()};
    if (rotation) args.rotation = &*rotation;
    if (shared) args.prepared = &*shared;
    if (bias.by_sequence()) {
      if (bias.sizes.at(0) != batch() * keys() * heads()) {
        throw Error(ErrorCode::kInvalidArgument,
                    "attention: log_gates: expected [batch, keys, heads], " +
                        std::to_string(batch() * keys() * heads()) + " numbers, got " +
                        std::to_string(bias.sizes[0]));
      }
      own = FormOf(bias, heads(), keys(), b);
      args.form = &*own;
    }
    return args;
  }
};

// The settings that forward and backward share, from Python's dictionary; it is read before the
// interpreter's lock is released.
Batch BatchOf(const nb::dict& d) {
  const auto has = [&](const char* key) { return d.contains(key) && !d[key].is_none(); };
  const auto number = [&](const char* key) {
    return has(key) ? nb::cast<int64_t>(d[key]) : int64_t{0};
  };
  const auto pointer = [&](const char* key) {
    return has(key) ? nb::cast<Pointer>(d[key]) : Pointer{0};
  };
  const auto tensor = [&](const char* key) {
    const auto t = nb::cast<nb::tuple>(d[key]);
    return ViewOf(nb::cast<Pointer>(t[0]), nb::cast<nb::tuple>(t[1]), nb::cast<nb::tuple>(t[2]),
                  static_cast<int>(DType::kF32));
  };
  Batch b;
  b.q = tensor("q");
  b.k = tensor("k");
  b.v = tensor("v");
  TensorView like_out = b.q;
  like_out.shape[3] = b.v.shape[3];
  b.out = NewRowMajor(like_out, pointer("out"));
  b.lse = pointer("lse");
  b.entropy = pointer("entropy");
  b.causal = nb::cast<bool>(d["causal"]);
  if (has("scale")) b.scale = nb::cast<double>(d["scale"]);
  b.window = number("window");
  b.soft_cap = has("soft_cap") ? nb::cast<double>(d["soft_cap"]) : 0;
  b.sinks = pointer("sinks");
  b.temperatures = pointer("temperatures");
  b.query_positions = pointer("query_positions");
  b.key_positions = pointer("key_positions");
  b.document_starts = pointer("document_starts");
  b.documents = number("documents");
  b.query_document_starts = pointer("query_document_starts");
  b.query_documents = number("query_documents");
  b.temperature_stride = number("temperature_stride");
  b.query_position_stride = number("query_position_stride");
  b.key_position_stride = number("key_position_stride");
  b.bias.kind = static_cast<int>(number("bias"));
  if (b.bias.given()) {
    b.bias.data = nb::cast<std::vector<Pointer>>(d["bias_data"]);
    b.bias.sizes = nb::cast<std::vector<int64_t>>(d["bias_sizes"]);
    b.bias.numbers = nb::cast<std::vector<int64_t>>(d["bias_numbers"]);
  }
  if (has("high")) {
    const int64_t pairs = number("pairs");
    RotarySpec spec(static_cast<PairLayout>(number("layout")));
    spec.head_dim = b.q.rank == 4 ? b.q.shape[3] : 0;
    spec.rotary_dim = 2 * pairs;
    spec.first_dim = number("first_dim");
    const Frequencies f =
        FrequenciesOf(pointer("high"), pointer("low"), pairs, nb::cast<double>(d["amplitude"]), 0);
    b.rotation.emplace(spec, f, AnglePrecision::kExact,
                       MapOf(nb::cast<std::vector<int64_t>>(d["map"])));
  }
  return b;
}

// The views of a map for queries first .. first + tokens - 1: for each, the positions by which
// queries and keys 0 .. keys - 1 are rotated, the keys [begin, end) that it scores for each query,
// and (returned) the divisor of the frequencies. All int64; `out` is a view's [3 tokens + keys].
int64_t MapViewCount(const std::vector<int64_t>& map) {
  return static_cast<int64_t>(Views(*MapOf(map)).size());
}

int64_t FillMapView(const std::vector<int64_t>& map, int64_t view, int64_t first, int64_t tokens,
                    int64_t keys, Pointer out) {
  const DistanceMap distances = *MapOf(map);
  const DistanceView v = Views(distances).at(static_cast<std::size_t>(view));
  if (!v.shares.empty()) {
    throw Error(ErrorCode::kUnsupported,
                Describe(distances) +
                    ": shares of the pairs have positions of their own, which is computed for "
                    "tensors on the CPU alone, and not under torch.compile");
  }
  auto* queries = At<int64_t>(out);
  int64_t *begins = queries + tokens, *ends = begins + tokens, *key_positions = ends + tokens;
  for (int64_t t = 0; t < tokens; ++t) {
    queries[t] = v.query(first + t);
    const KeyInterval seen = KeysOfView(distances, static_cast<int>(view), first + t);
    begins[t] = seen.first;
    ends[t] = seen.end;
  }
  for (int64_t j = 0; j < keys; ++j) key_positions[j] = v.key(j);
  return v.frequency_divisor;
}

void AttentionPointers(const nb::dict& arguments) {
  Batch batch = BatchOf(arguments);
  const nb::gil_scoped_release release;
  batch.Prepare();
  for (int64_t b = 0; b < batch.batch(); ++b) Attention(batch.Args(b));
}

// d_q, d_k, d_v are row-major and overwritten; d_sinks and d_bias are added to.
void AttentionBackwardPointers(const nb::dict& arguments, Pointer d_out, const nb::tuple& strides,
                               Pointer d_q, Pointer d_k, Pointer d_v, Pointer d_sinks,
                               const std::vector<Pointer>& d_bias) {
  Batch batch = BatchOf(arguments);
  TensorView d_outs = batch.out;
  d_outs.data = At<void>(d_out);
  for (int i = 0; i < d_outs.rank; ++i) d_outs.strides[i] = nb::cast<int64_t>(strides[i]);
  const TensorView d_qs = NewRowMajor(batch.q, d_q), d_ks = NewRowMajor(batch.k, d_k),
                   d_vs = NewRowMajor(batch.v, d_v);
  const nb::gil_scoped_release release;
  batch.Prepare();
  const bool wanted = std::any_of(d_bias.begin(), d_bias.end(), [](Pointer p) { return p != 0; });
  std::vector<double> sum;
  std::vector<float> sinks(d_sinks == 0 ? 0 : static_cast<std::size_t>(batch.heads()));
  for (int64_t b = 0; b < batch.batch(); ++b) {
    const AttentionArgs forward = batch.Args(b);
    FormGradient gradient;
    AttentionBackward({.forward = &forward,
                       .d_out = Batch::Sequence(d_outs, b),
                       .d_q = Batch::Sequence(d_qs, b),
                       .d_k = Batch::Sequence(d_ks, b),
                       .d_v = Batch::Sequence(d_vs, b),
                       .d_form = wanted ? &gradient : nullptr,
                       .d_sinks = sinks});
    AddTo(d_sinks, sinks);
    if (!wanted) continue;
    if (batch.bias.by_sequence()) {
      const int64_t own = batch.keys() * batch.heads();
      AddTo(d_bias.at(0) + static_cast<Pointer>(b * own) * sizeof(float), gradient.log_gates);
      continue;
    }
    if (gradient.parameters.empty()) {
      AddBiasGradient(batch.bias, gradient, {}, d_bias);
      continue;
    }
    sum.resize(gradient.parameters.size());
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradient.parameters[i];
  }
  if (!sum.empty()) AddBiasGradient(batch.bias, {}, sum, d_bias);
}

}  // namespace

void BindAttentionPointers(nb::module_& pointers) {
  pointers.def("map_views", &MapViewCount);
  pointers.def("fill_map_view", &FillMapView);
  pointers.def("attention", &AttentionPointers);
  pointers.def("attention_backward", &AttentionBackwardPointers);
}

}  // namespace ropewalk::python
