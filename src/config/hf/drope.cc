// Keys of SakanaAI/DroPE@260a8bb, custom_models/drope.py and attention.py.
#include "src/config/hf/drope.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "ropewalk/base/error.h"

namespace ropewalk::internal {

void ReadDrope(const HfSource& source, ModelConfig& c) {
  const JsonObject& top = source.top;
  constexpr const char* kTypes[] = {"nope", "qk_norm_nope", "q_norm_nope", "k_norm_nope"};
  const std::string type = top.String("attention_type").value_or(kTypes[0]);
  if (std::find(std::begin(kTypes), std::end(kTypes), type) == std::end(kTypes)) {
    top.Fail("attention_type", "nope, qk_norm_nope, q_norm_nope or k_norm_nope");
  }
  // Their norms are of all heads of a token together, those of the decoder of each head.
  if (type != kTypes[0] && c.not_runnable.empty()) {
    c.not_runnable = fmt::format(
        "{}: attention_type is {}: the decoder computes {} models with nope alone, because a norm "
        "of q or k is one of all heads together there",
        top.where(), type, source.family.name);
  }
  c.layer.attention.score_scale = top.Number("softmax_scale", 1e-9, 1e9).value_or(0);
  // Qwen 2's. Its first layers would not slide, and no model was published with it.
  if (top.Bool("use_sliding_window").value_or(false) && c.not_runnable.empty()) {
    c.not_runnable = fmt::format(
        "{}: use_sliding_window is true: the decoder computes {} models "
        "that attend to all tokens alone",
        top.where(), source.family.name);
  }
}

}  // namespace ropewalk::internal
