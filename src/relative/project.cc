#include "src/relative/project.h"

#include <algorithm>

#include "src/base/parallel.h"

namespace ropewalk::internal {
namespace {

// Rows that share one pass over the weights.
constexpr int64_t kBlock = 4;

// [outputs, dim] -> [dim, outputs], so that the inner loop runs over outputs.
std::vector<float> Transposed(std::span<const float> weight, int64_t outputs, int64_t dim) {
  std::vector<float> t(weight.size());
  for (int64_t o = 0; o < outputs; ++o) {
    for (int64_t m = 0; m < dim; ++m) t[m * outputs + o] = weight[o * dim + m];
  }
  return t;
}

// sums [rows of the block, outputs].
void ProjectBlock(const float* weight, std::span<const float> bias, const double* rows,
                  int64_t count, int64_t dim, int64_t outputs, double* sums) {
  for (int64_t r = 0; r < count; ++r) {
    double* sum = sums + r * outputs;
    if (bias.empty()) {
      std::fill(sum, sum + outputs, 0.0);
    } else {
      std::copy(bias.begin(), bias.end(), sum);
    }
  }
  for (int64_t m = 0; m < dim; ++m) {
    const float* w = weight + m * outputs;
    for (int64_t r = 0; r < count; ++r) {
      const double x = rows[r * dim + m];
      double* sum = sums + r * outputs;
      for (int64_t o = 0; o < outputs; ++o) sum[o] += x * w[o];
    }
  }
}

}  // namespace

std::vector<float> Project(const Projection& p, std::span<const double> rows) {
  const int64_t outputs = p.heads * p.head_dim;
  const int64_t n = static_cast<int64_t>(rows.size()) / p.dim;
  const std::vector<float> weight = Transposed(p.weight, outputs, p.dim);
  std::vector<float> out(n * outputs);
  const int threads = ThreadsFor(n * outputs * p.dim / 2);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t count = std::min(kBlock, n - first);
    std::vector<double> sums(count * outputs);
    ProjectBlock(weight.data(), p.bias, rows.data() + first * p.dim, count, p.dim, outputs,
                 sums.data());
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t o = 0; o < outputs; ++o) {
        const int64_t head = o / p.head_dim;
        out[(head * n + first + r) * p.head_dim + o % p.head_dim] =
            static_cast<float>(sums[r * outputs + o]);
      }
    }
  }
  return out;
}

ProjectionGradient ProjectBackward(const Projection& p, std::span<const double> rows,
                                   std::span<const double> d_out) {
  const int64_t outputs = p.heads * p.head_dim;
  const int64_t n = static_cast<int64_t>(rows.size()) / p.dim;
  ProjectionGradient g{std::vector<double>(p.weight.size()), std::vector<double>(p.bias.size()),
                       std::vector<double>(rows.size())};
  for (int64_t o = 0; o < outputs; ++o) {
    const float* w = p.weight.data() + o * p.dim;
    double* d_w = g.weight.data() + o * p.dim;
    for (int64_t r = 0; r < n; ++r) {
      const double d = d_out[(o / p.head_dim * n + r) * p.head_dim + o % p.head_dim];
      if (d == 0) continue;  // rows that no pair of positions asked for
      const double* x = rows.data() + r * p.dim;
      double* d_x = g.rows.data() + r * p.dim;
      for (int64_t m = 0; m < p.dim; ++m) {
        d_w[m] += d * x[m];
        d_x[m] += d * w[m];
      }
      if (!g.bias.empty()) g.bias[o] += d;
    }
  }
  return g;
}

}  // namespace ropewalk::internal
