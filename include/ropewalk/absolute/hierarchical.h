// Hierarchical decomposition (Su 2020, kexue.fm/archives/7947): n^2 positions from a trained table
// p of n rows, without training. BERT's 512 rows give positions up to 262143.
//
// Position k = i n + j has the row q_k = alpha u_i + (1 - alpha) u_j, with
// u_i = (p_i - alpha p_0) / (1 - alpha) so that the first n rows do not change. Together
//   q_k = p_j + (alpha / (1 - alpha)) (p_i - p_0),
// which for k < n equals p_k bit for bit.
#pragma once

#include <cstdint>
#include <span>

namespace ropewalk {

struct HierarchicalSpec {
  int64_t rows = 0;    // n
  int64_t dim = 0;     // elements of a row
  double alpha = 0.4;  // as in the article; in (0, 1) but not 1/2, where (i, j) equals (j, i)
};

// table: [rows, dim]; out: [positions.size(), dim], positions 0 to rows^2 - 1. Throws Error for
// other positions and for an alpha that is not allowed.
void HierarchicalRows(const HierarchicalSpec& spec, std::span<const float> table,
                      std::span<const int64_t> positions, std::span<float> out);
// d_table [rows, dim] += dL/dtable; returns dL/dalpha.
double HierarchicalRowsBackward(const HierarchicalSpec& spec, std::span<const float> table,
                                std::span<const int64_t> positions, std::span<const float> d_out,
                                std::span<double> d_table);

}  // namespace ropewalk
