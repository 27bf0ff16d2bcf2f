// Products with the rows of a table, packed by column as keys are. Compiled once per SIMD target.
#if defined(ROPEWALK_ATTENTION_TERMS_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_ATTENTION_TERMS_COLUMNS_INL_H_
#undef ROPEWALK_ATTENTION_TERMS_COLUMNS_INL_H_
#else
#define ROPEWALK_ATTENTION_TERMS_COLUMNS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "src/attention/terms/term-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal {
namespace HWY_NAMESPACE {

// c [rows, columns begin .. end] = a [rows, head_dim] times packed columns; c starts at `begin`, a
// multiple of the lanes.
inline void MultiplyColumns(int64_t head_dim, int64_t rows, const float* a, int64_t a_stride,
                            const float* packed, int64_t begin, int64_t end, float* c,
                            int64_t c_stride) {
  constexpr int64_t kBlock = AttentionAccess::kBlock;
  for (int64_t x = begin; x < end;) {
    const int64_t block = x / kBlock * kBlock, stop = std::min(end, block + kBlock);
    Multiply(rows, Tile::Up(stop - x), a, a_stride, packed + block * head_dim + x - block, kBlock,
             head_dim, /*accumulate=*/false, c + x - begin, c_stride);
    x = stop;
  }
}

// to [rows, key_stride] = (q + bias of its head) times the scale of its row, q as it was given.
template <class Scale>
void FillQueries(const Tile& tile, const std::vector<float>& bias, const Scale& scale_of,
                 float* to) {
  const AttentionTile& t = tile.t;
  for (int64_t r = 0; r < tile.rows; ++r, to += t.key_stride) {
    const int64_t h = r % t.group, token = tile.Token(r);
    const float* q = t.q + token * t.q_token_stride + h * t.q_head_stride;
    const float* added = bias.empty() ? nullptr : bias.data() + (t.first_head + h) * t.head_dim;
    const float scale = scale_of(token);
    for (int64_t i = 0; i < t.head_dim; ++i) {
      to[i] = (added == nullptr ? q[i] : q[i] + added[i]) * scale;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ropewalk::internal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
