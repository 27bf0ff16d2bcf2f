// The biases of ropewalk.torch as the library has them, and the gradients of their tensors.
#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "python/src/pointers.h"
#include "ropewalk/relative/fire.h"
#include "ropewalk/relative/swin.h"
#include "ropewalk/relative/tupe.h"

namespace ropewalk::python {
namespace {

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

std::vector<float> ListAt(const PointerBias& b, std::size_t i) {
  const std::span<const float> s = SpanAt<float>(b.data.at(i), b.sizes.at(i));
  return {s.begin(), s.end()};
}

double Number(const PointerBias& b, std::size_t i) {
  return SpanAt<float>(b.data.at(i), b.sizes.at(i))[0];
}

FireBias FireOf(const PointerBias& b) {
  return {.w1 = ListAt(b, 0),
          .b1 = ListAt(b, 1),
          .w2 = ListAt(b, 2),
          .b2 = ListAt(b, 3),
          .c = Number(b, 4),
          .threshold = Number(b, 5)};
}

SwinBias SwinOf(const PointerBias& b) {
  return {.height = b.numbers[0],
          .width = b.numbers[1],
          .pretrained_height = b.numbers[2],
          .pretrained_width = b.numbers[3],
          .w1 = ListAt(b, 0),
          .b1 = ListAt(b, 1),
          .w2 = ListAt(b, 2)};
}

TupeBias TupeOf(const PointerBias& b) {
  TupeBias t{.positions = b.numbers[0],
             .model_dim = b.numbers[1],
             .head_dim = b.numbers[2],
             .embedding = ListAt(b, 0),
             .query_projection = ListAt(b, 1),
             .query_projection_bias = ListAt(b, 2),
             .key_projection = ListAt(b, 3),
             .key_projection_bias = ListAt(b, 4),
             .from_cls = ListAt(b, 6),
             .to_cls = ListAt(b, 7)};
  if (b.sizes.at(5) > 0) {
    t.relative = T5Bias{.buckets = b.numbers[3],
                        .last_distance = b.numbers[4],
                        .bidirectional = b.numbers[5] != 0,
                        .embedding = ListAt(b, 5)};
  }
  return t;
}

}  // namespace

bool PointerBias::by_sequence() const { return kind == kGates; }

ScoreForm FormOf(const PointerBias& bias, int64_t heads, int64_t keys, int64_t b) {
  const std::vector<int64_t>& n = bias.numbers;
  switch (bias.kind) {
    case kSlope:
      return SlopeForm{.behind = ListAt(bias, 0), .ahead = ListAt(bias, 1)};
    case kDistance:
      return DistanceForm{.first = n[0],
                          .columns = n[1],
                          .values = ListAt(bias, 0),
                          .repeats_ahead = n[2] != 0,
                          .repeats_behind = n[3] != 0};
    case kContent: {
      const std::span<const int32_t> row_of = SpanAt<int32_t>(bias.data.at(0), bias.sizes.at(0));
      return ContentForm{.first = n[0],
                         .row_of = {row_of.begin(), row_of.end()},
                         .rows = n[1],
                         .head_dim = n[2],
                         .table_heads = n[3],
                         .query_rows = ListAt(bias, 1),
                         .key_rows = ListAt(bias, 2),
                         .value_rows = ListAt(bias, 3),
                         .query_bias = ListAt(bias, 4),
                         .key_bias = ListAt(bias, 5),
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
      form.position_rows = ListAt(bias, 0);
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

void AddBiasGradient(const PointerBias& bias, const FormGradient& g, const std::vector<double>& sum,
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

}  // namespace ropewalk::python
