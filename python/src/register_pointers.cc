// Ops on raw pointers, for ropewalk.torch: it passes data_ptr(), shape and stride() of tensors,
// which costs a tenth of a microsecond where a tensor made into an ndarray costs five to ten. What a
// pointer points to is the caller's business (dtype, device, contiguity); sizes and positions are
// checked by the library.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "python/src/register.h"
#include "ropewalk/attention/attention.h"
#include "ropewalk/attention/backward.h"
#include "ropewalk/base/error.h"
#include "ropewalk/plan/plan.h"
#include "ropewalk/relative/distance_map.h"
#include "ropewalk/relative/fire.h"
#include "ropewalk/relative/swin.h"
#include "ropewalk/relative/tupe.h"
#include "ropewalk/rotary/gradient.h"
#include "ropewalk/rotary/rotate.h"
#include "ropewalk/rotary/table.h"

namespace ropewalk::python {
namespace {

using Pointer = uint64_t;  // data_ptr()

template <class T>
T* At(Pointer pointer) {
  return reinterpret_cast<T*>(static_cast<uintptr_t>(pointer));
}

template <class T>
std::span<const T> SpanAt(Pointer pointer, int64_t size) {
  return {At<const T>(pointer), pointer == 0 ? 0 : static_cast<std::size_t>(size)};
}

// A view without strides is row-major.
TensorView ViewOf(Pointer data, const nb::tuple& shape, const nb::tuple& strides, int dtype) {
  TensorView view;
  view.data = At<void>(data);
  view.dtype = static_cast<DType>(dtype);
  const auto rank = static_cast<int>(nb::len(shape));
  if (rank > 4 || (nb::len(strides) != 0 && static_cast<int>(nb::len(strides)) != rank)) {
    throw Error(ErrorCode::kInvalidArgument,
                "tensor: expected at most 4 dimensions, got " + std::to_string(rank));
  }
  view.rank = rank;
  int64_t stride = 1;
  for (int i = rank - 1; i >= 0; --i) {
    view.shape[i] = nb::cast<int64_t>(shape[i]);
    view.strides[i] = nb::len(strides) == 0 ? stride : nb::cast<int64_t>(strides[i]);
    stride *= std::max<int64_t>(1, view.shape[i]);
  }
  return view;
}

TensorView RowMajor(const TensorView& like, Pointer data) {
  TensorView view = like;
  view.data = At<void>(data);
  int64_t stride = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    view.strides[i] = stride;
    stride *= std::max<int64_t>(1, view.shape[i]);
  }
  return view;
}

// Elements that the 50 us of a call without the interpreter's lock are worth.
constexpr int64_t kManyElements = 1 << 18;

template <class F>
void WithoutLockIf(bool much, F&& work) {
  if (!much) return work();
  const nb::gil_scoped_release release;
  work();
}

// `bytes` per position, 4 or 8; 0: consecutive ones from `start` on.
Positions PositionsOf(Pointer data, int bytes, int64_t size, int axes, int64_t start) {
  if (bytes == 4) return Positions::Each(SpanAt<int32_t>(data, size), axes);
  if (bytes == 8) return Positions::Each(SpanAt<int64_t>(data, size), axes);
  return Positions::From(start);
}

// Frequencies given as float64, [pairs] or as sums of two, with the axis of each pair.
Frequencies FrequenciesOf(Pointer high, Pointer low, int64_t pairs, double amplitude,
                          Pointer axis) {
  Frequencies f;
  for (int64_t i = 0; i < pairs; ++i) {
    const DoubleDouble x{At<double>(high)[i], low == 0 ? 0 : At<double>(low)[i]};
    f.inv_freq.push_back(x);
    f.inv_freq_f32.push_back(static_cast<float>(x.hi));
  }
  f.amplitude = amplitude;
  const std::span<const uint8_t> axes = SpanAt<uint8_t>(axis, pairs);
  f.axis.assign(axes.begin(), axes.end());
  if (!axes.empty()) f.axes = *std::max_element(axes.begin(), axes.end()) + 1;
  return f;
}

// rows, or else frequencies; q_out and k_out are row-major, 0: in place.
void RotatePointers(Pointer q, const nb::tuple& q_shape, const nb::tuple& q_strides, Pointer k,
                    const nb::tuple& k_shape, const nb::tuple& k_strides, Pointer q_out,
                    Pointer k_out, int dtype, Pointer rows, int64_t first, int64_t count,
                    Pointer high, Pointer low, int64_t pairs, double amplitude, Pointer axis,
                    Pointer positions, int position_bytes, int64_t position_count, int axes,
                    int64_t start, int layout, int64_t first_dim, int64_t rotated_heads,
                    int direction) {
  RotateArgs args{.layout = static_cast<PairLayout>(layout),
                  .positions = PositionsOf(positions, position_bytes, position_count, axes, start),
                  .q = ViewOf(q, q_shape, q_strides, dtype),
                  .first_dim = first_dim,
                  .direction = static_cast<Direction>(direction),
                  .rotated_heads = rotated_heads};
  if (nb::len(k_shape) != 0) args.k = ViewOf(k, k_shape, k_strides, dtype);
  if (q_out != 0) args.q_out = RowMajor(args.q, q_out);
  if (k_out != 0) args.k_out = RowMajor(args.k, k_out);
  const bool much =
      args.q.NumElements() + (args.k.rank == 0 ? 0 : args.k.NumElements()) > kManyElements;
  if (high == 0) {
    const CosSinTable table = CosSinTable::View(At<const float>(rows), first, count, pairs,
                                                amplitude, SpanAt<uint8_t>(axis, pairs));
    args.table = &table;
    WithoutLockIf(much, [&] { Rotate(args); });
  } else {
    const Frequencies frequencies = FrequenciesOf(high, low, pairs, amplitude, axis);
    args.frequencies = &frequencies;
    WithoutLockIf(much, [&] { Rotate(args); });
  }
}

void FillRows(Pointer high, Pointer low, int64_t pairs, double amplitude, int64_t first,
              int64_t count, int precision, Pointer out) {
  const Frequencies frequencies = FrequenciesOf(high, low, pairs, amplitude, 0);
  WithoutLockIf(count * pairs > kManyElements / 64, [&] {
    const CosSinTable table(frequencies, first, count, static_cast<AnglePrecision>(precision));
    if (count > 0) std::copy_n(table.Row(first), count * 2 * pairs, At<float>(out));
  });
}

// out [pairs + 1] float64: of the frequencies, then of the amplitude; added to what is there.
void AddFrequencyGradient(Pointer value, const nb::tuple& shape, const nb::tuple& strides,
                          Pointer gradient, const nb::tuple& gradient_strides, int dtype,
                          Pointer high, Pointer low, int64_t pairs, double amplitude, Pointer axis,
                          Pointer positions, int position_bytes, int64_t position_count, int axes,
                          int64_t start, int layout, int64_t first_dim, Pointer out) {
  const Frequencies frequencies = FrequenciesOf(high, low, pairs, amplitude, axis);
  const RotaryGradientArgs args{
      .frequencies = &frequencies,
      .layout = static_cast<PairLayout>(layout),
      .positions = PositionsOf(positions, position_bytes, position_count, axes, start),
      .value = ViewOf(value, shape, strides, dtype),
      .gradient = ViewOf(gradient, shape, gradient_strides, dtype),
      .first_dim = first_dim};
  WithoutLockIf(args.value.NumElements() > kManyElements, [&] {
    const RotaryGradient g = FrequencyGradient(args);
    for (int64_t i = 0; i < pairs; ++i) At<double>(out)[i] += g.inv_freq[i];
    At<double>(out)[pairs] += g.amplitude;
  });
}

// The kinds of a bias, as ropewalk.torch numbers them.
enum BiasKind : int {
  kNoBias,
  kSlope,
  kDistance,
  kContent,
  kGates,
  kContextual,
  kFire,
  kTupe,
  kSwin
};

// A bias as lists: float32 tensors in the order of the fields of its struct (row_of of kContent is
// int32), then whole numbers.
struct Bias {
  int kind = kNoBias;
  std::vector<Pointer> data;
  std::vector<int64_t> sizes, numbers;

