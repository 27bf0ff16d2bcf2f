// Qwen 1 (QwenLM/Qwen issue 401): NTK-aware in steps, alpha = 2^ceil(log2(length / L) + 1) - 1, so
// that a cache keeps its keys until the sequence doubles. `length` is the declared final length.
#include "src/rotary/scaling/scaling.h"

namespace ropewalk::internal {

Frequencies ResolveQwen(const QwenNtkScaling&, const RotarySpec& spec, int64_t length) {
  int64_t doublings = 0;  // the smallest m with L 2^m >= length
  while (length > spec.trained_length << doublings) ++doublings;
  const double alpha = doublings == 0 ? 1.0 : static_cast<double>((int64_t{2} << doublings) - 1);
  return ResolveNtk(NtkScaling{alpha}, spec);
}

}  // namespace ropewalk::internal
