#include <algorithm>
#include <new>
#include <string>
#include <vector>

#include "ropewalk/attention/attention.h"
#include "ropewalk/base/error.h"
#include "src/attention/kernel/tile.h"
#include "src/attention/kv_type.h"
#include "src/base/parallel.h"

namespace ropewalk {
namespace {

constexpr int64_t kBlock = AttentionAccess::kBlock;

[[noreturn]] void Refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, "KvCache: " + message);
}

void Check(const char* name, const TensorView& view, int64_t tokens, int64_t heads,
           int64_t head_dim) {
  if (view.dtype != DType::kF32 || view.device != Device::kCpu || view.rank != 3 ||
      view.shape[0] != tokens || view.shape[1] != heads || view.shape[2] != head_dim ||
      (head_dim > 1 && view.strides[2] != 1) || view.data == nullptr) {
    Refuse(std::string(name) + ": expected float32 [" + std::to_string(tokens) + ", " +
           std::to_string(heads) + ", " + std::to_string(head_dim) +
           "] with a last stride of 1, got " + Name(view.dtype) + " " + view.ShapeString() +
           (view.data == nullptr ? " without data" : ""));
  }
}

// What the type holds of the rows of `view`, in `rows`.
TensorView Kept(KvType type, const TensorView& view, std::vector<float>& rows) {
  if (type == KvType::kF32) return view;
  const int64_t tokens = view.shape[0], heads = view.shape[1], head_dim = view.shape[2];
  rows.resize(static_cast<size_t>(tokens * heads * head_dim));
  const auto* from = static_cast<const float*>(view.data);
  for (int64_t row = 0; row < tokens * heads; ++row) {
    internal::RoundKv(type, from + row / heads * view.strides[0] + row % heads * view.strides[1],
                      head_dim, rows.data() + row * head_dim);
  }
  TensorView kept = view;
  kept.data = rows.data();
  kept.strides[0] = heads * head_dim;
  kept.strides[1] = head_dim;
  return kept;
}

}  // namespace

KvCache::KvCache(int64_t kv_heads, int64_t head_dim, int64_t capacity_tokens, KvType type)
    : kv_heads_(kv_heads), head_dim_(head_dim), capacity_(capacity_tokens), type_(type) {
  // The product, keys and values, stays below 2^62.
  constexpr int64_t kMostHeads = 1 << 15, kMostTokens = 1 << 30;
  if (kv_heads < 1 || kv_heads > kMostHeads || head_dim < 1 || head_dim > kMostHeads ||
      capacity_tokens < 0 || capacity_tokens > kMostTokens) {
    Refuse(
        "expected 1 to 32768 kv_heads, a head_dim of 1 to 32768 and a capacity of 0 to 2^30 "
        "tokens, got " +
        std::to_string(kv_heads) + ", " + std::to_string(head_dim) + ", " +
        std::to_string(capacity_tokens));
  }
  CheckKvType(type, head_dim);
  const int64_t padded = (capacity_ + kBlock - 1) / kBlock * kBlock;
  const int64_t value_stride = AttentionAccess::ValueStride(head_dim_);
  try {
    keys_ = AlignedBuffer<float>(static_cast<size_t>(kv_heads_ * padded * head_dim_));
    values_ = AlignedBuffer<float>(static_cast<size_t>(kv_heads_ * capacity_ * value_stride));
  } catch (const std::bad_alloc&) {
    const int64_t mib = kv_heads_ * padded * (head_dim_ + value_stride) >> 18;
    Refuse("no memory for " + std::to_string(mib) + " MiB of keys and values of " +
           std::to_string(capacity_) + " tokens; ask for a shorter sequence");
  }
}

int64_t KvCache::bytes() const {
  return static_cast<int64_t>((keys_.size() + values_.size()) * sizeof(float));
}

