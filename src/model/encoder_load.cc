// Weights of an encoder from the files into its layers.
#include <fmt/format.h>

#include "ropewalk/base/error.h"
#include "src/config/family.h"
#include "src/model/encoder_impl.h"
#include "src/model/layer_forms.h"
#include "src/model/t5_forms.h"
#include "src/model/tensor_loader.h"
#include "src/model/weight_storage.h"

namespace ropewalk {
namespace {

using Id = internal::TensorId;
using internal::TensorLoader;

}  // namespace

// What an encoder has beside its layers: embeddings, and the forms of its bias.
class Encoder::Impl::Loader {
 public:
  Loader(Impl& impl, const ModelFiles& files, const EncoderOptions& options)
      : m_(impl),
        c_(impl.config),
        tensors_(impl.config, files, internal::NamingOf(impl.config), options.compute,
                 ChooseStorage(files, options.compute, options.weights)),
        path_(files.path) {}

  void Run(bool with_head) {
    if (with_head) CheckHasHead();
    if (c_.encoding_tensors) {
      m_.embedder = std::make_unique<internal::Embedder>(c_, tensors_, m_.hierarchical);
    }
    if (m_.embedder == nullptr || !m_.embedder->replaces_tokens()) {
      m_.words = *tensors_.Find(Id::kEmbedding);
    }
    m_.token_types = tensors_.ReadAll(Id::kTokenTypes);
    m_.positions = tensors_.ReadVector(Id::kPositions);
    if (c_.plan.learned && m_.embedder == nullptr) {
      m_.positions.erase(m_.positions.begin(),
                         m_.positions.begin() + c_.plan.learned->first_row * c_.hidden);
    }
    m_.embedding_norm = tensors_.MakeNorm(Id::kEmbeddingNorm, c_.embedding_norm);
    if (c_.encoder->embedding_dim > 0) {
      m_.projection = tensors_.MakeProduct(Id::kEmbeddingProjection, c_.hidden);
    }
    if (with_head && c_.encoder->plain_head) {
      m_.head = {Linear(), {}, tensors_.MakeHead()};
    } else if (with_head) {
      m_.head = {tensors_.MakeProduct(Id::kMaskedDense, m_.embedding_dim()),
                 tensors_.MakeNorm(Id::kMaskedNorm, {NormSpec::Kind::kLayer}), tensors_.MakeHead()};
    }
    m_.final_norm = tensors_.MakeNorm(Id::kFinalNorm, c_.final_norm);
    for (int64_t l = 0; l < c_.layers; ++l) m_.layers.push_back(tensors_.MakeLayer(l));
    m_.query_keys = internal::QueryKeyEncoder::Load(c_, tensors_);
    auto forms = std::make_shared<Forms>(internal::T5Forms(c_, tensors_));
    if (const auto* deberta = internal::BiasOf<DebertaLayerBias>(c_)) {
      LowerDeberta(*deberta, *forms);
    }
    if (const auto* nezha = internal::BiasOf<NezhaLayerBias>(c_)) {
      // Beyond its reach the last rows hold.
      forms->emplace_back(nezha->Shaw().Lower(c_.heads, nezha->reach), c_.heads, c_.head_dim);
    }
    if (const auto* xl = internal::BiasOf<TransformerXlBias>(c_)) ReadSinusoidal(*xl);
    m_.forms = std::move(forms);
    for (internal::LayerForm& form : internal::LayerForms(c_, tensors_)) {
      m_.lower.push_back(std::move(form.lower));
    }
    if (m_.lower.empty() && c_.encoding_tensors && c_.plan.layers[0].bias) {
      m_.lower.push_back([&c = c_](int64_t tokens) {
        const ScoreForm form = Lower(*c.plan.layers[0].bias, tokens, AnglePrecision::kExact);
        return PreparedForm(form, c.heads, c.key_dim());
      });
    }
  }

 private:
  void CheckHasHead() const {
    if (c_.masked_head) return;
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("{}: there is no head of a masked language model that is computed; take "
                    "a checkpoint that has one: of BERT, RoBERTa, RoFormer or NEZHA, saved "
                    "from a model ForMaskedLM or ForPreTraining",
                    path_));
  }

  void LowerDeberta(const DebertaLayerBias& deberta, Forms& forms) const {
    DebertaBias bias = deberta.bias;
    bias.embedding = tensors_.ReadVector(Id::kDistances);
    if (deberta.normalized_embedding) {
      const NormSpec spec = {NormSpec::Kind::kLayer};
      ApplyNorm(spec, tensors_.MakeNorm(Id::kDistancesNorm, spec), c_, bias.embedding.data(),
                2 * bias.Span(), bias.embedding.data());
    }
    const Id key = deberta.shared_keys ? Id::kK : Id::kDistanceKey;
    const Id query = deberta.shared_keys ? Id::kQ : Id::kDistanceQuery;
    for (int64_t l = 0; l < c_.layers; ++l) {
      if (deberta.content_to_position) {
        bias.key_projection = tensors_.ReadVector(key, l);
        bias.key_projection_bias = tensors_.ReadVector(key, l, /*bias=*/true);
      }
      if (deberta.position_to_content) {
        bias.query_projection = tensors_.ReadVector(query, l);
        bias.query_projection_bias = tensors_.ReadVector(query, l, /*bias=*/true);
      }
      // From max_position on the rows are the last ones.
      forms.emplace_back(bias.Lower(c_.heads, bias.max_position), c_.heads, c_.head_dim);
    }
  }

  void ReadSinusoidal(TransformerXlBias bias) const {
    for (int64_t l = 0; l < c_.layers; ++l) {
      bias.projection = tensors_.ReadMatrix(Id::kDistanceProjection, l);
      bias.content_bias = tensors_.ReadVector(Id::kContentBias, l);
      bias.position_bias = tensors_.ReadVector(Id::kPositionBias, l);
      m_.sinusoidal.push_back(bias);
    }
  }

  Impl& m_;
  const ModelConfig& c_;
  TensorLoader tensors_;
  const std::string& path_;
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
  Impl::Loader(*impl, files, options).Run(options.masked_head);
  if (impl->hierarchical && impl->embedder == nullptr) {  // refuses an alpha that loses positions
    HierarchicalRows(*impl->hierarchical, impl->positions, {}, {});
  }
  return std::unique_ptr<Encoder>(new Encoder(std::move(impl)));
}

}  // namespace ropewalk
