#include <algorithm>
#include <new>
#include <string>
#include <vector>

#include "ropewalk/attention/attention.h"
#include "ropewalk/base/error.h"
#include "src/attention/form.h"
#include "src/attention/kernel/tile.h"
#include "src/attention/kv_head.h"
#include "src/base/parallel.h"

namespace ropewalk {
namespace {

[[noreturn]] void RefuseCache(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, "KvCache: " + message);
}

void Check(const char* name, const TensorView& view, int64_t tokens, int64_t heads,
           int64_t head_dim) {
  if (view.dtype != DType::kF32 || view.device != Device::kCpu || view.rank != 3 ||
      view.shape[0] != tokens || view.shape[1] != heads || view.shape[2] != head_dim ||
      (head_dim > 1 && view.strides[2] != 1) || view.data == nullptr) {
    RefuseCache(std::string(name) + ": expected float32 [" + std::to_string(tokens) + ", " +
                std::to_string(heads) + ", " + std::to_string(head_dim) +
                "] with a last stride of 1, got " + Name(view.dtype) + " " + view.ShapeString() +
                (view.data == nullptr ? " without data" : ""));
  }
}

}  // namespace

void CheckKvType(KvType type, int64_t head_dim, std::optional<int64_t> value_dim) {
  if (type != KvType::kQ8_0) return;
  const bool keys = head_dim % internal::kQ8Block == 0;
  if (keys && value_dim.value_or(0) % internal::kQ8Block == 0) return;
  throw Error(ErrorCode::kUnsupported,
              std::string("a KV cache of q8_0 holds blocks of 32 elements, and ") +
                  (keys ? "values of a head" : "a head") + " of this model " +
                  (keys ? "have " : "has ") + std::to_string(keys ? *value_dim : head_dim) +
                  ", no multiple of 32; bf16 and f32 hold any head_dim");
}

internal::KvHead AttentionAccess::Head(const KvCache& c, int64_t kv_head) {
  const int64_t padded = (c.capacity_ + kKeyBlock - 1) / kKeyBlock * kKeyBlock;
  internal::KvHead h{
      c.type_,    c.head_dim_, c.value_dim_, RowStride(c.value_dim_), PanelWidth(c.value_dim_),
      c.capacity_};
  h.keys =
      const_cast<std::byte*>(c.keys_.data()) + kv_head * padded * KeyBytes(c.type_, c.head_dim_);
  h.values = const_cast<std::byte*>(c.values_.data()) +
             kv_head * ValueBytes(c.type_, c.value_dim_, c.capacity_);
  h.key_scales = const_cast<uint16_t*>(c.key_scales_.data()) + kv_head * padded * h.key_blocks();
  h.value_scales =
      const_cast<uint16_t*>(c.value_scales_.data()) + kv_head * c.capacity_ * h.value_blocks();
  return h;
}

KvCache::KvCache(int64_t kv_heads, int64_t head_dim, int64_t capacity_tokens, KvType type,
                 std::optional<int64_t> value_dim)
    : type_(type),
      kv_heads_(kv_heads),
      head_dim_(head_dim),
      value_dim_(value_dim.value_or(head_dim)),
      capacity_(capacity_tokens) {
  // The product, keys and values, stays below 2^62.
  constexpr int64_t kMostHeads = 1 << 15, kMostTokens = 1 << 30;
  if (kv_heads < 1 || kv_heads > kMostHeads || head_dim < 1 || head_dim > kMostHeads ||
      capacity_tokens < 0 || capacity_tokens > kMostTokens) {
    RefuseCache(
        "expected 1 to 32768 kv_heads, a head_dim of 1 to 32768 and a capacity of 0 to 2^30 "
        "tokens, got " +
        std::to_string(kv_heads) + ", " + std::to_string(head_dim) + ", " +
        std::to_string(capacity_tokens));
  }
  if (value_dim_ < 1 || value_dim_ > kMostHeads) {
    RefuseCache("value_dim: expected 1 to 32768, got " + std::to_string(value_dim_));
  }
  if (type != KvType::kF32 && type != KvType::kBf16 && type != KvType::kQ8_0) {
    RefuseCache("type: expected kF32, kBf16 or kQ8_0, got " +
                std::to_string(static_cast<int>(type)));
  }
  CheckKvType(type, head_dim, value_dim_);
  const int64_t padded = (capacity_ + kKeyBlock - 1) / kKeyBlock * kKeyBlock;
  const int64_t key_bytes = kv_heads_ * padded * AttentionAccess::KeyBytes(type, head_dim_);
  const int64_t value_bytes = kv_heads_ * AttentionAccess::ValueBytes(type, value_dim_, capacity_);
  try {
    keys_ = AlignedBuffer<std::byte>(static_cast<size_t>(key_bytes));
    values_ = AlignedBuffer<std::byte>(static_cast<size_t>(value_bytes));
    if (type == KvType::kQ8_0) {
      const auto scales = [this](int64_t tokens, int64_t dim) {
        return AlignedBuffer<uint16_t>(
            static_cast<size_t>(kv_heads_ * tokens * dim / internal::kQ8Block));
      };
      key_scales_ = scales(padded, head_dim_);
      value_scales_ = scales(capacity_, value_dim_);
    }
  } catch (const std::bad_alloc&) {
    const int64_t mib = (key_bytes >> 20) + (value_bytes >> 20);
    RefuseCache("no memory for " + std::to_string(mib) + " MiB of keys and values of " +
                std::to_string(capacity_) + " tokens; ask for a shorter sequence");
  }
}

