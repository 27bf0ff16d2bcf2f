#include "src/absolute/convolution_onednn.h"

#include <algorithm>
#include <cstddef>
#include <dnnl.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "ropewalk/base/buffer.h"
#include "ropewalk/base/error.h"
#include "ropewalk/base/threads.h"
#include "src/base/parallel.h"

namespace ropewalk::internal {
namespace {

using dnnl::memory;
using Forward = dnnl::convolution_forward;
using BackwardWeights = dnnl::convolution_backward_weights;
constexpr auto kFloat = memory::data_type::f32;

// Tokens of a block, whose terms are summed in float32; its padded copy stays in a cache.
constexpr int64_t kBlockTokens = 512;
// oneDNN 2.6 has compiled code for the gradient of up to 14 taps of a group, and is fastest with 8:
// a longer kernel is cut.
constexpr int64_t kGradientTaps = 8;
// Products of a sequence below which making the primitives costs more than they save.
constexpr int64_t kWorth = int64_t{1} << 20;

const dnnl::engine& Engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

// What a primitive is made for: sequences, rows of their first axis, and taps along it.
struct Size {
  int64_t count, rows, taps;
  bool operator==(const Size&) const = default;
};

// Rows `first` .. of the first axis of some sequences; of several only where they are whole and
// nothing stands between them.
struct Block {
  int64_t sequence, count, first, rows;
};

class Convolution {
 public:
  Convolution(const OneDnnConvolution& c, bool backward)
      : c_(c),
        s_(c.shape),
        channels_(c.spec.channels),
        inner_(s_.size[1] * s_.size[2]),
        taps_(s_.kernel[0]) {
    rows_ = std::clamp<int64_t>(kBlockTokens / inner_, 1, s_.size[0]);
    const bool whole = rows_ == s_.size[0] && c.spec.prefix_rows == 0;
    count_ = whole ? std::clamp<int64_t>(kBlockTokens / s_.tokens, 1, c.batch) : 1;
    if (backward && !Depthwise() && s_.kernel[0] > kGradientTaps) {
      taps_ = kGradientTaps;
      count_ = 1;  // cut sequences stand apart
    }
  }

  template <class F>
  void ForBlocks(const F& f) const {
    for (int64_t b = 0; b < c_.batch; b += count_) {
      for (int64_t r = 0; r < s_.size[0]; r += rows_) {
        f(Block{b, std::min(count_, c_.batch - b), r, std::min(rows_, s_.size[0] - r)});
      }
    }
  }

  bool Depthwise() const { return s_.group_channels == 1; }
  Size Largest() const { return {count_, rows_, taps_}; }
  int64_t WorkNs() const {
    return c_.batch * s_.tokens * channels_ * s_.group_channels * s_.taps / 50;
  }
  int64_t Tokens(const Block& b) const { return b.count * b.rows * inner_; }
  // Elements of a row of the first axis, padded.
  int64_t PaddedRow() const {
    return (s_.size[1] + s_.kernel[1] - 1) * (s_.size[2] + s_.kernel[2] - 1) * channels_;
  }
  // The first element of a sequence without its prefix.
  int64_t Sequence(int64_t b) const {
    return (b * (c_.spec.prefix_rows + s_.tokens) + c_.spec.prefix_rows) * channels_;
  }
  int64_t First(const Block& b) const {
    return Sequence(b.sequence) + b.first * inner_ * channels_;
  }

  memory::desc Grid(const Size& n, bool padded) const {
    int64_t size[] = {n.rows, s_.size[1], s_.size[2]};
    if (padded) size[0] += n.taps - 1, size[1] += s_.kernel[1] - 1, size[2] += s_.kernel[2] - 1;
    const auto tag = Axes() == 3 ? memory::format_tag::ndhwc : memory::format_tag::nhwc;
    return {WithAxes({n.count, channels_}, size), kFloat, tag};
  }
  memory::desc Weight(const Size& n, bool any) const {
    const int64_t taps[] = {n.taps, s_.kernel[1], s_.kernel[2]};
    const auto dense = Axes() == 3 ? memory::format_tag::goidhw : memory::format_tag::goihw;
    return {WithAxes({c_.spec.groups, s_.group_channels, s_.group_channels}, taps), kFloat,
            any ? memory::format_tag::any : dense};
  }

