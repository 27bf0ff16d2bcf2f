// The text encoders of ropewalk/model/encoder.h as a MaskedEngine.
#pragma once

#include "ropewalk/eval/pseudo_perplexity.h"
#include "ropewalk/model/encoder.h"

namespace ropewalk {

class EncoderEngine : public MaskedEngine {
 public:
  // encoder: loaded with its masked_head; outlives this.
  explicit EncoderEngine(const Encoder& encoder) : encoder_(encoder) {}
  int64_t vocab() const override { return encoder_.config().vocab; }
  int64_t max_tokens() const override { return encoder_.max_tokens(); }
  void Predict(std::span<const int32_t> window, int64_t position,
               std::span<float> logits) const override;

 private:
  const Encoder& encoder_;
};

}  // namespace ropewalk
