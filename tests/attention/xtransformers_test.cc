// Against x-transformers: tests/golden/xtransformers.json, made by
// tests/golden/xtransformers_make.py.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "ropewalk/attention/attention.h"
#include "ropewalk/relative/alibi.h"
#include "ropewalk/relative/pope.h"
#include "ropewalk/relative/running.h"
#include "ropewalk/relative/t5.h"

namespace ropewalk {
namespace xtransformers_test {

using nlohmann::json;

constexpr int64_t kHeads = 3, kDim = 4, kTokens = 40;

const json& Golden() {
  static const json golden = [] {
    std::ifstream file(ROPEWALK_SOURCE_DIR "/tests/golden/xtransformers.json");
    return json::parse(file);
  }();
  return golden;
}

// Number k of a tensor in the script.
std::vector<float> Values(int64_t n, double seed, double scale = 1) {
  std::vector<float> v(n);
  for (int64_t k = 0; k < n; ++k) {
    v[k] = static_cast<float>(scale * std::sin(12.9898 * static_cast<double>(k + 1) + seed));
  }
  return v;
}

void ExpectNear(const std::vector<float>& got, const json& want, double slack) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], want[i].get<double>(), slack) << i;
  }
}

void ExpectAttention(const ScoreForm& form, bool causal, float scale, const char* golden) {
  const int64_t n = kTokens * kHeads * kDim;
  std::vector<float> q = Values(n, 1), k = Values(n, 2), v = Values(n, 3), out(n);
  KvCache cache(kHeads, kDim, kTokens);
  cache.Append(TensorView::Of(k.data(), {kTokens, kHeads, kDim}),
               TensorView::Of(v.data(), {kTokens, kHeads, kDim}));
  AttentionArgs args;
  args.q = TensorView::Of(q.data(), {kTokens, kHeads, kDim});
  args.out = TensorView::Of(out.data(), {kTokens, kHeads, kDim});
  args.cache = &cache;
  args.scale = scale;
  args.mask = causal ? AttentionMask::kCausal : AttentionMask::kBidirectional;
  args.form = &form;
  Attention(args);
  ExpectNear(out, Golden().at(golden), 1e-6);
}

TEST(XTransformers, Alibi) {
  ExpectAttention(AlibiBias{.ahead = AlibiAhead::kSymmetric}.Lower(kHeads, kTokens), false, 0.5f,
                  "alibi");
  for (const auto& [heads, theirs] : Golden().at("alibi_slopes").items()) {
    const std::vector<double> slopes = AlibiSlopesOf(AlibiSlopes::kPowersOfTwo, std::stoll(heads));
    ASSERT_EQ(slopes.size(), theirs.size());
    for (std::size_t h = 0; h < slopes.size(); ++h) {
      EXPECT_NEAR(slopes[h] / theirs[h].get<double>(), 1, 1e-13) << heads << ", " << h;
    }
  }
}

TEST(XTransformers, T5) {
  for (const bool causal : {false, true}) {
    const T5Bias t5{16, 32, !causal, Values(16 * kHeads, 4)};
    ExpectAttention(t5.Lower(kHeads, kTokens), causal, 1, causal ? "t5_causal" : "t5");
    const json& golden = Golden().at("t5_buckets");
    const json& buckets = golden.at(causal ? "causal" : "both");
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      const int64_t d = golden["distance"][i];
      EXPECT_EQ((T5Bias{32, 128, !causal, {}}.Bucket(d)), buckets[i].get<int64_t>()) << d;
    }
  }
}

TEST(XTransformers, ForgettingGate) {
  const ForgetGateBias gate{5, Values(kHeads * 5, 5), Values(kHeads, 6)};
  ExpectAttention(gate.Lower(kHeads, Values(kTokens * 5, 7)), true, 0.5f, "forgetting_gate");
}

TEST(XTransformers, Cope) {
  ExpectAttention(CopeBias{16, kDim, 1, Values(16 * kDim, 8)}.Lower(kHeads, kTokens), true, 0.5f,
                  "cope");
}

TEST(XTransformers, Pope) {
  const std::vector<float> x = Values(kTokens * kHeads * kDim, 1);
  std::vector<int64_t> positions(kTokens);
  std::iota(positions.begin(), positions.end(), 0);
  PopeEncoding pope{kHeads, kDim};
  ExpectNear(pope.Encode(x, positions), Golden().at("pope_queries"), 3e-7);
  pope.phase = Values(kHeads * kDim, 9, 4);
  ExpectNear(pope.Encode(x, positions), Golden().at("pope_keys"), 3e-7);
}

}  // namespace xtransformers_test
}  // namespace ropewalk
