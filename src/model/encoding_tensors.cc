#include "src/model/encoding_tensors.h"

#include <fmt/format.h>

namespace ropewalk::internal {

std::string LayerParameter(int64_t layer, std::string_view part, std::string_view parameter) {
  return fmt::format("model.layers.{}.self_attn.{}.{}", layer, part, parameter);
}

std::vector<EncodingTensor> EncodingTensors(const ModelConfig& c) {
  std::vector<EncodingTensor> all;
  if (!c.encoding_tensors) return all;
  return all;
}

}  // namespace ropewalk::internal
