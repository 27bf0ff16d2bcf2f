// Writes model files: safetensors, and GGUF version 3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ropewalk/io/weights.h"

namespace ropewalk {

// A tensor to write. Its rows are read in order, a few at a time, so a model may be larger than
// memory.
struct TensorSource {
  std::string name;
  WeightType type = WeightType::kF32;
  std::vector<int64_t> shape;  // outer dimension first
  // Writes the bytes of rows [first, first + count), as in the file, to out. A row spans the last
  // dimension; a tensor without dimensions is one row of one element.
  std::function<void(int64_t first, int64_t count, std::byte* out)> read;
};

// A copy with the same name. The source keeps the mapped file open. Throws Error(kUnsupported) where
// the scales are a tensor of their own: no writer has such types.
TensorSource CopyOf(const Weight& weight);
TensorSource FromFloats(std::string name, std::vector<int64_t> shape, std::vector<float> values);

// Both write a temporary file beside `path`, sync it and rename it, so that `path` is never
// incomplete. They throw Error(kInvalidArgument) naming the tensor or key that the format cannot
// hold (a duplicate name, a quantised type in safetensors, a value out of range of its GGUF type),
// and Error(kIo) with the path and the system's reason (disk full, no permission).

// Tensors are written in order of decreasing element size, then as given, like the reference
// implementation, so that all are aligned. `metadata` becomes __metadata__.
void WriteSafetensors(const std::string& path, const std::vector<TensorSource>& tensors,
                      const std::map<std::string, std::string>& metadata = {});

// Tensors are written in the given order, aligned to general.alignment (32 if absent).
void WriteGguf(const std::string& path, const std::map<std::string, GgufValue>& metadata,
               const std::vector<TensorSource>& tensors);

}  // namespace ropewalk
