// Weights of an encoder from the files into its layers.
#include <fmt/format.h>

#include <algorithm>

#include "ropewalk/base/error.h"
#include "src/config/family.h"
#include "src/model/encoder_impl.h"
#include "src/model/encoder_tensors.h"

namespace ropewalk {
namespace {

using Id = internal::EncoderTensor;
using internal::EncoderTensors;

// All of a tensor; empty for null.
AlignedBuffer<float> ReadAll(const Weight* weight) {
  if (weight == nullptr) return {};
  AlignedBuffer<float> out(weight->rows() * weight->cols());
  weight->ReadRows(0, weight->rows(), out.data());
  return out;
}

std::vector<float> ReadVector(const Weight* weight) {
  const AlignedBuffer<float> all = ReadAll(weight);
  return {all.data(), all.data() + all.size()};
}

// [in, out] -> [out, in].
AlignedBuffer<float> Transposed(const AlignedBuffer<float>& m, int64_t in, int64_t out) {
  AlignedBuffer<float> t(m.size());
  for (int64_t i = 0; i < in; ++i) {
    for (int64_t o = 0; o < out; ++o) t[o * in + i] = m[i * out + o];
  }
  return t;
}

}  // namespace

class Encoder::Impl::Loader {
 public:
  Loader(Impl& impl, const ModelFiles& files, ComputeType compute)
      : m_(impl), c_(impl.config), e_(impl.spec()), tensors_(c_, files), compute_(compute) {}

  void Run() {
    m_.words = *tensors_.Find(Id::kWords);
    m_.token_types = ReadAll(tensors_.Find(Id::kTokenTypes));
    m_.positions = ReadVector(tensors_.Find(Id::kPositions));
    if (c_.plan.learned) {
      m_.positions.erase(m_.positions.begin(),
                         m_.positions.begin() + c_.plan.learned->first_row * c_.hidden);
    }
    m_.embedding_norm = MakeNorm(Id::kEmbeddingNorm, -1);
    m_.final_norm = MakeNorm(Id::kFinalNorm, -1);
    for (int64_t l = 0; l < c_.layers; ++l) m_.layers.push_back(MakeLayer(l));
    auto forms = std::make_shared<Forms>();
    if (const auto* t5 = internal::BiasOf<T5LayerBias>(c_)) LowerT5(*t5, *forms);
    if (const auto* deberta = internal::BiasOf<DebertaLayerBias>(c_)) {
      LowerDeberta(*deberta, *forms);
    }
    if (const auto* xl = internal::BiasOf<TransformerXlBias>(c_)) ReadSinusoidal(*xl);
    m_.forms = std::move(forms);
  }

 private:
  Norm MakeNorm(Id id, int64_t layer) const {
    return {ReadAll(tensors_.Find(id, layer)), ReadAll(tensors_.FindBias(id, layer))};
  }

  // [out, in] as nn.Linear has it; XLNet's q, k, v and r are [in, heads, head_dim].
  AlignedBuffer<float> Matrix(Id id, int64_t layer) const {
    AlignedBuffer<float> m = ReadAll(tensors_.Find(id, layer));
    const bool turned = e_.tensors == EncoderSpec::Tensors::kXlnet &&
                        (id == Id::kQ || id == Id::kK || id == Id::kV || id == Id::kRelative);
    return turned ? Transposed(m, c_.hidden, m_.width()) : std::move(m);
  }

  // One product out of several matrices that read the same input.
  Linear MakeLinear(std::initializer_list<Id> ids, int64_t layer, int64_t in) const {
    std::vector<float> weight, bias;
    for (const Id id : ids) {
      const AlignedBuffer<float> m = Matrix(id, layer), b = ReadAll(tensors_.FindBias(id, layer));
      weight.insert(weight.end(), m.data(), m.data() + m.size());
      bias.insert(bias.end(), b.data(), b.data() + b.size());
    }
    const auto source = [&](int64_t first, int64_t rows, float* out) {
      std::copy_n(weight.data() + first * in, rows * in, out);
    };
    return Linear(static_cast<int64_t>(weight.size()) / in, in, source,
                  bias.empty() ? nullptr : bias.data(), compute_);
  }

