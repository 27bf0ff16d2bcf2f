// What Rotate and CosSinTable cost, each against a ceiling measured beside it in the same rounds:
//   rotary_bench [--json FILE] [--rounds N] [--kib N]
// Rotate in place is compared with a read-modify-write stream over the same bytes (x *= 1 on
// float32 vectors): machines that share their memory vary twofold between runs, shares do not.
// 16-bit types are compared with that stream over their own elements too, converted to float32 and
// back by what Rotate does it with: what no rotation of theirs can exceed.
// Results are checked before anything is timed. One JSON object a line.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/rotary_bench.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "src/rotary/rotate/codecs-inl.h"
#include "src/rotary/rotate/params.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline void StreamBody(float* x, std::size_t n, float factor) {
  const hn::ScalableTag<float> d;
  const auto f = hn::Set(d, factor);
  for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
    hn::Store(hn::Mul(hn::Load(d, x + i), f), d, x + i);
  }
}

template <class Codec>
void StreamF16(Float16* x, std::size_t n, float factor) {
  const hn::ScalableTag<float> d;
  const auto f = hn::Set(d, factor);
  for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
    Codec::Store(d, hn::Mul(Codec::Load(d, x + i), f), x + i);
  }
}

#if HWY_TARGET != HWY_SCALAR
template <bool kZen>
void StreamBf16(BFloat16* x, std::size_t n, float factor) {
  const hn::ScalableTag<float> d;
  const auto f = hn::Set(d, factor);
  const std::size_t step = 2 * hn::Lanes(d);
  for (std::size_t i = 0; i < n; i += 4 * step) {  // a head of 128, where vectors have 16 floats
    hn::Vec<decltype(d)> even[4], odd[4];
    HWY_UNROLL(4)
    for (std::size_t k = 0; k < 4; ++k) {
      internal::HWY_NAMESPACE::LoadWords(d, x + i + k * step, even[k], odd[k]);
      even[k] = hn::Mul(even[k], f);
      odd[k] = hn::Mul(odd[k], f);
    }
#if ROPEWALK_AVX512
    if constexpr (kZen) {
      internal::HWY_NAMESPACE::StoreWordsZen<4, 1>(d, even, odd, 0, x + i);
      continue;
    }
#endif
    HWY_UNROLL(4)
    for (std::size_t k = 0; k < 4; ++k) {
      internal::HWY_NAMESPACE::StoreWords(d, even[k], odd[k], x + i + k * step);
    }
  }
}
#endif

inline void ConvertedBody(DType dtype, void* data, std::size_t n, float factor, bool zen) {
  (void)zen;
  if (dtype == DType::kF16) {
    auto* x = static_cast<Float16*>(data);
#if ROPEWALK_AVX512
    if (zen) return StreamF16<internal::HWY_NAMESPACE::F16Zen>(x, n, factor);
#endif
    return StreamF16<internal::HWY_NAMESPACE::F16>(x, n, factor);
  }
#if HWY_TARGET != HWY_SCALAR
  auto* x = static_cast<BFloat16*>(data);
  zen ? StreamBf16<true>(x, n, factor) : StreamBf16<false>(x, n, factor);
#endif
}

}  // namespace ropewalk::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "reference/rotary.h"
#include "ropewalk/base/buffer.h"
#include "ropewalk/base/threads.h"
#include "ropewalk/rotary/rotate.h"

