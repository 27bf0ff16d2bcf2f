// Recursive position encoding: row 0 is learned, and a small recurrent cell computes row k + 1 from
// row k (kexue.fm/archives/8130, section on recursion). The cells are PyTorch's RNNCell and GRUCell
// without input.
#pragma once

#include <cstdint>
#include <span>

namespace ropewalk {

enum class RecurrentCell : uint8_t {
  kTanh,  // p' = tanh(b + W p + c)
  // r = s(b_r + W_r p + c_r), z = s(b_z + W_z p + c_z), n = tanh(b_n + r (W_n p + c_n)),
  // p' = (1 - z) n + z p, with s the logistic function (Cho et al. 2014, arXiv 1406.1078)
  kGru
};

// W is [gates * dim, dim], b (PyTorch's bias_ih) and c (bias_hh) [gates * dim]; kTanh has one gate,
// kGru three in the order r, z, n.
struct RecurrentParameters {
  std::span<const float> start;  // [dim], row 0
  std::span<const float> weight, input_bias, hidden_bias;
};
struct RecurrentGradients {
  std::span<double> start, weight, input_bias, hidden_bias;  // added to
};

// Rows 0 .. out.size() / dim - 1: out is [rows, dim] with dim = start.size(). The state is in
// double. Throws Error for sizes that do not fit.
void RecurrentRows(RecurrentCell cell, const RecurrentParameters& parameters, std::span<float> out);
// Backpropagation through time, over all rows. Memory: the states, 8 bytes per element.
void RecurrentRowsBackward(RecurrentCell cell, const RecurrentParameters& parameters,
                           std::span<const float> d_out, const RecurrentGradients& gradients);

}  // namespace ropewalk