  Layer MakeLayer(int64_t l) const {
    Layer layer;
    layer.attention_norm = MakeNorm(Id::kAttentionNorm, l);
    layer.feed_forward_norm = MakeNorm(Id::kFeedForwardNorm, l);
    layer.qkv = MakeLinear({Id::kQ, Id::kK, Id::kV}, l, c_.hidden);
    layer.out = MakeLinear({Id::kO}, l, m_.width());
    if (c_.block.gated) layer.gate = MakeLinear({Id::kGate}, l, c_.hidden);
    layer.up = MakeLinear({Id::kUp}, l, c_.hidden);
    layer.down = MakeLinear({Id::kDown}, l, c_.feed_forward);
    return layer;
  }

  void LowerT5(const T5LayerBias& t5, Forms& forms) const {
    T5Bias bias = t5.bias;
    for (int64_t l = 0; l < (t5.per_layer ? c_.layers : 1); ++l) {
      bias.embedding = ReadVector(tensors_.Find(Id::kRelative, l));
      // Beyond last_distance the nearest column holds.
      forms.emplace_back(bias.Lower(c_.heads, bias.last_distance), c_.heads, c_.head_dim);
    }
  }

  void LowerDeberta(const DebertaLayerBias& deberta, Forms& forms) const {
    DebertaBias bias = deberta.bias;
    AlignedBuffer<float> embedding = ReadAll(tensors_.Find(Id::kRelative));
    if (deberta.normalized_embedding) {
      m_.Normalize(MakeNorm(Id::kRelativeNorm, -1), embedding.data(), 2 * bias.Span(),
                   embedding.data());
    }
    bias.embedding.assign(embedding.data(), embedding.data() + embedding.size());
    const Id key = deberta.shared_keys ? Id::kK : Id::kPositionKey;
    const Id query = deberta.shared_keys ? Id::kQ : Id::kPositionQuery;
    for (int64_t l = 0; l < c_.layers; ++l) {
      if (deberta.content_to_position) {
        bias.key_projection = ReadVector(tensors_.Find(key, l));
        bias.key_projection_bias = ReadVector(tensors_.FindBias(key, l));
      }
      if (deberta.position_to_content) {
        bias.query_projection = ReadVector(tensors_.Find(query, l));
        bias.query_projection_bias = ReadVector(tensors_.FindBias(query, l));
      }
      // From max_position on the rows are the last ones.
      forms.emplace_back(bias.Lower(c_.heads, bias.max_position), c_.heads, c_.head_dim);
    }
  }

  void ReadSinusoidal(TransformerXlBias bias) const {
    for (int64_t l = 0; l < c_.layers; ++l) {
      const AlignedBuffer<float> r = Matrix(Id::kRelative, l);
      bias.projection.assign(r.data(), r.data() + r.size());
      bias.content_bias = ReadVector(tensors_.Find(Id::kContentBias, l));
      bias.position_bias = ReadVector(tensors_.Find(Id::kPositionBias, l));
      m_.sinusoidal.push_back(bias);
    }
  }

  Impl& m_;
  const ModelConfig& c_;
  const EncoderSpec& e_;
  EncoderTensors tensors_;
  ComputeType compute_;
};

std::unique_ptr<Encoder> Encoder::Load(const ModelFiles& files, const EncoderOptions& options) {
  const ModelConfig& c = files.config;
  if (c.encoder == nullptr) {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("{}: {}; encoders that run are {}", files.path,
                    c.not_runnable.empty() ? fmt::format("a {} model is a decoder", c.architecture)
                                           : c.not_runnable,
                    internal::EncoderFamilyNames()));
  }
  auto impl = std::make_unique<Impl>();
  impl->config = c;
  if (options.hierarchical_alpha) {
    if (!c.plan.learned) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("{}: hierarchical positions are made of learned ones, and a {} model "
                              "has none; its positions have no end",
                              files.path, c.architecture));
    }
    impl->hierarchical =
        HierarchicalSpec{c.plan.learned->positions, c.hidden, *options.hierarchical_alpha};
  }
  Impl::Loader(*impl, files, options.compute).Run();
  if (impl->hierarchical) {  // refuses an alpha that loses positions
    HierarchicalRows(*impl->hierarchical, impl->positions, {}, {});
  }
  return std::unique_ptr<Encoder>(new Encoder(std::move(impl)));
}

}  // namespace ropewalk
