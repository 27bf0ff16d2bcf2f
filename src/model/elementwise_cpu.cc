#include <algorithm>
#include <cmath>
#include <limits>

#include "src/base/parallel.h"
#include "src/model/elementwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/model/elementwise_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
//
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// One vector: a tail shorter than a SIMD vector is added in scalar order.
void RmsNormVector(const float* HWY_RESTRICT x, const float* HWY_RESTRICT weight, int64_t n,
                   float eps, float* out) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + i + lanes);
    sum0 = hn::MulAdd(a, a, sum0);
    sum1 = hn::MulAdd(b, b, sum1);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  for (; i < n; ++i) sum += x[i] * x[i];
  const float scale = 1.0f / std::sqrt(sum / static_cast<float>(n) + eps);
  const auto vscale = hn::Set(d, scale);
  for (i = 0; i + lanes <= n; i += lanes) {
    const auto y = hn::Mul(hn::Mul(hn::LoadU(d, x + i), vscale), hn::LoadU(d, weight + i));
    hn::StoreU(y, d, out + i);
  }
  for (; i < n; ++i) out[i] = x[i] * scale * weight[i];
}

// The mean first, then the mean of squared differences: one pass would cancel where the mean is
// large.
void LayerNormVector(const float* x, const float* HWY_RESTRICT weight,
                     const float* HWY_RESTRICT bias, int64_t n, float eps, float* out) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto reduce = [&](auto term_vector, auto term) HWY_ATTR {
    auto sum0 = hn::Zero(d), sum1 = hn::Zero(d);
    int64_t i = 0;
    for (; i + 2 * lanes <= n; i += 2 * lanes) {
      sum0 = hn::Add(sum0, term_vector(hn::LoadU(d, x + i)));
      sum1 = hn::Add(sum1, term_vector(hn::LoadU(d, x + i + lanes)));
    }
    float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
    for (; i < n; ++i) sum += term(x[i]);
    return sum / static_cast<float>(n);
  };
  const float mean = reduce([](auto v) HWY_ATTR { return v; }, [](float v) { return v; });
  const auto vmean = hn::Set(d, mean);
  const float variance = reduce(
      [&](auto v) HWY_ATTR {
        const auto c = hn::Sub(v, vmean);
        return hn::Mul(c, c);
      },
      [&](float v) { return (v - mean) * (v - mean); });
  const float scale = 1.0f / std::sqrt(variance + eps);
  const auto vscale = hn::Set(d, scale);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto y = hn::Mul(hn::Sub(hn::LoadU(d, x + i), vmean), vscale);
    hn::StoreU(hn::MulAdd(y, hn::LoadU(d, weight + i), hn::LoadU(d, bias + i)), d, out + i);
  }
  for (; i < n; ++i) out[i] = (x[i] - mean) * scale * weight[i] + bias[i];
}

// x / (1 + exp(-g)): silu where g is x. -g is cut at 88: exp would overflow to inf there, where the
// quotient is below 1e-36 * |x| either way.
template <class D, class V>
HWY_INLINE V Logistic(D d, V x, V g) {
  const auto limit = hn::Set(d, 88.0f);
  return hn::Div(x, hn::Add(hn::Set(d, 1.0f), hn::Exp(d, hn::Min(hn::Neg(g), limit))));
}

// x Phi(x), with Phi(-|x|) = erfc(z) / 2 at z = |x| / sqrt(2), so that nothing cancels on the
// negative side. erfc(z) = t exp(-z^2) P(t), t = 1 / (1 + z / 2): P fitted by Lawson's iteration to
// 4.4e-8 relative for z up to 13.5 (2.3e-7 in float32); exp underflows to 0 before that.
template <class D, class V>
HWY_INLINE V Gelu(D d, V x) {
  constexpr float kP[] = {0.282084346f, 0.282412082f,  0.242835313f, 0.203751728f,  -0.0291467793f,
                          0.281731069f, -0.490404814f, 0.286123455f, -0.0593864024f};
  // Beyond, erfc is 0 in float32; it also keeps exp within its range.
  const auto z = hn::Min(hn::Mul(hn::Abs(x), hn::Set(d, 0.707106781f)), hn::Set(d, 9.3f));
  const auto t = hn::Div(hn::Set(d, 1.0f), hn::MulAdd(z, hn::Set(d, 0.5f), hn::Set(d, 1.0f)));
  auto p = hn::Set(d, kP[8]);
  for (int k = 7; k >= 0; --k) p = hn::MulAdd(p, t, hn::Set(d, kP[k]));
  const auto below = hn::Mul(hn::Mul(hn::Set(d, 0.5f), hn::Mul(t, p)),
                             hn::Exp(d, hn::Neg(hn::Mul(z, z))));  // Phi(-|x|)
  const auto above = hn::Sub(hn::Set(d, 1.0f), below);
  return hn::Mul(x, hn::IfThenElse(hn::Lt(x, hn::Zero(d)), below, above));
}