  // The two places where oneDNN 2 and 3 differ.
  Forward::primitive_desc DescribeForward(const Size& n) const {
    const memory::desc x = Grid(n, true), y = Grid(n, false), weight = Weight(n, true);
    const memory::dims one(Axes() == 3 ? 3 : 2, 1), none(one.size(), 0);
    const auto kind = dnnl::prop_kind::forward_training;
    const auto algorithm = dnnl::algorithm::convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
    return {Engine(), kind, algorithm, x, weight, y, one, none, none};
#else
    return {Forward::desc(kind, algorithm, x, weight, y, one, none, none), Engine()};
#endif
  }
  BackwardWeights::primitive_desc DescribeBackward(const Size& n) const {
    const memory::desc x = Grid(n, true), y = Grid(n, false), weight = Weight(n, true);
    const memory::dims one(Axes() == 3 ? 3 : 2, 1), none(one.size(), 0);
    const auto algorithm = dnnl::algorithm::convolution_direct;
    const Forward::primitive_desc hint = DescribeForward(n);
#if DNNL_VERSION_MAJOR >= 3
    return {Engine(), algorithm, x, weight, y, one, none, none, hint};
#else
    return {BackwardWeights::desc(algorithm, x, weight, y, one, none, none), Engine(), hint};
#endif
  }

  // The tokens that a block reads, and what stands beyond the border: [count, padded sizes,
  // channels].
  void Pad(const float* x, const Block& b, bool mirrored, float* out) const {
    int64_t size[] = {b.rows, s_.size[1], s_.size[2]}, left[3];
    for (int a = 0; a < 3; ++a) {
      size[a] += s_.kernel[a] - 1;
      left[a] = mirrored ? s_.kernel[a] - 1 - s_.kernel[a] / 2 : s_.kernel[a] / 2;
    }
    const auto place = [&](int a, int64_t at) {
      if (s_.circular) return (at % s_.size[a] + s_.size[a]) % s_.size[a];
      return at < 0 || at >= s_.size[a] ? int64_t{-1} : at;
    };
    const int64_t lines = b.count * size[0] * size[1];
    const int threads = ThreadsFor(lines * size[2] * channels_ / 4);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t line = 0; line < lines; ++line) {
      const int64_t i = place(0, b.first + line / size[1] % size[0] - left[0]);
      const int64_t j = place(1, line % size[1] - left[1]);
      const float* from = x + Sequence(b.sequence + line / size[1] / size[0]);
      float* to = out + line * size[2] * channels_;
      for (int64_t z = 0; z < size[2]; ++z, to += channels_) {
        const int64_t k = place(2, z - left[2]);
        if (i < 0 || j < 0 || k < 0) {
          std::fill_n(to, channels_, 0.0f);
        } else {
          std::copy_n(from + ((i * s_.size[1] + j) * s_.size[2] + k) * channels_, channels_, to);
        }
      }
    }
  }

 private:
  std::size_t Axes() const { return c_.spec.sizes.size(); }
  // A line of tokens is an image of one row; depthwise, of one column, for which oneDNN 2.6 has
  // compiled code both ways.
  memory::dims WithAxes(memory::dims dims, const int64_t* size) const {
    if (Axes() == 1 && !Depthwise()) dims.push_back(1);
    dims.insert(dims.end(), size, size + Axes());
    if (Axes() == 1 && Depthwise()) dims.push_back(1);
    return dims;
  }

  const OneDnnConvolution& c_;
  const ConvolutionShape& s_;
  int64_t channels_, inner_;
  int64_t rows_, count_;  // of a block
  int64_t taps_;          // of a primitive, along the first axis
};

// w[o, i, t] -> w[i, o, last - t] in each group: the weight that maps the gradient of the result to
// that of the input.
std::vector<float> Mirrored(const ConvolutionShape& s, int64_t groups, std::span<const float> w) {
  std::vector<float> out(w.size());
  const int64_t n = s.group_channels;
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t o = 0; o < n; ++o) {
      for (int64_t i = 0; i < n; ++i) {
        const float* from = w.data() + ((g * n + o) * n + i) * s.taps;
        std::reverse_copy(from, from + s.taps, out.data() + ((g * n + i) * n + o) * s.taps);
      }
    }
  }
  return out;
}

memory View(const memory::desc& desc, const void* data) {
  return memory(desc, Engine(), const_cast<void*>(data));
}

void Reorder(dnnl::stream& stream, memory from, memory to) {
  dnnl::reorder(from, to).execute(stream, from, to);
  stream.wait();
}

// Primitives of the sizes of a call's blocks: full ones and those at the ends.
template <class Primitive>
struct Plan {
  Size size;
  typename Primitive::primitive_desc desc;
  Primitive primitive;
  memory weight;  // packed as the primitive wants it
};

template <class Primitive, class Make>
Plan<Primitive>& Find(std::vector<Plan<Primitive>>& plans, const Size& size, const Make& make) {
  const auto found = std::find_if(plans.begin(), plans.end(),
                                  [&](const Plan<Primitive>& p) { return p.size == size; });
  return found != plans.end() ? *found : plans.emplace_back(make());
}

[[noreturn]] void Refuse(const dnnl::error& e) {
  throw Error(ErrorCode::kUnsupported, std::string("PositionConvolution: oneDNN: ") + e.what());
}

}  // namespace

