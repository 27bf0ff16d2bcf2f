#include <cmath>
#include <cstdio>
#include <vector>

#include "ropewalk/rotary/rotate.h"

int main() {
  // Llama 3.1: which elements pair up, how many rotate, and how its context was extended.
  ropewalk::RotarySpec spec(ropewalk::PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = 128;
  spec.base = 500000;
  spec.trained_length = 8192;
  spec.scaling = ropewalk::Llama3Scaling{.factor = 8, .low_freq_factor = 1, .high_freq_factor = 4};

  // Exact cos and sin for the positions that these tokens have.
  const int64_t first = 100000, tokens = 4, heads = 32, kv_heads = 8;
  const ropewalk::Frequencies frequencies = ropewalk::Resolve(spec, 131072);
  const ropewalk::CosSinTable table(frequencies, first, tokens, ropewalk::AnglePrecision::kExact);

  std::vector<float> q(tokens * heads * 128, 1.0f), k(tokens * kv_heads * 128, 1.0f);
  ropewalk::Rotate({.table = &table,
                    .layout = spec.layout,
                    .positions = ropewalk::Positions::From(first),
                    .q = ropewalk::TensorView::Of(q.data(), {tokens, heads, 128}),
                    .k = ropewalk::TensorView::Of(k.data(), {tokens, kv_heads, 128})});

  double norm = 0;
  for (int i = 0; i < 128; ++i) norm += double{q[i]} * q[i];
  std::printf("q[0] = %.6f, norm kept: %s\n", q[0], std::abs(norm - 128) < 1e-4 ? "yes" : "no");
}
