#include "src/rotary/rerotate/q8.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string>

#include "ropewalk/base/error.h"
#include "ropewalk/rotary/rotate.h"
#include "src/base/addressable.h"
#include "src/rotary/rerotate/q8_block.h"

namespace ropewalk {

Q8KeysView Q8KeysView::Contiguous(void* data, int64_t batch, int64_t tokens, int64_t heads,
                                  int64_t head_dim) {
  // Throws for sizes whose product overflows.
  const TensorView bytes =
      TensorView::Contiguous(data, DType::kF8E4M3, {batch, tokens, heads, head_dim / 32, 34});
  Q8KeysView view{data, batch, tokens, heads, head_dim};
  std::copy_n(bytes.strides, 3, view.strides_bytes);
  return view;
}

namespace internal {
namespace {

constexpr int64_t kBlock = kQ8Block;
constexpr int64_t kBlockBytes = kQ8Bytes;
constexpr int64_t kTokensAtATime = 64;

void Decode(const char* block, float* out) {
  Float16 scale;
  int8_t q[kBlock];
  std::memcpy(&scale, block, sizeof(scale));
  std::memcpy(q, block + sizeof(scale), sizeof(q));
  for (int i = 0; i < kBlock; ++i) out[i] = Q8Decoded(scale, q[i]);
}

void Encode(const float* x, char* block) {
  float largest = 0;
  for (int i = 0; i < kBlock; ++i) largest = std::max(largest, std::abs(x[i]));
  const Q8Scale scale = Q8ScaleFor(largest);
  int8_t q[kBlock];
  for (int i = 0; i < kBlock; ++i) q[i] = Q8Encoded(x[i], scale.inverse);
  std::memcpy(block, &scale.stored, sizeof(scale.stored));
  std::memcpy(block + sizeof(scale.stored), q, sizeof(q));
}

[[noreturn]] void BadKeys(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, "q8_keys: " + message);
}

void CheckStrides(const Q8KeysView& keys) {
  if (keys.data == nullptr) BadKeys("data is null");
  if (keys.heads < 0) BadKeys("heads is negative");
  if (keys.head_dim < kBlock || keys.head_dim % kBlock != 0 || keys.head_dim > 1 << 20) {
    BadKeys("head_dim must be a multiple of 32, the block of Q8_0, got " +
            std::to_string(keys.head_dim));
  }
  // Heads of different tokens are written by different threads.
  const int64_t sizes[] = {keys.batch, keys.tokens, keys.heads};
  std::pair<int64_t, int64_t> dims[3];
  for (int i = 0; i < 3; ++i) dims[i] = {std::abs(keys.strides_bytes[i]), sizes[i]};
  std::sort(std::begin(dims), std::end(dims));
  int64_t extent = keys.head_dim / kBlock * kBlockBytes;
  for (const auto& [stride, size] : dims) {
    if (size < 2) continue;
    if (stride < extent) BadKeys("heads overlap: a stride of " + std::to_string(stride) + " bytes");
    if (!Addressable(size, stride)) {
      BadKeys("a stride of " + std::to_string(stride) + " bytes is not addressable");
    }
    extent += stride * (size - 1);
  }
}

}  // namespace

void CheckQ8(const Q8KeysView& keys, int64_t pairs, int64_t first_dim) {
  CheckStrides(keys);
  if (first_dim < 0 || first_dim > keys.head_dim - 2 * pairs) {
    BadKeys(std::to_string(2 * pairs) + " elements from first_dim " + std::to_string(first_dim) +
            " on do not lie in a head of " + std::to_string(keys.head_dim));
  }
}

void RerotateQ8(const Q8KeysView& keys, const CosSinTable& table, PairLayout layout,
                int64_t first_dim, const std::vector<int64_t>& row_of,
                const std::vector<uint8_t>& stays) {
  if (row_of.empty() || keys.heads == 0) return;
  CheckQ8(keys, table.pairs(), first_dim);
  const int64_t end = first_dim + 2 * table.pairs();
  // The blocks that hold a rotated element; the others keep their bits.
  const int64_t first_block = first_dim / kBlock;
  const int64_t blocks = (end + kBlock - 1) / kBlock - first_block;
  const int64_t width = blocks * kBlock;
  std::vector<float> x(static_cast<std::size_t>(kTokensAtATime * keys.heads * width));
  std::vector<int64_t> tokens, rows;
  const auto each_block = [&](const auto& visit) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      for (int64_t h = 0; h < keys.heads; ++h) {
        char* head = static_cast<char*>(keys.data) +
                     tokens[i] / keys.tokens * keys.strides_bytes[0] +
                     tokens[i] % keys.tokens * keys.strides_bytes[1] + h * keys.strides_bytes[2];
        float* values = x.data() + (static_cast<int64_t>(i) * keys.heads + h) * width;
        for (int64_t b = 0; b < blocks; ++b) {
          visit(head + (first_block + b) * kBlockBytes, values + b * kBlock);
        }
      }
    }
  };
  const int64_t all = static_cast<int64_t>(row_of.size());
  for (int64_t t = 0; t < all;) {
    tokens.clear();
    rows.clear();
    for (; t < all && static_cast<int64_t>(tokens.size()) < kTokensAtATime; ++t) {
      const int64_t row = row_of[static_cast<std::size_t>(t)];
      if (stays[static_cast<std::size_t>(row)]) continue;
      tokens.push_back(t);
      rows.push_back(row);
    }
    if (tokens.empty()) break;
    each_block([](const char* block, float* values) { Decode(block, values); });
    Rotate({.table = &table,
            .layout = layout,
            .positions = Positions::Each(std::span<const int64_t>(rows)),
            .q = TensorView::Of(x.data(), {static_cast<int64_t>(tokens.size()), keys.heads, width}),
            .first_dim = first_dim - first_block * kBlock});
    each_block([](char* block, const float* values) { Encode(values, block); });
  }
}

}  // namespace internal
}  // namespace ropewalk
