// Apart from what describes and hashes a bias: a configuration is read without a thread.
#include <algorithm>
#include <variant>

#include "ropewalk/base/error.h"
#include "ropewalk/plan/layer_bias.h"

namespace ropewalk {
namespace {

struct LowerBias {
  const LayerBias& bias;
  int64_t last;  // distance
  AnglePrecision precision;
  ScoreForm operator()(const AlibiBias& alibi) const {
    if (alibi.bfloat16 && precision == AnglePrecision::kFloat32) {
      return alibi.LowerInBfloat16(bias.heads);
    }
    return alibi.Lower(bias.heads, last);
  }
  ScoreForm operator()(const T5LayerBias& t5) const { return t5.bias.Lower(bias.heads, last); }
  ScoreForm operator()(const DebertaLayerBias& deberta) const {
    return deberta.bias.Lower(bias.heads, last);
  }
  ScoreForm operator()(const NezhaLayerBias& nezha) const {
    return nezha.Shaw().Lower(bias.heads, last);
  }
  ScoreForm operator()(const TransformerXlBias& xl) const { return xl.Lower(bias.heads, last); }
  ScoreForm operator()(const KerpleBias& kerple) const { return kerple.Lower(bias.heads, last); }
  ScoreForm operator()(const SandwichBias& sandwich) const {
    return sandwich.Lower(bias.heads, last);
  }
  // The settings of a bias whose values are tensors of a model.
  template <class Settings>
  ScoreForm operator()(const Settings& /*settings*/) const {
    throw Error(ErrorCode::kInvalidArgument,
                "Lower: the values of this bias are tensors of its model: " + Describe(bias));
  }
};

}  // namespace

ScoreForm Lower(const LayerBias& bias, int64_t length, AnglePrecision precision) {
  return std::visit(LowerBias{bias, std::max<int64_t>(length - 1, 0), precision}, bias.method);
}

}  // namespace ropewalk
