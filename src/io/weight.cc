#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ropewalk/base/error.h"
#include "ropewalk/base/hash.h"
#include "ropewalk/io/weights.h"
#include "src/io/bytes.h"
#include "src/io/dequantize.h"

namespace ropewalk {
namespace internal {

std::string Quote(std::string_view name) {
  std::string text = "'";
  for (const char c : name.substr(0, 80)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      text += c;
    } else {
      text += fmt::format("\\x{:02x}", byte);
    }
  }
  return text + (name.size() > 80 ? "...'" : "'");
}

std::string ShapeString(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::optional<int64_t> TensorBytes(WeightType type, const std::vector<int64_t>& shape) {
  const WeightTypeInfo& info = Info(type);
  int64_t blocks = 1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    int64_t extent = shape[i];
    if (extent < 0) return std::nullopt;
    if (i + 1 == shape.size()) {
      if (extent % info.block_elements != 0) return std::nullopt;
      extent /= info.block_elements;
    }
    if (__builtin_mul_overflow(blocks, extent, &blocks)) return std::nullopt;
  }
  if (shape.empty() && info.block_elements != 1) return std::nullopt;
  int64_t elements, bytes;  // callers count elements and bytes in int64, so both have to fit
  if (__builtin_mul_overflow(blocks, int64_t{info.block_elements}, &elements) ||
      __builtin_mul_overflow(blocks, int64_t{info.block_bytes}, &bytes)) {
    return std::nullopt;
  }
  return bytes;
}

}  // namespace internal

int64_t Weight::rows() const {
  int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return rows;
}

int64_t Weight::cols() const { return shape.empty() ? 1 : shape.back(); }

void Weight::ReadRows(int64_t first, int64_t count, float* out) const {
  if (first < 0 || count < 0 || first > rows() || count > rows() - first) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("ReadRows: rows [{}, {} + {}) asked of tensor '{}', which has {} rows",
                            first, first, count, name, rows()));
  }
  const WeightTypeInfo& info = Info(type);
  const int64_t row_blocks = cols() / info.block_elements;
  const std::byte* begin = data + first * row_blocks * info.block_bytes;
  const int64_t blocks = count * row_blocks;
  const int64_t scale_bytes = blocks * info.scale_bytes;
  const std::byte* block_scales = scale_bytes == 0 || scales == nullptr
                                      ? nullptr
                                      : scales + first * row_blocks * info.scale_bytes;
  internal::Dequantize(type, begin, blocks, out, block_scales);
  // Whole tensors are read once to be packed; a few embedding rows are read over and over.
  constexpr std::size_t kLargeRead = 256 << 10;
  const auto size = static_cast<std::size_t>(blocks * info.block_bytes);
  if (file != nullptr && size >= kLargeRead) {
    internal::ReleasePages(begin, size);
    if (block_scales != nullptr) {
      internal::ReleasePages(block_scales, static_cast<std::size_t>(scale_bytes));
    }
  }
}

std::string ContentHash(const std::map<std::string, Weight>& tensors) {
  std::map<std::string, const MappedFile*> files;
  for (const auto& [name, weight] : tensors) {
    for (const auto& file : {weight.file, weight.scales_file}) {
      if (file != nullptr) files[file->path()] = file.get();
    }
  }
  Hasher hasher;
  constexpr std::size_t kChunk = 16 << 20;  // keeps the resident part of a large file small
  for (const auto& [path, file] : files) {
    for (std::size_t at = 0; at < file->size(); at += kChunk) {
      const std::size_t bytes = std::min(kChunk, file->size() - at);
      hasher.Update(file->data() + at, bytes);
      internal::ReleasePages(file->data() + at, bytes);
    }
  }
  return hasher.Hex();
}

}  // namespace ropewalk
