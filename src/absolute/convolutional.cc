#include "ropewalk/absolute/convolutional.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "src/absolute/convolution_onednn.h"
#include "src/absolute/convolution_shape.h"
#include "src/base/parallel.h"

namespace ropewalk {
namespace {

using internal::ConvolutionShape;
using Sources = std::vector<ConvolutionShape::Source>;

// Channels whose sums stay in registers while the taps go by.
constexpr int64_t kLanes = 16;

float Gelu(float x) { return 0.5f * x * (1 + std::erf(x * std::numbers::sqrt2_v<float> / 2)); }
double GeluDerivative(double x) {
  const double normal = 0.5 * (1 + std::erf(x * std::numbers::sqrt2 / 2));
  return normal + x * std::exp(-0.5 * x * x) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
}

// [channels, group_channels, taps] -> [taps, group_channels, channels]: the loops run over
// channels.
std::vector<float> ChannelsLast(const ConvolutionShape& shape, int64_t channels,
                                std::span<const float> weight) {
  std::vector<float> out(weight.size());
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t i = 0; i < shape.group_channels; ++i) {
      for (int64_t t = 0; t < shape.taps; ++t) {
        out[static_cast<std::size_t>((t * shape.group_channels + i) * channels + c)] =
            weight[static_cast<std::size_t>((c * shape.group_channels + i) * shape.taps + t)];
      }
    }
  }
  return out;
}

struct Kernel {
  const ConvolutionShape& shape;
  int64_t channels;
  const float* weight;  // [taps, group_channels, channels]
  const float* bias;    // [channels] or null

  // kCount channels from c on of one token; all in one group, or depthwise. The count is a constant
  // so that the sums stay in registers.
  template <bool kDepthwise, int64_t kCount>
  void Lanes(const float* x, const Sources& sources, int64_t c, float* out) const {
    float sum[kCount] = {};
    for (int64_t l = 0; bias != nullptr && l < kCount; ++l) sum[l] = bias[c + l];
    const int64_t inputs = kDepthwise ? 1 : shape.group_channels;
    const int64_t first = kDepthwise ? c : c / inputs * inputs;
    for (const ConvolutionShape::Source& s : sources) {
      const float* from = x + s.token * channels + first;
      const float* w = weight + s.tap * inputs * channels + c;
      for (int64_t i = 0; i < inputs; ++i, w += channels) {
        for (int64_t l = 0; l < kCount; ++l) sum[l] += w[l] * from[kDepthwise ? l : i];
      }
    }
    for (int64_t l = 0; l < kCount; ++l) out[c + l] = sum[l];
  }

  template <bool kDepthwise>
  void Group(const float* x, const Sources& sources, int64_t c, int64_t end, float* out) const {
    for (; c + kLanes <= end; c += kLanes) Lanes<kDepthwise, kLanes>(x, sources, c, out);
    for (; c < end; ++c) Lanes<kDepthwise, 1>(x, sources, c, out);
  }

  // One token, x and out being those of its sequence.
  void Token(const float* x, const Sources& sources, float* out) const {
    if (shape.group_channels == 1) return Group<true>(x, sources, 0, channels, out);
    for (int64_t c = 0; c < channels; c += shape.group_channels) {
      Group<false>(x, sources, c, c + shape.group_channels, out);
    }
  }
};

bool Overlap(std::span<const float> a, std::span<const float> b) {
  return a.data() < b.data() + b.size() && b.data() < a.data() + a.size();
}

ConvolutionShape Check(const PositionConvolutionSpec& spec, std::span<const float> x, int64_t batch,
                       std::span<const float> weight, std::span<const float> bias,
                       std::span<const float> y) {
  const ConvolutionShape shape(spec);
  internal::CheckSize("PositionConvolution: batch", batch);
  const int64_t rows = spec.prefix_rows + shape.tokens;
  internal::CheckSpan("PositionConvolution: x of [batch, tokens, channels]", x,
                      {batch, rows, spec.channels});
  internal::CheckSpan("PositionConvolution: y of [batch, tokens, channels]", y,
                      {batch, rows, spec.channels});
  internal::CheckSpan("PositionConvolution: weight of [channels, channels / groups, taps]", weight,
                      {spec.channels, shape.group_channels, shape.taps});
  if (!bias.empty()) internal::CheckSpan("PositionConvolution: bias", bias, {spec.channels});
  if (Overlap(x, y)) {
    internal::Refuse("PositionConvolution: y: expected memory of its own, got some of x");
  }
  return shape;
}

// The rows in front of each sequence of `rows` rows.
void PassPrefix(const PositionConvolutionSpec& spec, int64_t rows, int64_t batch,
                std::span<const float> from, std::span<float> to) {
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t at = b * rows * spec.channels;
    std::copy_n(from.data() + at, spec.prefix_rows * spec.channels, to.data() + at);
  }
}