  std::vector<float> Floats(std::size_t i) const {
    const std::span<const float> s = SpanAt<float>(data.at(i), sizes.at(i));
    return {s.begin(), s.end()};
  }
  double Number(std::size_t i) const { return SpanAt<float>(data.at(i), sizes.at(i))[0]; }
};

FireBias FireOf(const Bias& b) {
  return {.w1 = b.Floats(0),
          .b1 = b.Floats(1),
          .w2 = b.Floats(2),
          .b2 = b.Floats(3),
          .c = b.Number(4),
          .threshold = b.Number(5)};
}

SwinBias SwinOf(const Bias& b) {
  return {.height = b.numbers[0],
          .width = b.numbers[1],
          .pretrained_height = b.numbers[2],
          .pretrained_width = b.numbers[3],
          .w1 = b.Floats(0),
          .b1 = b.Floats(1),
          .w2 = b.Floats(2)};
}

TupeBias TupeOf(const Bias& b) {
  TupeBias t{.positions = b.numbers[0],
             .model_dim = b.numbers[1],
             .head_dim = b.numbers[2],
             .embedding = b.Floats(0),
             .query_projection = b.Floats(1),
             .query_projection_bias = b.Floats(2),
             .key_projection = b.Floats(3),
             .key_projection_bias = b.Floats(4),
             .from_cls = b.Floats(6),
             .to_cls = b.Floats(7)};
  if (b.sizes.at(5) > 0) {
    t.relative = T5Bias{.buckets = b.numbers[3],
                        .last_distance = b.numbers[4],
                        .bidirectional = b.numbers[5] != 0,
                        .embedding = b.Floats(5)};
  }
  return t;
}

// Of sequence `b` of the batch: gates differ from one to the next.
ScoreForm FormOf(const Bias& bias, int64_t heads, int64_t keys, int64_t b) {
  const std::vector<int64_t>& n = bias.numbers;
  switch (bias.kind) {
    case kSlope:
      return SlopeForm{.behind = bias.Floats(0), .ahead = bias.Floats(1)};
    case kDistance:
      return DistanceForm{.first = n[0],
                          .columns = n[1],
                          .values = bias.Floats(0),
                          .repeats_ahead = n[2] != 0,
                          .repeats_behind = n[3] != 0};
    case kContent: {
      const std::span<const int32_t> row_of = SpanAt<int32_t>(bias.data.at(0), bias.sizes.at(0));
      return ContentForm{.first = n[0],
                         .row_of = {row_of.begin(), row_of.end()},
                         .rows = n[1],
                         .head_dim = n[2],
                         .table_heads = n[3],
                         .query_rows = bias.Floats(1),
                         .key_rows = bias.Floats(2),
                         .value_rows = bias.Floats(3),
                         .query_bias = bias.Floats(4),
                         .key_bias = bias.Floats(5),
                         .repeats_ahead = n[4] != 0,
                         .repeats_behind = n[5] != 0};
    }
    case kGates: {
      const std::span<const float> gates = SpanAt<float>(bias.data.at(0), bias.sizes.at(0));
      const auto size = static_cast<std::size_t>(heads * keys);
      const std::span<const float> own = gates.subspan(static_cast<std::size_t>(b) * size, size);
      RunningForm form;
      form.log_gates.assign(own.begin(), own.end());
      return form;
    }
    case kContextual: {
      RunningForm form;
      form.kind = RunningForm::Kind::kContextual;
      form.rows = n[0];
      form.head_dim = n[1];
      form.table_heads = n[2];
      form.position_rows = bias.Floats(0);
      return form;
    }
    case kFire:
      return FireOf(bias).Lower(heads, n[0]);
    case kTupe:
      return TupeOf(bias).Lower(heads, keys);
    case kSwin:
      return SwinOf(bias).Lower(heads, keys);
    default:
      throw Error(ErrorCode::kInvalidArgument,
                  "bias: expected a kind that is known, got " + std::to_string(bias.kind));
  }
}

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
    default:
      throw Error(ErrorCode::kInvalidArgument,
                  "remap: expected a map that is known, got " + std::to_string(map[0]));
  }
}

