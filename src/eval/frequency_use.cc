#include "ropewalk/eval/frequency_use.h"

#include <algorithm>
#include <cmath>

#include "ropewalk/base/error.h"

namespace ropewalk {
namespace {

// Sums of the lengths of each pair over tokens: [heads][pairs].
using PairLengths = std::vector<std::vector<double>>;

void AddLengths(const TensorView& heads, const RotarySpec& spec, PairLengths& sums) {
  const int64_t pairs = spec.rotary_dim / 2;
  const bool half = spec.layout == PairLayout::kHalf;
  sums.resize(static_cast<std::size_t>(heads.shape[1]),
              std::vector<double>(static_cast<std::size_t>(pairs)));
  for (int64_t t = 0; t < heads.shape[0]; ++t) {
    for (int64_t h = 0; h < heads.shape[1]; ++h) {
      const float* x = static_cast<const float*>(heads.data) + t * heads.strides[0] +
                       h * heads.strides[1] + spec.first_dim;
      std::vector<double>& sum = sums[static_cast<std::size_t>(h)];
      for (int64_t i = 0; i < pairs; ++i) {
        const float a = half ? x[i] : x[2 * i];
        const float b = half ? x[i + pairs] : x[2 * i + 1];
        sum[static_cast<std::size_t>(i)] += std::hypot(a, b);
      }
    }
  }
}

// The mean over all (query, key) of a product is the product of the means.
std::vector<double> Shares(const PairLengths& q, const PairLengths& k) {
  std::vector<double> share(q[0].size());
  double total = 0;
  for (std::size_t h = 0; h < q.size(); ++h) {
    const std::vector<double>& key = k[h * k.size() / q.size()];
    for (std::size_t i = 0; i < share.size(); ++i) {
      share[i] += q[h][i] * key[i];
      total += q[h][i] * key[i];
    }
  }
  for (double& s : share) s = total > 0 ? s / total : 0;
  return share;
}

}  // namespace

std::vector<double> FrequencyUse::Mean() const {
  std::size_t pairs = 0, layers = 0;
  for (const std::vector<double>& layer : share) pairs = std::max(pairs, layer.size());
  std::vector<double> mean(pairs);
  for (const std::vector<double>& layer : share) {
    if (layer.empty() || layer.size() != pairs) continue;
    ++layers;
    for (std::size_t i = 0; i < pairs; ++i) mean[i] += layer[i];
  }
  for (double& m : mean) m /= static_cast<double>(layers);
  return mean;
}

FrequencyUse MeasureFrequencyUse(const Decoder& decoder, const PositionPlan& plan,
                                 std::span<const int32_t> ids) {
  if (ids.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "frequency use: the text is empty");
  }
  const std::size_t layers = plan.layers.size();
  std::vector<PairLengths> q(layers), k(layers);
  Sequence sequence(decoder, plan, static_cast<int64_t>(ids.size()), AnglePrecision::kExact);
  sequence.Observe([&](int64_t layer, const TensorView& queries, const TensorView& keys) {
    const auto l = static_cast<std::size_t>(layer);
    if (!plan.layers[l].rotation) return;
    AddLengths(queries, *plan.layers[l].rotation, q[l]);
    AddLengths(keys, *plan.layers[l].rotation, k[l]);
  });
  decoder.Forward(sequence, ids, nullptr, 0);
  FrequencyUse use;
  use.tokens = static_cast<int64_t>(ids.size());
  for (std::size_t l = 0; l < layers; ++l) {
    use.share.push_back(q[l].empty() ? std::vector<double>() : Shares(q[l], k[l]));
  }
  return use;
}

}  // namespace ropewalk
