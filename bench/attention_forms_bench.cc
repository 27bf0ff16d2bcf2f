// Attention with every form of a bias, and every distance map, against attention without, and the
// backward pass against the forward one, in interleaved rounds.
//   attention_forms_bench [--rounds N] [--tokens N] [--threads N] [--json FILE]
//   attention_forms_bench --memory TOKENS [--json FILE]
// 8 heads of 128, float32, causal. Ratios are medians over rounds of time over that of "none" in
// the same round; JSON lines are appended.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "ropewalk/attention/attention.h"
#include "ropewalk/attention/backward.h"
#include "ropewalk/base/buffer.h"
#include "ropewalk/base/threads.h"
#include "ropewalk/relative/fire.h"

namespace {

using namespace ropewalk;

constexpr int64_t kHeads = 8, kDim = 128;

double Seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

std::vector<float> Random(int64_t count, float size = 1) {
  static std::minstd_rand random(7);
  std::vector<float> out(static_cast<size_t>(count));
  for (float& x : out) x = (static_cast<float>(random() % 2001) / 1000.0f - 1.0f) * size;
  return out;
}

ScoreForm Fire(int64_t tokens, int64_t heads) {
  constexpr int64_t kWidth = 32;
  return FireBias{
      .w1 = Random(kWidth), .b1 = Random(kWidth), .w2 = Random(heads * kWidth), .b2 = Random(heads)}
      .Lower(heads, tokens);
}

std::unique_ptr<LoadRotation> OnLoad(int64_t tokens, int64_t dim,
                                     const std::optional<DistanceMap>& map) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = dim;
  auto rotation =
      std::make_unique<LoadRotation>(spec, Resolve(spec, tokens), AnglePrecision::kExact, map);
  rotation->Grow(tokens);
  return rotation;
}

struct Variant {
  std::string name;
  double target;  // of the ratio; 0: none
  std::unique_ptr<ScoreForm> form;
  std::unique_ptr<LoadRotation> rotation;
  std::vector<double> forward_ms, backward_ms;
};

std::unique_ptr<ScoreForm> Rows(int64_t reach, int64_t tokens, int64_t heads, int64_t dim,
                                bool buckets, const char* terms) {
  ContentForm f;
  f.head_dim = dim;
  f.first = -std::min(reach, tokens);
  const auto row = [&](int64_t d) {
    if (!buckets || std::abs(d) < reach / 4) return std::clamp(d, -reach, reach);
    const auto far = static_cast<int64_t>(reach / 4.0 + std::log(4.0 * std::abs(d) / reach) /
                                                            std::log(4.0) * reach / 4.0);
    return (d < 0 ? -1 : 1) * std::min(reach / 2, far);
  };
  for (int64_t d = f.first; d <= -f.first; ++d) {
    f.row_of.push_back(static_cast<int32_t>(row(d) - row(f.first)));
  }
  f.rows = f.row_of.back() + 1;
  f.table_heads = buckets ? heads : 1;
  const int64_t table = f.table_heads * f.rows * dim;
  for (const char* t = terms; *t != 0; ++t) {
    if (*t == 'q') f.query_rows = Random(table);
    if (*t == 'k') f.key_rows = Random(table);
    if (*t == 'v') f.value_rows = Random(table);
    if (*t == 'b') f.query_bias = Random(heads * dim), f.key_bias = Random(heads * dim);
  }
  return std::make_unique<ScoreForm>(f);
}

