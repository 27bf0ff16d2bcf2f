// Attention against oneDNN's packed GEMM rate (float32), measured in the same rounds: in float32, and
// beside it in bf16 and over caches of bf16 and q8_0.
//   attention_bench [--rounds N] [--tokens MOST] [--json FILE]; JSON lines are appended.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "ropewalk/attention/attention.h"
#include "ropewalk/base/buffer.h"
#include "ropewalk/base/threads.h"
#include "ropewalk/linear/linear.h"

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

struct AttentionCase {
  AttentionCase(const Kind& kind, int64_t heads, int64_t kv_heads, int64_t dim, int64_t tokens,
                int64_t queries, const AlignedBuffer<float>& k, const AlignedBuffer<float>& v)
      : kind(kind),
        cache(kv_heads, dim, tokens, kind.kv),
        q(Random(static_cast<size_t>(queries * heads * dim), 3)),
        out(static_cast<size_t>(queries * heads * dim)) {
    cache.Append(ropewalk::TensorView::Of(k.data(), {tokens, kv_heads, dim}),
                 ropewalk::TensorView::Of(v.data(), {tokens, kv_heads, dim}));
    args.q = ropewalk::TensorView::Of(q.data(), {queries, heads, dim});
    args.out = ropewalk::TensorView::Of(out.data(), {queries, heads, dim});
    args.cache = &cache;
    args.compute = kind.compute;
    args.scale = 1.0f / std::sqrt(static_cast<float>(dim));
    // Every query sees its own and all earlier keys: 2 products of 2 operations an element.
    const double keys = 0.5 * static_cast<double>(tokens - queries + 1 + tokens);
    flop = 4.0 * static_cast<double>(queries * heads * dim) * keys;
  }
  // Values are up to 1 and averaged over at least 512 keys.
  double MostError() const {
    const bool exact = kind.kv == kKinds[0].kv && kind.compute == kKinds[0].compute;
    return exact ? 1e-5 : 2e-3;
  }

  Kind kind;
  ropewalk::KvCache cache;
  AlignedBuffer<float> q, out;
  ropewalk::AttentionArgs args;
  double flop;
};

// Largest difference from softmax in double, for the last query of the last head.
double Error(const AttentionCase& c, const AlignedBuffer<float>& k, const AlignedBuffer<float>& v) {
  const int64_t queries = c.args.q.shape[0], heads = c.args.q.shape[1], dim = c.args.q.shape[2];
  const int64_t kv_heads = c.cache.kv_heads(), tokens = c.cache.tokens();
  const float* q = c.q.data() + (queries * heads - 1) * dim;
  std::vector<double> out(static_cast<size_t>(dim));
  double sum = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t row = (t * kv_heads + kv_heads - 1) * dim;
    double score = 0;
    for (int64_t i = 0; i < dim; ++i) score += double{q[i]} * double{k[row + i]};
    const double weight = std::exp(score * double{c.args.scale.value()});
    sum += weight;
    for (int64_t i = 0; i < dim; ++i) out[i] += weight * double{v[row + i]};
  }
  double worst = 0;
  for (int64_t i = 0; i < dim; ++i) {
    const double got = c.out[static_cast<size_t>((queries * heads - 1) * dim + i)];
    worst = std::max(worst, std::abs(got - out[i] / sum));
  }
  return worst;
}

struct Shape {
  int64_t heads, kv_heads, dim, tokens, queries;
};

struct Rates {
  std::vector<double> own, ceilings, shares, speedups;
};

void Print(const Shape& s, const AttentionCase& c, const Rates& r, int threads, double error,
           FILE* json) {
  const double rate = Median(r.own), ceiling = Median(r.ceilings), share = Median(r.shares);
  const double speedup = Median(r.speedups);
  std::printf("%5d/%d x %3d %8d %8d %6s %8s %9.1f %9.1f %6.2f %7.2f\n", static_cast<int>(s.heads),
              static_cast<int>(s.kv_heads), static_cast<int>(s.dim), static_cast<int>(s.queries),
              static_cast<int>(s.tokens), Name(c.kind.kv), Name(c.kind.compute), rate, ceiling,
              share, speedup);
  if (json == nullptr) return;
  std::fprintf(json,
               "{\"bench\":\"attention\",\"threads\":%d,\"heads\":%d,\"kv_heads\":%d,"
               "\"head_dim\":%d,\"queries\":%d,\"tokens\":%d,\"kv\":\"%s\",\"compute\":\"%s\","
               "\"gflops\":%.2f,\"gemm_gflops\":%.2f,\"share\":%.4f,\"times_float32\":%.3f,"
               "\"rounds\":%d,\"max_error\":%.3g}\n",
               threads, static_cast<int>(s.heads), static_cast<int>(s.kv_heads),
               static_cast<int>(s.dim), static_cast<int>(s.queries), static_cast<int>(s.tokens),
               Name(c.kind.kv), Name(c.kind.compute), rate, ceiling, share, speedup,
               static_cast<int>(r.own.size()), error);
}

// Prints a row for each kind; false when a result is wrong.
bool Measure(const Shape& s, int threads, int rounds, Gemm& gemm, FILE* json) {
  const auto k = Random(static_cast<size_t>(s.tokens * s.kv_heads * s.dim), 4);
  const auto v = Random(k.size(), 5);
  std::vector<AttentionCase> cases;
  std::vector<double> errors;
  for (const Kind& kind : kKinds) {
    if (kind.compute == ropewalk::ComputeType::kBFloat16 && !ropewalk::HasBf16Attention()) continue;
    if (kind.kv == ropewalk::KvType::kQ8_0 && s.dim % 32 != 0) continue;
    cases.emplace_back(kind, s.heads, s.kv_heads, s.dim, s.tokens, s.queries, k, v);
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

}  // namespace

int main(int argc, char** argv) {
  int rounds = 9;
  int64_t most_tokens = 16384;
  std::string json;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--rounds") rounds = std::max(1, std::atoi(argv[i + 1]));
    if (option == "--tokens") most_tokens = std::atoll(argv[i + 1]);
    if (option == "--json") json = argv[i + 1];
  }
  FILE* file = json.empty() ? nullptr : std::fopen(json.c_str(), "a");
  if (!json.empty() && file == nullptr) {
    std::fprintf(stderr, "attention_bench: cannot write %s\n", json.c_str());
    return 1;
  }
  bool right = true;
  for (const int threads : {1, 2}) {
    ropewalk::SetNumThreads(threads);
    Gemm gemm;
    gemm.Rate();
    std::printf("Attention, causal half counted, %d threads\n", threads);
    std::printf("%13s %8s %8s %6s %8s %9s %9s %6s %7s\n", "heads", "queries", "keys", "cache",
                "compute", "GFLOP/s", "GEMM", "share", "float32");
    for (const auto& [heads, kv_heads, dim] :
         {std::array<int64_t, 3>{8, 8, 128}, std::array<int64_t, 3>{9, 3, 64}}) {
      for (const int64_t tokens : {512, 2048, 4096, 16384}) {
        if (tokens > most_tokens) continue;
        // A long prefill comes in chunks of 512; of 16384 tokens the last chunk tells enough.
        const int64_t queries = tokens > 4096 ? 512 : tokens;
        right =
            Measure({heads, kv_heads, dim, tokens, queries}, threads, rounds, gemm, file) && right;
      }
    }
    right = Measure({9, 3, 64, 4096, 1}, threads, rounds, gemm, file) && right;
  }
  if (file != nullptr) std::fclose(file);
  return right ? 0 : 1;
}
