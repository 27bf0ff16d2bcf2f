// The ops of ropewalk.h.
#include <vector>

#include "ropewalk/rotary/gradient.h"
#include "ropewalk/rotary/positions.h"
#include "ropewalk/rotary/rerotate.h"
#include "src/capi/capi.h"

struct ropewalk_position_builder {
  ropewalk::PositionBuilder builder;
};

namespace ropewalk::capi {

// The numbers of the header are those of the enums.
static_assert(ROPEWALK_F64 == static_cast<int>(DType::kF64) &&
              ROPEWALK_F8_E4M3 == static_cast<int>(DType::kF8E4M3));
static_assert(ROPEWALK_CUDA == static_cast<int>(Device::kCuda));
static_assert(ROPEWALK_INVERSE == static_cast<int>(Direction::kInverse));
static_assert(ROPEWALK_ROTATE_VALUES == static_cast<int>(ValueRotation::kRotate));
static_assert(ROPEWALK_RULE_QWEN3_VL == static_cast<int>(PositionRule::kQwen3Vl) &&
              ROPEWALK_RULE_XD_ROPE == static_cast<int>(PositionRule::kXdRope) &&
              ROPEWALK_RULE_ROPE_TV == static_cast<int>(PositionRule::kRopeTv));
static_assert(ROPEWALK_YARN_REPO == static_cast<int>(Dialect::kYarnRepo));
static_assert(ROPEWALK_ERNIE_AXES == static_cast<int>(AxisOrder::kErnie));
static_assert(ROPEWALK_FLOAT32 == static_cast<int>(AnglePrecision::kFloat32));
static_assert(ROPEWALK_INTERLEAVED == static_cast<int>(PairLayout::kInterleaved) + 1);
static_assert(ROPEWALK_MISMATCH ==
              static_cast<int>(ErrorCode::kMismatch) + ROPEWALK_INVALID_ARGUMENT);

TensorView View(const ropewalk_tensor* tensor, const char* name) {
  const ropewalk_tensor t = Read(tensor, name);
  if (t.rank < 1 || t.rank > TensorView::kMaxRank) {
    Bad(std::string(name) + ".rank: expected 1 to 5, got " + std::to_string(t.rank));
  }
  TensorView view;
  view.data = t.data;
  view.dtype = Enum<DType>(t.dtype, 0, 4, "dtype");
  view.device = Enum<Device>(t.device, 0, 1, "device");
  view.rank = t.rank;
  std::copy(t.shape, t.shape + t.rank, view.shape);
  std::copy(t.strides, t.strides + t.rank, view.strides);
  return view;
}

TensorView OptionalView(const ropewalk_tensor* tensor, const char* name) {
  return tensor == nullptr ? TensorView{} : View(tensor, name);
}

Positions PositionsOf(const ropewalk_positions* positions) {
  const ropewalk_positions p = Read(positions, "positions");
  const int axes = p.axes == 0 ? 1 : p.axes;
  if (axes < 1 || axes > 4) {
    Bad("positions.axes: expected 1 to 4 (0 is 1), got " + std::to_string(p.axes));
  }
  const auto list = [&] { return List(static_cast<const int64_t*>(p.data), p.count, "positions"); };
  switch (p.kind) {
    case ROPEWALK_START:
      return Positions::From(p.start);
    case ROPEWALK_EACH_INT32:
      return Positions::Each(List(static_cast<const int32_t*>(p.data), p.count, "positions"), axes);
    case ROPEWALK_EACH_INT64:
      return Positions::Each(list(), axes);
    case ROPEWALK_STARTS:
      return Positions::Starts(list());
    case ROPEWALK_PACKED:
      return Positions::Packed(list());
    case ROPEWALK_LEFT_PADDED:
      return Positions::LeftPadded(list());
    default:
      Bad("positions.kind: expected 0 to 5, got " + std::to_string(p.kind));
  }
}

namespace {

HeadNorm NormOf(const float* weight, double eps, const TensorView& x) {
  if (weight == nullptr) return {};
  const int64_t head_dim = x.rank > 0 ? x.shape[x.rank - 1] : 0;
  return {List(weight, head_dim, "norm weight"), eps};
}

void Rotate(const ropewalk_rotate_args* given) {
  const ropewalk_rotate_args a = Read(given, "args");
  RotateArgs args{.layout = Layout(a.layout),
                  .positions = PositionsOf(a.positions),
                  .q = View(a.q, "q"),
                  .k = OptionalView(a.k, "k"),
                  .q_out = OptionalView(a.q_out, "q_out"),
                  .k_out = OptionalView(a.k_out, "k_out"),
                  .first_dim = a.first_dim,
                  .direction = Enum<Direction>(a.direction, 0, 2, "direction"),
                  .precision = Precision(a.precision),
                  .v = OptionalView(a.v, "v"),
                  .v_out = OptionalView(a.v_out, "v_out"),
                  .values = Enum<ValueRotation>(a.values, 0, 1, "values"),
                  .rotated_heads = a.rotated_heads,
                  .slots = List(a.slots, a.num_slots, "slots"),
                  .stream = a.stream};
  if (a.table != nullptr) args.table = &a.table->table;
  if (a.frequencies != nullptr) args.frequencies = &a.frequencies->frequencies;
  if (a.k_scale != 0) args.k_scale = a.k_scale;
  if (a.v_scale != 0) args.v_scale = a.v_scale;
  args.q_norm = NormOf(a.q_norm_weight, a.q_norm_eps, args.q);
  args.k_norm = NormOf(a.k_norm_weight, a.k_norm_eps, args.q);
  ropewalk::Rotate(args);
}

Q8KeysView Q8ViewOf(const ropewalk_q8_keys* given) {
  const ropewalk_q8_keys k = Read(given, "q8_keys");
  Q8KeysView view = Q8KeysView::Contiguous(k.data, k.batch, k.tokens, k.heads, k.head_dim);
  const bool strides =
      k.strides_bytes[0] != 0 || k.strides_bytes[1] != 0 || k.strides_bytes[2] != 0;
  if (strides) std::copy(k.strides_bytes, k.strides_bytes + 3, view.strides_bytes);
  view.device = Enum<Device>(k.device, 0, 1, "q8_keys.device");
  return view;
}

Moves MovesOf(const ropewalk_rerotate_args& a) {
  const bool from_to = a.old_positions != nullptr || a.new_positions != nullptr;
  const int lists = (a.sequence_deltas != nullptr) + (a.token_deltas != nullptr) + from_to;
  if (lists > 1 || (lists == 1 && a.delta != 0)) {
    Bad("expected one of delta, sequence_deltas, token_deltas, and old_positions with "
        "new_positions");
  }
  if (a.sequence_deltas != nullptr) {
    return Moves::Sequences(List(a.sequence_deltas, a.num, "sequence_deltas"));
  }
  if (a.token_deltas != nullptr) return Moves::Tokens(List(a.token_deltas, a.num, "token_deltas"));
  if (from_to) {
    return Moves::FromTo(List(a.old_positions, a.num, "old_positions"),
                         List(a.new_positions, a.num, "new_positions"));
  }
  return Moves::All(a.delta);
}

void Rerotate(const ropewalk_rerotate_args* given) {
  const ropewalk_rerotate_args a = Read(given, "args");
  RerotateArgs args{.frequencies = &NotNull(a.frequencies, "frequencies").frequencies,
                    .layout = Layout(a.layout),
                    .moves = MovesOf(a),
                    .keys = OptionalView(a.keys, "keys"),
                    .first_dim = a.first_dim};
  if (a.q8_keys != nullptr) args.q8_keys = Q8ViewOf(a.q8_keys);
  if (a.from != nullptr) args.from = &a.from->frequencies;
  args.amplitude = Enum<AmplitudeChange>(a.amplitude_ratio, 0, 1, "amplitude_ratio");
  args.stream = a.stream;
  ropewalk::Rerotate(args);
}

RotaryGradientArgs GradientArgsOf(const ropewalk_gradient_args* given) {
  const ropewalk_gradient_args a = Read(given, "args");
  return {.frequencies = &NotNull(a.frequencies, "frequencies").frequencies,
          .layout = Layout(a.layout),
          .positions = PositionsOf(a.positions),
          .value = View(a.value, "value"),
          .gradient = View(a.gradient, "gradient"),
          .first_dim = a.first_dim};
}

void CopySlots(const std::vector<int64_t>& slots, int64_t* out) {
  if (!slots.empty()) NotNull(out, "out");
  std::copy(slots.begin(), slots.end(), out);
}

// Batches come as lists that may be empty.
std::size_t Product(int64_t a, int64_t b) {
  int64_t product = 0;
  if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product)) {
    Bad("sizes: " + std::to_string(a) + " times " + std::to_string(b));
  }
  return static_cast<std::size_t>(product);
}

}  // namespace
}  // namespace ropewalk::capi

