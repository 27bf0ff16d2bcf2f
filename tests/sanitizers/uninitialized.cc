// Rotates a token whose last head was never written: what scripts/valgrind.sh must see before it says that there is nothing.
#include <cstdio>
#include <memory>

#include "ropewalk/rotary/rotate.h"

int main() {
  using namespace ropewalk;
  constexpr int64_t kHeads = 2, kDim = 8;
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = kDim;
  const CosSinTable table(Resolve(spec, 16), 0, 16, AnglePrecision::kExact);
  const std::unique_ptr<float[]> q(new float[kHeads * kDim]);  // NOLINT: left as it is
  for (int64_t i = 0; i < kDim; ++i) q[i] = 1;
  Rotate({.table = &table,
          .layout = spec.layout,
          .positions = Positions::From(3),
          .q = TensorView::Of(q.get(), {1, kHeads, kDim})});
  return q[0] + q[kDim] > 0 ? 0 : 1;
}
