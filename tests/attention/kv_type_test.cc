// What KV caches of bf16 and q8_0 keep: against gguf-py (tests/golden/kv_q8_0.json, made by
// tests/golden/kv_q8_0_make.py) and the integer definition of bf16.
#include "src/attention/kv_type.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "ropewalk/base/error.h"

namespace ropewalk {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<float> Floats(const nlohmann::json& bits) {
  std::vector<float> out;
  for (const auto& b : bits) out.push_back(std::bit_cast<float>(b.get<uint32_t>()));
  return out;
}

std::vector<float> Wave(int64_t n, double seed) {
  std::vector<float> v(n);
  for (int64_t k = 0; k < n; ++k) v[k] = static_cast<float>(std::sin(12.9898 * (k + 1) + seed));
  return v;
}

TEST(KvType, Q8AsGgufPyReadsIt) {
  std::ifstream file(ROPEWALK_SOURCE_DIR "/tests/golden/kv_q8_0.json");
  const auto golden = nlohmann::json::parse(file);
  ASSERT_EQ(golden["rows"].size(), 8u);
  for (const auto& row : golden["rows"]) {
    const std::vector<float> given = Floats(row["given"]), want = Floats(row["kept"]);
    std::vector<float> kept(given.size());
    internal::RoundKv(KvType::kQ8_0, given.data(), static_cast<int64_t>(given.size()), kept.data());
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_EQ(kept[i], want[i]) << i;
  }
}

// Of the 16 bits in front, with what is cut off added as half a unit, to even where it is just that.
TEST(KvType, Bf16ByItsIntegerDefinition) {
  for (uint64_t b = 0; b < (uint64_t{1} << 32); b += 65521) {
    const auto bits = static_cast<uint32_t>(b);
    const auto x = std::bit_cast<float>(bits);
    if (std::isnan(x)) continue;
    const uint32_t want = (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000;
    float kept = 0;
    internal::RoundKv(KvType::kBf16, &x, 1, &kept);
    ASSERT_EQ(std::bit_cast<uint32_t>(kept), want) << bits;
  }
  const float tie = std::bit_cast<float>(0x3f808000u), odd = std::bit_cast<float>(0x3f818000u);
  float kept[2];
  internal::RoundKv(KvType::kBf16, &tie, 1, &kept[0]);
  internal::RoundKv(KvType::kBf16, &odd, 1, &kept[1]);
  EXPECT_EQ(std::bit_cast<uint32_t>(kept[0]), 0x3f800000u);
  EXPECT_EQ(std::bit_cast<uint32_t>(kept[1]), 0x3f820000u);
}

TEST(KvType, WhatIsBrokenStaysBroken) {
  std::vector<float> row = Wave(64, 1);
  row[40] = std::numeric_limits<float>::infinity();
  internal::RoundKv(KvType::kQ8_0, row.data(), 64, row.data());
  EXPECT_TRUE(std::isfinite(row[31]));
  for (int64_t i = 32; i < 64; ++i) EXPECT_TRUE(std::isnan(row[i])) << i;
}

// Keys as they are appended, token by token and together, of every head, whatever the strides.
TEST(KvType, ACacheKeepsRoundedRows) {
  constexpr int64_t kTokens = 70, kHeads = 3, kDim = 64;
  const std::vector<float> k = Wave(kTokens * kHeads * kDim, 1),
                           v = Wave(kTokens * kHeads * kDim, 2);
  for (const KvType type : kKvTypes) {
    KvCache whole(kHeads, kDim, kTokens, type), parts(kHeads, kDim, kTokens, type);
    EXPECT_EQ(whole.type(), type);
    whole.Append(TensorView::Of(k.data(), {kTokens, kHeads, kDim}),
                 TensorView::Of(v.data(), {kTokens, kHeads, kDim}));
    for (int64_t t = 0; t < kTokens; ++t) {
      parts.Append(TensorView::Of(k.data() + t * kHeads * kDim, {1, kHeads, kDim}),
                   TensorView::Of(v.data() + t * kHeads * kDim, {1, kHeads, kDim}));
    }
    for (int64_t head = 0; head < kHeads; ++head) {
      std::vector<float> keys(kDim * kTokens), again(kDim * kTokens), want(kDim);
      whole.CopyKeys(head, 0, kTokens, keys.data());
      parts.CopyKeys(head, 0, kTokens, again.data());
      EXPECT_EQ(keys, again);
      for (int64_t t = 0; t < kTokens; ++t) {
        internal::RoundKv(type, k.data() + (t * kHeads + head) * kDim, kDim, want.data());
        for (int64_t i = 0; i < kDim; ++i) ASSERT_EQ(keys[i * kTokens + t], want[i]) << Name(type);
      }
    }
  }
}

// Values: with one key the output is its value.
TEST(KvType, ValuesAreRoundedToo) {
  const std::vector<float> q = Wave(32, 1), k = Wave(32, 2), v = Wave(32, 3);
  for (const KvType type : kKvTypes) {
    KvCache cache(1, 32, 1, type);
    cache.Append(TensorView::Of(k.data(), {1, 1, 32}), TensorView::Of(v.data(), {1, 1, 32}));
    std::vector<float> out(32), want(32);
    AttentionArgs args;
    args.q = TensorView::Of(q.data(), {1, 1, 32});
    args.out = TensorView::Of(out.data(), {1, 1, 32});
    args.cache = &cache;
    Attention(args);
    internal::RoundKv(type, v.data(), 32, want.data());
    EXPECT_EQ(out, want) << Name(type);
    EXPECT_EQ(out == v, type == KvType::kF32);
  }
}

TEST(KvType, HeadsThatNoBlockHoldsAreRefused) {
  for (const int64_t dim : {1, 31, 33, 80}) {
    try {
      const KvCache cache(1, dim, 4, KvType::kQ8_0);
      ADD_FAILURE() << dim;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
      EXPECT_THAT(e.what(), AllOf(HasSubstr("q8_0"), HasSubstr(std::to_string(dim)),
                                  HasSubstr("no multiple of 32")));
    }
    EXPECT_EQ(KvCache(1, dim, 4, KvType::kBf16).type(), KvType::kBf16);
  }
}

}  // namespace
}  // namespace ropewalk
