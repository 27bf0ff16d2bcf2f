// Text encoders: every token sees every other. BERT and RoBERTa (Devlin et al. 2018, arXiv
// 1810.04805; Liu et al. 2019, arXiv 1907.11692), T5's encoder (Raffel et al. 2019, arXiv
// 1910.10683), DeBERTa v2 and v3 (He et al. 2021, arXiv 2111.09543), XLNet (Yang et al. 2019, arXiv
// 1906.08237); and the sentence vectors of sentence-transformers (Reimers & Gurevych 2019, arXiv
// 1908.10084).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ropewalk/linear/linear.h"
#include "ropewalk/model/model.h"

namespace ropewalk {

// Which states of a text. DeBERTa v2 and v3 learn absolute positions that no layer reads, but what
// comes before the masked language model's head (the enhanced mask decoder: He et al. 2020, arXiv
// 2006.03654, section 3.2): with H the states below the last layer and P the positions' vectors,
// the last layer runs twice, queries and residual from P + H and then from its own result, keys and
// values from H both times. Where positions are added before the first layer
// (position_biased_input) the two are the same.
enum class EncoderStates : uint8_t { kLast, kMaskDecoder };

struct EncoderOptions {
  ComputeType compute = ComputeType::kFloat32;  // of the linear layers
  // The alpha of absolute/hierarchical.h: n learned positions then serve n^2 tokens. Absent: as
  // the model was trained.
  std::optional<double> hierarchical_alpha = {};
};

// Weights packed once; immutable after Load but for what is computed once a length and kept.
// Several threads may call Forward.
class Encoder {
 public:
  // Throws Error(kUnsupported) with the reason for a model that is no encoder or not run here, and
  // for an option that it cannot have.
  static std::unique_ptr<Encoder> Load(const ModelFiles& files, const EncoderOptions& options = {});
  ~Encoder();

  const ModelConfig& config() const;
  const EncoderSpec& spec() const;
  // Of one text; INT64_MAX where positions have no end.
  int64_t max_tokens(EncoderStates which = EncoderStates::kLast) const;

  // The states of one text, hidden: [ids.size(), config().hidden]. token_types: one for each id, or
  // none (all 0). Throws Error for ids and types outside their tables, for a text longer than
  // max_tokens(which) and for kMaskDecoder of a model without it, before anything is computed.
  void Forward(std::span<const int32_t> ids, float* hidden,
               std::span<const int32_t> token_types = {},
               EncoderStates which = EncoderStates::kLast) const;

 private:
  struct Impl;
  explicit Encoder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// How a text's states become one vector.
struct SentencePooling {
  enum class Kind : uint8_t { kMean, kFirst };  // of all tokens; of the first one (CLS)
  Kind kind = Kind::kMean;
  bool normalize = false;      // to Euclidean length 1
  int64_t trained_tokens = 0;  // at which sentence-transformers cuts a text; 0: not said
  std::string source;          // where this is said
};
const char* Name(SentencePooling::Kind kind);

// modules.json and what it names in a sentence-transformers folder; without it the mean, as
// sentence-transformers makes it there. Throws Error for modules that are not computed here.
SentencePooling ReadSentencePooling(const std::string& folder);

// hidden: [tokens, dim], at least one token. Sums in double.
std::vector<float> SentenceVector(const SentencePooling& pooling, std::span<const float> hidden,
                                  int64_t dim);

}  // namespace ropewalk