bool OneDnnConvolution::Fast(bool backward) const {
  if (shape.tokens * spec.channels * shape.group_channels * shape.taps < kWorth) return false;
  // Depthwise in space oneDNN 2.6 takes twice our time forward.
  if (!backward && spec.sizes.size() == 3 && shape.group_channels == 1) return false;
  const auto compiled = [](const char* name) {
    return std::string_view(name).find("ref") == std::string_view::npos;
  };
  const ScopedNumThreads threads(NumThreads());
  try {
    const Convolution forward(*this, false), gradient(*this, true);
    return compiled(forward.DescribeForward(forward.Largest()).impl_info_str()) &&
           (!backward || compiled(gradient.DescribeBackward(gradient.Largest()).impl_info_str()));
  } catch (const dnnl::error&) {
    return false;
  }
}

void OneDnnConvolution::ForTokens(const float* x, std::span<const float> weight, bool mirrored,
                                  const TokenWork& f) const try {
  const Convolution c(*this, false);
  const ScopedNumThreads limit(ThreadsFor(c.WorkNs()));
  const std::vector<float> turned =
      mirrored ? Mirrored(shape, spec.groups, weight) : std::vector<float>();
  const float* from = mirrored ? turned.data() : weight.data();
  dnnl::stream stream(Engine());
  std::vector<Plan<Forward>> plans;
  const Size largest = c.Largest();
  AlignedBuffer<float> padded(c.Grid(largest, true).get_size() / sizeof(float));
  AlignedBuffer<float> sums(c.Grid(largest, false).get_size() / sizeof(float));
  c.ForBlocks([&](const Block& b) {
    const Size size = {b.count, b.rows, largest.taps};
    const Plan<Forward>& p = Find(plans, size, [&] {
      const Forward::primitive_desc desc = c.DescribeForward(size);
      memory packed(desc.weights_desc(), Engine());
      Reorder(stream, View(c.Weight(size, false), from), packed);
      return Plan<Forward>{size, desc, Forward(desc), packed};
    });
    c.Pad(x, b, mirrored, padded.data());
    p.primitive.execute(stream, {{DNNL_ARG_SRC, View(p.desc.src_desc(), padded.data())},
                                 {DNNL_ARG_WEIGHTS, p.weight},
                                 {DNNL_ARG_DST, View(p.desc.dst_desc(), sums.data())}});
    stream.wait();
    const int64_t tokens = c.Tokens(b), first = c.First(b);
    const int threads = ThreadsFor(tokens * spec.channels / 2);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t t = 0; t < tokens; ++t) {
      f(first + t * spec.channels, sums.data() + t * spec.channels);
    }
  });
} catch (const dnnl::error& e) {
  Refuse(e);
}

void OneDnnConvolution::AddWeightGradient(const float* x, const float* g,
                                          std::span<double> d_weight) const try {
  const Convolution c(*this, true);
  const ScopedNumThreads limit(ThreadsFor(c.WorkNs()));
  dnnl::stream stream(Engine());
  std::vector<Plan<BackwardWeights>> plans;
  const Size largest = c.Largest();
  const int64_t kernel = shape.kernel[0], inner_taps = shape.taps / kernel;
  AlignedBuffer<float> padded(c.Grid({largest.count, largest.rows, kernel}, true).get_size() /
                              sizeof(float));
  AlignedBuffer<float> some(c.Weight(largest, false).get_size() / sizeof(float));
  const int64_t rows = spec.channels * shape.group_channels;
  c.ForBlocks([&](const Block& b) {
    c.Pad(x, b, false, padded.data());
    for (int64_t tap = 0; tap < kernel; tap += largest.taps) {
      const Size size = {b.count, b.rows, std::min(largest.taps, kernel - tap)};
      const Plan<BackwardWeights>& p = Find(plans, size, [&] {
        const BackwardWeights::primitive_desc desc = c.DescribeBackward(size);
        return Plan<BackwardWeights>{size, desc, BackwardWeights(desc),
                                     memory(desc.diff_weights_desc(), Engine())};
      });
      const float* from = padded.data() + tap * c.PaddedRow();
      p.primitive.execute(stream,
                          {{DNNL_ARG_SRC, View(p.desc.src_desc(), from)},
                           {DNNL_ARG_DIFF_DST, View(p.desc.diff_dst_desc(), g + c.First(b))},
                           {DNNL_ARG_DIFF_WEIGHTS, p.weight}});
      stream.wait();
      Reorder(stream, p.weight, View(c.Weight(size, false), some.data()));
      const int64_t width = size.taps * inner_taps;
      const int threads = ThreadsFor(rows * width / 2);
#pragma omp parallel for schedule(static) num_threads(threads)
      for (int64_t r = 0; r < rows; ++r) {
        double* to = d_weight.data() + r * shape.taps + tap * inner_taps;
        const float* sums = some.data() + r * width;
        for (int64_t i = 0; i < width; ++i) to[i] += static_cast<double>(sums[i]);
      }
    }
  });
} catch (const dnnl::error& e) {
  Refuse(e);
}

}  // namespace ropewalk::internal
