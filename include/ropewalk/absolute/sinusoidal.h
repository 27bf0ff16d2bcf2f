// Sinusoidal position encoding (Vaswani et al. 2017, arXiv 1706.03762, section 3.5) on one to three
// axes. Angles are exact as in CosSinTable: every value is correct to the last float32 bit at any
// position of magnitude below 2^31.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ropewalk/rotary/cos_sin_rows.h"
#include "ropewalk/rotary/frequencies.h"

namespace ropewalk {

// The order of sines and cosines in a row (s0: sine of angle 0, c0: its cosine):
//   dim            6                    7
//   kInterleaved   s0 c0 s1 c1 s2 c2    s0 c0 s1 c1 s2 c2 s3     the paper
//   kConcatenated  s0 s1 s2 c0 c1 c2    s0 s1 s2 c0 c1 c2 0      tensor2tensor, fairseq, Whisper
enum class SinusoidalLayout : uint8_t { kInterleaved, kConcatenated };

// Frequency of angle i among n (n is dim / 2; interleaved with an odd dim has one more angle):
enum class SinusoidalLadder : uint8_t {
  kPaper,  // base^(-2i/dim), concatenated base^(-i/n): the last is above 1 / base
  kToBase  // base^(-i/(n-1)): the last is 1 / base (tensor2tensor, fairseq, Whisper)
};

struct SinusoidalSpec {
  explicit SinusoidalSpec(SinusoidalLayout layout_) : layout(layout_) {}
  SinusoidalLayout layout;
  int64_t dim = 0;      // required; at least 1, concatenated at least 2
  double base = 10000;  // any positive number
  SinusoidalLadder ladder = SinusoidalLadder::kPaper;
  bool cosine_first = false;  // s and c change places (timestep embeddings of diffusion models)
};

class Sinusoidal {
 public:
  // Throws Error for a dim or base out of range.
  explicit Sinusoidal(const SinusoidalSpec& spec);

  int64_t dim() const { return spec_.dim; }
  // Radians per position, [n].
  std::span<const DoubleDouble> frequencies() const { return frequencies_.inv_freq; }

  // out: [positions.size(), dim]. Positions are -(2^31 - 1) to 2^31 - 1; throws Error beyond.
  void Rows(std::span<const int64_t> positions, std::span<float> out) const;
  // Positions start .. start + tokens - 1, tokens being out.size() / dim.
  void Rows(int64_t start, std::span<float> out) const;

  // x[b, t] += scale row(start + t); x is [batch, tokens, dim]. Stores no table of rows; for the
  // same positions in many calls, Rows once and AddRows (combine.h) are faster. dL/dx is dL/dy.
  void Add(std::span<float> x, int64_t batch, int64_t start, float scale = 1) const;
  // dL/dscale of Add: the sum of dy * row (x-transformers learns the scale).
  double ScaleGradient(std::span<const float> dy, int64_t batch, int64_t start) const;
  // For learned frequencies: d_frequencies [n] += dL / d frequency of Add.
  void FrequencyGradient(std::span<const float> dy, int64_t batch, int64_t start,
                         std::span<double> d_frequencies, float scale = 1) const;

 private:
  template <class F>
  void ForRows(const char* op, std::span<const float> x, int64_t batch, int64_t start,
               const F& f) const;

  SinusoidalSpec spec_;
  Frequencies frequencies_;
  CosSinRows cos_sin_;
};

// For images and videos: a row is a concatenation of blocks, each the encoding of one coordinate.
struct SinusoidalBlock {
  int axis = 0;  // index into `sizes`
  SinusoidalSpec spec;
};

// The patches of a grid in row-major order, coordinates from 0: out is [product of sizes, sum of
// dims]. sizes: 1 to 3 axes, the last one fastest: {height, width} or {frames, height, width}.
// Masked autoencoders (He et al. 2021) have two kConcatenated blocks of dim / 2, the width's first.
// Throws Error for an axis outside `sizes`.
void SinusoidalGrid(std::span<const SinusoidalBlock> blocks, std::span<const int64_t> sizes,
                    std::span<float> out);

}  // namespace ropewalk
