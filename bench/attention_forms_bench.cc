// Attention with every relative encoding and distance map against attention without, and the
// backward pass against the forward one, in interleaved rounds.
//   attention_forms_bench [--rounds N] [--tokens N] [--threads N] [--only NAME] [--json FILE]
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
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "ropewalk/attention/attention.h"
#include "ropewalk/attention/backward.h"
#include "ropewalk/base/buffer.h"
#include "ropewalk/base/threads.h"
#include "ropewalk/relative/alibi.h"
#include "ropewalk/relative/deberta.h"
#include "ropewalk/relative/fire.h"
#include "ropewalk/relative/fope.h"
#include "ropewalk/relative/kerple.h"
#include "ropewalk/relative/pope.h"
#include "ropewalk/relative/running.h"
#include "ropewalk/relative/sandwich.h"
#include "ropewalk/relative/shaw.h"
#include "ropewalk/relative/swin.h"
#include "ropewalk/relative/t5.h"
#include "ropewalk/relative/transformer_xl.h"
#include "ropewalk/relative/tupe.h"

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
  std::vector<float> temperatures;
  std::vector<double> forward_ms, backward_ms, decode_us;
};

// Every relative encoding by its own Lower, with learned numbers at random, and every map.
std::vector<Variant> Variants(int64_t tokens, int64_t heads, int64_t dim) {
  std::vector<Variant> v;
  const int64_t model = heads * dim;
  const auto push = [&](const char* name, double target, std::unique_ptr<ScoreForm> form,
                        std::unique_ptr<LoadRotation> rotation = nullptr) {
    v.push_back({name, target, std::move(form), std::move(rotation), {}, {}, {}, {}});
  };
  const auto add = [&](const char* name, double target, ScoreForm form) {
    push(name, target, std::make_unique<ScoreForm>(std::move(form)));
  };
  const auto lower = [&](const char* name, double target, const auto& method) {
    add(name, target, method.Lower(heads, tokens));
  };
  push("none", 0, nullptr);
  lower("alibi", 1.05, AlibiBias{});
  lower("t5", 1.10, T5Bias{.bidirectional = false, .embedding = Random(32 * heads)});
  lower("kerple", 1.10,
        KerpleBias{.r1 = std::vector<float>(heads, 0.7f), .r2 = std::vector<float>(heads, 0.3f)});
  lower("sandwich", 1.10, SandwichBias{});
  lower(
      "fire", 1.10,
      FireBias{.w1 = Random(32), .b1 = Random(32), .w2 = Random(heads * 32), .b2 = Random(heads)});
  lower("shaw", 1.6,
        ShawBias{.left = 16,
                 .right = 16,
                 .head_dim = dim,
                 .key_rows = Random(33 * dim),
                 .value_rows = Random(33 * dim)});
  lower("transformer-xl", 2.1,
        TransformerXlBias{.model_dim = model,
                          .head_dim = dim,
                          .projection = Random(model * model, 0.05f),
                          .content_bias = Random(model),
                          .position_bias = Random(model)});
  lower("deberta", 3.1,
        DebertaBias{.buckets = 256,
                    .model_dim = model,
                    .head_dim = dim,
                    .embedding = Random(512 * model),
                    .key_projection = Random(model * model, 0.05f),
                    .query_projection = Random(model * model, 0.05f)});
  lower("tupe", 0,
        TupeBias{.positions = tokens,
                 .model_dim = model,
                 .head_dim = dim,
                 .embedding = Random(tokens * model),
                 .query_projection = Random(model * model, 0.05f),
                 .key_projection = Random(model * model, 0.05f)});
  const auto side = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(tokens))));
  lower("swin", 0,
        SwinBias{.height = side,
                 .width = side,
                 .w1 = Random(2 * 32),
                 .b1 = Random(32),
                 .w2 = Random(heads * 32)});
  RunningForm gates;
  gates.log_gates = Random(tokens * heads, 0.05f);
  for (float& x : gates.log_gates) x = -std::abs(x);
  add("forgetting-gate", 0, gates);
  lower("cope", 0, CopeBias{.rows = 64, .head_dim = dim, .position_rows = Random(64 * dim)});
  const auto turn = [&](const char* name, double target, const std::optional<DistanceMap>& map) {
    push(name, target, nullptr, OnLoad(tokens, dim, map));
  };
  const int64_t window = std::max<int64_t>(1, tokens / 8);
  turn("rotation on load", 0, std::nullopt);
  turn("rerope", 1.5, Rerope{window});
  turn("leaky-rerope", 1.5, LeakyRerope{window, 8});
  turn("self-extend", 1.5, SelfExtend{window, 8});
  turn("dual-chunk", 1.5, DualChunk{window, 4 * window / 3});
  turn("sinks", 0, AttentionSinks{4, window});
  push("temperature", 0, nullptr);
  v.back().temperatures = Random(tokens);
  push("pope", 0, nullptr);
  push("fope", 0, nullptr);
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
    args.temperatures = v.temperatures;
    Attention(args);
  }
  // The last token against all keys, with a form that was prepared before.
  void Decode(const Variant& v, const PreparedForm& prepared) {
    AttentionArgs one = args;
    one.form = nullptr;
    one.prepared = v.form == nullptr ? nullptr : &prepared;
    one.rotation = v.rotation.get();
    const int64_t last = (shape[0] - 1) * shape[1] * shape[2];
    one.q = TensorView::Of(q.data() + last, {1, shape[1], shape[2]});
    one.out = TensorView::Of(out.data() + last, {1, shape[1], shape[2]});
    one.log_sum_exp = {};
    one.temperatures = std::span(v.temperatures).first(v.temperatures.empty() ? 0 : 1);
    Attention(one);
  }
  void Backward(const Variant& v) {
    args.form = v.form.get();
    args.rotation = v.rotation.get();
    args.temperatures = v.temperatures;
    FormGradient d_form;
    AttentionBackward({&args, View(d_out), View(d_q), View(d_k), View(d_v), &d_form, {}});
  }

  const int64_t shape[3];
  KvCache cache;
  std::vector<float> q, k, values, d_out, out, d_q, d_k, d_v, log_sum_exp;
  AttentionArgs args;
};