using ropewalk::capi::Guard;
using ropewalk::capi::List;
using ropewalk::capi::NotNull;

ropewalk_status ropewalk_rotate(const ropewalk_rotate_args* args) {
  return Guard([&] { ropewalk::capi::Rotate(args); });
}

ropewalk_status ropewalk_rerotate(const ropewalk_rerotate_args* args) {
  return Guard([&] { ropewalk::capi::Rerotate(args); });
}

ropewalk_status ropewalk_block_table_slots(const int32_t* table, int64_t blocks_per_sequence,
                                           int64_t block_slots, const int64_t* first, int64_t batch,
                                           int64_t tokens, int64_t* out) {
  return Guard([&] {
    const std::size_t size = ropewalk::capi::Product(batch, blocks_per_sequence);
    ropewalk::capi::CopySlots(
        ropewalk::BlockTableSlots(List(table, static_cast<int64_t>(size), "table"),
                                  blocks_per_sequence, block_slots, List(first, batch, "first"),
                                  tokens),
        out);
  });
}

ropewalk_status ropewalk_ring_slots(int64_t capacity, const int64_t* first, int64_t batch,
                                    int64_t tokens, int64_t* out) {
  return Guard([&] {
    ropewalk::capi::CopySlots(ropewalk::RingSlots(capacity, List(first, batch, "first"), tokens),
                              out);
  });
}

