// The biases of the family ropewalk as formulas in double, and tiny models that have them.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "tests/model/reference.h"
#include "tests/model/support.h"

namespace ropewalk::test::biases {

using nlohmann::json;

inline constexpr int64_t kTokens = 90;

struct Shaped {
  const char* name;
  std::vector<int64_t> shape;
  float scale, mean = 0;
};
struct Case {
  const char* name;
  json bias;
  std::vector<Shaped> parameters;
  std::function<BiasFn(const Tensors&)> formula;
};
inline void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

inline json ConfigOf(const Tiny& tiny, const json& bias) {
  json config = tiny.Config();
  config.erase("rope_theta");
  config["model_type"] = "ropewalk";
  config["positions"] = {{"rotation", {{"rope_theta", 500.0}}}, {"bias", bias}};
  return config;
}

inline std::string NameOf(int64_t layer, const std::string& parameter) {
  return "model.layers." + std::to_string(layer) + ".self_attn.bias." + parameter;
}

inline Tensors WeightsOf(const Tiny& tiny, const Case& c) {
  Tensors all = tiny.Weights();
  std::mt19937 engine(5);
  std::normal_distribution<float> normal;
  for (int64_t l = 0; l < tiny.layers; ++l) {
    for (const Shaped& p : c.parameters) {
      int64_t n = 1;
      for (const int64_t d : p.shape) n *= d;
      Tensor t{p.shape, std::vector<float>(n)};
      for (float& v : t.values) v = p.mean + p.scale * normal(engine);
      all.emplace(NameOf(l, p.name), std::move(t));
    }
  }
  return all;
}

inline const float* At(const Tensors& w, const Scored& s, const char* parameter,
                       int64_t index = 0) {
  return w.at(NameOf(s.layer, parameter)).values.data() + index;
}

inline double Dot(const double* a, const float* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * double(b[i]);
  return sum;
}
inline double Dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// T5's bucket of distances from 0 on, of `count` that reach to `last`.
inline int64_t T5Bucket(int64_t d, int64_t count, int64_t last) {
  const int64_t exact = count / 2;
  if (d < exact) return d;
  const double share = std::log(double(d) / double(exact)) / std::log(double(last) / double(exact));
  return std::min(count - 1, exact + int64_t(share * double(count - exact)));
}

// Row e of a projection [heads, head_dim, hidden] times `x`, plus a bias [heads, head_dim].
inline double Projected(const Tensors& w, const Scored& s, const std::string& name, int64_t e,
                        const std::vector<double>& x, bool with_bias = true) {
  const int64_t row = s.head * s.head_dim + e, n = int64_t(x.size());
  const double sum = Dot(x.data(), At(w, s, name.c_str(), row * n), n);
  return with_bias ? sum + double(*At(w, s, (name + "_bias").c_str(), row)) : sum;
}

inline std::vector<double> RowOf(const Tensors& w, const Scored& s, const char* table, int64_t row,
                                 int64_t n) {
  const float* from = At(w, s, table, row * n);
  return {from, from + n};
}

inline double DebertaScore(const Tensors& w, const Scored& s, int64_t row, int64_t hidden) {
  const std::vector<double> embedding = RowOf(w, s, "embedding", row, hidden);
  double sum = 0;
  for (int64_t e = 0; e < s.head_dim; ++e) {
    sum += s.Q()[e] * Projected(w, s, "key_projection", e, embedding) +
           s.K(s.j)[e] * Projected(w, s, "query_projection", e, embedding);
  }
  return s.scale * sum;
}

inline const Tiny kTiny;
inline const int64_t kHeads = kTiny.heads, kDim = kTiny.head_dim, kHidden = kTiny.hidden;

inline std::vector<Shaped> Projections(int64_t rows) {
  return {{"embedding", {rows, kHidden}, 0.8f},
          {"query_projection", {kHeads, kDim, kHidden}, 0.3f},
          {"key_projection", {kHeads, kDim, kHidden}, 0.3f},
          {"query_projection_bias", {kHeads, kDim}, 0.3f},
          {"key_projection_bias", {kHeads, kDim}, 0.3f}};
}

inline BiasFn ScoreOnly(std::function<double(const Scored&)> score, double scale = 0) {
  return {std::move(score), {}, scale};
}

inline BiasFn Alibi(const Tensors& w) {
  return ScoreOnly(
      [&w](const Scored& s) { return -*At(w, s, "slopes", s.head) * double(s.i - s.j); });
}

inline BiasFn T5(const Tensors& w) {
  return ScoreOnly([&w](const Scored& s) {
    return double(*At(w, s, "embedding", T5Bucket(s.i - s.j, 8, 20) * kHeads + s.head));
  });
}

inline BiasFn KerpleLog(const Tensors& w) {
  return ScoreOnly([&w](const Scored& s) {
    const double r1 = std::max(*At(w, s, "r1", s.head), 0.01f);
    const double r2 = std::max(*At(w, s, "r2", s.head), 0.01f);
    return -r1 * std::log(1 + r2 * double(s.i - s.j));
  });
}

inline BiasFn KerplePower(const Tensors& w) {
  return ScoreOnly([&w](const Scored& s) {
    const double r1 = std::max(*At(w, s, "r1", s.head), 0.01f);
    const double r2 = std::clamp(*At(w, s, "r2", s.head), 0.01f, 2.0f);
    return s.i == s.j ? 0.0 : -r1 * std::pow(double(s.i - s.j), r2);
  });
}

inline BiasFn Sandwich(const Tensors& /*w*/) {
  return ScoreOnly([](const Scored& s) {
    double sum = 0;
    for (int i = 0; i < 8; ++i) sum += std::cos(double(s.i - s.j) * std::pow(1e4, -2.0 * i / 16));
    return double(kHeads) / (8.0 * double(s.head + 1)) * sum;
  });
}

inline BiasFn Fire(const Tensors& w) {
  return ScoreOnly([&w](const Scored& s) {
    const double c = *At(w, s, "c"), threshold = *At(w, s, "threshold");
    const double x =
        std::log(c * double(s.i - s.j) + 1) / std::log(c * std::max(threshold, double(s.i)) + 1);
    double sum = *At(w, s, "b2", s.head);
    for (int64_t n = 0; n < 5; ++n) {
      sum += double(*At(w, s, "w2", s.head * 5 + n)) *
             std::max(0.0, double(*At(w, s, "w1", n)) * x + double(*At(w, s, "b1", n)));
    }
    return sum;
  });
}

// left 6, right 2.
inline int64_t ShawRow(const Scored& s, bool per_head) {
  const int64_t row = std::clamp<int64_t>(s.j - s.i, -6, 2) + 6;
  return ((per_head ? s.head : 0) * 9 + row) * kDim;
}
inline BiasFn Shaw(const Tensors& w, bool per_head, bool values) {
  BiasFn bias;
  bias.score = [&w, per_head](const Scored& s) {
    return s.scale * Dot(s.Q(), At(w, s, "key_rows", ShawRow(s, per_head)), kDim);
  };
  if (values) {
    bias.value_row = [&w, per_head](const Scored& s) {
      return At(w, s, "value_rows", ShawRow(s, per_head));
    };
  }
  return bias;
}

inline BiasFn TransformerXl(const Tensors& w, int64_t clamp) {
  return ScoreOnly([&w, clamp](const Scored& s) {
    const double d = double(clamp > 0 ? std::min(s.i - s.j, clamp) : s.i - s.j);
    std::vector<double> sinusoids(kHidden);
    for (int64_t i = 0; i < kHidden / 2; ++i) {
      const double angle = d * std::pow(1e4, -2.0 * double(i) / double(kHidden));
      sinusoids[i] = std::sin(angle);
      sinusoids[kHidden / 2 + i] = std::cos(angle);
    }
    double sum = 0;
    for (int64_t e = 0; e < kDim; ++e) {
      const int64_t at = s.head * kDim + e;
      sum += (s.Q()[e] + double(*At(w, s, "position_bias", at))) *
             Projected(w, s, "projection", e, sinusoids, /*with_bias=*/false);
      sum += double(*At(w, s, "content_bias", at)) * s.K(s.j)[e];
    }
    return s.scale * sum;
  });
}

inline BiasFn Deberta(const Tensors& w) {  // buckets 8, max_position 32
  const auto score = [&w](const Scored& s) {
    const int64_t d = s.i - s.j;
    const int64_t bucket =
        d <= 4 ? d : 4 + int64_t(std::ceil(std::log(double(d) / 4) / std::log(31.0 / 4) * 3));
    return DebertaScore(w, s, std::clamp<int64_t>(bucket + 8, 0, 15), kHidden);
  };
  return ScoreOnly(score, 1 / std::sqrt(3.0 * double(kDim)));
}

inline BiasFn DebertaRows(const Tensors& w) {  // a row per distance, max_position 20
  const auto score = [&w](const Scored& s) {
    return DebertaScore(w, s, std::clamp<int64_t>(s.i - s.j + 20, 0, 39), kHidden);
  };
  return ScoreOnly(score, 1 / std::sqrt(3.0 * double(kDim)));
}

inline BiasFn Tupe(const Tensors& w, bool relative, bool reset) {
  const auto score = [&w, relative, reset](const Scored& s) {
    if (reset && s.i == 0) return double(*At(w, s, "from_cls", s.head));
    if (reset && s.j == 0) return double(*At(w, s, "to_cls", s.head));
    const std::vector<double> query = RowOf(w, s, "embedding", s.i, kHidden);
    const std::vector<double> key = RowOf(w, s, "embedding", s.j, kHidden);
    double sum = 0;
    for (int64_t e = 0; e < kDim; ++e) {
      sum +=
          Projected(w, s, "query_projection", e, query) * Projected(w, s, "key_projection", e, key);
    }
    // Half of the 8 buckets are of keys behind the query, which a decoder does not see.
    const double bucket =
        relative ? double(*At(w, s, "relative", T5Bucket(s.i - s.j, 4, 20) * kHeads + s.head)) : 0;
    return s.scale * sum + bucket;
  };
  return ScoreOnly(score, 1 / std::sqrt(2.0 * double(kDim)));
}

inline BiasFn Cope(const Tensors& w, bool per_head) {
  return ScoreOnly([&w, per_head](const Scored& s) {
    double position = 0;
    for (int64_t l = s.j; l <= s.i; ++l) {
      position += 1 / (1 + std::exp(-s.scale * Dot(s.Q(), s.K(l), kDim)));
    }
    position = std::min(position, 8.0);
    const int64_t low = std::min<int64_t>(int64_t(position), 7), table = per_head ? s.head * 9 : 0;
    const double share = position - double(low);
    return (1 - share) * Dot(s.Q(), At(w, s, "position_rows", (table + low) * kDim), kDim) +
           share * Dot(s.Q(), At(w, s, "position_rows", (table + low + 1) * kDim), kDim);
  });
}

inline BiasFn Gate(const Tensors& w) {
  return ScoreOnly([&w](const Scored& s) {
    double sum = 0;
    for (int64_t l = s.j + 1; l <= s.i; ++l) {
      const double t = Dot(s.input[l].data(), At(w, s, "weight", s.head * kHidden), kHidden) +
                       double(*At(w, s, "bias", s.head));
      sum -= std::log1p(std::exp(-t));
    }
    return sum;
  });
}

inline std::vector<Shaped> Relative(std::vector<Shaped> all, bool relative, bool reset) {
  if (relative) all.push_back({"relative", {8, kHeads}, 1});
  if (!reset) return all;
  all.push_back({"from_cls", {kHeads}, 1});
  all.push_back({"to_cls", {kHeads}, 1});
  return all;
}

inline const std::vector<Shaped> kKerple = {{"r1", {kHeads}, 0.5f, 0.5f},
                                            {"r2", {kHeads}, 0.5f, 0.2f}};
inline const std::vector<Shaped> kXl = {{"projection", {kHeads, kDim, kHidden}, 0.3f},
                                        {"content_bias", {kHeads, kDim}, 0.5f},
                                        {"position_bias", {kHeads, kDim}, 0.5f}};

inline const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {"alibi", {{"type", "alibi"}, {"learned", true}}, {{"slopes", {kHeads}, 0.05f, 0.1f}}, Alibi},
      {"t5",
       {{"type", "t5"}, {"buckets", 8}, {"last_distance", 20}},
       {{"embedding", {8, kHeads}, 1}},
       T5},
      {"kerple_log", {{"type", "kerple"}}, kKerple, KerpleLog},
      {"kerple_power",
       {{"type", "kerple"}, {"kernel", "power"}},
       {{"r1", {kHeads}, 0.2f, 0.2f}, {"r2", {kHeads}, 1.5f, 1}},
       KerplePower},
      {"sandwich", {{"type", "sandwich"}, {"dim", 16}}, {}, Sandwich},
      {"fire",
       {{"type", "fire"}, {"width", 5}},
       {{"w1", {5}, 1},
        {"b1", {5}, 0.5f},
        {"w2", {kHeads, 5}, 1},
        {"b2", {kHeads}, 0.5f},
        {"c", {1}, 0.05f, 0.3f},
        {"threshold", {1}, 2, 30}},
       Fire},
      {"shaw",
       {{"type", "shaw"}, {"left", 6}, {"right", 2}},
       {{"key_rows", {1, 9, kDim}, 0.5f}, {"value_rows", {1, 9, kDim}, 0.5f}},
       [](const Tensors& w) { return Shaw(w, false, true); }},
      {"shaw_per_head",
       {{"type", "shaw"}, {"left", 6}, {"right", 2}, {"values", false}, {"per_head", true}},
       {{"key_rows", {kHeads, 9, kDim}, 0.5f}},
       [](const Tensors& w) { return Shaw(w, true, false); }},
      {"transformer_xl",
       {{"type", "transformer_xl"}},
       kXl,
       [](const Tensors& w) { return TransformerXl(w, 0); }},
      {"transformer_xl_clamped",
       {{"type", "transformer_xl"}, {"clamp_distance", 11}},
       kXl,
       [](const Tensors& w) { return TransformerXl(w, 11); }},
      {"deberta",
       {{"type", "deberta"}, {"buckets", 8}, {"max_position", 32}},
       Projections(16),
       Deberta},
      {"deberta_rows",
       {{"type", "deberta"}, {"buckets", 0}, {"max_position", 20}},
       Projections(40),
       DebertaRows},
      {"tupe",
       {{"type", "tupe"}, {"positions", 96}},
       Relative(Projections(96), false, true),
       [](const Tensors& w) { return Tupe(w, false, true); }},
      {"tupe_relative",
       {{"type", "tupe"},
        {"positions", 96},
        {"relative", true},
        {"reset", false},
        {"buckets", 8},
        {"last_distance", 20}},
       Relative(Projections(96), true, false),
       [](const Tensors& w) { return Tupe(w, true, false); }},
      {"cope",
       {{"type", "cope"}, {"rows", 9}},
       {{"position_rows", {1, 9, kDim}, 0.5f}},
       [](const Tensors& w) { return Cope(w, false); }},
      {"cope_per_head",
       {{"type", "cope"}, {"rows", 9}, {"per_head", true}},
       {{"position_rows", {kHeads, 9, kDim}, 0.5f}},
       [](const Tensors& w) { return Cope(w, true); }},
      {"gate",
       {{"type", "gate"}},
       {{"weight", {kHeads, kHidden}, 0.3f}, {"bias", {kHeads}, 0.5f, 2}},
       Gate},
  };
  return cases;
}

}  // namespace ropewalk::test::biases
