#include "src/attention/head_memory.h"

#include <algorithm>

namespace ropewalk::internal {
namespace {

// to [columns, to_stride] = from [rows, from_stride] with rows and columns exchanged.
void Transpose(int64_t rows, int64_t columns, const float* from, int64_t from_stride, float* to,
               int64_t to_stride) {
  constexpr int64_t kLine = 16;  // columns that stay in the cache until their rows are through
  for (int64_t line = 0; line < columns; line += kLine) {
    const int64_t end = std::min(columns, line + kLine);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = line; c < end; ++c) to[c * to_stride + r] = from[r * from_stride + c];
    }
  }
}

}  // namespace

KeyRotations::KeyRotations(const KvCache& cache, const RotationRun& rotation) {
  const int64_t tokens = cache.tokens();
  keys.assign(static_cast<size_t>(std::max(1, rotation.views)), {0, tokens});
  if (rotation.rotation == nullptr || rotation.queries == 0) return;
  for (int v = 0; v < rotation.views; ++v) {
    auto& [begin, end] = keys[static_cast<size_t>(v)];
    if (rotation.views > 1) {  // ranges ascend from query to query
      begin = std::min(tokens, rotation.begin[v * rotation.queries] / kKeyBlock * kKeyBlock);
      end = rotation.end[(v + 1) * rotation.queries - 1];
      end = std::min(tokens, (end + kKeyBlock - 1) / kKeyBlock * kKeyBlock);
    }
    rows.emplace_back();
    if (begin >= end) continue;
    if (rotation.KeyBlock(v, 0) == nullptr) continue;
    const int64_t width = 2 * rotation.pairs;
    rows.back() = AlignedBuffer<float>(static_cast<size_t>((end - begin) * width));
    for (int64_t j = begin; j < end; j += kKeyBlock) {
      Transpose(width, std::min(kKeyBlock, end - j), rotation.KeyBlock(v, j / kKeyBlock), kKeyBlock,
                rows.back().data() + (j - begin) * width, width);
    }
  }
}

HeadMemory::HeadMemory(const KvCache& cache, const RotationRun& rotation,
                       const KeyRotations& rotations)
    : cache_(cache),
      rotation_(rotation),
      rotations_(rotations),
      dim_(cache.head_dim()),
      stride_(AttentionAccess::RowStride(cache.head_dim())),
      value_dim_(cache.value_dim()),
      value_stride_(AttentionAccess::RowStride(cache.value_dim())) {
  const int64_t packed = (cache.tokens() + kKeyBlock - 1) / kKeyBlock * kKeyBlock * value_dim_;
  const auto floats = static_cast<size_t>(view_stride()) * rotations.keys.size();
  packed_values_ = AlignedBuffer<float>(static_cast<size_t>(packed));
  key_rows_ = AlignedBuffer<float>(floats);
  d_keys_ = AlignedBuffer<float>(floats);
  d_values_ = AlignedBuffer<float>(static_cast<size_t>(cache.tokens() * value_stride_));
}

void HeadMemory::Clear() {
  std::fill_n(packed_values_.data(), packed_values_.size(), 0.0f);  // what no token fills
}

void HeadMemory::Load(int64_t kv_head) {
  const int64_t keys = cache_.tokens();
  const auto* values = AttentionAccess::Head(cache_, kv_head).Values<float>();
  const int64_t panel = AttentionAccess::PanelWidth(value_dim_);
  for (int64_t j = 0; j < keys; j += kKeyBlock) {
    for (int64_t i = 0; i < value_dim_; i += panel) {
      const int64_t width = std::min(panel, value_stride_ - i);
      Transpose(std::min(kKeyBlock, keys - j), std::min(width, value_dim_ - i),
                values + i * cache_.capacity_tokens() + j * width, width,
                packed_values_.data() + j * value_dim_ + i * kKeyBlock, kKeyBlock);
    }
  }
  std::fill_n(d_values_.data(), keys * value_stride_, 0.0f);
  LoadKeys(kv_head);
}

void HeadMemory::LoadKeys(int64_t kv_head) {
  const auto* packed = AttentionAccess::Head(cache_, kv_head).Keys<float>();
  for (size_t v = 0; v < rotations_.keys.size(); ++v) {
    const auto [begin, end] = rotations_.keys[v];
    float* rows = key_rows_.data() + static_cast<int64_t>(v) * view_stride();
    for (int64_t j = begin; j < end; j += kKeyBlock) {
      const int64_t last = std::min(end, j + kKeyBlock);
      Transpose(dim_, last - j, packed + j * dim_, kKeyBlock, rows + j * stride_, stride_);
      for (int64_t k = j; k < last; ++k) {
        std::fill(rows + k * stride_ + dim_, rows + (k + 1) * stride_, 0.0f);
      }
    }
    Rotate(v, /*adjoint=*/false, rows);
    if (begin >= end) continue;
    std::fill_n(d_keys_.data() + static_cast<int64_t>(v) * view_stride() + begin * stride_,
                (end - begin) * stride_, 0.0f);
  }
}

void HeadMemory::Rotate(size_t view, bool adjoint, float* rows) const {
  if (rotations_.rows.empty() || rotations_.rows[view].size() == 0) return;
  const auto [begin, end] = rotations_.keys[view];
  RotateRows(rotation_, rotations_.rows[view].data(), end - begin, adjoint, rows + begin * stride_,
             stride_);
}

void HeadMemory::WriteKeys(float factor, const TensorView& to, int64_t kv_head) {
  for (size_t v = 0; v < rotations_.keys.size(); ++v) {
    const auto [begin, end] = rotations_.keys[v];
    float* own = d_keys_.data() + static_cast<int64_t>(v) * view_stride();
    Rotate(v, /*adjoint=*/true, own);
    for (int64_t j = 0; j < cache_.tokens(); ++j) {
      float* row = static_cast<float*>(to.data) + j * to.strides[0] + kv_head * to.strides[1];
      const bool reached = j >= begin && j < end;
      for (int64_t i = 0; reached && i < dim_; ++i) {
        const float rotated = factor * own[j * stride_ + i];
        row[i] = v == 0 ? rotated : row[i] + rotated;
      }
      if (v == 0 && !reached) std::fill_n(row, dim_, 0.0f);
    }
  }
}

void HeadMemory::WriteValues(const TensorView& to, int64_t kv_head) const {
  for (int64_t j = 0; j < cache_.tokens(); ++j) {
    float* row = static_cast<float*>(to.data) + j * to.strides[0] + kv_head * to.strides[1];
    std::copy_n(d_values_.data() + j * value_stride_, value_dim_, row);
  }
}

}  // namespace ropewalk::internal