// Encodings of queries and keys, which attention then takes as they are, `width` times as wide: the
// time of both.
struct Encoded {
  using Rows = std::span<const float>;
  using Places = std::span<const int64_t>;
  std::function<std::vector<float>(Rows, Places)> encode;
  std::function<void(Rows x, Places, Rows d_out)> back;
  Problem wide;
  std::vector<int64_t> places;

  Encoded(int64_t tokens, int64_t width) : wide(tokens, kHeads, width * kDim), places(tokens) {
    std::iota(places.begin(), places.end(), 0);
  }
  void Forward(const Problem& p) {
    q = encode(p.q, places), k = encode(p.k, places);
    wide.cache.Truncate(0);
    wide.cache.Append(wide.View(k), wide.View(wide.values));
    wide.args.q = wide.View(q);
    Attention(wide.args);
  }
  void Backward(const Problem& p) {
    wide.Backward({});
    back(p.q, places, wide.d_q);
    back(p.k, places, wide.d_k);
  }
  void Decode(const Problem& p) {
    const Rows last = Rows(p.q).last(kHeads * kDim);
    std::vector<float> one = encode(last, {places.data(), 1});
    encode(last, {places.data(), 1});  // its key
    AttentionArgs args = wide.args;
    args.q = args.out = TensorView::Of(one.data(), {1, kHeads, wide.shape[2]});
    args.log_sum_exp = {};
    Attention(args);
  }

  std::vector<float> q, k;
};

std::unique_ptr<Encoded> Pope(int64_t tokens) {
  auto e = std::make_unique<Encoded>(tokens, 2);
  auto method = std::make_shared<PopeEncoding>();
  method->heads = kHeads, method->head_dim = kDim;
  e->encode = [=](auto x, auto places) { return method->Encode(x, places); };
  e->back = [=](auto x, auto places, auto d) { method->Backward(x, places, d); };
  return e;
}

std::unique_ptr<Encoded> Fope(int64_t tokens) {
  auto e = std::make_unique<Encoded>(tokens, 1);
  auto method = std::make_shared<FopeEncoding>();
  method->heads = kHeads, method->head_dim = kDim;
  method->trained_length = tokens;
  method->cosines = method->sines = Random(method->Kept() * method->Kept(), 0.1f);
  e->encode = [=](auto x, auto places) { return method->Encode(x, places); };
  e->back = [=](auto x, auto places, auto d) { method->Backward(x, places, d); };
  return e;
}

