#include "src/model/cross.h"

#include <vector>

namespace ropewalk::internal {

KvCache ProjectSource(const ModelConfig& c, const CrossWeights& cross, const float* states,
                      int64_t tokens, KvType type) {
  const int64_t width = c.kv_heads * c.head_dim;
  AlignedBuffer<float> projected(tokens * 2 * width);
  cross.kv.Apply(states, tokens, c.hidden, projected.data(), 2 * width);
  TensorView k = TensorView::Of(projected.data(), {tokens, c.kv_heads, c.head_dim});
  k.strides[0] = 2 * width;
  TensorView v = k;
  v.data = projected.data() + width;
  KvCache source(c.kv_heads, c.head_dim, tokens, type);
  source.Append(k, v);
  return source;
}

void AddCross(const ModelConfig& c, const CrossWeights& cross, const KvCache& source, int64_t rows,
              float* x, LayerScratch& s) {
  const int64_t width = c.heads * c.head_dim;
  ApplyNorm(c.layer.pre_attention, cross.norm, c, x, rows, s.normed.data());
  cross.q.Apply(s.normed.data(), rows, c.hidden, s.qkv.data(), width);
  // Without a bias, and under a mask that hides nothing, positions say nothing; given, they let the
  // queries be others than the keys' tokens.
  const std::vector<int64_t> nowhere(static_cast<std::size_t>(rows));
  Attention({.q = TensorView::Of(s.qkv.data(), {rows, c.heads, c.head_dim}),
             .out = AttendedView(c, rows, s),
             .cache = &source,
             .scale = ScoreScale(c),
             .compute = cross.out.compute(),
             .mask = AttentionMask::kBidirectional,
             .query_positions = nowhere});
  cross.out.Apply(s.attended.data(), rows, width, x, c.hidden, /*accumulate=*/true);
}

}  // namespace ropewalk::internal
