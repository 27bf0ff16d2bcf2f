#include "src/model/layer_forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "ropewalk/base/error.h"
#include "ropewalk/relative/fire.h"
#include "ropewalk/relative/tupe.h"
#include "src/model/encoding_tensors.h"

namespace ropewalk::internal {
namespace {

// Of the authors' program, as ropewalk.nn.Kerple has them.
constexpr float kLeastKerple = 0.01f, kMostPower = 2;

struct MakeForm {
  const ModelConfig& c;
  const TensorLoader& tensors;
  int64_t layer;

  LayerForm operator()(const LearnedAlibiLayerBias& learned) const {
    AlibiBias alibi;
    alibi.slopes = Read("slopes");
    if (!learned.causal) alibi.ahead = AlibiAhead::kSymmetric;
    return Fixed(alibi.Lower(c.heads, 0));
  }
  LayerForm operator()(const T5LayerBias& t5) const {
    T5Bias bias = t5.bias;
    bias.embedding = Read("embedding");
    return Fixed(bias.Lower(c.heads, bias.last_distance));  // its ends hold beyond
  }
  LayerForm operator()(KerpleBias kerple) const {
    kerple.r1 = Read("r1");
    kerple.r2 = Read("r2");
    for (float& r : kerple.r1) r = std::max(r, kLeastKerple);
    for (float& r : kerple.r2) {
      r = std::max(r, kLeastKerple);
      if (kerple.kernel == KerpleKernel::kPower) r = std::min(r, kMostPower);
    }
    return OfLength(std::move(kerple));
  }
  LayerForm operator()(const FireLayerBias& /*settings*/) const {
    FireBias fire;
    fire.w1 = Read("w1");
    fire.b1 = Read("b1");
    fire.w2 = Read("w2");
    fire.b2 = Read("b2");
    fire.c = double{Read("c")[0]};
    fire.threshold = double{Read("threshold")[0]};
    LayerForm form = OfLength(std::move(fire));
    form.from_first = true;
    return form;
  }
  LayerForm operator()(const ShawLayerBias& settings) const {
    ShawBias shaw;
    shaw.left = settings.left;
    shaw.right = settings.right;
    shaw.head_dim = c.head_dim;
    shaw.table_heads = settings.per_head ? c.heads : 1;
    shaw.key_rows = Read("key_rows");
    if (settings.values) shaw.value_rows = Read("value_rows");
    return ReadsQuery(Fixed(shaw.Lower(c.heads, 0)));
  }
  LayerForm operator()(TransformerXlBias xl) const {
    xl.projection = Read("projection");
    xl.content_bias = Read("content_bias");
    xl.position_bias = Read("position_bias");
    return ReadsQuery(OfLength(std::move(xl)));
  }
  LayerForm operator()(const DebertaLayerBias& settings) const {
    DebertaBias deberta = settings.bias;
    ReadProjections(deberta);
    return ReadsQuery(Fixed(deberta.Lower(c.heads, deberta.max_position)));  // its ends hold beyond
  }
  LayerForm operator()(const TupeLayerBias& settings) const {
    TupeBias tupe;
    tupe.positions = settings.positions;
    tupe.model_dim = c.hidden;
    tupe.head_dim = c.head_dim;
    ReadProjections(tupe);
    if (settings.relative) {
      tupe.relative = T5Bias{settings.buckets, settings.last_distance, true, Read("relative")};
    }
    if (settings.reset) {
      tupe.from_cls = Read("from_cls");
      tupe.to_cls = Read("to_cls");
    }
    LayerForm form = Fixed(tupe.Lower(c.heads, tupe.positions - 1));
    form.lower = [fixed = form.lower, positions = tupe.positions](int64_t length) {
      if (length > positions) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("TUPE: the model has vectors for {} positions, and the sequence is "
                                "to have {} tokens; give fewer",
                                positions, length));
      }
      return fixed(length);
    };
    form.from_first = true;
    return form;
  }
  LayerForm operator()(const CopeLayerBias& settings) const {
    CopeBias cope;
    cope.rows = settings.rows;
    cope.head_dim = c.head_dim;
    cope.table_heads = settings.per_head ? c.heads : 1;
    cope.position_rows = Read("position_rows");
    return ReadsQuery(Fixed(cope.Lower(c.heads, 0)));
  }
  LayerForm operator()(const GateLayerBias& /*settings*/) const {
    LayerForm form;
    form.gate = ForgetGateBias{c.hidden, Read("weight"), Read("bias")};
    return form;
  }
  template <class Unlearned>
  LayerForm operator()(const Unlearned& /*bias*/) const {
    return {};
  }

 private:
  std::vector<float> Read(const char* parameter) const {
    return tensors.ReadEncoding(LayerParameter(layer, "bias", parameter));
  }
  template <class Bias>
  void ReadProjections(Bias& bias) const {
    bias.embedding = Read("embedding");
    bias.query_projection = Read("query_projection");
    bias.query_projection_bias = Read("query_projection_bias");
    bias.key_projection = Read("key_projection");
    bias.key_projection_bias = Read("key_projection_bias");
  }
  LayerForm Fixed(ScoreForm form) const {
    PreparedForm prepared(std::move(form), c.heads, c.key_dim());
    return {.lower = [prepared = std::move(prepared)](int64_t /*length*/) { return prepared; }};
  }
  template <class Bias>
  LayerForm OfLength(Bias bias) const {
    return {.lower = [bias = std::move(bias), heads = c.heads, dim = c.key_dim()](int64_t length) {
      return PreparedForm(bias.Lower(heads, std::max<int64_t>(length - 1, 0)), heads, dim);
    }};
  }
  static LayerForm ReadsQuery(LayerForm form) {
    form.reads_query = true;
    return form;
  }
};

}  // namespace

std::vector<LayerForm> LayerForms(const ModelConfig& c, const TensorLoader& tensors) {
  std::vector<LayerForm> forms;
  if (!c.encoding_tensors) return forms;
  for (int64_t l = 0; l < c.layers; ++l) {
    const auto& bias = c.plan.layers[l].bias;
    LayerForm form = bias ? std::visit(MakeForm{c, tensors, l}, bias->method) : LayerForm{};
    if (!form.lower && !form.gate) return {};  // all layers have the same bias
    forms.push_back(std::move(form));
  }
  return forms;
}

}  // namespace ropewalk::internal
