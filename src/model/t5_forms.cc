#include "src/model/t5_forms.h"

namespace ropewalk::internal {

std::vector<PreparedForm> T5Forms(const ModelConfig& c, const TensorLoader& tensors) {
  std::vector<PreparedForm> forms;
  const auto* t5 = BiasOf<T5LayerBias>(c);
  if (t5 == nullptr) return forms;
  T5Bias bias = t5->bias;
  for (int64_t l = 0; l < (t5->per_layer ? c.layers : 1); ++l) {
    bias.embedding = t5->per_layer ? tensors.ReadVector(TensorId::kBuckets, l)
                                   : tensors.ReadVector(TensorId::kSharedBuckets);
    // Beyond last_distance the nearest column holds.
    forms.emplace_back(bias.Lower(c.heads, bias.last_distance), c.heads, c.head_dim);
  }
  return forms;
}

}  // namespace ropewalk::internal
