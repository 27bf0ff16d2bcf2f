// Complex-order embeddings (Wang et al. 2020, arXiv 1912.12333, section 2): word w at position k
// is, in each dimension, r e^(i (omega k + theta)): an amplitude, a frequency and a phase per word
// and dimension. What follows computes with complex numbers, so the layers are here as well.
//
// Real and imaginary parts are separate arrays. The gradient of a loss L with respect to z = a + ib
// is the pair dL/da, dL/db. Gradients of parameters are added, in double, to what is there. All
// throw Error(kInvalidArgument) that names the argument.
#pragma once

#include <cstdint>
#include <span>

namespace ropewalk {

template <class T>
struct ComplexSpan {
  std::span<T> re, im;
};

// Fewer parameters, as the paper proposes: one for all words, or one for all dimensions.
enum class ComplexSharing : uint8_t { kNone, kWords, kDims };

struct ComplexOrderSpec {
  int64_t words = 0, dim = 0;
  ComplexSharing frequency = ComplexSharing::kNone;
  ComplexSharing phase = ComplexSharing::kNone;
};

// amplitude [words, dim]; frequency and phase [words, dim], [dim] or [words] as they are shared;
// an empty phase is 0.
struct ComplexOrderTables {
  std::span<const float> amplitude, frequency, phase;
};
struct ComplexOrderGradients {
  std::span<double> amplitude, frequency, phase;
};

// out [tokens, dim]. Angles of the float32 frequencies are right to 2^-50 of a turn at any position
// of magnitude below 2^31.
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
// dx is set; d_weight and, unless empty, d_bias are added to.
void ComplexLinearBackward(int64_t in, int64_t out, const ComplexSpan<const float>& x,
                           const ComplexSpan<const float>& weight,
                           const ComplexSpan<const float>& dy, const ComplexSpan<float>& dx,
                           const ComplexSpan<double>& d_weight, const ComplexSpan<double>& d_bias);

// Attention whose weights are real: softmax over keys of |q . k| / sqrt(head_dim), the modulus of a
// complex product, as the paper's authors compute it (github.com/iclr-complex-order/complex-order).
// Their product does not conjugate k, so that the angles of query and key add up; `hermitian`
// conjugates it, and the scores then depend on the distance of the positions.
struct ComplexAttentionSpec {
  int64_t queries = 0, keys = 0;  // tokens
  int64_t heads = 1, head_dim = 0;
  bool causal = false;  // the last query stands at the last key
  bool hermitian = false;
};
// q, out [queries, heads, head_dim]; k, v [keys, heads, head_dim]. Memory beside them: one row of
// scores.
void ComplexAttention(const ComplexAttentionSpec& spec, const ComplexSpan<const float>& q,
                      const ComplexSpan<const float>& k, const ComplexSpan<const float>& v,
                      const ComplexSpan<float>& out);
// dq, dk, dv are added to. A product that is 0 has no derivative of its modulus; 0 is taken.
void ComplexAttentionBackward(const ComplexAttentionSpec& spec, const ComplexSpan<const float>& q,
                              const ComplexSpan<const float>& k, const ComplexSpan<const float>& v,
                              const ComplexSpan<const float>& d_out, const ComplexSpan<double>& dq,
                              const ComplexSpan<double>& dk, const ComplexSpan<double>& dv);

}  // namespace ropewalk
