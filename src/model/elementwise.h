// What a decoder does between matrix products, vectorised: small next to them, and kept so.
#pragma once

#include <cstdint>

#include "ropewalk/model/model.h"

namespace ropewalk::internal {

// Each of `rows` rows holds `groups` vectors of n, normed one by one. out may be x. Strides in
// elements.
struct NormArgs {
  const float* x;
  int64_t x_stride;
  float* out;
  int64_t out_stride;
  int64_t rows, groups, n;
  const float* weight;  // [n]
  float eps;
  const float* bias = nullptr;  // [n], of LayerNorm
};

// Root mean square norm (Zhang & Sennrich 2019, arXiv 1910.07467, eq. 4), in float32:
// out = x / sqrt(mean(x^2) + eps) * weight.
void RmsNorm(const NormArgs& args);

// Layer norm (Ba, Kiros & Hinton 2016, arXiv 1607.06450, eq. 4), in float32:
// out = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias.
void LayerNorm(const NormArgs& args);

// out[i] = activation(x[i]). GELU is x times the normal distribution's probability of less than x
// (Hendrycks & Gimpel 2016, arXiv 1606.08415), kGeluTanh its approximation there. out may be x.
void Activate(MlpSpec::Activation activation, const float* x, int64_t rows, int64_t n, float* out);

// out [rows, n] = activation(gate) * up, with gate_up [rows, 2 * n] holding gate, then up (Shazeer
// 2020, arXiv 2002.05202). Dense, because oneDNN's fast kernels take no strided input.
void ActivateGate(MlpSpec::Activation activation, const float* gate_up, int64_t rows, int64_t n,
                  float* out);

// x[i] = cap tanh(x[i] / cap).
void SoftCap(float cap, int64_t rows, int64_t n, float* x);

// The first of the largest of x [n], of which NaN is none.
int64_t Largest(const float* x, int64_t n);
// The sum of exp(x[i] - most), blocks of float32 added in double; NaN where one of x is.
double SumExp(const float* x, int64_t n, float most);

}  // namespace ropewalk::internal
