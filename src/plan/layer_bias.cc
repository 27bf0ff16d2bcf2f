#include "ropewalk/plan/layer_bias.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace ropewalk {
namespace {

std::string DescribeAlibi(const AlibiBias& alibi, int64_t heads) {
  const SlopeForm form = alibi.Lower(heads, 0);
  const auto [least, most] = std::minmax_element(form.behind.begin(), form.behind.end());
  std::string text = fmt::format("ALiBi, {} slopes {:.4g} to {:.4g} a token", heads, *most, *least);
  if (!alibi.slopes.empty()) {
    text += ", learned";
  } else if (alibi.rule == AlibiSlopes::kGeometric || std::has_single_bit<uint64_t>(heads)) {
    text += fmt::format(", 2^(-{:g}k/{})", alibi.max_bias, heads);
  } else {
    const auto n = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
    text += fmt::format(", 2^(-{:g}k/{}), then 2^(-{:g}(2k-1)/{})", alibi.max_bias, n,
                        alibi.max_bias, 2 * n);
  }
  if (alibi.bfloat16) text += ", rounded to bfloat16";
  text += alibi.scale == 1 ? ", added to scaled scores"
                           : fmt::format(", added before scores are scaled by {:.6g}", alibi.scale);
  return text;
}

}  // namespace

ScoreForm Lower(const LayerBias& bias, int64_t length, AnglePrecision precision) {
  return std::visit(
      [&](const AlibiBias& alibi) -> ScoreForm {
        if (alibi.bfloat16 && precision == AnglePrecision::kFloat32) {
          return alibi.LowerInBfloat16(bias.heads);
        }
        return alibi.Lower(bias.heads, std::max<int64_t>(length - 1, 0));
      },
      bias.method);
}

std::string Describe(const LayerBias& bias) {
  return std::visit([&](const AlibiBias& alibi) { return DescribeAlibi(alibi, bias.heads); },
                    bias.method);
}

void HashBias(const LayerBias& bias, Hasher& hasher) {
  hasher.UpdateValue(static_cast<uint8_t>(bias.method.index()));
  std::visit(
      [&](const AlibiBias& alibi) {
        const SlopeForm form = alibi.Lower(bias.heads, 0);
        hasher.UpdateValue(bias.heads);
        for (const float slope : form.behind) hasher.UpdateValue(slope);
        hasher.UpdateValue(static_cast<uint8_t>(alibi.bfloat16));
        hasher.UpdateValue(static_cast<uint8_t>(!form.ahead.empty()));
        for (const float slope : form.ahead) hasher.UpdateValue(slope);
      },
      bias.method);
}

}  // namespace ropewalk
