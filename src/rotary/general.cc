#include "ropewalk/rotary/general.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "ropewalk/base/error.h"

namespace ropewalk {
namespace {

constexpr int64_t kMostBlock = 4096;
constexpr int kTaylorTerms = 18;  // at norm 1/2 the first left out is below 2^-70

[[noreturn]] void Bad(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, "RotateGeneral: " + message);
}

std::string Number(int64_t n) { return std::to_string(n); }

void Check(const RotationGenerators& g) {
  if (g.axes < 1 || g.blocks < 1 || g.block < 1 || g.block > kMostBlock || g.axes > 64 ||
      g.blocks > int64_t{1} << 20 ||
      static_cast<int64_t>(g.values.size()) != g.axes * g.blocks * g.block * g.block) {
    Bad("generators: expected [axes, blocks, block, block] = [" + Number(g.axes) + ", " +
        Number(g.blocks) + ", " + Number(g.block) + ", " + Number(g.block) + "], got " +
        Number(static_cast<int64_t>(g.values.size())) + " values");
  }
  const std::size_t n = static_cast<std::size_t>(g.block);
  for (std::size_t m = 0; m < g.values.size(); m += n * n) {
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j <= i; ++j) {
        const double a = g.values[m + i * n + j], b = g.values[m + j * n + i];
        if (!(std::isfinite(a) && a == -b)) {
          Bad("generators: not skew-symmetric: elements (" + std::to_string(i) + ", " +
              std::to_string(j) + ") and (" + std::to_string(j) + ", " + std::to_string(i) +
              ") of a block are " + std::to_string(a) + " and " + std::to_string(b) +
              "; use A - A^T");
        }
      }
    }
  }
}

// c = a b, n x n.
void Multiply(const double* a, const double* b, std::size_t n, double* c) {
  std::fill_n(c, n * n, 0.0);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < n; ++k) {
      const double x = a[i * n + k];
      for (std::size_t j = 0; j < n; ++j) c[i * n + j] += x * b[k * n + j];
    }
  }
}

// m = exp(m), n x n.
void Exponential(std::vector<double>& m, std::size_t n) {
  double norm = 0;
  for (std::size_t i = 0; i < n; ++i) {
    double sum = 0;
    for (std::size_t j = 0; j < n; ++j) sum += std::abs(m[i * n + j]);
    norm = std::max(norm, sum);
  }
  int halvings = 0;
  if (norm > 0.5) halvings = std::ilogb(norm) + 2;
  for (double& x : m) x = std::ldexp(x, -halvings);
  // Horner: 1 + m (1 + m / 2 (1 + m / 3 (...))).
  std::vector<double> sum(n * n, 0.0), product(n * n);
  for (std::size_t i = 0; i < n; ++i) sum[i * n + i] = 1;
  for (int k = kTaylorTerms; k >= 1; --k) {
    Multiply(m.data(), sum.data(), n, product.data());
    for (std::size_t i = 0; i < n * n; ++i) sum[i] = product[i] / k;
    for (std::size_t i = 0; i < n; ++i) sum[i * n + i] += 1;
  }
  for (int i = 0; i < halvings; ++i) {
    Multiply(sum.data(), sum.data(), n, product.data());
    sum.swap(product);
  }
  m.swap(sum);
}

// `g` has been checked.
std::vector<double> MatrixAt(const RotationGenerators& g, const double* position, int64_t stride) {
  const std::size_t n = static_cast<std::size_t>(g.block);
  const std::size_t all = static_cast<std::size_t>(g.blocks) * n * n;
  std::vector<double> out(all, 0.0), block(n * n);
  for (int64_t a = 0; a < g.axes; ++a) {
    const double p = position[a * stride];
    if (!std::isfinite(p)) Bad("positions: not a finite number");
    const double* values = g.values.data() + static_cast<std::size_t>(a) * all;
    for (std::size_t i = 0; i < all; ++i) out[i] += p * values[i];
  }
  for (std::size_t b = 0; b < all; b += n * n) {
    block.assign(out.begin() + static_cast<std::ptrdiff_t>(b),
                 out.begin() + static_cast<std::ptrdiff_t>(b + n * n));
    for (const double x : block) {
      if (!std::isfinite(x)) Bad("positions times generators overflow");
    }
    Exponential(block, n);
    std::copy(block.begin(), block.end(), out.begin() + static_cast<std::ptrdiff_t>(b));
  }
  return out;
}

double Load(double x) { return x; }
double Load(float x) { return static_cast<double>(x); }
double Load(Float16 x) { return static_cast<double>(ToFloat(x)); }
double Load(BFloat16 x) { return static_cast<double>(ToFloat(x)); }
void Store(double x, double* out) { *out = x; }
void Store(double x, float* out) { *out = static_cast<float>(x); }
void Store(double x, Float16* out) { *out = ToFloat16(static_cast<float>(x)); }
void Store(double x, BFloat16* out) { *out = ToBFloat16(static_cast<float>(x)); }