// conv(x) of every token, [batch, tokens, channels] without the rows in front, to f(token's row in
// x, its sums).
template <class F>
void ForTokens(const PositionConvolutionSpec& spec, const ConvolutionShape& shape,
               std::span<const float> x, int64_t batch, std::span<const float> weight,
               std::span<const float> bias, const F& f) {
  const internal::OneDnnConvolution fast = {spec, shape, batch};
  if (fast.Fast(/*backward=*/false)) {
    return fast.ForTokens(x.data(), weight, /*mirrored=*/false, [&](int64_t at, float* sums) {
      for (std::size_t c = 0; c < bias.size(); ++c) sums[c] += bias[c];
      f(at, sums);
    });
  }
  const std::vector<float> packed = ChannelsLast(shape, spec.channels, weight);
  const Kernel kernel = {shape, spec.channels, packed.data(), bias.empty() ? nullptr : bias.data()};
  const int64_t rows = spec.prefix_rows + shape.tokens, all = batch * shape.tokens;
  const int threads =
      internal::ThreadsFor(all * spec.channels * shape.group_channels * shape.taps / 4);
  // Allocated out here: an exception must not leave a parallel region.
  std::vector<Sources> sources(static_cast<std::size_t>(threads));
  for (Sources& s : sources) s.reserve(static_cast<std::size_t>(shape.taps));
  std::vector<float> sums(static_cast<std::size_t>(threads * spec.channels));
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t i = 0; i < all; ++i) {
    const int64_t thread = omp_get_thread_num();
    Sources& some = sources[static_cast<std::size_t>(thread)];
    float* out = sums.data() + thread * spec.channels;
    const int64_t token = i % shape.tokens, sequence = i / shape.tokens * rows + spec.prefix_rows;
    shape.Sources(token, &some);
    kernel.Token(x.data() + sequence * spec.channels, some, out);
    f((sequence + token) * spec.channels, out);
  }
}

}  // namespace

void PositionConvolution(const PositionConvolutionSpec& spec, std::span<const float> x,
                         int64_t batch, std::span<const float> weight, std::span<const float> bias,
                         std::span<float> y) {
  const ConvolutionShape shape = Check(spec, x, batch, weight, bias, y);
  PassPrefix(spec, spec.prefix_rows + shape.tokens, batch, x, y);
  ForTokens(spec, shape, x, batch, weight, bias, [&](int64_t at, const float* sums) {
    const float* from = x.data() + at;
    float* to = y.data() + at;
    for (int64_t c = 0; c < spec.channels; ++c) {
      const float value = spec.gelu ? Gelu(sums[c]) : sums[c];
      to[c] = spec.residual ? from[c] + value : value;
    }
  });
}

namespace {

// dL/dconv from dL/dy: through the activation, whose argument is computed again.
template <class T>
std::vector<T> ThroughActivation(const PositionConvolutionSpec& spec, const ConvolutionShape& shape,
                                 std::span<const float> x, int64_t batch,
                                 std::span<const float> weight, std::span<const float> bias,
                                 std::span<const float> dy) {
  std::vector<T> g(dy.begin(), dy.end());
  if (!spec.gelu) return g;
  ForTokens(spec, shape, x, batch, weight, bias, [&](int64_t at, const float* sums) {
    for (int64_t c = 0; c < spec.channels; ++c) {
      T& value = g[static_cast<std::size_t>(at + c)];
      value =
          static_cast<T>(static_cast<double>(value) * GeluDerivative(static_cast<double>(sums[c])));
    }
  });
  return g;
}

// For oneDNN: float32 sums, d_weight's over a block of tokens.
void FastBackward(const internal::OneDnnConvolution& fast, std::span<const float> x,
                  std::span<const float> g, std::span<const float> weight,
                  std::span<const float> dy, std::span<float> dx, std::span<double> d_weight,
                  std::span<double> d_bias) {
  const PositionConvolutionSpec& spec = fast.spec;
  fast.AddWeightGradient(x.data(), g.data(), d_weight);
  fast.ForTokens(g.data(), weight, /*mirrored=*/true, [&](int64_t at, const float* sums) {
    const float* from = dy.data() + at;
    float* to = dx.data() + at;
    for (int64_t c = 0; c < spec.channels; ++c) {
      to[c] = spec.residual ? from[c] + sums[c] : sums[c];
    }
  });
  const int64_t rows = spec.prefix_rows + fast.shape.tokens;
  PassPrefix(spec, rows, fast.batch, dy, dx);
  if (d_bias.empty()) return;
  for (int64_t r = 0; r < fast.batch * rows; ++r) {
    if (r % rows < spec.prefix_rows) continue;
    const float* from = g.data() + r * spec.channels;
    for (int64_t c = 0; c < spec.channels; ++c) d_bias.data()[c] += static_cast<double>(from[c]);
  }
}

}  // namespace

