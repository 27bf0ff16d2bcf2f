// Learned position embeddings (Gehring et al. 2017, arXiv 1705.03122; BERT; ViT): a table with a
// row per position, and its resizing to other lengths and grids.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ropewalk {

// out[t] = table[positions[t] + offset]; table is [rows, dim], out [positions.size(), dim]. offset:
// rows that a model family reserves in front (2 in BART and OPT, padding index + 1 in RoBERTa).
// Throws Error for a position without a row.
void LookUpRows(std::span<const float> table, int64_t dim, std::span<const int64_t> positions,
                std::span<float> out, int64_t offset = 0);
// d_table[positions[t] + offset] += d_out[t], in double.
void LookUpRowsBackward(std::span<const float> d_out, int64_t dim,
                        std::span<const int64_t> positions, std::span<double> d_table,
                        int64_t offset = 0);

// The kernels of torch.nn.functional.interpolate(align_corners=False): kLinear on one axis is mode
// "linear", on two "bilinear", on three "trilinear"; kCubic on two is "bicubic" (Keys 1981 with
// a = -0.75, with antialias -0.5, as in PyTorch). Beyond the border the border's rows are repeated;
// with antialias the kernel is cut off there and its weights are renormalised to sum 1.
enum class ResizeKernel : uint8_t { kLinear, kCubic };

// For BERT: one axis, linear. For ViT: two axes {height, width}, prefix_rows 1 for the class token,
// cubic. DINOv2 with registers and SigLIP 2 use antialias.
struct ResizeSpec {
  std::vector<int64_t> from, to;  // 1 to 3 sizes each, last axis fastest
  int64_t dim = 0;
  int64_t prefix_rows = 0;  // rows in front of the grid that are kept unchanged
  ResizeKernel kernel = ResizeKernel::kLinear;
  bool antialias = false;  // on axes that shrink, the kernel is widened by from / to
};

// table: [prefix_rows + product of from, dim]. Returns [prefix_rows + product of to, dim]; sums in
// double. Throws Error for sizes that do not fit.
std::vector<float> ResizeTable(const ResizeSpec& spec, std::span<const float> table);
// d_table += the gradient with respect to the table, from d_out, that of the resized table.
void ResizeTableBackward(const ResizeSpec& spec, std::span<const float> d_out,
                         std::span<double> d_table);

}  // namespace ropewalk
