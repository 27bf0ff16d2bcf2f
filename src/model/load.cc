// Weights from the files into the layers: which rows make which product.
#include <fmt/format.h>

#include <algorithm>

#include "ropewalk/base/error.h"
#include "src/model/convert/rows.h"
#include "src/model/decoder_impl.h"
#include "src/model/tensor_table.h"

namespace ropewalk {
namespace {

using internal::TensorId;

// Rows of a weight, put back into the half layout where the file has them interleaved.
struct Part {
  const Weight* weight;
  int64_t rows;
  internal::HeadRows order = {};

  void Read(int64_t first, int64_t count, float* out) const {
    if (order.head_dim == 0) return weight->ReadRows(first, count, out);
    for (int64_t i = 0; i < count; ++i) {
      weight->ReadRows(order.Source(first + i), 1, out + i * weight->cols());
    }
  }
};

// One product out of several weights that read the same input.
Linear MakeLinear(const std::vector<Part>& parts, const std::vector<Part>& bias_parts,
                  ComputeType compute) {
  int64_t rows = 0;
  for (const Part& p : parts) rows += p.rows;
  const int64_t cols = parts[0].weight->cols();
  const auto source = [&](int64_t first, int64_t count, float* out) {
    for (const Part& p : parts) {
      if (first < p.rows && count > 0) {
        const int64_t n = std::min(count, p.rows - first);
        p.Read(first, n, out);
        out += n * cols;
        count -= n;
        first = 0;
      } else {
        first -= p.rows;
      }
    }
  };
  AlignedBuffer<float> bias;
  if (!bias_parts.empty()) {
    bias = AlignedBuffer<float>(rows);
    AlignedBuffer<float> stored(rows);
    int64_t at = 0;
    for (const Part& p : bias_parts) {
      p.weight->ReadRows(0, 1, stored.data());
      for (int64_t i = 0; i < p.rows; ++i) bias[at++] = stored[p.order.Source(i)];
    }
  }
  return Linear(rows, cols, source, bias_parts.empty() ? nullptr : bias.data(), compute);
}

AlignedBuffer<float> ReadVector(const Weight& weight, const internal::HeadRows& order = {}) {
  AlignedBuffer<float> stored(weight.cols()), out(weight.cols());
  weight.ReadRows(0, 1, stored.data());
  for (int64_t i = 0; i < weight.cols(); ++i) out[i] = stored[order.Source(i)];
  return out;
}

}  // namespace

std::unique_ptr<Decoder> Decoder::Load(const ModelFiles& files, ComputeType compute) {
  if (!files.config.not_runnable.empty()) {
    throw Error(ErrorCode::kUnsupported, files.path + ": " + files.config.not_runnable);
  }
  const internal::Naming naming = files.config.format.starts_with("GGUF")
                                      ? internal::Naming::kGguf
                                      : internal::Naming::kHuggingFace;
  auto impl = std::make_unique<Impl>();
  impl->config = files.config;
  internal::CheckTensors(impl->config, files.tensors, naming, files.path);
  impl->config.harmless_keys = files.config.harmless_keys;
  const ModelConfig& c = impl->config;

  std::map<std::pair<int64_t, TensorId>, const Weight*> found;
  for (const auto& t : internal::ExpectedTensors(c, naming)) {
    found[{t.layer, t.id}] = &files.tensors.at(t.name);
  }
  impl->embedding = *found.at({-1, TensorId::kEmbedding});
  impl->final_norm = ReadVector(*found.at({-1, TensorId::kFinalNorm}));
  const TensorId head = c.tied_head ? TensorId::kEmbedding : TensorId::kHead;
  impl->head = MakeLinear({{found.at({-1, head}), c.vocab}}, {}, compute);

  for (int64_t l = 0; l < c.layers; ++l) {
    const auto get = [&](TensorId id) { return found.at({l, id}); };
    const auto& rotation = c.plan.layers[l].rotation;
    internal::HeadRows order;
    if (c.permuted_qk) {
      order = {c.head_dim, rotation ? rotation->rotary_dim : c.head_dim, PairLayout::kHalf};
    }
    const int64_t q = impl->q_dim(), kv = impl->kv_dim(), ff = c.feed_forward;
    const auto qkv = [&](TensorId iq, TensorId ik, TensorId iv) {
      return std::vector<Part>{{get(iq), q, order}, {get(ik), kv, order}, {get(iv), kv}};
    };
    std::vector<Part> qkv_bias, out_bias, gate_up_bias, down_bias;
    if (c.qkv_bias) qkv_bias = qkv(TensorId::kQBias, TensorId::kKBias, TensorId::kVBias);
    if (c.out_bias) out_bias = {{get(TensorId::kOBias), c.hidden}};
    if (c.mlp_bias) {
      gate_up_bias = {{get(TensorId::kGateBias), ff}, {get(TensorId::kUpBias), ff}};
      down_bias = {{get(TensorId::kDownBias), c.hidden}};
    }
    Impl::Layer layer;
    layer.attention_norm = ReadVector(*get(TensorId::kAttentionNorm));
    layer.feed_forward_norm = ReadVector(*get(TensorId::kFeedForwardNorm));
    if (c.qk_norm) {
      layer.q_norm = ReadVector(*get(TensorId::kQNorm), order);
      layer.k_norm = ReadVector(*get(TensorId::kKNorm), order);
    }
    layer.qkv = MakeLinear(qkv(TensorId::kQ, TensorId::kK, TensorId::kV), qkv_bias, compute);
    layer.out = MakeLinear({{get(TensorId::kO), c.hidden}}, out_bias, compute);
    layer.gate_up =
        MakeLinear({{get(TensorId::kGate), ff}, {get(TensorId::kUp), ff}}, gate_up_bias, compute);
    layer.down = MakeLinear({{get(TensorId::kDown), c.hidden}}, down_bias, compute);
    impl->layers.push_back(std::move(layer));
  }
  return std::unique_ptr<Decoder>(new Decoder(std::move(impl)));
}

}  // namespace ropewalk