// x / 2 (1 + tanh u) = x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3).
template <class D, class V>
HWY_INLINE V GeluTanh(D d, V x) {
  const auto inner = hn::MulAdd(hn::Mul(x, x), hn::Set(d, 0.044715f), hn::Set(d, 1.0f));
  return Logistic(d, x, hn::Mul(hn::Mul(hn::Set(d, 1.595769122f), x), inner));
}

// g / (1 + exp(-1.702 g)) (u + 1), g at most 7, u within +- 7.
template <class D, class V>
HWY_INLINE V ClampedSwiglu(D d, V gate, V up) {
  const auto limit = hn::Set(d, 7.0f);
  const auto g = hn::Min(gate, limit), u = hn::Clamp(up, hn::Neg(limit), limit);
  return Logistic(d, hn::MulAdd(g, u, g), hn::Mul(hn::Set(d, 1.702f), g));
}

// out[i] = f(x[i], y[i]); the tail goes through a vector as well.
template <class F>
HWY_INLINE void Each(const float* x, const float* y, int64_t n, float* out, F f) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(f(hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, out + i);
  }
  if (i == n) return;
  HWY_ALIGN float a[HWY_MAX_BYTES / sizeof(float)] = {}, b[HWY_MAX_BYTES / sizeof(float)] = {};
  for (int64_t j = i; j < n; ++j) a[j - i] = x[j], b[j - i] = y[j];
  hn::Store(f(hn::Load(d, a), hn::Load(d, b)), d, a);
  for (int64_t j = i; j < n; ++j) out[j] = a[j - i];
}

void ActivateRow(MlpSpec::Activation activation, const float* x, int64_t n, float* out) {
  using Activation = MlpSpec::Activation;
  const hn::ScalableTag<float> d;
  switch (activation) {
    case Activation::kSilu:
      return Each(x, x, n, out, [&](auto v, auto) HWY_ATTR { return Logistic(d, v, v); });
    case Activation::kGelu:
      return Each(x, x, n, out, [&](auto v, auto) HWY_ATTR { return Gelu(d, v); });
    case Activation::kGeluTanh:
      return Each(x, x, n, out, [&](auto v, auto) HWY_ATTR { return GeluTanh(d, v); });
    case Activation::kRelu:
      return Each(x, x, n, out, [&](auto v, auto) HWY_ATTR { return hn::Max(v, hn::Zero(d)); });
    case Activation::kClampedSwiglu:  // without a second input: u = 0
      return Each(x, x, n, out,
                  [&](auto v, auto) HWY_ATTR { return ClampedSwiglu(d, v, hn::Zero(d)); });
  }
}

void ActivateGateRow(MlpSpec::Activation activation, const float* gate, const float* up, int64_t n,
                     float* out) {
  using Activation = MlpSpec::Activation;
  const hn::ScalableTag<float> d;
  switch (activation) {
    case Activation::kSilu:
      return Each(gate, up, n, out,
                  [&](auto g, auto u) HWY_ATTR { return Logistic(d, hn::Mul(g, u), g); });
    case Activation::kGelu:
      return Each(gate, up, n, out,
                  [&](auto g, auto u) HWY_ATTR { return hn::Mul(Gelu(d, g), u); });
    case Activation::kGeluTanh:
      return Each(gate, up, n, out,
                  [&](auto g, auto u) HWY_ATTR { return hn::Mul(GeluTanh(d, g), u); });
    case Activation::kRelu:
      return Each(gate, up, n, out,
                  [&](auto g, auto u) HWY_ATTR { return hn::Mul(hn::Max(g, hn::Zero(d)), u); });
    case Activation::kClampedSwiglu:
      return Each(gate, up, n, out,
                  [&](auto g, auto u) HWY_ATTR { return ClampedSwiglu(d, g, u); });
  }
}

