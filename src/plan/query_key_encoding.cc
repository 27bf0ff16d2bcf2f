#include "ropewalk/plan/query_key_encoding.h"

#include <fmt/format.h>

#include "ropewalk/base/error.h"

namespace ropewalk {
namespace {

struct Words {
  std::string operator()(const PopeLayer& pope) const {
    return fmt::format("PoPE, base {}; a phase learned for each element of a key head", pope.base);
  }
  std::string operator()(const FopeLayer& fope) const {
    return fmt::format(
        "FoPE, base {}; cos and sin of {} pairs are learned sums over as many frequencies, the "
        "other pairs do not rotate",
        fope.base, fope.frequencies);
  }
};

double BaseOf(const QueryKeyEncoding& encoding) {
  return std::visit([](const auto& e) { return e.base; }, encoding);
}

}  // namespace

int64_t EncodedDim(const std::optional<QueryKeyEncoding>& encoding, int64_t head_dim) {
  return encoding && std::holds_alternative<PopeLayer>(*encoding) ? 2 * head_dim : head_dim;
}

Frequencies EncodingFrequencies(const QueryKeyEncoding& encoding, int64_t head_dim) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = EncodedDim(encoding, head_dim);  // PoPE: one per element
  spec.base = BaseOf(encoding);
  Frequencies all = Resolve(spec, 1);
  const auto* fope = std::get_if<FopeLayer>(&encoding);
  if (fope == nullptr) return all;
  const auto pairs = static_cast<int64_t>(all.inv_freq.size());
  if (fope->frequencies < 1 || fope->frequencies > pairs) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("FoPE: frequencies: expected 1 to {} (half of head_dim), got {}", pairs,
                            fope->frequencies));
  }
  all.inv_freq.resize(static_cast<std::size_t>(fope->frequencies));
  all.inv_freq_f32.resize(static_cast<std::size_t>(fope->frequencies));
  return all;
}

std::string Describe(const QueryKeyEncoding& encoding) { return std::visit(Words(), encoding); }

void Hash(const QueryKeyEncoding& encoding, Hasher& hasher) {
  hasher.UpdateValue(static_cast<uint8_t>(encoding.index()));
  hasher.UpdateValue(static_cast<float>(BaseOf(encoding)));
  if (const auto* fope = std::get_if<FopeLayer>(&encoding)) hasher.UpdateValue(fope->frequencies);
}

}  // namespace ropewalk
