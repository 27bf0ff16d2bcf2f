// Model files written: safetensors, and GGUF version 3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ropewalk/io/weights.h"

namespace ropewalk {

// A tensor to write. Its rows are asked for in order and in pieces, so that a model may be larger
// than memory.
struct TensorSource {
  std::string name;
  WeightType type = WeightType::kF32;
  std::vector<int64_t> shape;  // outer dimension first
  // The bytes of rows [first, first + count) as they shall stand in the file; a row is the last
  // dimension, and a tensor without dimensions is one row of one element.
  std::function<void(int64_t first, int64_t count, std::byte* out)> read;
};

// The same bytes under the same name. The mapped file lives as long as the source.
TensorSource CopyOf(const Weight& weight);
TensorSource FromFloats(std::string name, std::vector<int64_t> shape, std::vector<float> values);

// Both write a temporary file beside `path`, sync it and rename it, so that `path` is whole, old or
// absent whatever happens. Throws Error(kInvalidArgument) naming the tensor or key that the format
// cannot hold (a name twice, a quantised type in safetensors, a value that its GGUF type cannot
// hold), Error(kIo) with the path and the system's reason (disk full, no permission).

// Tensors stand in order of falling element size, then as given, as the reference implementation
// does, so that all of them are aligned. `metadata` becomes __metadata__.
void WriteSafetensors(const std::string& path, const std::vector<TensorSource>& tensors,
                      const std::map<std::string, std::string>& metadata = {});

// Tensors stand as given, each on a multiple of general.alignment (32 where it is absent).
void WriteGguf(const std::string& path, const std::map<std::string, GgufValue>& metadata,
               const std::vector<TensorSource>& tensors);

}  // namespace ropewalk
