// Text encoders, whose attention is bidirectional. BERT and RoBERTa (Devlin et al. 2018, arXiv
// 1810.04805; Liu et al. 2019, arXiv 1907.11692), RoFormer (Su et al. 2021, arXiv 2104.09864), NEZHA
// (Wei et al. 2019, arXiv 1909.00204), T5's encoder (Raffel et al. 2019, arXiv 1910.10683), DeBERTa
// (He et al. 2020, arXiv 2006.03654; versions 2 and 3: 2021, arXiv 2111.09543), XLNet (Yang et al.
// 2019, arXiv 1906.08237); the head of BERT's masked language model; and the sentence vectors of
// sentence-transformers (Reimers & Gurevych 2019, arXiv 1908.10084).
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

// Which hidden states of a text to compute. kMaskDecoder: the states before the head of the masked
// language model in DeBERTa v2 and v3 (the enhanced mask decoder: He et al. 2020, arXiv 2006.03654,
// section 3.2), which alone use the learned absolute positions. With H the states before the last
// layer and P the position vectors, the last layer runs twice: queries and residual come from P +
// H, then from its own output; keys and values come from H both times. Where positions are added
// before the first layer (position_biased_input), kMaskDecoder equals kLast.
enum class EncoderStates : uint8_t { kLast, kMaskDecoder };

struct EncoderOptions {
  ComputeType compute = ComputeType::kFloat32;  // of the linear layers
  WeightStorage weights = WeightStorage::kAuto;
  // The alpha of absolute/hierarchical.h, by which n learned positions serve n^2 tokens. Absent:
  // only the learned positions.
  std::optional<double> hierarchical_alpha = {};
  // Loads the head of the masked language model too, which Logits needs.
  bool masked_head = false;
};

// Several threads may call Forward at once.
class Encoder {
 public:
  // Throws Error(kUnsupported) with the reason for a model that is no encoder or not supported, and
  // for an option that does not apply to it.
  static std::unique_ptr<Encoder> Load(const ModelFiles& files, const EncoderOptions& options = {});
  ~Encoder();

  const ModelConfig& config() const;
  const EncoderSpec& spec() const;
  // The longest text in tokens; INT64_MAX where positions are not limited.
  int64_t max_tokens(EncoderStates which = EncoderStates::kLast) const;

  // Writes the states of one text to hidden [ids.size(), config().hidden]. token_types: one for
  // each id, or empty (all 0). Throws Error for ids and types outside their tables, for a text
  // longer than max_tokens(which) and for kMaskDecoder of a model without it, before anything is
  // computed.
  void Forward(std::span<const int32_t> ids, float* hidden,
               std::span<const int32_t> token_types = {},
               EncoderStates which = EncoderStates::kLast) const;

  // What the masked language model predicts at each of `rows` states of kLast [rows, hidden]: logits
  // [rows, vocab], of the token that stands there. Throws Error where the head was not loaded.
  void Logits(const float* states, int64_t rows, float* logits) const;

 private:
  struct Impl;
  explicit Encoder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// How the hidden states of a text are pooled to a sentence vector.
struct SentencePooling {
  enum class Kind : uint8_t { kMean, kFirst };  // of all tokens; of the first one (CLS)
  Kind kind = Kind::kMean;
  bool normalize = false;      // to Euclidean norm 1
  int64_t trained_tokens = 0;  // where sentence-transformers truncates a text; 0: not given
  std::string source;          // the file that has these settings
};
const char* Name(SentencePooling::Kind kind);

// Reads modules.json, and the files that it names, of a sentence-transformers folder; without it
// the pooling is the mean, as in sentence-transformers. Throws Error for unsupported modules.
SentencePooling ReadSentencePooling(const std::string& folder);

// hidden: [tokens, dim], at least one token. Sums in double.
std::vector<float> SentenceVector(const SentencePooling& pooling, std::span<const float> hidden,
                                  int64_t dim);

}  // namespace ropewalk
