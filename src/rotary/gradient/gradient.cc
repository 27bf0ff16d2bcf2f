#include "ropewalk/rotary/gradient.h"

#include <algorithm>

#include "src/base/parallel.h"
#include "src/rotary/gradient/check.h"
#include "src/rotary/positions/check.h"
#include "src/rotary/positions/cursor.h"

namespace ropewalk {
namespace {

constexpr int64_t kElementNs = 2;

double Value(double x) { return x; }
double Value(float x) { return static_cast<double>(x); }
double Value(Float16 x) { return static_cast<double>(ToFloat(x)); }
double Value(BFloat16 x) { return static_cast<double>(ToFloat(x)); }

struct Strides {
  int64_t batch, token, head;
};
Strides StridesOf(const TensorView& view) {
  const int64_t* s = view.strides + view.rank - 3;
  return {view.rank == 4 ? view.strides[0] : 0, s[0], s[1]};
}

// What one part of the tokens adds up.
struct Part {
  double* sums;  // [pairs]
  double* g_jv;  // [pairs], <g, J v> of one token
  double dot;    // <g, v>
};

template <class T>
void AddTokens(const RotaryGradientArgs& args, int64_t begin, int64_t end, Part& part) {
  const Strides vs = StridesOf(args.value);
  const Strides gs = StridesOf(args.gradient);
  const int64_t tokens = args.value.shape[args.value.rank - 3];
  const int64_t heads = args.value.shape[args.value.rank - 2];
  const std::size_t pairs = args.frequencies->inv_freq.size();
  const bool half = args.layout == PairLayout::kHalf;
  const int64_t step = half ? 1 : 2;
  const int64_t other = half ? static_cast<int64_t>(pairs) : 1;
  const std::vector<uint8_t>& axis = args.frequencies->axis;
  internal::PositionCursor cursor(args.positions, tokens, begin);
  for (int64_t i = begin; i < end; ++i) {
    if (i > begin) cursor.Next();
    const T* v = static_cast<const T*>(args.value.data) + cursor.batch() * vs.batch +
                 cursor.token() * vs.token + args.first_dim;
    const T* g = static_cast<const T*>(args.gradient.data) + cursor.batch() * gs.batch +
                 cursor.token() * gs.token + args.first_dim;
    std::fill_n(part.g_jv, pairs, 0.0);
    for (int64_t h = 0; h < heads; ++h, v += vs.head, g += gs.head) {
      for (std::size_t p = 0; p < pairs; ++p) {
        const int64_t e = static_cast<int64_t>(p) * step;
        const double v1 = Value(v[e]), v2 = Value(v[e + other]);
        const double g1 = Value(g[e]), g2 = Value(g[e + other]);
        part.g_jv[p] += g2 * v1 - g1 * v2;
        part.dot += g1 * v1 + g2 * v2;
      }
    }
    for (std::size_t p = 0; p < pairs; ++p) {
      part.sums[p] +=
          static_cast<double>(cursor.position(axis.empty() ? 0 : axis[p])) * part.g_jv[p];
    }
  }
}

}  // namespace

RotaryGradient FrequencyGradient(const RotaryGradientArgs& args) {
  internal::CheckGradient(args, Device::kCpu);
  const TensorView& value = args.value;
  const std::size_t pairs = args.frequencies->inv_freq.size();
  RotaryGradient out{std::vector<double>(pairs, 0.0), 0};
  if (value.NumElements() == 0) return out;
  const int64_t batch = value.rank == 4 ? value.shape[0] : 1;
  const int64_t tokens = value.shape[value.rank - 3];
  internal::CheckPositions(args.positions, args.frequencies->axes, batch, tokens, nullptr);
  const int64_t all = batch * tokens;
  const int64_t count =
      std::min<int64_t>(internal::ThreadsFor(value.NumElements() * kElementNs), all);
  // A sum per part, added up in order: the bits do not depend on which thread was first.
  std::vector<double> memory(static_cast<std::size_t>(count) * 2 * pairs, 0.0);
  std::vector<Part> parts;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    parts.push_back({memory.data() + 2 * i * pairs, memory.data() + (2 * i + 1) * pairs, 0});
  }
  VisitFloat(value.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
#pragma omp parallel for schedule(static) num_threads(static_cast <int>(count))
    for (int64_t i = 0; i < count; ++i) {
      AddTokens<T>(args, all * i / count, all * (i + 1) / count,
                   parts[static_cast<std::size_t>(i)]);
    }
  });
  for (const Part& part : parts) {
    for (std::size_t p = 0; p < pairs; ++p) out.inv_freq[p] += part.sums[p];
    out.amplitude += part.dot / args.frequencies->amplitude;
  }
  return out;
}

}  // namespace ropewalk