namespace ropewalk {
namespace {

HWY_EXPORT(StreamBody);
HWY_EXPORT(ConvertedBody);

constexpr int64_t kHeads = 32;
constexpr int64_t kHeadDim = 128;

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds of one call, from one sample of at least `calls` calls.
double Sample(int64_t calls, const std::function<void()>& call) {
  const double start = Seconds();
  for (int64_t i = 0; i < calls; ++i) call();
  return (Seconds() - start) / static_cast<double>(calls);
}

double Median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

struct Output {
  std::FILE* json = nullptr;
  void Row(const std::string& table, const std::string& line) const {
    std::printf("%s\n", table.c_str());
    std::fflush(stdout);
    if (json != nullptr) std::fprintf(json, "%s\n", line.c_str());
  }
};

RotarySpec Spec(PairLayout layout) {
  RotarySpec spec(layout);
  spec.head_dim = spec.rotary_dim = kHeadDim;
  return spec;
}

// x *= 1, in float32.
template <class T>
void StreamOver(T* x, std::size_t n, int threads) {
  const bool zen = internal::BestTuning() == internal::Tuning::kZen;
  const auto run = [zen](T* part, std::size_t count) {
    if constexpr (std::is_same_v<T, float>) {
      HWY_DYNAMIC_DISPATCH(StreamBody)(part, count, 1.0f);
    } else {
      HWY_DYNAMIC_DISPATCH(ConvertedBody)(DTypeOf<T>::value, part, count, 1.0f, zen);
    }
  };
  if (threads == 1) return run(x, n);
#pragma omp parallel num_threads(threads)
  {
    const std::size_t part = n / static_cast<std::size_t>(threads);
    const std::size_t t = static_cast<std::size_t>(omp_get_thread_num());
    run(x + t * part, part);
  }
}

template <class T>
T FromDouble(double x) {
  if constexpr (std::is_same_v<T, Float16>) return ToFloat16(static_cast<float>(x));
  if constexpr (std::is_same_v<T, BFloat16>) return ToBFloat16(static_cast<float>(x));
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(x);
}
template <class T>
double ToDouble(T x) {
  if constexpr (std::is_floating_point_v<T>) return x;
  if constexpr (!std::is_floating_point_v<T>) return ToFloat(x);
}

// Rotates the data once and compares with the reference; exits when wrong.
template <class T>
void CheckResult(const RotateArgs& args, T* x, int64_t tokens, const Frequencies& frequencies) {
  const std::size_t n = static_cast<std::size_t>(kHeads * kHeadDim);
  const int64_t token = tokens - 1;
  std::vector<double> expected(n);
  for (std::size_t i = 0; i < n; ++i)
    expected[i] = ToDouble(x[token * kHeads * kHeadDim + static_cast<int64_t>(i)]);
  for (int64_t h = 0; h < kHeads; ++h) {
    reference::RotateHead(expected.data() + h * kHeadDim, frequencies, token,
                          args.layout == PairLayout::kInterleaved);
  }
  Rotate(args);
  const double tolerance = sizeof(T) == 4 ? 1e-6 : std::is_same_v<T, Float16> ? 2e-3 : 1.6e-2;
  for (std::size_t i = 0; i < n; ++i) {
    const double got = ToDouble(x[token * kHeads * kHeadDim + static_cast<int64_t>(i)]);
    if (std::abs(got - expected[i]) > tolerance) {
      std::fprintf(stderr, "rotary_bench: wrong result: %g, expected %g\n", got, expected[i]);
      std::exit(1);
    }
  }
}

template <class T>
void BenchRotate(const Output& output, PairLayout layout, int64_t bytes, int threads, int rounds) {
  const int64_t tokens = bytes / (kHeads * kHeadDim * static_cast<int64_t>(sizeof(T)));
  const Frequencies frequencies = Resolve(Spec(layout), tokens);
  const CosSinTable table(frequencies, 0, tokens, AnglePrecision::kExact);
  AlignedBuffer<T> x(static_cast<std::size_t>(tokens * kHeads * kHeadDim));
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = FromDouble<T>(std::sin(0.7 * static_cast<double>(i)));
  }
  AlignedBuffer<float> stream(static_cast<std::size_t>(bytes) / sizeof(float), 1.0f);
  const RotateArgs args{&table, layout, Positions::From(0),
                        TensorView::Of(x.data(), {tokens, kHeads, kHeadDim})};
  SetNumThreads(threads);
  CheckResult(args, x.data(), tokens, frequencies);
  const int64_t calls = std::max<int64_t>(1, (int64_t{1} << 22) / bytes);
  std::vector<double> rotate_s, stream_s, converted_s;
  for (int r = 0; r < rounds; ++r) {
    stream_s.push_back(Sample(calls, [&] { StreamOver(stream.data(), stream.size(), threads); }));
    rotate_s.push_back(Sample(calls, [&] { Rotate(args); }));
    if (sizeof(T) == 4) continue;
    converted_s.push_back(Sample(calls, [&] { StreamOver(x.data(), x.size(), threads); }));
  }
  const double gb = 2e-9 * static_cast<double>(bytes);
  const double rotate = Median(rotate_s);
  const double ceiling = Median(stream_s);
  std::string converted;
  if (!converted_s.empty()) {
    converted = fmt::format(R"("converted_stream_gb_per_s":{:.3f},)", gb / Median(converted_s));
  }
  const char* dtype = Name(DTypeOf<T>::value);
  const char* name = layout == PairLayout::kHalf ? "half" : "interleaved";
  output.Row(
      fmt::format("rotate {:<4} {:<11} {:>6} KiB {} threads  {:7.1f} GB/s of {:7.1f}: {:.2f}",
                  dtype, name, bytes / 1024, threads, gb / rotate, gb / ceiling, ceiling / rotate),
      fmt::format(R"({{"bench":"rotate","dtype":"{}","layout":"{}","bytes":{},"threads":{},)"
                  R"("gb_per_s":{:.3f},"stream_gb_per_s":{:.3f},{}"share":{:.4f},"rounds":{}}})",
                  dtype, name, bytes, threads, gb / rotate, gb / ceiling, converted,
                  ceiling / rotate, rounds));
}

// One token in a decoder's loop: 32 heads of 128, float32; all that counts is overhead.
void BenchOneToken(const Output& output, int rounds) {
  SetNumThreads(1);
  const Frequencies frequencies = Resolve(Spec(PairLayout::kHalf), 4096);
  const CosSinTable table(frequencies, 0, 4096, AnglePrecision::kExact);
  AlignedBuffer<float> x(kHeads * kHeadDim, 1.0f);
  int64_t position = 0;
  std::vector<double> samples;
  for (int r = 0; r < rounds; ++r) {
    samples.push_back(Sample(1000, [&] {
      position = (position + 1) % 4096;
      Rotate({&table, PairLayout::kHalf, Positions::From(position),
              TensorView::Of(x.data(), {1, kHeads, kHeadDim})});
    }));
  }
  const double us = 1e6 * Median(samples);
  output.Row(fmt::format("rotate f32 one token, 32 heads of 128: {:.3f} us", us),
             fmt::format(R"({{"bench":"rotate_one_token","us":{:.4f},"rounds":{}}})", us, rounds));
}

// Rows made per (position, pair); the ceiling is libm, what most programs do.
void BenchTable(const Output& output, int rounds) {
  SetNumThreads(1);
  const int64_t count = 4096;
  const Frequencies frequencies = Resolve(Spec(PairLayout::kHalf), count);
  const std::size_t pairs = frequencies.inv_freq.size();
  std::vector<float> libm(2 * pairs);
  std::vector<double> table_s, libm_s;
  std::vector<CosSinTable> grown;
  for (int r = 0; r < rounds; ++r) {
    int64_t position = 0;
    libm_s.push_back(Sample(64, [&] {
      ++position;
      for (std::size_t i = 0; i < pairs; ++i) {
        const double angle = static_cast<double>(position) * frequencies.inv_freq[i].hi;
        libm[i] = static_cast<float>(std::cos(angle));
        libm[pairs + i] = static_cast<float>(std::sin(angle));
      }
    }));
    table_s.push_back(
        Sample(1, [&] { CosSinTable(frequencies, 0, count, AnglePrecision::kExact).Contains(0); }));
  }
  const double ns =
      1e9 * Median(table_s) / static_cast<double>(count * static_cast<int64_t>(pairs));
  const double libm_ns = 1e9 * Median(libm_s) / static_cast<double>(pairs);
  output.Row(fmt::format("table exact, 4096 positions, 64 pairs: {:.2f} ns per (position, pair); "
                         "libm {:.1f} ns",
                         ns, libm_ns),
             fmt::format(R"({{"bench":"table_exact","ns":{:.4f},"libm_ns":{:.4f},"rounds":{}}})",
                         ns, libm_ns, rounds));
}

// With `only_kib`, only tensors of that size.
void Main(const Output& output, int rounds, int64_t only_kib) {
  BenchOneToken(output, rounds);
  BenchTable(output, rounds);
  for (const int threads : {1, 2}) {
    if (threads > omp_get_num_procs()) continue;
    for (const int64_t kib : {256, 4096, 65536}) {
      if (only_kib != 0 && kib != only_kib) continue;
      const int64_t bytes = kib * 1024;
      for (const PairLayout layout : {PairLayout::kHalf, PairLayout::kInterleaved}) {
        BenchRotate<float>(output, layout, bytes, threads, rounds);
        BenchRotate<Float16>(output, layout, bytes, threads, rounds);
        BenchRotate<BFloat16>(output, layout, bytes, threads, rounds);
      }
    }
  }
}

}  // namespace
}  // namespace ropewalk

int main(int argc, char** argv) {
  ropewalk::Output output;
  int rounds = 31;
  int64_t kib = 0;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--json") == 0) output.json = std::fopen(argv[i + 1], "a");
    if (std::strcmp(argv[i], "--rounds") == 0) rounds = std::max(1, std::atoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--kib") == 0) kib = std::atoll(argv[i + 1]);
  }
  ropewalk::Main(output, rounds, kib);
  return 0;
}
#endif  // HWY_ONCE
