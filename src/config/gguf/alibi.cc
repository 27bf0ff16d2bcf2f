#include "src/config/gguf/alibi.h"

#include <fmt/format.h>

#include <optional>
#include <string>

namespace ropewalk::internal {

void ReadGgufAlibi(const GgufKeys& keys, const Family& family, ModelConfig& c) {
  const auto max_bias = keys.Number("attention.max_alibi_bias", 0, 1e6);
  const double max = max_bias.value_or(family.other == OtherEncoding::kAlibi ? 8 : 0);
  OtherEncoding other = family.other;
  std::string words = NameOf(other);
  if (other == OtherEncoding::kNone) {
    other = max == 0 ? OtherEncoding::kOther : OtherEncoding::kAlibi;
    words = max == 0 ? "attention.max_alibi_bias is 0 or absent" : NameOf(other);
    if (max == 0 && c.not_runnable.empty()) {
      c.not_runnable =
          fmt::format("{}: the decoder does not compute its positions: {}", keys.File(), words);
    }
  }
  c.plan.other = other;
  c.plan.notes.push_back("no rotation: " + words);
  if (other != OtherEncoding::kAlibi || max == 0 || c.heads == 0) return;
  if (c.heads > kMaxAlibiHeads) {
    keys.Fail("attention.head_count", fmt::format("at most {} with ALiBi", kMaxAlibiHeads));
  }
  for (LayerPlan& layer : c.plan.layers) {
    layer.bias = LayerBias{c.heads, AlibiBias{.max_bias = max}};
  }
}

bool ReadBaichuanAlibi(const GgufKeys& keys, ModelConfig& c) {
  const std::optional<bool> rotates = BaichuanRotates(c.layers);
  if (!rotates && c.not_runnable.empty()) {
    c.not_runnable = fmt::format(
        "{}: {} is {}: llama.cpp rotates Baichuan models of 32 layers and has ALiBi in those of "
        "40; what others do is not known",
        keys.File(), keys.Name("block_count"), c.layers);
  }
  if (rotates.value_or(true)) return false;
  for (const char* key : {"rope.dimension_count", "rope.freq_base", "rope.scaling.type"}) {
    keys.Has(key);  // written by its converter, and without effect
  }
  c.permuted_qk = true;
  c.plan.other = OtherEncoding::kAlibi;
  c.plan.notes.push_back("no rotation: ALiBi, llama.cpp's rule for Baichuan models of 40 layers");
  for (LayerPlan& layer : c.plan.layers) {
    layer.bias = LayerBias{c.heads, AlibiBias{.max_bias = 8}};
  }
  return true;
}

}  // namespace ropewalk::internal
