// Separable resampling: an axis at a time, each output row a few weighted input rows. The weights
// are those of PyTorch's upsampling kernels (align_corners false), in double.
#include <algorithm>
#include <cmath>
#include <string>

#include "ropewalk/absolute/learned.h"
#include "src/absolute/check.h"

namespace ropewalk {
namespace {

struct Tap {
  int64_t row;
  double weight;
};
using Axis = std::vector<std::vector<Tap>>;  // [to]

// Keys' cubic convolution kernel.
double Cubic(double x, double a) {
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

double Triangle(double x) { return std::max(0.0, 1 - std::abs(x)); }

std::vector<Tap> PlainTaps(ResizeKernel kernel, double centre, int64_t from) {
  const double border = static_cast<double>(from - 1);
  const double x = kernel == ResizeKernel::kLinear ? std::clamp(centre, 0.0, border) : centre;
  const double below = std::floor(x);
  std::vector<Tap> taps;
  const int first = kernel == ResizeKernel::kLinear ? 0 : -1;
  const int last = kernel == ResizeKernel::kLinear ? 1 : 2;
  for (int k = first; k <= last; ++k) {
    const double at = below + k;
    const double weight = kernel == ResizeKernel::kLinear ? Triangle(at - x) : Cubic(at - x, -0.75);
    if (weight != 0) taps.push_back({static_cast<int64_t>(std::clamp(at, 0.0, border)), weight});
  }
  return taps;
}

std::vector<Tap> WideTaps(ResizeKernel kernel, double centre, double step, int64_t from) {
  const double width = std::max(step, 1.0);
  const double reach = (kernel == ResizeKernel::kLinear ? 1 : 2) * width;
  // Rows whose middle is within the kernel of the centre; halves are rounded as in PyTorch.
  const int64_t first =
      std::max<int64_t>(static_cast<int64_t>(std::floor(centre - reach + 0.5)), 0);
  const int64_t end = std::min(static_cast<int64_t>(std::floor(centre + reach + 0.5)), from);
  std::vector<Tap> taps;
  double sum = 0;
  for (int64_t row = first; row < end; ++row) {
    const double x = (static_cast<double>(row) - centre + 0.5) / width;
    const double weight = kernel == ResizeKernel::kLinear ? Triangle(x) : Cubic(x, -0.5);
    taps.push_back({row, weight});
    sum += weight;
  }
  for (Tap& tap : taps) tap.weight /= sum;
  return taps;
}

Axis MakeAxis(const ResizeSpec& spec, int64_t from, int64_t to) {
  Axis axis;
  const double step = static_cast<double>(from) / static_cast<double>(to);
  for (int64_t i = 0; i < to; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * step;  // rows have their middle at 0.5
    axis.push_back(spec.antialias ? WideTaps(spec.kernel, centre, step, from)
                                  : PlainTaps(spec.kernel, centre - 0.5, from));
  }
  return axis;
}

int64_t Product(const std::vector<int64_t>& sizes) {
  int64_t product = 1;
  for (const int64_t n : sizes) product *= n;
  return product;
}

void Check(const ResizeSpec& spec) {
  const std::size_t axes = spec.from.size();
  internal::CheckRange("ResizeTable: axes of from", static_cast<int64_t>(axes), 1, 3);
  if (spec.to.size() != axes) {
    internal::Refuse("ResizeTable: to: expected " + std::to_string(axes) +
                     " sizes as from has, got " + std::to_string(spec.to.size()));
  }
  for (std::size_t a = 0; a < axes; ++a) {
    internal::CheckRange("ResizeTable: from", spec.from[a], 1, int64_t{1} << 20);
    internal::CheckRange("ResizeTable: to", spec.to[a], 1, int64_t{1} << 20);
  }
  internal::CheckRange("ResizeTable: dim", spec.dim, 1, int64_t{1} << 24);
  internal::CheckRange("ResizeTable: prefix_rows", spec.prefix_rows, 0, int64_t{1} << 31);
}

// x [outer, from, inner] -> [outer, to, inner].
std::vector<double> Forward(const Axis& axis, int64_t from, int64_t inner,
                            const std::vector<double>& x) {
  const int64_t to = static_cast<int64_t>(axis.size());
  const int64_t outer = static_cast<int64_t>(x.size()) / (from * inner);
  std::vector<double> y(static_cast<std::size_t>(outer * to * inner), 0.0);
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < to; ++i) {
      double* row = y.data() + (o * to + i) * inner;
      for (const Tap& tap : axis[static_cast<std::size_t>(i)]) {
        const double* source = x.data() + (o * from + tap.row) * inner;
        for (int64_t e = 0; e < inner; ++e) row[e] += tap.weight * source[e];
      }
    }
  }
  return y;
}

// The transpose of it: dy [outer, to, inner] -> [outer, from, inner].
std::vector<double> Transpose(const Axis& axis, int64_t from, int64_t inner,
                              const std::vector<double>& dy) {
  const int64_t to = static_cast<int64_t>(axis.size());
  const int64_t outer = static_cast<int64_t>(dy.size()) / (to * inner);
  std::vector<double> dx(static_cast<std::size_t>(outer * from * inner), 0.0);
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < to; ++i) {
      const double* row = dy.data() + (o * to + i) * inner;
      for (const Tap& tap : axis[static_cast<std::size_t>(i)]) {
        double* target = dx.data() + (o * from + tap.row) * inner;
        for (int64_t e = 0; e < inner; ++e) target[e] += tap.weight * row[e];
      }
    }
  }
  return dx;
}

}  // namespace