// One head of 64, so that 32768 tokens take seconds: peak memory of a process that runs forward and
// backward, beside a matrix of all pairs.
int Memory(int64_t tokens, FILE* file) {
  const double pairs_mib = static_cast<double>(tokens * tokens) * sizeof(float) / (1 << 20);
  std::printf("1 head of 64, %d tokens, causal: a float32 matrix of all pairs has %.0f MiB\n",
              static_cast<int>(tokens), pairs_mib);
  std::printf("%-20s %22s\n", "encoding", "peak, both passes, MiB");
  const size_t count = Variants(8, 1, 64).size() - 2;  // without pope and fope, which come last
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
    std::printf("%-20s %22.0f\n", name.c_str(), mib);
    if (file != nullptr) {
      std::fprintf(file,
                   "{\"bench\":\"attention_memory\",\"encoding\":\"%s\",\"tokens\":%d,"
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
  std::string json, only;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--rounds") rounds = std::max(1, std::atoi(argv[i + 1]));
    if (option == "--tokens") tokens = std::max(1, std::atoi(argv[i + 1]));
    if (option == "--threads") threads = std::max(1, std::atoi(argv[i + 1]));
    if (option == "--memory") memory = std::max(1, std::atoi(argv[i + 1]));
    if (option == "--only") only = argv[i + 1];  // and "none"
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
  std::erase_if(variants, [&](const Variant& v) {
    return !only.empty() && v.name != only && v.name != "none";
  });
  std::map<std::string, std::unique_ptr<Encoded>> encoded;
  encoded["pope"] = Pope(tokens), encoded["fope"] = Fope(tokens);
  for (int r = 0; r < rounds; ++r) {
    for (Variant& v : variants) {
      if (const auto e = encoded.find(v.name); e != encoded.end()) {
        e->second->Forward(problem);
        v.forward_ms.push_back(1e3 * Seconds([&] { e->second->Forward(problem); }));
        v.backward_ms.push_back(1e3 * Seconds([&] { e->second->Backward(problem); }));
        v.decode_us.push_back(1e6 * Seconds([&] { e->second->Decode(problem); }));
        continue;
      }
      if (r == 0) problem.Forward(v);
      v.forward_ms.push_back(1e3 * Seconds([&] { problem.Forward(v); }));
      v.backward_ms.push_back(1e3 * Seconds([&] { problem.Backward(v); }));
      const PreparedForm prepared =
          v.form == nullptr ? PreparedForm() : PreparedForm(*v.form, kHeads, kDim);
      problem.Decode(v, prepared);
      constexpr int kDecodes = 16;
      v.decode_us.push_back(1e6 / kDecodes * Seconds([&] {
                              for (int i = 0; i < kDecodes; ++i) problem.Decode(v, prepared);
                            }));
    }
  }
  std::printf("8 heads of 128, %d tokens, causal, %d threads, %d rounds\n",
              static_cast<int>(tokens), threads, rounds);
  std::printf("%-20s %8s %7s %8s %12s %7s %10s %7s\n", "encoding", "ms", "x none", "at most",
              "backward ms", "x fwd", "decode us", "x none");
  for (const Variant& v : variants) {
    std::vector<double> ratios, backward, decode;
    for (int r = 0; r < rounds; ++r) {
      ratios.push_back(v.forward_ms[r] / variants[0].forward_ms[r]);
      backward.push_back(v.backward_ms[r] / v.forward_ms[r]);
      decode.push_back(v.decode_us[r] / variants[0].decode_us[r]);
    }
    const double ms = Median(v.forward_ms), back_ms = Median(v.backward_ms);
    std::printf("%-20s %8.1f %7.3f %8.2f %12.1f %7.2f %10.1f %7.2f\n", v.name.c_str(), ms,
                Median(ratios), v.target, back_ms, Median(backward), Median(v.decode_us),
                Median(decode));
    if (file != nullptr) {
      std::fprintf(file,
                   "{\"bench\":\"attention_forms\",\"encoding\":\"%s\",\"threads\":%d,"
                   "\"tokens\":%d,\"rounds\":%d,\"forward_ms\":%.3f,\"over_none\":%.4f,"
                   "\"target\":%.2f,\"backward_ms\":%.3f,\"backward_over_forward\":%.3f,"
                   "\"decode_us\":%.2f,\"decode_over_none\":%.3f}\n",
                   v.name.c_str(), threads, static_cast<int>(tokens), rounds, ms, Median(ratios),
                   v.target, back_ms, Median(backward), Median(v.decode_us), Median(decode));
    }
  }
  if (file != nullptr) std::fclose(file);
  return 0;
}
