#include <cmath>

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

// silu(g) * u = g * u / (1 + exp(-g)). -g is cut at 88: exp would overflow to inf there, where the
// quotient is below 1e-36 * |u| either way.
void SiluMulRow(const float* HWY_RESTRICT gate, const float* HWY_RESTRICT up, int64_t n,
                float* HWY_RESTRICT out) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto one = hn::Set(d, 1.0f);
  const auto limit = hn::Set(d, 88.0f);
  const auto body = [&](auto g, auto u) HWY_ATTR {
    return hn::Div(hn::Mul(g, u), hn::Add(one, hn::Exp(d, hn::Min(hn::Neg(g), limit))));
  };
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(body(hn::LoadU(d, gate + i), hn::LoadU(d, up + i)), d, out + i);
  }
  if (i < n) {
    HWY_ALIGN float g[HWY_MAX_BYTES / sizeof(float)] = {}, u[HWY_MAX_BYTES / sizeof(float)] = {};
    for (int64_t j = i; j < n; ++j) g[j - i] = gate[j], u[j - i] = up[j];
    hn::Store(body(hn::Load(d, g), hn::Load(d, u)), d, g);
    for (int64_t j = i; j < n; ++j) out[j] = g[j - i];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ropewalk::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ropewalk::internal {
HWY_EXPORT(RmsNormVector);
HWY_EXPORT(SiluMulRow);

void RmsNorm(const RmsNormArgs& a) {
  const int threads = ThreadsFor(a.rows * a.groups * a.n / 4);  // 0.25 ns an element
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t r = 0; r < a.rows; ++r) {
    for (int64_t g = 0; g < a.groups; ++g) {
      HWY_DYNAMIC_DISPATCH(RmsNormVector)
      (a.x + r * a.x_stride + g * a.n, a.weight, a.n, a.eps, a.out + r * a.out_stride + g * a.n);
    }
  }
}

void SiluMul(const float* gate_up, int64_t rows, int64_t n, float* out) {
  const int threads = ThreadsFor(rows * n / 2);  // 0.5 ns an element
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t r = 0; r < rows; ++r) {
    const float* gate = gate_up + r * 2 * n;
    HWY_DYNAMIC_DISPATCH(SiluMulRow)(gate, gate + n, n, out + r * n);
  }
}

}  // namespace ropewalk::internal
#endif  // HWY_ONCE
