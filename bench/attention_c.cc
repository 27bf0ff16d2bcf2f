// Attention for attention_peers.py: one C entry, made for ctypes and for nothing else.
#include <cmath>
#include <cstdint>

#include "ropewalk/attention/attention.h"
#include "ropewalk/base/threads.h"

namespace {

struct Call {
  int64_t tokens, heads, kv_heads, head_dim;
  const float *q, *k, *v;
  float* out;
  const float* slopes;  // [heads] of ALiBi, or null
  int32_t causal, threads;
};

}  // namespace

// Packs k and v, then attends; 0, or 1 for an error.
extern "C" int ropewalk_bench_attention(const Call* c) {
  try {
    ropewalk::SetNumThreads(c->threads);
    // Kept, as an engine keeps its cache; filled again in every call.
    static thread_local ropewalk::KvCache cache;
    if (cache.capacity_tokens() != c->tokens || cache.kv_heads() != c->kv_heads ||
        cache.head_dim() != c->head_dim) {
      cache = ropewalk::KvCache(c->kv_heads, c->head_dim, c->tokens);
    }
    cache.Truncate(0);
    const auto view = [&](const float* data, int64_t heads) {
      return ropewalk::TensorView::Of(data, {c->tokens, heads, c->head_dim});
    };
    cache.Append(view(c->k, c->kv_heads), view(c->v, c->kv_heads));
    ropewalk::AttentionArgs args;
    args.q = view(c->q, c->heads);
    args.out = view(c->out, c->heads);
    args.cache = &cache;
    args.scale = 1.0f / std::sqrt(static_cast<float>(c->head_dim));
    args.mask =
        c->causal != 0 ? ropewalk::AttentionMask::kCausal : ropewalk::AttentionMask::kBidirectional;
    ropewalk::ScoreForm form;
    if (c->slopes != nullptr) {
      ropewalk::SlopeForm slope;
      slope.behind.assign(c->slopes, c->slopes + c->heads);
      slope.ahead = slope.behind;
      form = slope;
      args.form = &form;
    }
    ropewalk::Attention(args);
    return 0;
  } catch (...) {
    return 1;
  }
}