int64_t KvCache::bytes() const {
  const size_t scales = key_scales_.size() + value_scales_.size();
  return static_cast<int64_t>(keys_.size() + values_.size() + scales * sizeof(uint16_t));
}

void KvCache::Truncate(int64_t tokens) {
  if (tokens < 0 || tokens > tokens_) {
    RefuseCache("Truncate: expected 0 to " + std::to_string(tokens_) + " tokens, got " +
                std::to_string(tokens));
  }
  for (int64_t h = 0; h < kv_heads_ && tokens % 2 == 1 && tokens < tokens_; ++h) {
    internal::ClearPartner(AttentionAccess::Head(*this, h), tokens - 1);
  }
  tokens_ = tokens;
}

std::vector<std::span<std::byte>> KvCache::Memory() {
  std::vector<std::span<std::byte>> all = {{keys_.data(), keys_.size()},
                                           {values_.data(), values_.size()}};
  for (AlignedBuffer<uint16_t>* scales : {&key_scales_, &value_scales_}) {
    if (scales->size() == 0) continue;
    all.push_back(std::as_writable_bytes(std::span(scales->data(), scales->size())));
  }
  return all;
}

void KvCache::SetTokens(int64_t tokens) {
  if (tokens < 0 || tokens > capacity_) {
    RefuseCache("SetTokens: expected 0 to " + std::to_string(capacity_) + " tokens, got " +
                std::to_string(tokens));
  }
  tokens_ = tokens;
}

void KvCache::CopyKeys(int64_t kv_head, int64_t first, int64_t count, float* out) const {
  if (kv_head < 0 || kv_head >= kv_heads_ || first < 0 || count < 0 || count > tokens_ - first) {
    RefuseCache("CopyKeys: expected a head below " + std::to_string(kv_heads_) + " and keys of " +
                std::to_string(tokens_) + " tokens, got head " + std::to_string(kv_head) + ", " +
                std::to_string(count) + " keys from " + std::to_string(first));
  }
  const internal::KvHead head = AttentionAccess::Head(*this, kv_head);
  std::vector<float> key(static_cast<size_t>(head_dim_));
  for (int64_t t = 0; t < count; ++t) {
    internal::LoadKey(head, first + t, key.data());
    for (int64_t i = 0; i < head_dim_; ++i) out[i * count + t] = key[static_cast<size_t>(i)];
  }
}

void KvCache::Append(const TensorView& k, const TensorView& v) {
  const int64_t count = k.rank > 0 ? k.shape[0] : 0;
  if (k.rank == 3 && count == 0) return;
  if (count < 0) RefuseCache("k: expected 0 tokens or more, got " + std::to_string(count));
  Check("k", k, count, kv_heads_, head_dim_);
  Check("v", v, count, kv_heads_, value_dim_);
  if (count > capacity_ - tokens_) {
    RefuseCache("holds " + std::to_string(tokens_) + " of " + std::to_string(capacity_) +
                " tokens and cannot take " + std::to_string(count) +
                " more; make it for the final length of the sequence");
  }
  internal::CheckAddressable("KvCache: k", k);
  internal::CheckAddressable("KvCache: v", v);
  const int64_t first = tokens_, last = tokens_ + count;
  const int64_t first_block = first / kKeyBlock, last_block = (last - 1) / kKeyBlock;
  const int64_t jobs = kv_heads_ * (last_block - first_block + 1);
  const int threads = internal::ThreadsFor(count * kv_heads_ * head_dim_);  // 1 ns a pair of k, v
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t job = 0; job < jobs; ++job) {
    const int64_t head = job % kv_heads_, block = first_block + job / kv_heads_;
    const int64_t begin = std::max(first, block * kKeyBlock);
    const auto from = [&](const TensorView& view) {
      return static_cast<const float*>(view.data) + (begin - first) * view.strides[0] +
             head * view.strides[1];
    };
    internal::StoreRows(AttentionAccess::Head(*this, head),
                        {.begin = begin,
                         .end = std::min(last, (block + 1) * kKeyBlock),
                         .k = from(k),
                         .v = from(v),
                         .k_stride = k.strides[0],
                         .v_stride = v.strides[0]});
  }
  tokens_ = last;
}

}  // namespace ropewalk