std::vector<Variant> Variants(int64_t tokens, int64_t heads, int64_t dim) {
  std::vector<Variant> v;
  const auto push = [&](const char* name, double target, std::unique_ptr<ScoreForm> form,
                        std::unique_ptr<LoadRotation> rotation = nullptr) {
    v.push_back({name, target, std::move(form), std::move(rotation), {}, {}});
  };
  const auto add = [&](const char* name, double target, ScoreForm form) {
    push(name, target, std::make_unique<ScoreForm>(std::move(form)));
  };
  push("none", 0, nullptr);
  add("slope (ALiBi)", 1.05, SlopeForm{std::vector<float>(heads, 0.1f), {}});
  add("table of 128 (T5)", 1.10, DistanceForm{0, 128, Random(heads * 128)});
  add("table of all (KERPLE)", 1.10, DistanceForm{0, tokens, Random(heads * tokens)});
  add("pair (FIRE)", 1.10, Fire(tokens, heads));
  push("rows, values, clip 16 (Shaw)", 1.6, Rows(16, tokens, heads, dim, false, "qv"));
  push("a row a distance (Transformer-XL)", 2.1, Rows(tokens, tokens, heads, dim, false, "qb"));
  push("buckets, both ways (DeBERTa)", 3.1, Rows(512, tokens, heads, dim, true, "qk"));
  RunningForm gates;
  gates.log_gates = Random(tokens * heads, 0.05f);
  for (float& x : gates.log_gates) x = -std::abs(x);
  add("gates", 0, gates);
  RunningForm contextual;
  contextual.kind = RunningForm::Kind::kContextual;
  contextual.rows = 64, contextual.head_dim = dim;
  contextual.position_rows = Random(64 * dim);
  add("contextual (CoPE)", 0, contextual);
  const auto turn = [&](const char* name, double target, const std::optional<DistanceMap>& map) {
    push(name, target, nullptr, OnLoad(tokens, dim, map));
  };
  const int64_t window = std::max<int64_t>(1, tokens / 8);
  turn("rotation on load", 0, std::nullopt);
  turn("ReRoPE", 1.5, Rerope{window});
  turn("leaky ReRoPE", 1.5, LeakyRerope{window, 8});
  turn("Self-Extend", 1.5, SelfExtend{window, 8});
  turn("dual chunk", 1.5, DualChunk{window, 4 * window / 3});
  return v;
}

struct Problem {
  Problem(int64_t tokens, int64_t heads, int64_t dim)
      : shape{tokens, heads, dim}, cache(heads, dim, tokens) {
    for (std::vector<float>* x : {&q, &k, &values, &d_out}) *x = Random(tokens * heads * dim);
    for (std::vector<float>* x : {&out, &d_q, &d_k, &d_v}) x->resize(q.size());
    log_sum_exp.resize(static_cast<size_t>(tokens * heads));
    cache.Append(View(k), View(values));
    args.q = View(q), args.out = View(out);
    args.cache = &cache;
    args.scale = 1.0f / std::sqrt(static_cast<float>(dim));
    args.log_sum_exp = log_sum_exp;
  }
  TensorView View(const std::vector<float>& x) const {
    return TensorView::Of(x.data(), {shape[0], shape[1], shape[2]});
  }
  void Forward(const Variant& v) {
    args.form = v.form.get();
    args.rotation = v.rotation.get();
    Attention(args);
  }
  void Backward(const Variant& v) {
    args.form = v.form.get();
    args.rotation = v.rotation.get();
    FormGradient d_form;
    AttentionBackward({&args, View(d_out), View(d_q), View(d_k), View(d_v), &d_form, {}});
  }

  const int64_t shape[3];
  KvCache cache;
  std::vector<float> q, k, values, d_out, out, d_q, d_k, d_v, log_sum_exp;
  AttentionArgs args;
};

