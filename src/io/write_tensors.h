// What both writers do: checks, and the bytes of tensors one piece after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ropewalk/io/writer.h"

namespace ropewalk::internal {

using ByteSink = std::function<void(const void* data, std::size_t bytes)>;

// Bytes of each tensor; Error where a name is illegal or there twice, or a shape has no size.
std::vector<int64_t> CheckedBytes(const std::vector<TensorSource>& tensors);

// All rows of `tensor`, whose bytes are given.
void CopyRows(const TensorSource& tensor, int64_t bytes, const ByteSink& sink);

// The formats, to any place; the functions of writer.h give them a file.
void WriteSafetensors(const ByteSink& sink, const std::vector<TensorSource>& tensors,
                      const std::map<std::string, std::string>& metadata);
void WriteGguf(const ByteSink& sink, const std::map<std::string, GgufValue>& metadata,
               const std::vector<TensorSource>& tensors);

}  // namespace ropewalk::internal
