#include "src/io/write_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "ropewalk/base/error.h"
#include "src/io/atomic_file.h"
#include "src/io/bytes.h"

namespace ropewalk {
namespace internal {
namespace {

constexpr int64_t kPieceBytes = 4 << 20;

int64_t Rows(const std::vector<int64_t>& shape) {
  int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return rows;
}

// No writer has the second tensor; blocks alone would be a model of other numbers.
std::string WithoutScales(WeightType type) {
  return fmt::format(
      "{}, whose scales are a tensor of their own, is not written; convert to F32, "
      "F16, BF16 or Q8_0",
      Info(type).name);
}

}  // namespace

std::vector<int64_t> CheckedBytes(const std::vector<TensorSource>& tensors) {
  std::vector<int64_t> all;
  std::set<std::string> names;
  for (const TensorSource& tensor : tensors) {
    const auto fail = [&](const std::string& why) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("tensor {}: {}", Quote(tensor.name), why));
    };
    if (tensor.name.empty() || tensor.name.size() > 65535 ||
        tensor.name.find('\0') != std::string::npos) {
      fail("a name has 1 to 65535 bytes and no NUL");
    }
    if (!names.insert(tensor.name).second) fail("given twice");
    if (Info(tensor.type).scale_bytes != 0) fail(WithoutScales(tensor.type));
    const auto bytes = TensorBytes(tensor.type, tensor.shape);
    if (!bytes) {
      fail(fmt::format("shape {} of {} overflows or is not a whole number of blocks of {}",
                       ShapeString(tensor.shape), Info(tensor.type).name,
                       Info(tensor.type).block_elements));
    }
    all.push_back(*bytes);
  }
  return all;
}

void CopyRows(const TensorSource& tensor, int64_t bytes, const ByteSink& sink) {
  if (bytes == 0) return;
  const int64_t rows = Rows(tensor.shape), row_bytes = bytes / rows;
  const int64_t step = std::max<int64_t>(1, kPieceBytes / row_bytes);
  std::vector<std::byte> piece(static_cast<std::size_t>(std::min(step, rows) * row_bytes));
  for (int64_t first = 0; first < rows; first += step) {
    const int64_t count = std::min(step, rows - first);
    tensor.read(first, count, piece.data());
    sink(piece.data(), static_cast<std::size_t>(count * row_bytes));
  }
}

}  // namespace internal

TensorSource CopyOf(const Weight& weight) {
  if (Info(weight.type).scale_bytes != 0) {
    throw Error(ErrorCode::kUnsupported, fmt::format("tensor {}: {}", internal::Quote(weight.name),
                                                     internal::WithoutScales(weight.type)));
  }
  TensorSource out{weight.name, weight.type, weight.shape, {}};
  const int64_t rows = weight.rows();
  const int64_t row_bytes = rows == 0 ? 0 : weight.bytes / rows;
  out.read = [file = weight.file, data = weight.data, row_bytes](int64_t first, int64_t count,
                                                                 std::byte* to) {
    const std::byte* from = data + first * row_bytes;
    const auto bytes = static_cast<std::size_t>(count * row_bytes);
    std::memcpy(to, from, bytes);
    if (file != nullptr) internal::ReleasePages(from, bytes);
  };
  return out;
}

TensorSource FromFloats(std::string name, std::vector<int64_t> shape, std::vector<float> values) {
  const int64_t cols = shape.empty() ? 1 : shape.back();
  TensorSource out{std::move(name), WeightType::kF32, std::move(shape), {}};
  out.read = [values = std::move(values), cols](int64_t first, int64_t count, std::byte* to) {
    std::memcpy(to, values.data() + first * cols, static_cast<std::size_t>(count * cols) * 4);
  };
  return out;
}

void WriteSafetensors(const std::string& path, const std::vector<TensorSource>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  internal::AtomicFile file(path);
  internal::WriteSafetensors([&](const void* data, std::size_t n) { file.Write(data, n); }, tensors,
                             metadata);
  file.Commit();
}

void WriteGguf(const std::string& path, const std::map<std::string, GgufValue>& metadata,
               const std::vector<TensorSource>& tensors) {
  internal::AtomicFile file(path);
  internal::WriteGguf([&](const void* data, std::size_t n) { file.Write(data, n); }, metadata,
                      tensors);
  file.Commit();
}

}  // namespace ropewalk