std::vector<float> ResizeTable(const ResizeSpec& spec, std::span<const float> table) {
  Check(spec);
  internal::CheckSpan("ResizeTable: table of [prefix_rows + grid, dim]", table,
                      {spec.prefix_rows + Product(spec.from), spec.dim});
  const std::size_t prefix = static_cast<std::size_t>(spec.prefix_rows * spec.dim);
  std::vector<double> x(table.begin() + static_cast<int64_t>(prefix), table.end());
  int64_t inner = spec.dim;
  for (std::size_t a = spec.from.size(); a-- > 0; inner *= spec.to[a]) {
    x = Forward(MakeAxis(spec, spec.from[a], spec.to[a]), spec.from[a], inner, x);
  }
  std::vector<float> out(table.begin(), table.begin() + static_cast<int64_t>(prefix));
  for (const double v : x) out.push_back(static_cast<float>(v));
  return out;
}

void ResizeTableBackward(const ResizeSpec& spec, std::span<const float> d_out,
                         std::span<double> d_table) {
  Check(spec);
  internal::CheckSpan("ResizeTableBackward: d_out of [prefix_rows + grid, dim]", d_out,
                      {spec.prefix_rows + Product(spec.to), spec.dim});
  internal::CheckSpan("ResizeTableBackward: d_table of [prefix_rows + grid, dim]", d_table,
                      {spec.prefix_rows + Product(spec.from), spec.dim});
  const std::size_t prefix = static_cast<std::size_t>(spec.prefix_rows * spec.dim);
  for (std::size_t i = 0; i < prefix; ++i) d_table[i] += static_cast<double>(d_out[i]);
  std::vector<double> g(d_out.begin() + static_cast<int64_t>(prefix), d_out.end());
  // The axes commute; from the first on, those behind it still have the sizes of the result.
  int64_t inner = spec.dim * Product(spec.to);
  for (std::size_t a = 0; a < spec.from.size(); ++a) {
    inner /= spec.to[a];
    g = Transpose(MakeAxis(spec, spec.from[a], spec.to[a]), spec.from[a], inner, g);
  }
  for (std::size_t i = 0; i < g.size(); ++i) d_table[prefix + i] += g[i];
}

}  // namespace ropewalk