// One batch of attention, forward and backward. Sequences go one after another, each with a cache
// that is filled anew.
struct Batch {
  TensorView q, k, v;  // [batch, tokens, heads, head_dim], last stride 1
  TensorView out;      // row-major
  Pointer lse = 0;     // [batch, tokens, heads]
  bool causal = true;
  std::optional<double> scale;
  int64_t window = 0;
  double soft_cap = 0;
  Pointer sinks = 0, temperatures = 0, query_positions = 0, key_positions = 0;
  Pointer document_starts = 0;
  int64_t documents = 0;
  // Of the lists above: elements from one sequence of the batch to the next; 0: all share them.
  int64_t temperature_stride = 0, query_position_stride = 0, key_position_stride = 0;
  Bias bias;
  std::optional<LoadRotation> rotation;
  std::optional<PreparedForm> shared;
  std::optional<ScoreForm> own;
  KvCache cache;

  int64_t batch() const { return q.shape[0]; }
  int64_t tokens() const { return q.shape[1]; }
  int64_t heads() const { return q.shape[2]; }
  int64_t keys() const { return k.shape[1]; }
  int64_t kv_heads() const { return k.shape[2]; }
  int64_t head_dim() const { return q.shape[3]; }

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
    if (v.rank != 4 || !std::equal(k.shape, k.shape + 4, v.shape)) refuse("v", v, "k's shape");
  }

  void Prepare() {
    Check();
    cache = KvCache(kv_heads(), head_dim(), std::max<int64_t>(1, keys()));
    if (rotation) rotation->Grow(keys());
    if (bias.kind != kNoBias && bias.kind != kGates) {
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
    args.log_sum_exp = {At<float>(lse) + b * tokens() * heads(),
                        static_cast<std::size_t>(tokens() * heads())};
    if (rotation) args.rotation = &*rotation;
    if (shared) args.prepared = &*shared;
    if (bias.kind == kGates) {
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
  b.out = RowMajor(b.q, pointer("out"));
  b.lse = pointer("lse");
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
  b.temperature_stride = number("temperature_stride");
  b.query_position_stride = number("query_position_stride");
  b.key_position_stride = number("key_position_stride");
  b.bias.kind = static_cast<int>(number("bias"));
  if (b.bias.kind != kNoBias) {
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

template <class T>
void AddTo(Pointer out, const std::vector<T>& gradient) {
  if (out == 0) return;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    At<float>(out)[i] += static_cast<float>(gradient[i]);
  }
}

// d_bias: where the gradient of each tensor of the bias is added, in their order; 0: nowhere.
void AddBiasGradient(const Bias& bias, const FormGradient& g, const std::vector<double>& sum,
                     const std::vector<Pointer>& d_bias) {
  const auto add = [&](auto&&... fields) {
    std::size_t i = 0;
    (AddTo(d_bias.at(i++), fields), ...);
  };
  const std::vector<float> none;
  switch (bias.kind) {
    case kSlope:
      return add(g.behind, g.ahead);
    case kDistance:
      return add(g.values);
    case kContent:
      return add(none, g.query_rows, g.key_rows, g.value_rows, g.query_bias, g.key_bias);
    case kContextual:
      return add(g.position_rows);
    case kFire: {
      const FireBias::Gradient d = FireOf(bias).Backward(sum);
      return add(d.w1, d.b1, d.w2, d.b2, std::vector{d.c}, std::vector{d.threshold});
    }
    case kTupe: {
      const TupeBias::Gradient d = TupeOf(bias).Backward(sum);
      return add(d.embedding, d.query_projection, d.query_projection_bias, d.key_projection,
                 d.key_projection_bias, d.relative, d.from_cls, d.to_cls);
    }
    case kSwin: {
      const SwinBias::Gradient d = SwinOf(bias).Backward(sum);
      return add(d.w1, d.b1, d.w2);
    }
    default:
      return;
  }
}

// d_q, d_k, d_v are row-major and overwritten; d_sinks and d_bias are added to.
void AttentionBackwardPointers(const nb::dict& arguments, Pointer d_out, const nb::tuple& strides,
                               Pointer d_q, Pointer d_k, Pointer d_v, Pointer d_sinks,
                               const std::vector<Pointer>& d_bias) {
  Batch batch = BatchOf(arguments);
  TensorView d_outs = batch.q;
  d_outs.data = At<void>(d_out);
  for (int i = 0; i < d_outs.rank; ++i) d_outs.strides[i] = nb::cast<int64_t>(strides[i]);
  const TensorView d_qs = RowMajor(batch.q, d_q), d_ks = RowMajor(batch.k, d_k),
                   d_vs = RowMajor(batch.v, d_v);
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
    if (batch.bias.kind == kGates) {
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

void RegisterPointers(nb::module_& m) {
  nb::module_ pointers = m.def_submodule("pointers", "Ops on raw pointers, for ropewalk.torch.");
  pointers.def("rotate", &RotatePointers);
  pointers.def("fill_rows", &FillRows);
  pointers.def("frequency_gradient", &AddFrequencyGradient);
  pointers.def("frequencies", [](const ResolvedRotation& r) {  // [2, pairs]
    std::vector<double> both;
    for (const DoubleDouble& f : r.frequencies.inv_freq) both.push_back(f.hi);
    for (const DoubleDouble& f : r.frequencies.inv_freq) both.push_back(f.lo);
    return both;
  });
  pointers.def("map_views", &MapViewCount);
  pointers.def("fill_map_view", &FillMapView);
  pointers.def("attention", &AttentionPointers);
  pointers.def("attention_backward", &AttentionBackwardPointers);
}

}  // namespace ropewalk::python