// One head of 64, so that 32768 tokens take seconds: peak memory of a process that runs forward and
// backward, beside a matrix of all pairs.
int Memory(int64_t tokens, FILE* file) {
  const double pairs_mib = static_cast<double>(tokens * tokens) * sizeof(float) / (1 << 20);
  std::printf("1 head of 64, %d tokens, causal: a float32 matrix of all pairs has %.0f MiB\n",
              static_cast<int>(tokens), pairs_mib);
  std::printf("%-34s %22s\n", "form", "peak, both passes, MiB");
  const size_t count = Variants(8, 1, 64).size();
  for (size_t n = 0; n < count; ++n) {
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
      const std::vector<Variant> variants = Variants(tokens, 1, 64);
      Problem problem(tokens, 1, 64);
      problem.Forward(variants[n]);
      problem.Backward(variants[n]);
      _exit(0);
    }
    int status = 0;
    rusage usage{};
    if (child < 0 || wait4(child, &status, 0, &usage) != child || status != 0) return 1;
    const std::string name = Variants(8, 1, 64)[n].name;
    const double mib = static_cast<double>(usage.ru_maxrss) / 1024;
    std::printf("%-34s %22.0f\n", name.c_str(), mib);
    if (file != nullptr) {
      std::fprintf(file,
                   "{\"bench\":\"attention_memory\",\"form\":\"%s\",\"tokens\":%d,"
                   "\"heads\":1,\"head_dim\":64,\"peak_mib\":%.0f,\"pairs_mib\":%.0f}\n",
                   name.c_str(), static_cast<int>(tokens), mib, pairs_mib);
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 7, threads = 1;
  int64_t tokens = 4096, memory = 0;
  std::string json;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--rounds") rounds = std::max(1, std::atoi(argv[i + 1]));
    if (option == "--tokens") tokens = std::max(1, std::atoi(argv[i + 1]));
    if (option == "--threads") threads = std::max(1, std::atoi(argv[i + 1]));
    if (option == "--memory") memory = std::max(1, std::atoi(argv[i + 1]));
    if (option == "--json") json = argv[i + 1];
  }
  FILE* file = json.empty() ? nullptr : std::fopen(json.c_str(), "a");
  if (!json.empty() && file == nullptr) {
    std::fprintf(stderr, "attention_forms_bench: cannot write %s\n", json.c_str());
    return 1;
  }
  SetNumThreads(threads);
  if (memory > 0) return Memory(memory, file);
  Problem problem(tokens, kHeads, kDim);
  std::vector<Variant> variants = Variants(tokens, kHeads, kDim);
  for (int r = 0; r < rounds; ++r) {
    for (Variant& v : variants) {
      if (r == 0) problem.Forward(v);
      v.forward_ms.push_back(1e3 * Seconds([&] { problem.Forward(v); }));
      v.backward_ms.push_back(1e3 * Seconds([&] { problem.Backward(v); }));
    }
  }
  std::printf("8 heads of 128, %d tokens, causal, %d threads, %d rounds\n",
              static_cast<int>(tokens), threads, rounds);
  std::printf("%-34s %9s %8s %8s %12s %8s\n", "form", "ms", "x none", "at most", "backward ms",
              "x fwd");
  for (const Variant& v : variants) {
    std::vector<double> ratios, backward;
    for (int r = 0; r < rounds; ++r) {
      ratios.push_back(v.forward_ms[r] / variants[0].forward_ms[r]);
      backward.push_back(v.backward_ms[r] / v.forward_ms[r]);
    }
    const double ms = Median(v.forward_ms), ratio = Median(ratios);
    const double back_ms = Median(v.backward_ms);
    const double back_ratio = Median(backward);
    std::printf("%-34s %9.1f %8.3f %8.2f %12.1f %8.2f\n", v.name.c_str(), ms, ratio, v.target,
                back_ms, back_ratio);
    if (file != nullptr) {
      std::fprintf(file,
                   "{\"bench\":\"attention_forms\",\"form\":\"%s\",\"threads\":%d,\"tokens\":%d,"
                   "\"rounds\":%d,\"forward_ms\":%.3f,\"over_none\":%.4f,\"target\":%.2f,"
                   "\"backward_ms\":%.3f,\"backward_over_forward\":%.3f}\n",
                   v.name.c_str(), threads, static_cast<int>(tokens), rounds, ms, ratio, v.target,
                   back_ms, back_ratio);
    }
  }
  if (file != nullptr) std::fclose(file);
  return 0;
}
