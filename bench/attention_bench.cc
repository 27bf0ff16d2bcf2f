// Attention against oneDNN's packed GEMM rate (float32), measured in the same rounds: in float32, and
// beside it in bf16 and over caches of bf16 and q8_0; by sizes of heads; and in sliding windows.
//   attention_bench [--part kinds|sizes|windows] [--threads N] [--rounds N] [--tokens MOST]
//                   [--json FILE] [--amx off]
// JSON lines are appended. --amx off: bf16 by avx512_bf16 on a CPU that has AMX's tiles.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "ropewalk/attention/attention.h"
#include "ropewalk/base/buffer.h"
#include "ropewalk/base/threads.h"
#include "ropewalk/linear/linear.h"
#include "src/attention/kernel/pairs.h"

namespace {

using ropewalk::AlignedBuffer;

double Seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

AlignedBuffer<float> Random(size_t size, uint32_t seed) {
  AlignedBuffer<float> buffer(size);
  std::minstd_rand random(seed);
  for (float& x : buffer) x = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
  return buffer;
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// oneDNN's packed GEMM, [2048, 576] x [576, 1536]: the feed-forward layer of a small model.
class Gemm {
 public:
  Gemm()
      : weight_(Random(kOut * kIn, 1)),
        linear_(
            kOut, kIn,
            [this](int64_t first, int64_t rows, float* out) {
              std::copy_n(weight_.data() + first * kIn, rows * kIn, out);
            },
            nullptr),
        x_(Random(kRows * kIn, 2)),
        y_(kRows * kOut) {}
  // GFLOP/s of one call.
  double Rate() {
    return 2e-9 * kRows * kIn * kOut /
           Seconds([&] { linear_.Apply(x_.data(), kRows, kIn, y_.data(), kOut); });
  }

 private:
  static constexpr int64_t kRows = 2048, kIn = 576, kOut = 1536;
  AlignedBuffer<float> weight_;
  ropewalk::Linear linear_;
  AlignedBuffer<float> x_, y_;
};

// A type of cache and the arithmetic over it.
struct Kind {
  ropewalk::KvType kv;
  ropewalk::ComputeType compute;
};
constexpr Kind kKinds[] = {{ropewalk::KvType::kF32, ropewalk::ComputeType::kFloat32},
                           {ropewalk::KvType::kBf16, ropewalk::ComputeType::kFloat32},
                           {ropewalk::KvType::kQ8_0, ropewalk::ComputeType::kFloat32},
                           {ropewalk::KvType::kF32, ropewalk::ComputeType::kBFloat16},
                           {ropewalk::KvType::kBf16, ropewalk::ComputeType::kBFloat16},
                           {ropewalk::KvType::kQ8_0, ropewalk::ComputeType::kBFloat16}};

struct Shape {
  int64_t heads, kv_heads, dim, value_dim, tokens, queries, window = 0;

  // That all queries see together: their own and all earlier keys, or those of the window.
  double Pairs() const {
    double pairs = 0;
    for (int64_t i = tokens - queries; i < tokens; ++i) {
      pairs += static_cast<double>(window > 0 ? std::min(i + 1, window) : i + 1);
    }
    return pairs;
  }
};

struct AttentionCase {
  AttentionCase(const Kind& kind, const Shape& s, const AlignedBuffer<float>& k,
                const AlignedBuffer<float>& v)
      : kind(kind),
        shape(s),
        cache(s.kv_heads, s.dim, s.tokens, kind.kv, s.value_dim),
        q(Random(static_cast<size_t>(s.queries * s.heads * s.dim), 3)),
        out(static_cast<size_t>(s.queries * s.heads * s.value_dim)) {
    cache.Append(ropewalk::TensorView::Of(k.data(), {s.tokens, s.kv_heads, s.dim}),
                 ropewalk::TensorView::Of(v.data(), {s.tokens, s.kv_heads, s.value_dim}));
    args.q = ropewalk::TensorView::Of(q.data(), {s.queries, s.heads, s.dim});
    args.out = ropewalk::TensorView::Of(out.data(), {s.queries, s.heads, s.value_dim});
    args.cache = &cache;
    args.compute = kind.compute;
    args.window_tokens = s.window;
    args.scale = 1.0f / std::sqrt(static_cast<float>(s.dim));
    // Two operations for each element of a key and of a value.
    flop = 2.0 * static_cast<double>(s.heads * (s.dim + s.value_dim)) * s.Pairs();
  }
  // Values are up to 1 and averaged over at least 512 keys.
  double MostError() const {
    const bool exact = kind.kv == kKinds[0].kv && kind.compute == kKinds[0].compute;
    return exact ? 1e-5 : 2e-3;
  }

  Kind kind;
  Shape shape;
  ropewalk::KvCache cache;
  AlignedBuffer<float> q, out;
  ropewalk::AttentionArgs args;
  double flop;
};

// Largest difference from softmax in double, for the last query of the last head.
double Error(const AttentionCase& c, const AlignedBuffer<float>& k, const AlignedBuffer<float>& v) {
  const Shape& s = c.shape;
  const float* q = c.q.data() + (s.queries * s.heads - 1) * s.dim;
  std::vector<double> out(static_cast<size_t>(s.value_dim));
  double sum = 0;
  for (int64_t t = s.window > 0 ? s.tokens - s.window : 0; t < s.tokens; ++t) {
    const int64_t row = t * s.kv_heads + s.kv_heads - 1;
    double score = 0;
    for (int64_t i = 0; i < s.dim; ++i) score += double{q[i]} * double{k[row * s.dim + i]};
    const double weight = std::exp(score * double{c.args.scale.value()});
    sum += weight;
    for (int64_t i = 0; i < s.value_dim; ++i) out[i] += weight * double{v[row * s.value_dim + i]};
  }
  double worst = 0;
  for (int64_t i = 0; i < s.value_dim; ++i) {
    const double got = c.out[static_cast<size_t>((s.queries * s.heads - 1) * s.value_dim + i)];
    worst = std::max(worst, std::abs(got - out[i] / sum));
  }
  return worst;
}

struct Rates {
  std::vector<double> own, ceilings, shares, speedups;
};

void Print(const Shape& s, const AttentionCase& c, const Rates& r, int threads, double error,
           FILE* json) {
  const double rate = Median(r.own), ceiling = Median(r.ceilings), share = Median(r.shares);
  const double speedup = Median(r.speedups);
  std::printf("%3d/%d x %3d/%3d %8d %8d %7d %6s %8s %9.1f %9.1f %6.2f %7.2f\n",
              static_cast<int>(s.heads), static_cast<int>(s.kv_heads), static_cast<int>(s.dim),
              static_cast<int>(s.value_dim), static_cast<int>(s.queries),
              static_cast<int>(s.tokens), static_cast<int>(s.window), Name(c.kind.kv),
              Name(c.kind.compute), rate, ceiling, share, speedup);
  if (json == nullptr) return;
  std::fprintf(json,
               "{\"bench\":\"attention\",\"threads\":%d,\"heads\":%d,\"kv_heads\":%d,"
               "\"head_dim\":%d,\"value_dim\":%d,\"queries\":%d,\"tokens\":%d,\"window\":%d,"
               "\"kv\":\"%s\",\"compute\":\"%s\","
               "\"gflops\":%.2f,\"gemm_gflops\":%.2f,\"share\":%.4f,\"times_float32\":%.3f,"
               "\"rounds\":%d,\"max_error\":%.3g}\n",
               threads, static_cast<int>(s.heads), static_cast<int>(s.kv_heads),
               static_cast<int>(s.dim), static_cast<int>(s.value_dim), static_cast<int>(s.queries),
               static_cast<int>(s.tokens), static_cast<int>(s.window), Name(c.kind.kv),
               Name(c.kind.compute), rate, ceiling, share, speedup, static_cast<int>(r.own.size()),
               error);
}

// Prints a row for each kind; false when a result is wrong.
bool Measure(const Shape& s, std::span<const Kind> kinds, int threads, int rounds, Gemm& gemm,
             FILE* json) {
  const auto k = Random(static_cast<size_t>(s.tokens * s.kv_heads * s.dim), 4);
  const auto v = Random(static_cast<size_t>(s.tokens * s.kv_heads * s.value_dim), 5);
  std::vector<AttentionCase> cases;
  std::vector<double> errors;
  for (const Kind& kind : kinds) {
    if (kind.compute == ropewalk::ComputeType::kBFloat16 && !ropewalk::HasBf16Attention()) continue;
    if (kind.kv == ropewalk::KvType::kQ8_0 && s.dim % 32 != 0) continue;
    cases.emplace_back(kind, s, k, v);
  }
  for (AttentionCase& c : cases) {
    c.args.cache = &c.cache;  // where it lies now
    ropewalk::Attention(c.args);
    errors.push_back(Error(c, k, v));
    if (!(errors.back() < c.MostError())) {
      std::fprintf(stderr, "attention_bench: result off by %g\n", errors.back());
      return false;
    }
  }
  // Rounds of some 20 ms between two of the ceiling's: what else the machine does hits both.
  const int calls = std::max(1, static_cast<int>(2e9 * threads / cases.front().flop));
  std::vector<Rates> rates(cases.size());
  for (int r = 0; r < rounds; ++r) {
    double before = gemm.Rate();
    for (size_t i = 0; i < cases.size(); ++i) {
      const double seconds = Seconds([&] {
        for (int n = 0; n < calls; ++n) ropewalk::Attention(cases[i].args);
      });
      const double after = gemm.Rate();
      rates[i].ceilings.push_back((before + after) / 2);
      rates[i].own.push_back(calls * cases[i].flop / seconds * 1e-9);
      rates[i].shares.push_back(rates[i].own.back() / rates[i].ceilings.back());
      rates[i].speedups.push_back(rates[i].own.back() / rates[0].own.back());
      before = after;
    }
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    Print(s, cases[i], rates[i], threads, errors[i], json);
  }
  return true;
}

// A long prefill comes in chunks of 512; beyond 8192 tokens the last chunk tells enough.
int64_t Queries(int64_t tokens) { return tokens > 8192 ? 512 : tokens; }

std::vector<Shape> KindShapes() {
  std::vector<Shape> shapes;
  for (const int64_t tokens : {512, 2048, 4096, 16384}) {
    shapes.push_back({8, 8, 128, 128, tokens, Queries(tokens)});
  }
  for (const int64_t tokens : {512, 2048, 4096, 16384}) {
    shapes.push_back({9, 3, 64, 64, tokens, Queries(tokens)});
  }
  shapes.push_back({9, 3, 64, 64, 4096, 1});
  return shapes;
}

// The last are those of multi-head latent attention.
std::vector<Shape> SizeShapes() {
  std::vector<Shape> shapes;
  for (const auto& [dim, value_dim] : {std::pair<int64_t, int64_t>{64, 64},
                                       {80, 80},
                                       {96, 96},
                                       {128, 128},
                                       {256, 256},
                                       {192, 128}}) {
    for (const int64_t tokens : {512, 2048, 8192}) {
      shapes.push_back({8, 8, dim, value_dim, tokens, tokens});
    }
  }
  return shapes;
}

// Their GFLOP/s count the window's keys alone.
std::vector<Shape> WindowShapes() {
  std::vector<Shape> shapes;
  for (const int64_t tokens : {8192, 32768}) {
    for (const int64_t dim : {64, 128, 256}) {
      shapes.push_back({8, 4, dim, dim, tokens, 8192, 512});
    }
  }
  return shapes;
}

struct Part {
  const char* name;
  std::vector<Shape> shapes;
  std::span<const Kind> kinds;
};

}  // namespace

int main(int argc, char** argv) {
  int rounds = 9, only_threads = 0;
  int64_t most_tokens = 32768;
  std::string json, only_part;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--part") only_part = argv[i + 1];
    if (option == "--threads") only_threads = std::atoi(argv[i + 1]);
    if (option == "--rounds") rounds = std::max(1, std::atoi(argv[i + 1]));
    if (option == "--tokens") most_tokens = std::atoll(argv[i + 1]);
    if (option == "--json") json = argv[i + 1];
    if (option == "--amx") ropewalk::internal::AllowPairTiles(std::string(argv[i + 1]) != "off");
  }
  FILE* file = json.empty() ? nullptr : std::fopen(json.c_str(), "a");
  if (!json.empty() && file == nullptr) {
    std::fprintf(stderr, "attention_bench: cannot write %s\n", json.c_str());
    return 1;
  }
  const std::span<const Kind> all(kKinds);
  const Part parts[] = {{"kinds", KindShapes(), all},
                        {"sizes", SizeShapes(), all.first(1)},
                        {"windows", WindowShapes(), all.first(1)}};
  bool right = true;
  for (const int threads : {1, 2}) {
    if (only_threads != 0 && threads != only_threads) continue;
    ropewalk::SetNumThreads(threads);
    Gemm gemm;
    gemm.Rate();
    std::printf("Attention, causal half counted, %d threads\n", threads);
    std::printf("%15s %8s %8s %7s %6s %8s %9s %9s %6s %7s\n", "heads", "queries", "keys", "window",
                "cache", "compute", "GFLOP/s", "GEMM", "share", "float32");
    for (const Part& part : parts) {
      if (!only_part.empty() && only_part != part.name) continue;
      for (const Shape& shape : part.shapes) {
        if (shape.tokens > most_tokens && shape.queries > 1) continue;
        right = Measure(shape, part.kinds, threads, rounds, gemm, file) && right;
      }
    }
  }
  if (file != nullptr) std::fclose(file);
  return right ? 0 : 1;
}
