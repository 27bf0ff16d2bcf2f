// What a KV cache of another type than float32 keeps of a row of a key or a value.
#pragma once

#include <cstdint>

#include "ropewalk/attention/attention.h"

namespace ropewalk::internal {

// One row of a head of one token, [head_dim], to the numbers that the type can hold. `out` may be
// `row`. CheckKvType says which head_dim fits.
//   f32   as it is
//   bf16  to the nearest, ties to even
//   q8_0  ggml's reference quantiser (quantize_row_q8_0_ref): blocks of 32 elements, d = amax / 127,
//         q = x / d rounded to the nearest, ties away from 0; what is read is q times d as float16
void RoundKv(KvType type, const float* row, int64_t head_dim, float* out);

}  // namespace ropewalk::internal