void SoftCapRow(float cap, int64_t n, float* x) {
  const hn::ScalableTag<float> d;
  const auto vcap = hn::Set(d, cap);
  Each(x, x, n, x,
       [&](auto v, auto) HWY_ATTR { return hn::Mul(vcap, hn::Tanh(d, hn::Div(v, vcap))); });
}

int64_t LargestOfRow(const float* HWY_RESTRICT x, int64_t n) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  float most = -std::numeric_limits<float>::infinity();
  auto all = hn::Set(d, most);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto v = hn::LoadU(d, x + i);
    all = hn::IfThenElse(hn::Gt(v, all), v, all);
  }
  most = hn::GetLane(hn::MaxOfLanes(d, all));
  for (; i < n; ++i) most = x[i] > most ? x[i] : most;
  const float* const found = std::find(x, x + n, most);
  return found == x + n ? 0 : found - x;
}

double SumExpOfRow(const float* HWY_RESTRICT x, int64_t n, float most) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), block = 32 * lanes;
  const auto top = hn::Set(d, most);
  double sum = 0;
  int64_t i = 0;
  while (i + lanes <= n) {
    auto here = hn::Zero(d);
    for (const int64_t end = std::min(n, i + block); i + lanes <= end; i += lanes) {
      const auto below = hn::Sub(hn::LoadU(d, x + i), top);
      here = hn::Add(here, hn::IfThenElse(hn::IsNaN(below), below, hn::Exp(d, below)));
    }
    sum += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, here)));
  }
  for (; i < n; ++i) sum += std::exp(double{x[i]} - most);
  return sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace ropewalk::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ropewalk::internal {
HWY_EXPORT(RmsNormVector);
HWY_EXPORT(LayerNormVector);
HWY_EXPORT(ActivateRow);
HWY_EXPORT(ActivateGateRow);
HWY_EXPORT(SoftCapRow);
HWY_EXPORT(LargestOfRow);
HWY_EXPORT(SumExpOfRow);

int64_t Largest(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(LargestOfRow)(x, n); }

double SumExp(const float* x, int64_t n, float most) {
  return HWY_DYNAMIC_DISPATCH(SumExpOfRow)(x, n, most);
}

void RmsNorm(const NormArgs& a) {
  const int threads = ThreadsFor(a.rows * a.groups * a.n / 4);  // 0.25 ns an element
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t r = 0; r < a.rows; ++r) {
    for (int64_t g = 0; g < a.groups; ++g) {
      HWY_DYNAMIC_DISPATCH(RmsNormVector)
      (a.x + r * a.x_stride + g * a.n, a.weight, a.n, a.eps, a.out + r * a.out_stride + g * a.n);
    }
  }
}

void LayerNorm(const NormArgs& a) {
  const int threads = ThreadsFor(a.rows * a.groups * a.n / 2);  // 0.5 ns an element
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t r = 0; r < a.rows; ++r) {
    for (int64_t g = 0; g < a.groups; ++g) {
      HWY_DYNAMIC_DISPATCH(LayerNormVector)
      (a.x + r * a.x_stride + g * a.n, a.weight, a.bias, a.n, a.eps,
       a.out + r * a.out_stride + g * a.n);
    }
  }
}

void Activate(MlpSpec::Activation activation, const float* x, int64_t rows, int64_t n, float* out) {
  const int threads = ThreadsFor(rows * n);  // 1 ns an element
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t r = 0; r < rows; ++r) {
    HWY_DYNAMIC_DISPATCH(ActivateRow)(activation, x + r * n, n, out + r * n);
  }
}

void ActivateGate(MlpSpec::Activation activation, const float* gate_up, int64_t rows, int64_t n,
                  float* out) {
  const int threads = ThreadsFor(rows * n / 2);  // 0.5 ns an element
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t r = 0; r < rows; ++r) {
    const float* gate = gate_up + r * 2 * n;
    HWY_DYNAMIC_DISPATCH(ActivateGateRow)(activation, gate, gate + n, n, out + r * n);
  }
}

void SoftCap(float cap, int64_t rows, int64_t n, float* x) {
  const int threads = ThreadsFor(rows * n);  // 1 ns an element
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t r = 0; r < rows; ++r) HWY_DYNAMIC_DISPATCH(SoftCapRow)(cap, n, x + r * n);
}

}  // namespace ropewalk::internal
#endif  // HWY_ONCE
