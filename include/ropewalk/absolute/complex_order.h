// Complex-order embeddings (Wang et al. 2020, arXiv 1912.12333, section 2): word w at position k
// is, in each dimension, r e^(i (omega k + theta)): an amplitude, a frequency and a phase per word
// and dimension. The layers after it compute with complex numbers; they are here too.
//
// Real and imaginary parts are separate arrays. The gradient of a loss L with respect to z = a + ib
// is the pair dL/da, dL/db. Gradients of parameters are in double and are added to the output. All
// functions throw Error(kInvalidArgument) that names the argument.
#pragma once

#include <cstdint>
#include <span>

namespace ropewalk {

template <class T>
struct ComplexSpan {
  std::span<T> re, im;
};

// Parameter sharing, as in the paper: none, one value for all words, or one for all dimensions.
enum class ComplexSharing : uint8_t { kNone, kWords, kDims };

struct ComplexOrderSpec {
  int64_t words = 0, dim = 0;
  ComplexSharing frequency = ComplexSharing::kNone;
  ComplexSharing phase = ComplexSharing::kNone;
};

// amplitude [words, dim]; frequency and phase [words, dim], or shared by words [dim], or by
// dimensions [words]; an empty phase is 0.
struct ComplexOrderTables {
  std::span<const float> amplitude, frequency, phase;
};
struct ComplexOrderGradients {
  std::span<double> amplitude, frequency, phase;
};

// out [tokens, dim]. The error of an angle is at most 2^-50 of 2 pi for the float32 frequencies, at
// any position of magnitude below 2^31.
void ComplexOrder(const ComplexOrderSpec& spec, const ComplexOrderTables& tables,
                  std::span<const int64_t> words, std::span<const int64_t> positions,
                  const ComplexSpan<float>& out);
void ComplexOrderBackward(const ComplexOrderSpec& spec, const ComplexOrderTables& tables,
                          std::span<const int64_t> words, std::span<const int64_t> positions,
                          const ComplexSpan<const float>& d_out,
                          const ComplexOrderGradients& gradients);

// y = x W^T + b: x [rows, in], W [out, in], b [out] or empty, y [rows, out].
void ComplexLinear(int64_t in, int64_t out, const ComplexSpan<const float>& x,
                   const ComplexSpan<const float>& weight, const ComplexSpan<const float>& bias,
                   const ComplexSpan<float>& y);
// dx is overwritten; d_weight and, unless empty, d_bias are added to.
void ComplexLinearBackward(int64_t in, int64_t out, const ComplexSpan<const float>& x,
                           const ComplexSpan<const float>& weight,
                           const ComplexSpan<const float>& dy, const ComplexSpan<float>& dx,
                           const ComplexSpan<double>& d_weight, const ComplexSpan<double>& d_bias);

// Attention whose weights are real: softmax over keys of |q . k| / sqrt(head_dim), the modulus of a
// complex product, as the paper's authors compute it (github.com/iclr-complex-order/complex-order).
// Their product does not conjugate k, so the angles of query and key are added; `hermitian`
// conjugates k, and the scores depend on the difference of positions.
struct ComplexAttentionSpec {
  int64_t queries = 0, keys = 0;  // tokens
  int64_t heads = 1, head_dim = 0;
  bool causal = false;  // the last query has the position of the last key
  bool hermitian = false;
};
// q, out [queries, heads, head_dim]; k, v [keys, heads, head_dim]. Scratch memory: one row of
// scores.
void ComplexAttention(const ComplexAttentionSpec& spec, const ComplexSpan<const float>& q,
                      const ComplexSpan<const float>& k, const ComplexSpan<const float>& v,
                      const ComplexSpan<float>& out);
// dq, dk, dv are added to. The derivative of the modulus of a product that is 0 is taken as 0.
void ComplexAttentionBackward(const ComplexAttentionSpec& spec, const ComplexSpan<const float>& q,
                              const ComplexSpan<const float>& k, const ComplexSpan<const float>& v,
                              const ComplexSpan<const float>& d_out, const ComplexSpan<double>& dq,
                              const ComplexSpan<double>& dk, const ComplexSpan<double>& dv);

}  // namespace ropewalk