void KvCache::Truncate(int64_t tokens) {
  if (tokens < 0 || tokens > tokens_) {
    Refuse("Truncate: expected 0 to " + std::to_string(tokens_) + " tokens, got " +
           std::to_string(tokens));
  }
  tokens_ = tokens;
}

void KvCache::CopyKeys(int64_t kv_head, int64_t first, int64_t count, float* out) const {
  if (kv_head < 0 || kv_head >= kv_heads_ || first < 0 || count < 0 || count > tokens_ - first) {
    Refuse("CopyKeys: expected a head below " + std::to_string(kv_heads_) + " and keys of " +
           std::to_string(tokens_) + " tokens, got head " + std::to_string(kv_head) + ", " +
           std::to_string(count) + " keys from " + std::to_string(first));
  }
  const float* keys = AttentionAccess::Keys(*this, kv_head);
  for (int64_t i = 0; i < head_dim_; ++i) {
    for (int64_t t = 0; t < count; ++t) {
      const int64_t token = first + t;
      out[i * count + t] = keys[(token / kBlock * head_dim_ + i) * kBlock + token % kBlock];
    }
  }
}

void KvCache::Append(const TensorView& given_k, const TensorView& given_v) {
  const int64_t count = given_k.rank > 0 ? given_k.shape[0] : 0;
  if (given_k.rank == 3 && count == 0) return;
  Check("k", given_k, count, kv_heads_, head_dim_);
  Check("v", given_v, count, kv_heads_, head_dim_);
  if (count > capacity_ - tokens_) {
    Refuse("holds " + std::to_string(tokens_) + " of " + std::to_string(capacity_) +
           " tokens and cannot take " + std::to_string(count) +
           " more; make it for the final length of the sequence");
  }
  std::vector<float> kept_k, kept_v;
  const TensorView k = Kept(type_, given_k, kept_k), v = Kept(type_, given_v, kept_v);
  const int64_t first = tokens_, last = tokens_ + count;
  const int64_t first_block = first / kBlock, last_block = (last - 1) / kBlock;
  const int64_t value_stride = AttentionAccess::ValueStride(head_dim_);
  const int64_t jobs = kv_heads_ * (last_block - first_block + 1);
  const int threads = internal::ThreadsFor(count * kv_heads_ * head_dim_);  // 1 ns a pair of k, v
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t job = 0; job < jobs; ++job) {
    const int64_t head = job % kv_heads_, block = first_block + job / kv_heads_;
    float* keys = const_cast<float*>(AttentionAccess::Keys(*this, head)) +
                  block * kBlock * head_dim_;  // [head_dim, 64]
    float* values = const_cast<float*>(AttentionAccess::Values(*this, head));
    const int64_t begin = std::max(first, block * kBlock),
                  end = std::min(last, (block + 1) * kBlock);
    // The kernel reads whole vectors: what no token fills yet must be numbers.
    if (begin == block * kBlock && end < (block + 1) * kBlock) {
      std::fill_n(keys, kBlock * head_dim_, 0.0f);
    }
    const float* k_from = static_cast<const float*>(k.data) + head * k.strides[1];
    for (int64_t i = 0; i < head_dim_; ++i) {
      float* to = keys + i * kBlock - block * kBlock;
      for (int64_t t = begin; t < end; ++t) to[t] = k_from[(t - first) * k.strides[0] + i];
    }
    const float* v_from = static_cast<const float*>(v.data) + head * v.strides[1];
    const int64_t panel_width = AttentionAccess::PanelWidth(head_dim_);
    for (int64_t i = 0; i < value_stride; i += panel_width) {
      const int64_t width = std::min(panel_width, value_stride - i);
      const int64_t filled = std::min(width, head_dim_ - i);
      for (int64_t t = begin; t < end; ++t) {
        float* to = values + i * capacity_ + t * width;
        std::copy_n(v_from + (t - first) * v.strides[0] + i, filled, to);
        std::fill(to + filled, to + width, 0.0f);
      }
    }
  }
  tokens_ = last;
}

}  // namespace ropewalk
