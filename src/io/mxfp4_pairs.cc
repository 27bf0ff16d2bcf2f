#include "src/io/mxfp4_pairs.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "src/io/bytes.h"
#include "src/io/fail.h"

namespace ropewalk::internal {
namespace {

constexpr std::string_view kBlocks = "_blocks", kScales = "_scales";
constexpr std::size_t kSuffix = kBlocks.size();
static_assert(kScales.size() == kSuffix);

using Tensors = std::map<std::string, Weight>;

bool IsHalf(const Weight& weight) {
  return weight.type == WeightType::kMXFP4Pair && weight.scales == nullptr;
}

// The half that goes with `half`.
const Weight& OtherOf(const Tensors& tensors, const Weight& half) {
  const bool is_blocks = half.name.ends_with(kBlocks);
  const std::string other =
      half.name.substr(0, half.name.size() - kSuffix).append(is_blocks ? kScales : kBlocks);
  const auto it = tensors.find(other);
  if (it == tensors.end() || !IsHalf(it->second)) {
    Fail(half.file->path(),
         fmt::format("tensor {} has dtype U8, which is read as half of an MXFP4 tensor alone, but "
                     "its other half {} is not {}",
                     Quote(half.name), Quote(other), it == tensors.end() ? "there" : "of U8"));
  }
  return it->second;
}

Weight Join(const Weight& blocks, const Weight& scales) {
  const std::string what = "tensor " + Quote(blocks.name);
  const std::string& path = blocks.file->path();
  const std::vector<int64_t>& shape = blocks.shape;
  const int elements = Info(WeightType::kMXFP4Pair).block_elements;
  if (shape.size() != 4 || shape[3] != Info(WeightType::kMXFP4Pair).block_bytes) {
    Fail(path, fmt::format("{}: shape {}; [experts, rows, columns / 32, 16] expected", what,
                           ShapeString(shape)));
  }
  if (scales.shape != std::vector<int64_t>(shape.begin(), shape.end() - 1)) {
    Fail(path,
         fmt::format("{} has shape {}, which does not fit {} of {}: a scale for every 16 "
                     "bytes expected",
                     what, ShapeString(shape), Quote(scales.name), ShapeString(scales.shape)));
  }
  Weight joined = blocks;
  joined.name.resize(joined.name.size() - kSuffix);
  joined.shape.pop_back();
  if (__builtin_mul_overflow(joined.shape[2], int64_t{elements}, &joined.shape[2]) ||
      TensorBytes(joined.type, joined.shape) != joined.bytes) {
    Fail(path, fmt::format("{}: shape {} overflows", what, ShapeString(shape)));
  }
  joined.scales_file = scales.file;
  joined.scales = scales.data;
  return joined;
}

}  // namespace

bool IsHalfOfPair(std::string_view name) {
  return name.size() > kSuffix && (name.ends_with(kBlocks) || name.ends_with(kScales));
}

std::optional<int64_t> Uint8Bytes(const std::vector<int64_t>& shape) {
  int64_t bytes = 1;
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  }
  return bytes;
}

void JoinPairs(Tensors* tensors) {
  std::vector<Weight> joined;
  for (const auto& [name, weight] : *tensors) {
    if (!IsHalf(weight)) continue;
    const Weight& other = OtherOf(*tensors, weight);
    if (name.ends_with(kBlocks)) joined.push_back(Join(weight, other));
  }
  for (Weight& weight : joined) {
    for (const std::string_view suffix : {kBlocks, kScales}) {
      tensors->erase(std::string(weight.name).append(suffix));
    }
    const std::string name = weight.name, path = weight.file->path();
    if (!tensors->emplace(name, std::move(weight)).second) {
      Fail(path, fmt::format("tensor {} is there, and so is {}", Quote(name),
                             Quote(name + std::string(kBlocks))));
    }
  }
}

void RepackPair(const Weight& pair, int64_t row, std::byte* out) {
  const WeightTypeInfo& info = Info(WeightType::kMXFP4Pair);
  const int64_t blocks = pair.cols() / info.block_elements;
  const std::byte* from = pair.data + row * blocks * info.block_bytes;
  const std::byte* scales = pair.scales + row * blocks * info.scale_bytes;
  for (int64_t b = 0; b < blocks; ++b, from += info.block_bytes) {
    *out++ = scales[b];
    // Element e is in a half of byte e / 2; ggml has e and e + 16 in one byte.
    const auto element = [from](int e) {
      return e % 2 == 0 ? from[e / 2] & std::byte{15} : from[e / 2] >> 4;
    };
    for (int e = 0; e < 16; ++e) *out++ = element(e) | element(e + 16) << 4;
  }
}

}  // namespace ropewalk::internal