ropewalk_status ropewalk_frequency_gradient(const ropewalk_gradient_args* args, double* inv_freq,
                                            double* amplitude) {
  return Guard([&] {
    NotNull(inv_freq, "inv_freq");
    const ropewalk::RotaryGradient g =
        ropewalk::FrequencyGradient(ropewalk::capi::GradientArgsOf(args));
    std::copy(g.inv_freq.begin(), g.inv_freq.end(), inv_freq);
    if (amplitude != nullptr) *amplitude = g.amplitude;
  });
}

ropewalk_status ropewalk_frequency_gradient_workspace(const ropewalk_gradient_args* args,
                                                      int64_t* bytes) {
  return Guard([&] {
    NotNull(bytes, "bytes");
    *bytes = ropewalk::FrequencyGradientWorkspace(ropewalk::capi::GradientArgsOf(args));
  });
}

ropewalk_status ropewalk_frequency_gradient_cuda(const ropewalk_gradient_args* given,
                                                 void* workspace, double* out,
                                                 const double* base_derivative, void* stream) {
  return Guard([&] {
    const ropewalk::RotaryGradientArgs args = ropewalk::capi::GradientArgsOf(given);
    std::span<const double> derivative;
    if (base_derivative != nullptr)
      derivative = {base_derivative, args.frequencies->inv_freq.size()};
    ropewalk::FrequencyGradientOnDevice(args, workspace, out, derivative, stream);
  });
}

ropewalk_status ropewalk_position_builder_create(const ropewalk_position_rule* given,
                                                 ropewalk_position_builder** out) {
  return Guard([&] {
    NotNull(out, "out");
    const ropewalk_position_rule r = ropewalk::capi::Read(given, "rule");
    ropewalk::PositionRuleSpec spec{
        .rule = ropewalk::capi::Enum<ropewalk::PositionRule>(r.rule, 0, 7, "rule")};
    if (r.spatial_merge != 0) spec.spatial_merge = r.spatial_merge;
    if (r.temporal_merge != 0) spec.temporal_merge = r.temporal_merge;
    if (r.tokens_per_second != 0) spec.tokens_per_second = r.tokens_per_second;
    *out = new ropewalk_position_builder{ropewalk::PositionBuilder(spec, r.start)};
  });
}

ropewalk_status ropewalk_position_builder_text(ropewalk_position_builder* builder, int64_t tokens) {
  return Guard([&] {
    NotNull(builder, "builder");
    builder->builder.Text(tokens);
  });
}

ropewalk_status ropewalk_position_builder_image(ropewalk_position_builder* builder, int64_t height,
                                                int64_t width) {
  return Guard([&] {
    NotNull(builder, "builder");
    builder->builder.Image(height, width);
  });
}

ropewalk_status ropewalk_position_builder_video(ropewalk_position_builder* builder, int64_t frames,
                                                int64_t height, int64_t width,
                                                double seconds_per_grid) {
  return Guard([&] {
    NotNull(builder, "builder");
    builder->builder.Video(frames, height, width, seconds_per_grid);
  });
}

ropewalk_status ropewalk_position_builder_timestamped_video(ropewalk_position_builder* builder,
                                                            const int64_t* timestamp_tokens,
                                                            int64_t frames, int64_t height,
                                                            int64_t width) {
  return Guard([&] {
    NotNull(builder, "builder");
    builder->builder.TimestampedVideo(List(timestamp_tokens, frames, "timestamp_tokens"), height,
                                      width);
  });
}

ropewalk_status ropewalk_position_builder_get(const ropewalk_position_builder* builder,
                                              ropewalk_token_positions* out, int64_t* values,
                                              int64_t capacity) {
  return Guard([&] {
    ropewalk_token_positions info = ropewalk::capi::Read(out, "out");
    const ropewalk::TokenPositions p = NotNull(builder, "builder").builder.Build();
    const int64_t needed = static_cast<int64_t>(p.values.size());
    if (values != nullptr && capacity < needed) {
      ropewalk::capi::Bad("values: room for " + std::to_string(capacity) + " of " +
                          std::to_string(needed) + " positions");
    }
    info.axes = p.axes;
    info.tokens = p.tokens;
    info.denominator = p.denominator;
    info.next = p.next;
    ropewalk::capi::Write(info, out);
    if (values != nullptr) std::copy(p.values.begin(), p.values.end(), values);
  });
}

void ropewalk_position_builder_destroy(ropewalk_position_builder* builder) { delete builder; }
