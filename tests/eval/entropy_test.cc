// Entropy of attention, against the formula on queries and keys that were watched.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "reference/relative.h"
#include "ropewalk/plan/method.h"
#include "tests/eval/tiny_model.h"

namespace ropewalk {
namespace {

using test::Tiny;
using Rows = std::vector<std::vector<float>>;  // [tokens][heads * 16], before rotation

constexpr int64_t kDim = 16;

struct Watched {
  std::vector<Rows> q{2}, k{2};  // [layers]
};

Watched Watch(const PositionPlan& plan, const std::vector<int32_t>& ids) {
  Watched w;
  Sequence sequence(*Tiny().decoder, plan, static_cast<int64_t>(ids.size()),
                    AnglePrecision::kExact);
  sequence.Observe([&](int64_t layer, const TensorView& q, const TensorView& k) {
    const auto keep = [&](const TensorView& x, Rows& rows) {
      for (int64_t t = 0; t < x.shape[0]; ++t) {
        const float* row = static_cast<const float*>(x.data) + t * x.strides[0];
        rows.emplace_back(row, row + x.shape[1] * kDim);
      }
    };
    keep(q, w.q[static_cast<std::size_t>(layer)]);
    keep(k, w.k[static_cast<std::size_t>(layer)]);
  });
  Tiny().decoder->Forward(sequence, ids, nullptr, 0);
  return w;
}

struct Mean {
  double nats = 0, share = 0;
};

// -sum w ln w of one query and head; distances and factors typed again.
Mean EntropyAt(const Watched& w, std::size_t layer, int64_t i, int64_t head,
               const std::function<double(int64_t, int64_t)>& distance, double factor) {
  std::vector<double> weights;
  double total = 0;
  for (int64_t j = 0; j <= i; ++j) {
    const double d = distance(i, j);
    if (std::isnan(d)) continue;
    const float* q = w.q[layer][static_cast<std::size_t>(i)].data() + head * kDim;
    const float* k = w.k[layer][static_cast<std::size_t>(j)].data();
    double score = 0;
    for (int64_t p = 0; p < kDim / 2; ++p) {
      const double angle = d * std::pow(10000.0, -2.0 * double(p) / double(kDim));
      const double qa = q[p], qb = q[p + kDim / 2], ka = k[p], kb = k[p + kDim / 2];
      score += (qa * ka + qb * kb) * std::cos(angle) + (qa * kb - qb * ka) * std::sin(angle);
    }
    weights.push_back(std::exp(factor * score / 4));
    total += weights.back();
  }
  Mean m;
  for (const double x : weights) m.nats -= x / total * std::log(x / total);
  m.share = m.nats / std::log(double(weights.size()));
  return m;
}

TEST(Entropy, IsTheFormula) {
  const TokenText text = test::RandomText(600, 3);
  Protocol protocol;
  protocol.anchors = 2;
  protocol.scored_per_anchor = 40;
  const auto plain = [](int64_t i, int64_t j) { return double(i - j); };
  const std::map<std::string, std::function<double(int64_t, int64_t)>> methods = {
      {"none", plain},
      {"log-n", plain},
      {"rerope:30+log-n",
       [](int64_t i, int64_t j) { return double(std::min<int64_t>(i - j, 30)); }},
      {"self-extend:30,group=6",
       [](int64_t i, int64_t j) { return double(reference::SelfExtend(i, j, 30, 6)); }},
      {"leaky-rerope:30,factor=6",
       [](int64_t i, int64_t j) { return reference::LeakyRerope(i - j, 30, 6); }},
      {"string:50,window=10",
       [](int64_t i, int64_t j) { return double(reference::String(i - j, 50, 10)); }},
      {"lampe:head=30,mapped=90,tail=20,length=256",
       [](int64_t i, int64_t j) { return double(reference::Lampe(i, j, 30, 90, 20, 256)); }},
      {"dual-chunk:48,limit=63",
       [](int64_t i, int64_t j) { return double(reference::DualChunk(i, j, 48, 63)); }},
      {"sinks:4,window=40",
       [](int64_t i, int64_t j) {
         return i - j < 40 ? double(i - j) : j < 4 ? double(43 - j) : std::nan("");
       }},
  };
  for (const auto& [name, distance] : methods) {
    SCOPED_TRACE(name);
    const PositionPlan plan = PositionMethod::Parse(name).Apply(Tiny().files.config.plan, 4);
    RunOptions options;
    options.entropy = true;
    const int64_t length = 256;
    const PerplexityResult result =
        MeasurePerplexity(*Tiny().engine, plan, text, protocol, length, length, options);
    Mean expected;
    int64_t rows = 0;
    for (const EvalWindow& window : MakeWindows(text, protocol, length, length, std::nullopt)) {
      const Watched w = Watch(plan, window.ids);
      for (const int64_t i : {254, 238, 222}) {  // 206 is before the scored ones
        const double factor =
            name.find("log-n") == std::string::npos ? 1 : std::log(double(i) + 1) / std::log(64.0);
        for (std::size_t layer = 0; layer < 2; ++layer) {
          for (int64_t head = 0; head < 2; ++head) {
            const Mean m = EntropyAt(w, layer, i, head, distance, factor);
            expected.nats += m.nats;
            expected.share += m.share;
            ++rows;
          }
        }
      }
    }
    EXPECT_NEAR(result.entropy, expected.nats / double(rows), 1e-5);
    EXPECT_NEAR(result.entropy_share, expected.share / double(rows), 1e-5);
    EXPECT_LT(result.entropy_share, 1);
    // Watching changes nothing.
    options.entropy = false;
    const PerplexityResult unwatched =
        MeasurePerplexity(*Tiny().engine, plan, text, protocol, length, length, options);
    EXPECT_EQ(unwatched.mean_nll, result.mean_nll);
    EXPECT_TRUE(std::isnan(unwatched.entropy));
  }
}

// A sliding window bounds what a query can see, and so its entropy.
TEST(Entropy, SlidingWindows) {
  PositionPlan plan = Tiny().files.config.plan;
  for (LayerPlan& layer : plan.layers) layer.window_tokens = 1;
  RunOptions options;
  options.entropy = true;
  Protocol protocol;
  protocol.anchors = 1;
  const TokenText text = test::RandomText(600, 3);
  const auto measure = [&] {
    return MeasurePerplexity(*Tiny().engine, plan, text, protocol, 256, 256, options).entropy;
  };
  EXPECT_TRUE(std::isnan(measure()));  // one key has no entropy
  plan.layers[0].window_tokens = plan.layers[1].window_tokens = 2;
  EXPECT_GT(measure(), 0);
  EXPECT_LE(measure(), std::log(2.0));
}

}  // namespace
}  // namespace ropewalk