void PositionConvolutionBackward(const PositionConvolutionSpec& spec, std::span<const float> x,
                                 int64_t batch, std::span<const float> weight,
                                 std::span<const float> bias, std::span<const float> dy,
                                 std::span<float> dx, std::span<double> d_weight,
                                 std::span<double> d_bias) {
  const ConvolutionShape shape = Check(spec, x, batch, weight, bias, dx);
  const int64_t channels = spec.channels, inputs = shape.group_channels, taps = shape.taps;
  internal::CheckSpan("PositionConvolutionBackward: dy", dy, {static_cast<int64_t>(x.size())});
  internal::CheckSpan("PositionConvolutionBackward: d_weight", d_weight, {channels, inputs, taps});
  if (!d_bias.empty()) {
    internal::CheckSpan("PositionConvolutionBackward: d_bias", d_bias, {channels});
  }
  const internal::OneDnnConvolution fast = {spec, shape, batch};
  if (fast.Fast(/*backward=*/true)) {
    // Written to dx, dy is still read.
    const bool own = spec.gelu || Overlap(dy, dx);
    std::vector<float> g;
    if (own) g = ThroughActivation<float>(spec, shape, x, batch, weight, bias, dy);
    return FastBackward(fast, x, own ? g : dy, weight, dy, dx, d_weight, d_bias);
  }
  const auto g = ThroughActivation<double>(spec, shape, x, batch, weight, bias, dy);
  std::vector<double> sums(x.size(), 0.0);
  Sources sources;
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t begin = b * (spec.prefix_rows + shape.tokens) * channels;
    const int64_t grid = begin + spec.prefix_rows * channels;
    for (int64_t i = begin; i < grid; ++i) {  // passed through
      sums.data()[i] = static_cast<double>(dy.data()[i]);
    }
    for (int64_t t = 0; t < shape.tokens; ++t) {
      shape.Sources(t, &sources);
      for (int64_t c = 0; c < channels; ++c) {
        const int64_t at = grid + t * channels + c;
        const double gradient = g.data()[at];
        if (spec.residual) sums.data()[at] += static_cast<double>(dy.data()[at]);
        if (!d_bias.empty()) d_bias.data()[c] += gradient;
        for (const ConvolutionShape::Source& s : sources) {
          const int64_t from = grid + s.token * channels + c / inputs * inputs;
          for (int64_t i = 0; i < inputs; ++i) {
            const int64_t w = (c * inputs + i) * taps + s.tap;
            sums.data()[from + i] += gradient * static_cast<double>(weight.data()[w]);
            d_weight.data()[w] += gradient * static_cast<double>(x.data()[from + i]);
          }
        }
      }
    }
  }
  std::transform(sums.begin(), sums.end(), dx.begin(),
                 [](double v) { return static_cast<float>(v); });
}

namespace {

int64_t CheckWeightNorm(std::size_t v, std::span<const float> g, std::size_t weight) {
  const int64_t taps = static_cast<int64_t>(g.size()), size = static_cast<int64_t>(v);
  if (taps == 0 || size == 0 || size % taps != 0 || weight != v) {
    internal::Refuse("MergeWeightNorm: expected v and weight of [rows, " + std::to_string(taps) +
                     "] as g has, got " + std::to_string(v) + " and " + std::to_string(weight) +
                     " numbers");
  }
  return taps;
}

double Norm(std::span<const float> v, int64_t taps, int64_t tap) {
  double square = 0;
  for (std::size_t i = static_cast<std::size_t>(tap); i < v.size();
       i += static_cast<std::size_t>(taps)) {
    square += static_cast<double>(v[i]) * static_cast<double>(v[i]);
  }
  if (!(square > 0 && std::isfinite(square))) {
    internal::Refuse("MergeWeightNorm: v: expected a direction at tap " + std::to_string(tap) +
                     ", got length " + std::to_string(std::sqrt(square)));
  }
  return std::sqrt(square);
}

}  // namespace

void MergeWeightNorm(std::span<const float> v, std::span<const float> g, std::span<float> weight) {
  const int64_t taps = CheckWeightNorm(v.size(), g, weight.size());
  for (int64_t t = 0; t < taps; ++t) {
    const double scale = static_cast<double>(g[static_cast<std::size_t>(t)]) / Norm(v, taps, t);
    for (std::size_t i = static_cast<std::size_t>(t); i < v.size();
         i += static_cast<std::size_t>(taps)) {
      weight[i] = static_cast<float>(scale * static_cast<double>(v[i]));
    }
  }
}

void MergeWeightNormBackward(std::span<const float> v, std::span<const float> g,
                             std::span<const double> d_weight, std::span<double> d_v,
                             std::span<double> d_g) {
  const int64_t taps = CheckWeightNorm(v.size(), g, d_weight.size());
  internal::CheckSpan("MergeWeightNormBackward: d_v", d_v, {static_cast<int64_t>(v.size())});
  internal::CheckSpan("MergeWeightNormBackward: d_g", d_g, {taps});
  const std::size_t step = static_cast<std::size_t>(taps);
  for (std::size_t t = 0; t < step; ++t) {
    const double norm = Norm(v, taps, static_cast<int64_t>(t));
    double along = 0;  // <dL/dw, v / |v|>
    for (std::size_t i = t; i < v.size(); i += step) {
      along += d_weight[i] * static_cast<double>(v[i]) / norm;
    }
    d_g[t] += along;
    const double scale = static_cast<double>(g[t]) / norm;
    for (std::size_t i = t; i < v.size(); i += step) {
      d_v[i] += scale * (d_weight[i] - along * static_cast<double>(v[i]) / norm);
    }
  }
}

}  // namespace ropewalk
