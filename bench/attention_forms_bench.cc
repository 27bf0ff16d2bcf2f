// Attention with every form of a bias against attention without, and the backward pass against the
// forward one, in interleaved rounds.
//   attention_forms_bench [--rounds N] [--tokens N] [--threads N] [--json FILE]
// 8 heads of 128, float32, causal. Ratios are medians over rounds of time over that of "none" in
// the same round; JSON lines are appended.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ropewalk/attention/attention.h"
#include "ropewalk/attention/backward.h"
#include "ropewalk/base/buffer.h"
#include "ropewalk/base/threads.h"

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

// A table of 1025 values over log(1 + distance) / log(1 + query), interpolated: what an MLP of one
// number (FIRE) can be tabulated to.
class TabulatedPair : public PairFunction {
 public:
  explicit TabulatedPair(int64_t tokens) : table_(Random(1026)), logs_(tokens + 1) {
    for (size_t i = 0; i < logs_.size(); ++i) logs_[i] = std::log1p(static_cast<float>(i));
  }
  int64_t heads() const override { return kHeads; }
  int64_t parameters() const override { return 0; }
  void Evaluate(int64_t, std::span<const int64_t> queries, std::span<const int64_t> keys,
                float* out, int64_t stride) const override {
    for (size_t r = 0; r < queries.size(); ++r) {
      const float factor = 1024 / std::max(logs_[queries[r]], 1.0f);
      float* row = out + static_cast<int64_t>(r) * stride;
      for (size_t c = 0; c < keys.size(); ++c) {
        const int64_t d = std::max<int64_t>(0, queries[r] - keys[c]);
        const float x = logs_[d] * factor;
        const int at = static_cast<int>(x);
        row[c] = table_[at] + (x - static_cast<float>(at)) * (table_[at + 1] - table_[at]);
      }
    }
  }
  void Backward(int64_t, std::span<const int64_t>, std::span<const int64_t>, const float*, int64_t,
                std::span<double>) const override {}

 private:
  std::vector<float> table_, logs_;
};

struct Variant {
  std::string name;
  double target;  // of the ratio; 0: none
  std::unique_ptr<ScoreForm> form;
  std::vector<double> forward_ms, backward_ms;
};

std::unique_ptr<ScoreForm> Rows(int64_t reach, int64_t tokens, bool buckets, const char* terms) {
  ContentForm f;
  f.head_dim = kDim;
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
  f.table_heads = buckets ? kHeads : 1;
  const int64_t table = f.table_heads * f.rows * kDim;
  for (const char* t = terms; *t != 0; ++t) {
    if (*t == 'q') f.query_rows = Random(table);
    if (*t == 'k') f.key_rows = Random(table);
    if (*t == 'v') f.value_rows = Random(table);
    if (*t == 'b') f.query_bias = Random(kHeads * kDim), f.key_bias = Random(kHeads * kDim);
  }
  return std::make_unique<ScoreForm>(f);
}

std::vector<Variant> Variants(int64_t tokens) {
  std::vector<Variant> v;
  const auto add = [&](const char* name, double target, ScoreForm form) {
    v.push_back({name, target, std::make_unique<ScoreForm>(std::move(form)), {}, {}});
  };
  v.push_back({"none", 0, nullptr, {}, {}});
  add("slope (ALiBi)", 1.05, SlopeForm{std::vector<float>(kHeads, 0.1f), {}});
  add("table of 128 (T5)", 1.10, DistanceForm{0, 128, Random(kHeads * 128)});
  add("table of all (KERPLE)", 1.10, DistanceForm{0, tokens, Random(kHeads * tokens)});
  add("pair, tabulated (FIRE)", 1.10, PairForm{std::make_shared<TabulatedPair>(tokens)});
  v.push_back({"rows, values, clip 16 (Shaw)", 1.6, Rows(16, tokens, false, "qv"), {}, {}});
  v.push_back(
      {"a row a distance (Transformer-XL)", 2.1, Rows(tokens, tokens, false, "qb"), {}, {}});
  v.push_back({"buckets, both ways (DeBERTa)", 3.1, Rows(512, tokens, true, "qk"), {}, {}});
  RunningForm gates;
  gates.log_gates = Random(tokens * kHeads, 0.05f);
  for (float& x : gates.log_gates) x = -std::abs(x);
  add("gates", 0, gates);
  RunningForm contextual;
  contextual.kind = RunningForm::Kind::kContextual;
  contextual.rows = 64, contextual.head_dim = kDim;
  contextual.position_rows = Random(64 * kDim);
  add("contextual (CoPE)", 0, contextual);
  return v;
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 7, threads = 1;
  int64_t tokens = 4096;
  std::string json;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--rounds") rounds = std::max(1, std::atoi(argv[i + 1]));
    if (option == "--tokens") tokens = std::max(1, std::atoi(argv[i + 1]));
    if (option == "--threads") threads = std::max(1, std::atoi(argv[i + 1]));
    if (option == "--json") json = argv[i + 1];
  }
  SetNumThreads(threads);
  const std::vector<float> q = Random(tokens * kHeads * kDim), k = Random(tokens * kHeads * kDim),
                           values = Random(tokens * kHeads * kDim),
                           d_out = Random(tokens * kHeads * kDim);
  KvCache cache(kHeads, kDim, tokens);
  const auto view = [&](const std::vector<float>& x) {
    return TensorView::Of(x.data(), {tokens, kHeads, kDim});
  };
  cache.Append(view(k), view(values));
  std::vector<float> out(q.size()), d_q(q.size()), d_k(q.size()), d_v(q.size());
  std::vector<float> log_sum_exp(static_cast<size_t>(tokens * kHeads));
  std::vector<Variant> variants = Variants(tokens);
  for (int r = 0; r < rounds; ++r) {
    for (Variant& v : variants) {
      AttentionArgs args;
      args.q = view(q), args.out = view(out);
      args.cache = &cache;
      args.scale = 1.0f / std::sqrt(static_cast<float>(kDim));
      args.form = v.form.get();
      args.log_sum_exp = log_sum_exp;
      if (r == 0) Attention(args);
      v.forward_ms.push_back(1e3 * Seconds([&] { Attention(args); }));
      FormGradient d_form;
      AttentionBackwardArgs back{&args, view(d_out), view(d_q), view(d_k), view(d_v), &d_form, {}};
      v.backward_ms.push_back(1e3 * Seconds([&] { AttentionBackward(back); }));
    }
  }
  FILE* file = json.empty() ? nullptr : std::fopen(json.c_str(), "a");
  if (!json.empty() && file == nullptr) {
    std::fprintf(stderr, "attention_forms_bench: cannot write %s\n", json.c_str());
    return 1;
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
