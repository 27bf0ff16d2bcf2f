#include "src/model/encoding_tensors.h"

#include <fmt/format.h>

#include <utility>
#include <variant>

#include "src/model/embedder.h"
#include "src/model/query_keys.h"

namespace ropewalk::internal {
namespace {

struct Parameter {
  const char* name;
  std::vector<int64_t> shape;
};

// Of the bias of one layer; none for a bias without any.
struct BiasParameters {
  const ModelConfig& c;
  using List = std::vector<Parameter>;

  List operator()(const LearnedAlibiLayerBias& /*alibi*/) const { return {{"slopes", {c.heads}}}; }
  List operator()(const T5LayerBias& t5) const {
    return {{"embedding", {t5.bias.buckets, c.heads}}};
  }
  List operator()(const KerpleBias& /*kerple*/) const {
    return {{"r1", {c.heads}}, {"r2", {c.heads}}};
  }
  List operator()(const FireLayerBias& fire) const {
    return {{"w1", {fire.width}}, {"b1", {fire.width}}, {"w2", {c.heads, fire.width}},
            {"b2", {c.heads}},    {"c", {1}},           {"threshold", {1}}};
  }
  List operator()(const ShawLayerBias& shaw) const {
    const std::vector<int64_t> shape = {shaw.per_head ? c.heads : 1, shaw.left + shaw.right + 1,
                                        c.head_dim};
    List list = {{"key_rows", shape}};
    if (shaw.values) list.push_back({"value_rows", shape});
    return list;
  }
  List operator()(const TransformerXlBias& /*xl*/) const {
    return {{"projection", {c.heads, c.head_dim, c.hidden}},
            {"content_bias", {c.heads, c.head_dim}},
            {"position_bias", {c.heads, c.head_dim}}};
  }
  List operator()(const DebertaLayerBias& deberta) const {
    return WithProjections({"embedding", {2 * deberta.bias.Span(), c.hidden}});
  }
  List operator()(const TupeLayerBias& tupe) const {
    List list = WithProjections({"embedding", {tupe.positions, c.hidden}});
    if (tupe.relative) list.push_back({"relative", {tupe.buckets, c.heads}});
    if (!tupe.reset) return list;
    list.push_back({"from_cls", {c.heads}});
    list.push_back({"to_cls", {c.heads}});
    return list;
  }
  List operator()(const CopeLayerBias& cope) const {
    return {{"position_rows", {cope.per_head ? c.heads : 1, cope.rows, c.head_dim}}};
  }
  List operator()(const GateLayerBias& /*gate*/) const {
    return {{"weight", {c.heads, c.hidden}}, {"bias", {c.heads}}};
  }
  template <class Unlearned>
  List operator()(const Unlearned& /*bias*/) const {
    return {};
  }

  List WithProjections(Parameter embedding) const {
    return {std::move(embedding),
            {"query_projection", {c.heads, c.head_dim, c.hidden}},
            {"key_projection", {c.heads, c.head_dim, c.hidden}},
            {"query_projection_bias", {c.heads, c.head_dim}},
            {"key_projection_bias", {c.heads, c.head_dim}}};
  }
};

}  // namespace

std::string LayerParameter(int64_t layer, std::string_view part, std::string_view parameter) {
  return fmt::format("model.layers.{}.self_attn.{}.{}", layer, part, parameter);
}

std::vector<EncodingTensor> EncodingTensors(const ModelConfig& c) {
  std::vector<EncodingTensor> all;
  if (!c.encoding_tensors) return all;
  for (int64_t l = 0; l < c.layers; ++l) {
    const auto& bias = c.plan.layers[l].bias;
    if (!bias) continue;
    for (Parameter& p : std::visit(BiasParameters{c}, bias->method)) {
      all.push_back({LayerParameter(l, "bias", p.name), l, std::move(p.shape)});
    }
  }
  AddQueryKeyTensors(c, all);
  AddEmbeddingTensors(c, all);
  return all;
}

}  // namespace ropewalk::internal