// One head times R or its transpose, a block at a time.
template <class T>
void Apply(const std::vector<double>& r, std::size_t n, bool transpose, std::vector<double>& in,
           T* head, std::size_t dim) {
  for (std::size_t i = 0; i < dim; ++i) in[i] = Load(head[i]);
  for (std::size_t i = 0; i < dim; ++i) {
    const std::size_t first = i / n * n;
    const double* block = r.data() + first * n;
    double sum = 0;
    for (std::size_t j = 0; j < n; ++j) {
      sum += (transpose ? block[j * n + i % n] : block[i % n * n + j]) * in[first + j];
    }
    Store(sum, head + i);
  }
}

void CheckArgs(const RotateGeneralArgs& args) {
  if (args.generators == nullptr) Bad("generators: expected some, got null");
  Check(*args.generators);
  const RotationGenerators& g = *args.generators;
  const TensorView& x = args.x;
  if (x.rank != 3 || x.shape[2] != g.blocks * g.block) {
    Bad("x: expected [tokens, heads, " + Number(g.blocks * g.block) + "], got " + x.ShapeString());
  }
  if (x.device != Device::kCpu || x.strides[2] != 1) {
    Bad("x: expected memory of the CPU with contiguous heads");
  }
  if (static_cast<int64_t>(args.positions.size()) != g.axes * x.shape[0]) {
    Bad("positions: expected " + Number(g.axes) + " x " + Number(x.shape[0]) + ", got " +
        Number(static_cast<int64_t>(args.positions.size())));
  }
  if (x.data == nullptr && x.NumElements() != 0) Bad("x: data is null");
  for (const double p : args.positions) {
    if (!std::isfinite(p)) Bad("positions: not a finite number");
  }
}

}  // namespace

RotationGenerators RotaryGenerators(const Frequencies& frequencies, PairLayout layout) {
  RotationGenerators g;
  const std::size_t pairs = frequencies.inv_freq.size();
  const bool half = layout == PairLayout::kHalf;
  g.axes = frequencies.axes;
  g.blocks = half ? 1 : static_cast<int64_t>(pairs);
  g.block = half ? 2 * static_cast<int64_t>(pairs) : 2;
  const std::size_t n = static_cast<std::size_t>(g.block);
  const std::size_t axis_size = static_cast<std::size_t>(g.blocks) * n * n;
  g.values.assign(static_cast<std::size_t>(g.axes) * axis_size, 0.0);
  for (std::size_t i = 0; i < pairs; ++i) {
    const std::size_t axis = frequencies.axis.empty() ? 0 : frequencies.axis[i];
    double* block = g.values.data() + axis * axis_size + (half ? 0 : i * n * n);
    const std::size_t first = half ? i : 0, second = half ? i + pairs : 1;
    block[first * n + second] = -frequencies.inv_freq[i].hi;
    block[second * n + first] = frequencies.inv_freq[i].hi;
  }
  return g;
}

double LargestCommutator(const RotationGenerators& generators) {
  Check(generators);
  const std::size_t n = static_cast<std::size_t>(generators.block);
  const std::size_t axis_size = static_cast<std::size_t>(generators.blocks) * n * n;
  std::vector<double> ab(n * n), ba(n * n);
  double largest = 0;
  for (std::size_t a = 0; a < generators.values.size(); a += axis_size) {
    for (std::size_t b = a + axis_size; b < generators.values.size(); b += axis_size) {
      for (std::size_t block = 0; block < axis_size; block += n * n) {
        const double* x = generators.values.data() + a + block;
        const double* y = generators.values.data() + b + block;
        Multiply(x, y, n, ab.data());
        Multiply(y, x, n, ba.data());
        for (std::size_t i = 0; i < n * n; ++i) {
          largest = std::max(largest, std::abs(ab[i] - ba[i]));
        }
      }
    }
  }
  return largest;
}

std::vector<double> RotationMatrix(const RotationGenerators& generators,
                                   std::span<const double> position) {
  Check(generators);
  if (static_cast<int64_t>(position.size()) != generators.axes) {
    Bad("position: expected one number per axis, " + Number(generators.axes) + ", got " +
        Number(static_cast<int64_t>(position.size())));
  }
  return MatrixAt(generators, position.data(), 1);
}

void RotateGeneral(const RotateGeneralArgs& args) {
  CheckArgs(args);
  const RotationGenerators& g = *args.generators;
  const int64_t tokens = args.x.shape[0];
  const std::size_t dim = static_cast<std::size_t>(args.x.shape[2]);
  std::vector<std::vector<double>> matrices;  // all of them first: nothing is written on an error
  for (int64_t t = 0; t < tokens; ++t) {
    matrices.push_back(MatrixAt(g, args.positions.data() + t, tokens));
  }
  std::vector<double> in(dim);
  VisitFloat(args.x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t h = 0; h < args.x.shape[1]; ++h) {
        T* head = static_cast<T*>(args.x.data) + t * args.x.strides[0] + h * args.x.strides[1];
        Apply(matrices[static_cast<std::size_t>(t)], static_cast<std::size_t>(g.block),
              args.transpose, in, head, dim);
      }
    }
  });
}

}  // namespace ropewalk
