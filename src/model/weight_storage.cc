#include "src/model/weight_storage.h"

#include "src/base/memory.h"

namespace ropewalk {
namespace internal {

Naming NamingOf(const ModelConfig& config) {
  return config.format == FileFormat::kGguf ? Naming::kGguf : Naming::kHuggingFace;
}

int64_t UnpackedBytes(const ModelConfig& config, Naming naming, ComputeType compute) {
  int64_t elements = 0;
  for (const ExpectedTensor& t : ExpectedTensors(config, naming)) {
    const bool copied = t.id == TensorId::kPositions || t.id == TensorId::kTokenTypes ||
                        t.id == TensorId::kEncoding;
    if (t.shape.size() < 2 || copied) continue;
    // Rows of the embedding are read from the file; its other use is a tied head.
    const bool head = config.tied_head && (config.encoder == nullptr || config.masked_head);
    if (t.id == TensorId::kEmbedding && !head) continue;
    int64_t of_tensor = 1;
    for (const int64_t extent : t.shape) of_tensor *= extent;
    elements += of_tensor;
  }
  return elements * (compute == ComputeType::kBFloat16 ? 2 : 4);
}

WeightStorage StorageFor(int64_t unpacked_bytes, int64_t available) {
  return unpacked_bytes <= available / 2 ? WeightStorage::kUnpacked : WeightStorage::kPacked;
}

}  // namespace internal

WeightStorage ChooseStorage(const ModelFiles& files, ComputeType compute, WeightStorage wanted) {
  if (wanted != WeightStorage::kAuto) return wanted;
  const ModelConfig& c = files.config;
  return internal::StorageFor(internal::UnpackedBytes(c, internal::NamingOf(c), compute),
                              internal::AvailableMemory());
}

}  // namespace ropewalk
