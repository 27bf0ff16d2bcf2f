// The float32 powers from which Hugging Face's frequencies come, bit for bit.
#pragma once

#include <cstdint>
#include <vector>

namespace ropewalk::internal {

// base ** (torch.arange(0, 2 * pairs, 2) / dim) in float32, as PyTorch 2.x evaluates it on an
// x86-64 CPU with AVX-512 and glibc, whatever CPU this runs on. PyTorch takes elements 32 at a time
// (two vectors) through Sleef's pow, whose error bound is 1 ULP, and leaves the remainder to powf
// of the C library; over 300 bases 1.4 % of the vector part differ from the correctly rounded
// power. (On a CPU with AVX2 alone PyTorch takes 16 at a time, so that pairs between a multiple of
// 16 and one of 32 can differ from these in the last bit.)
std::vector<float> TorchPowers(float base, int64_t pairs);
// The same of arange(0, 2 * count, 2) / dim, where fewer pairs are rotated than dim has.
std::vector<float> TorchPowers(float base, int64_t count, int64_t dim);

// Sleef's pow for a positive finite x and a result in the normal range; for tests.
float VectorPow(float x, float y);

}  // namespace ropewalk::internal
