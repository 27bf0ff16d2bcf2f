// What the rest of Rotate costs beside its plain form, in the same rounds:
//   rotary_ops_bench [--json FILE] [--rounds N]
// M-RoPE and packed sequences against a plain call over the same tensors; norm and rotation in one
// call against one after the other; writing k and v into a paged cache against copying
// as many bytes.
// Results are checked before anything is timed. One thread; one JSON object a line.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ropewalk/base/buffer.h"
#include "ropewalk/base/threads.h"
#include "ropewalk/rotary/rotate.h"
#include "src/model/elementwise.h"

namespace ropewalk {
namespace {

constexpr int64_t kHeads = 32, kKvHeads = 8, kDim = 128;

double Seconds(const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double Median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

void Check(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "rotary_ops_bench: wrong result: %s\n", what);
  std::exit(1);
}

// Medians of the calls, interleaved round by round.
std::vector<double> Time(int rounds, const std::vector<std::function<void()>>& calls) {
  std::vector<std::vector<double>> samples(calls.size());
  for (int r = 0; r < rounds; ++r) {
    for (std::size_t i = 0; i < calls.size(); ++i) samples[i].push_back(Seconds(calls[i]));
  }
  std::vector<double> out;
  for (const std::vector<double>& s : samples) out.push_back(Median(s));
  return out;
}

void Report(std::FILE* json, const std::string& what, int64_t kib, double ratio, int rounds) {
  std::printf("%-34s %6lld KiB  %.2f\n", what.c_str(), static_cast<long long>(kib), ratio);
  if (json == nullptr) return;
  std::fprintf(json, R"({"bench":"rotary_ops","what":"%s","kib":%lld,"ratio":%.4f,"rounds":%d})",
               what.c_str(), static_cast<long long>(kib), ratio, rounds);
  std::fputc('\n', json);
}

RotarySpec Spec() {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = kDim;
  return spec;
}

AlignedBuffer<BFloat16> Values(int64_t n) {
  AlignedBuffer<BFloat16> x(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = ToBFloat16(static_cast<float>(i % 251) / 128 - 1);
  }
  return x;
}

void BenchPositions(std::FILE* json, int64_t kib, int rounds) {
  const int64_t tokens = kib * 1024 / (2 * (kHeads + kKvHeads) * kDim);
  RotarySpec spec = Spec();
  const CosSinTable plain(Resolve(spec, tokens), 0, tokens, AnglePrecision::kExact);
  spec.axes.sections = {16, 24, 24};
  const CosSinTable axes(Resolve(spec, tokens), 0, tokens, AnglePrecision::kExact);
  AlignedBuffer<BFloat16> q = Values(tokens * kHeads * kDim), k = Values(tokens * kKvHeads * kDim);
  std::vector<int64_t> three, same, boundaries = {0};
  for (int axis = 0; axis < 3; ++axis) {
    for (int64_t t = 0; t < tokens; ++t) {
      same.push_back(t);
      three.push_back(axis == 0 ? t : axis == 1 ? t / 32 : t % 32);
    }
  }
  while (boundaries.back() < tokens) {
    boundaries.push_back(std::min(tokens, boundaries.back() + 100));
  }
  const auto call = [&](const CosSinTable& table, const Positions& positions) {
    Rotate({.table = &table,
            .layout = PairLayout::kHalf,
            .positions = positions,
            .q = TensorView::Of(q.data(), {tokens, kHeads, kDim}),
            .k = TensorView::Of(k.data(), {tokens, kKvHeads, kDim})});
  };
  // Text on three axes is plain rotation.
  call(plain, Positions::From(0));
  const std::vector<BFloat16> want(q.begin(), q.end());
  q = Values(tokens * kHeads * kDim);
  call(axes, Positions::Each(std::span<const int64_t>(same), 3));
  Check(std::memcmp(want.data(), q.data(), 2 * q.size()) == 0, "text on three axes");
  const std::vector<double> t =
      Time(rounds, {[&] { call(plain, Positions::From(0)); },
                    [&] { call(axes, Positions::Each(std::span<const int64_t>(three), 3)); },
                    [&] { call(plain, Positions::Packed(boundaries)); }});
  Report(json, "plain / M-RoPE", kib, t[0] / t[1], rounds);
  Report(json, "plain / packed", kib, t[0] / t[2], rounds);
}

void BenchNorm(std::FILE* json, int64_t kib, int rounds) {
  const int64_t tokens = kib * 1024 / (4 * (kHeads + kKvHeads) * kDim);
  const CosSinTable table(Resolve(Spec(), tokens), 0, tokens, AnglePrecision::kExact);
  const std::vector<float> weight(static_cast<std::size_t>(kDim), 1.25f);
  AlignedBuffer<float> q(static_cast<std::size_t>(tokens * kHeads * kDim));
  AlignedBuffer<float> k(static_cast<std::size_t>(tokens * kKvHeads * kDim));
  const auto fill = [&] {
    for (std::size_t i = 0; i < q.size(); ++i) q[i] = static_cast<float>(i % 251) / 128 - 1;
    for (std::size_t i = 0; i < k.size(); ++i) k[i] = static_cast<float>(i % 241) / 128 - 1;
  };
  RotateArgs args{.table = &table,
                  .layout = PairLayout::kHalf,
                  .positions = Positions::From(0),
                  .q = TensorView::Of(q.data(), {tokens, kHeads, kDim}),
                  .k = TensorView::Of(k.data(), {tokens, kKvHeads, kDim})};
  RotateArgs fused = args;
  fused.q_norm = fused.k_norm = {weight, 1e-6};
  const auto apart = [&] {
    internal::RmsNorm({q.data(), kHeads * kDim, q.data(), kHeads * kDim, tokens, kHeads, kDim,
                       weight.data(), 1e-6f});
    internal::RmsNorm({k.data(), kKvHeads * kDim, k.data(), kKvHeads * kDim, tokens, kKvHeads, kDim,
                       weight.data(), 1e-6f});
    Rotate(args);
  };
  fill();
  apart();
  const std::vector<float> want(q.begin(), q.end());
  fill();
  Rotate(fused);
  for (std::size_t i = 0; i < want.size(); ++i) {
    Check(std::abs(want[i] - q[i]) < 1e-5f, "norm and rotation");
  }
  const std::vector<double> t = Time(rounds, {apart, [&] { Rotate(fused); }});
  Report(json, "norm, then rotate / in one", kib, t[0] / t[1], rounds);
}

void BenchCache(std::FILE* json, int64_t kib, int rounds) {
  const int64_t block = 16;
  const int64_t tokens = kib * 1024 / (4 * kKvHeads * kDim) / block * block;
  const CosSinTable table(Resolve(Spec(), tokens), 0, tokens, AnglePrecision::kExact);
  AlignedBuffer<BFloat16> k = Values(tokens * kKvHeads * kDim),
                          v = Values(tokens * kKvHeads * kDim);
  AlignedBuffer<BFloat16> cache(2 * k.size(), BFloat16{0});
  std::vector<int32_t> blocks;  // every third block of the cache, then those between
  for (int64_t first = 0; first < 3; ++first) {
    for (int64_t b = first; b < tokens / block; b += 3) blocks.push_back(static_cast<int32_t>(b));
  }
  const int64_t start[] = {0};
  const std::vector<int64_t> slots = BlockTableSlots(blocks, tokens / block, block, start, tokens);
  BFloat16 none[1];
  const std::initializer_list<int64_t> paged = {tokens / block, block, kKvHeads, kDim};
  const RotateArgs args{.table = &table,
                        .layout = PairLayout::kHalf,
                        .positions = Positions::From(0),
                        .q = TensorView::Of(none, {tokens, 0, kDim}),
                        .k = TensorView::Of(k.data(), {tokens, kKvHeads, kDim}),
                        .k_out = TensorView::Of(cache.data(), paged),
                        .v = TensorView::Of(v.data(), {tokens, kKvHeads, kDim}),
                        .v_out = TensorView::Of(cache.data() + k.size(), paged),
                        .slots = slots};
  Rotate(args);
  const std::size_t row = static_cast<std::size_t>(kKvHeads * kDim);
  for (std::size_t t = 0; t < slots.size(); ++t) {
    const std::size_t slot = static_cast<std::size_t>(slots[t]);
    Check(std::memcmp(cache.data() + k.size() + slot * row, v.data() + t * row, 2 * row) == 0,
          "values in the cache");
  }
  // The same bytes read and written with ordinary stores; `zero` keeps it from becoming a memcpy,
  // whose stores bypass the caches.
  volatile uint16_t runtime_zero = 0;
  const uint16_t zero = runtime_zero;
  const auto copy = [&](const AlignedBuffer<BFloat16>& from, BFloat16* to) {
    for (std::size_t i = 0; i < from.size(); ++i) {
      to[i].bits = static_cast<uint16_t>(from[i].bits + zero);
    }
  };
  const auto copy_both = [&] {
    copy(k, cache.data());
    copy(v, cache.data() + k.size());
  };
  const std::vector<double> t = Time(rounds, {copy_both, [&] { Rotate(args); }});
  Report(json, "copy / rotate into a paged cache", kib, t[0] / t[1], rounds);
}

}  // namespace
}  // namespace ropewalk

int main(int argc, char** argv) {
  std::FILE* json = nullptr;
  int rounds = 31;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--json") == 0) json = std::fopen(argv[i + 1], "a");
    if (std::strcmp(argv[i], "--rounds") == 0) rounds = std::max(1, std::atoi(argv[i + 1]));
  }
  ropewalk::SetNumThreads(1);
  for (const int64_t kib : {512, 4096, 65536}) {
    ropewalk::BenchPositions(json, kib, rounds);
    ropewalk::BenchNorm(json, kib, rounds);
    ropewalk::BenchCache(json, kib, rounds);
  }
  return 0;
}
