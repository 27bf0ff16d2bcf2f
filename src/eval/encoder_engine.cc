#include "ropewalk/eval/encoder_engine.h"

#include <vector>

namespace ropewalk {

void EncoderEngine::Predict(std::span<const int32_t> window, int64_t position,
                            std::span<float> logits) const {
  const int64_t hidden = encoder_.config().hidden;
  std::vector<float> states(window.size() * hidden);
  encoder_.Forward(window, states.data());
  encoder_.Logits(states.data() + position * hidden, 1, logits.data());
}

}  // namespace ropewalk
