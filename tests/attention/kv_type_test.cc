// Caches of bf16 and q8_0: what they store, against the formats typed again, and attention over
// them.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ropewalk/attention/backward.h"
#include "ropewalk/base/error.h"
#include "ropewalk/base/threads.h"
#include "ropewalk/rotary/rotate.h"
#include "src/attention/kernel/tile.h"
#include "tests/attention/attention_cases.h"
#include "tests/support/message_of.h"
#include "tests/support/targets.h"

namespace ropewalk {
namespace kv_type_test {

using test::MessageOf;

constexpr KvType kNarrow[] = {KvType::kBf16, KvType::kQ8_0};

bool Holds(KvType type, int64_t dim) { return type != KvType::kQ8_0 || dim % 32 == 0; }

// To `bits` bits of significand, ties to even, none of less than 2^least.
double RoundTo(double x, int bits, int least) {
  if (x == 0) return 0;
  const int exponent = std::max(std::ilogb(x) - (bits - 1), least);
  return std::ldexp(std::nearbyint(std::ldexp(x, -exponent)), exponent);
}
float Bf16(float x) { return static_cast<float>(RoundTo(x, 8, -133)); }
float F16(float x) { return static_cast<float>(RoundTo(x, 11, -24)); }

// ggml's reference quantiser, then its decoder.
void Q8(const float* x, int64_t count, float* out) {
  for (int64_t first = 0; first < count; first += 32) {
    const int64_t last = first + 32;
    float most = 0;
    for (int64_t i = first; i < last; ++i) most = std::fmax(most, std::fabs(x[i]));
    const float d = most / 127.0f, id = d != 0 ? 1.0f / d : 0.0f;
    for (int64_t i = first; i < last; ++i) {
      const float scaled = x[i] * id, whole = std::trunc(scaled);
      const float away = std::fabs(scaled - whole) >= 0.5f ? std::copysign(1.0f, scaled) : 0.0f;
      out[i] = F16(d) * (whole + away);
    }
  }
}

// Rows [rows, dim] as the cache has them.
std::vector<float> Stored(KvType type, const std::vector<float>& x, int64_t dim) {
  std::vector<float> out(x.size());
  for (int64_t row = 0; row < static_cast<int64_t>(x.size()); row += dim) {
    if (type == KvType::kQ8_0) {
      Q8(x.data() + row, dim, out.data() + row);
      continue;
    }
    for (int64_t i = row; i < row + dim; ++i) out[i] = type == KvType::kBf16 ? Bf16(x[i]) : x[i];
  }
  return out;
}

TensorView Rows(const std::vector<float>& x, int64_t first, int64_t tokens, int64_t heads,
                int64_t dim) {
  return TensorView::Of(x.data() + first * heads * dim, {tokens, heads, dim});
}

// A cache filled in calls of these sizes in turn.
KvCache Fill(KvType type, const AttentionCase& c, const std::vector<int64_t>& steps) {
  KvCache cache(c.kv_heads, c.head_dim, c.keys, type, c.ValueDim());
  for (size_t s = 0; cache.tokens() < c.keys; ++s) {
    const int64_t n = std::min(steps[s % steps.size()], c.keys - cache.tokens());
    cache.Append(Rows(c.k, cache.tokens(), n, c.kv_heads, c.head_dim),
                 Rows(c.v, cache.tokens(), n, c.kv_heads, c.ValueDim()));
  }
  return cache;
}

std::vector<float> Attend(const AttentionCase& c, const KvCache& cache,
                          const LoadRotation* rotation,
                          ComputeType compute = ComputeType::kFloat32) {
  CaseMemory m(c, rotation);
  m.args.cache = &cache;
  m.args.compute = compute;
  Attention(m.args);
  return m.out;
}

// Attention over a cache of the type has the bits of one over a float32 cache of what it stores.
void ExpectAsStored(const AttentionCase& c, const LoadRotation* rotation, const std::string& what) {
  for (const KvType type : kNarrow) {
    if (!Holds(type, c.head_dim) || !Holds(type, c.ValueDim())) continue;
    AttentionCase stored = c;
    stored.k = Stored(type, c.k, c.head_dim);
    stored.v = Stored(type, c.v, c.ValueDim());
    const KvCache narrow = Fill(type, c, {1, 62, 3, 500});
    const KvCache wide = Fill(KvType::kF32, stored, {c.keys});
    for (const ComputeType compute : {ComputeType::kFloat32, ComputeType::kBFloat16}) {
      EXPECT_EQ(Attend(c, narrow, rotation, compute), Attend(c, wide, rotation, compute))
          << what << ", " << Name(type) << ", computed in " << Name(compute) << ", " << c.keys
          << " keys of " << c.head_dim;
    }
  }
}

TEST(KvTypes, KeysAreThoseOfTheFormat) {
  for (const KvType type : {KvType::kF32, KvType::kBf16, KvType::kQ8_0}) {
    for (const int64_t dim : {1, 2, 31, 32, 33, 64, 80, 96, 128, 256}) {
      if (!Holds(type, dim)) continue;
      AttentionCase c = MakeCase(2, 2, dim, 131, 1);
      for (size_t i = 0; i < c.k.size(); i += 7) c.k[i] *= 1e-3f;
      std::fill_n(c.k.begin() + 2 * dim, dim, 0.0f);  // a block of zeros
      const std::vector<float> expected = Stored(type, c.k, dim);
      for (const std::vector<int64_t>& steps : {std::vector<int64_t>{131}, {1}, {63, 2, 5}}) {
        const KvCache cache = Fill(type, c, steps);
        for (int64_t h = 0; h < 2; ++h) {
          std::vector<float> keys(static_cast<size_t>(dim * 128));
          cache.CopyKeys(h, 3, 128, keys.data());
          for (int64_t t = 0; t < 128; ++t) {
            for (int64_t i = 0; i < dim; ++i) {
              ASSERT_EQ(keys[i * 128 + t], expected[((3 + t) * 2 + h) * dim + i])
                  << Name(type) << ", element " << i << " of " << dim << " of key " << 3 + t;
            }
          }
        }
      }
    }
  }
}

// tests/golden/kv_q8_0_make.py: what gguf-py reads back of rows that it wrote as q8_0.
TEST(KvTypes, Q8IsWhatGgufPyReads) {
  std::ifstream file(ROPEWALK_SOURCE_DIR "/tests/golden/kv_q8_0.json");
  const auto golden = nlohmann::json::parse(file);
  const auto floats = [](const nlohmann::json& bits) {
    std::vector<float> out;
    for (const auto& b : bits) out.push_back(std::bit_cast<float>(b.get<uint32_t>()));
    return out;
  };
  ASSERT_EQ(golden["rows"].size(), 8u);
  for (const auto& row : golden["rows"]) {
    const std::vector<float> given = floats(row["given"]);
    const int64_t dim = static_cast<int64_t>(given.size());
    KvCache cache(1, dim, 1, KvType::kQ8_0);
    cache.Append(Rows(given, 0, 1, 1, dim), Rows(given, 0, 1, 1, dim));
    std::vector<float> kept(given.size());
    cache.CopyKeys(0, 0, 1, kept.data());
    EXPECT_EQ(kept, floats(row["kept"]));
  }
}

TEST(KvTypes, TiesOfQ8GoAwayFromZero) {
  AttentionCase c = MakeCase(1, 1, 32, 1, 1);
  for (int64_t i = 0; i < 32; ++i) c.k[i] = static_cast<float>(i - 16) + 0.5f;
  c.k[0] = 127;  // a scale of 1
  const KvCache cache = Fill(KvType::kQ8_0, c, {1});
  std::vector<float> key(32);
  cache.CopyKeys(0, 0, 1, key.data());
  EXPECT_EQ(key[0], 127);
  for (int64_t i = 1; i < 32; ++i) EXPECT_EQ(key[i], i < 16 ? i - 16 : i - 15) << i;
}

// A query that sees one key alone gives its value.
TEST(KvTypes, ValuesAreThoseOfTheFormat) {
  for (const KvType type : {KvType::kF32, KvType::kBf16, KvType::kQ8_0}) {
    for (const int64_t dim : {1, 2, 32, 33, 80, 96, 129, 160}) {
      if (!Holds(type, dim)) continue;
      AttentionCase c = MakeCase(2, 2, dim, 130, 130);
      c.window = 1;
      const std::vector<float> expected = Stored(type, c.v, dim);
      for (const ComputeType compute : {ComputeType::kFloat32, ComputeType::kBFloat16}) {
        const bool rounds = compute == ComputeType::kBFloat16 && HasBf16Attention();
        const std::vector<float> out = Attend(c, Fill(type, c, {1, 40}), nullptr, compute);
        for (size_t i = 0; i < out.size(); ++i) {
          ASSERT_EQ(out[i], rounds ? Bf16(expected[i]) : expected[i])
              << Name(type) << ", " << Name(compute) << ", element " << i << " of " << dim;
        }
      }
    }
  }
}

TEST(KvTypes, Bytes) {
  const auto bytes = [](KvType type, int64_t dim) { return KvCache(3, dim, 640, type).bytes(); };
  for (const int64_t dim : {64, 128}) {
    EXPECT_EQ(bytes(KvType::kF32, dim), 2 * 3 * 640 * dim * 4);
    EXPECT_EQ(bytes(KvType::kBf16, dim), 2 * 3 * 640 * dim * 2);
    EXPECT_EQ(bytes(KvType::kQ8_0, dim), 2 * 3 * 640 * (dim / 32) * 34);
  }
}

TEST(KvTypes, EveryFormAndMask) {
  for (const int64_t dim : {20, 96}) {
    AttentionCase c = MakeCase(4, 2, dim, 301, 77);
    ExpectAsStored(c, nullptr, "no form");
    c.window = 90;
    c.soft_cap = 4;
    c.sinks = Normal(4, 8);
    c.temperatures = Normal(77, 9, 0.3f);
    ExpectAsStored(c, nullptr, "a window, a cap, sinks and temperatures");
    for (const NamedForm& f : EveryForm(c, true)) {
      c.form = f.form;
      ExpectAsStored(c, nullptr, f.name);
    }
  }
  AttentionCase packed = MakeCase(2, 1, 32, 199, 199);
  for (int64_t j = 0; j < 199; ++j) packed.key_documents.push_back(j / 67);
  packed.query_documents = packed.key_documents;
  packed.causal = false;
  ExpectAsStored(packed, nullptr, "documents");
}

TEST(KvTypes, ValuesOfAnotherWidth) {
  for (const auto& [dim, value_dim] :
       {std::pair<int64_t, int64_t>{192, 128}, {64, 160}, {96, 32}, {33, 20}, {7, 65}}) {
    AttentionCase c = MakeCase(4, 2, dim, 301, 77, value_dim);
    ExpectAsStored(c, nullptr, "values of " + std::to_string(value_dim));
    for (const NamedForm& f : EveryForm(c, true)) {
      if (NeedsEqualWidths(f.form)) continue;
      c.form = f.form;
      ExpectAsStored(c, nullptr, f.name);
    }
    ExpectAsStored(MakeCase(4, 2, dim, 1301, 1, value_dim), nullptr, "one query");
  }
}

TEST(KvTypes, DecodingInSpans) {
  ExpectAsStored(MakeCase(9, 3, 64, 3001, 1), nullptr, "one query");
  ExpectAsStored(MakeCase(2, 1, 160, 1537, 3), nullptr, "three queries");
}

// Keys are stored as they came and rotated in float32.
TEST(KvTypes, FusedRotationAndMaps) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = 32;
  spec.base = 500;
  const AttentionCase c = MakeCase(3, 1, 32, 300, 150), wide = MakeCase(3, 1, 32, 300, 150, 64);
  for (const std::optional<DistanceMap>& map :
       {std::optional<DistanceMap>(), std::optional<DistanceMap>(SelfExtend{64, 4}),
        std::optional<DistanceMap>(AttentionSinks{4, 100}),
        std::optional<DistanceMap>(DualChunk{50, 75})}) {
    LoadRotation rotation(spec, Resolve(spec, 300), AnglePrecision::kExact, map);
    rotation.Grow(300);
    ExpectAsStored(c, &rotation, map ? Describe(*map) : "rotation");
    ExpectAsStored(wide, &rotation, map ? Describe(*map) : "rotation");
  }
}

TEST(KvTypes, EveryTarget) {
  AttentionCase c = MakeCase(4, 2, 96, 301, 77);
  c.form = MakeContent(c, false, 30, 300, "qkvuw");
  ForEachTarget(internal::AttentionTarget,
                [&](const char* name) { ExpectAsStored(c, nullptr, name); });
}

TEST(KvTypes, TruncatedCachesGoOnAsIfNothingHadBeen) {
  for (const KvType type : kNarrow) {
    for (const int64_t kept : {0, 1, 63, 64, 65, 100}) {
      AttentionCase c = MakeCase(2, 1, 32, 150, 10);
      KvCache cache = Fill(type, c, {150});
      // What is cut off must not be seen again, not even as 0 times infinity.
      const std::vector<float> huge(150 * 32, std::numeric_limits<float>::infinity());
      cache.Truncate(kept);
      cache.Append(Rows(huge, 0, 150 - kept, 1, 32), Rows(huge, 0, 150 - kept, 1, 32));
      cache.Truncate(kept);
      if (kept > 0) {
        AttentionCase part = c;
        part.keys = kept, part.queries = 1;
        part.q.resize(2 * 32), part.k.resize(kept * 32), part.v.resize(kept * 32);
        for (const ComputeType compute : {ComputeType::kFloat32, ComputeType::kBFloat16}) {
          EXPECT_EQ(Attend(part, cache, nullptr, compute),
                    Attend(part, Fill(type, part, {kept}), nullptr, compute))
              << Name(type) << ", " << Name(compute) << ", " << kept;
        }
      }
      cache.Append(Rows(c.k, kept, 150 - kept, 1, 32), Rows(c.v, kept, 150 - kept, 1, 32));
      EXPECT_EQ(Attend(c, cache, nullptr), Attend(c, Fill(type, c, {150}), nullptr)) << kept;
    }
  }
}

// A number that is none, or that a block of q8_0 cannot hold, is not turned into one.
TEST(KvTypes, NoNumberStaysNone) {
  for (const KvType type : kNarrow) {
    for (const float x : {std::numeric_limits<float>::quiet_NaN(),
                          -std::numeric_limits<float>::infinity(), 1e38f}) {
      AttentionCase c = MakeCase(1, 1, 64, 3, 1);
      c.k[64 + 5] = x;
      const KvCache cache = Fill(type, c, {3});
      std::vector<float> keys(64 * 3);
      cache.CopyKeys(0, 0, 3, keys.data());
      const float got = keys[5 * 3 + 1];
      if (type == KvType::kQ8_0 || std::isnan(x)) {
        EXPECT_TRUE(std::isnan(got)) << Name(type) << " " << x << " " << got;
      } else {
        EXPECT_EQ(got, std::isinf(x) ? x : Bf16(x));
      }
      EXPECT_TRUE(std::isfinite(keys[5 * 3 + 2]));
      EXPECT_TRUE(std::isfinite(keys[40 * 3 + 1]));  // the other block
    }
  }
}

TEST(KvTypes, Refusals) {
  EXPECT_NE(MessageOf([] { KvCache(1, 64, 8, static_cast<KvType>(7)); }).find("type"),
            std::string::npos);
  EXPECT_NE(MessageOf([] { KvCache(1, 80, 8, KvType::kQ8_0); }).find("80, no multiple of 32"),
            std::string::npos);
  EXPECT_NE(MessageOf([] { KvCache(1, 0, 8, KvType::kQ8_0); }).find("head_dim"), std::string::npos);
  AttentionCase c = MakeCase(2, 1, 16, 9, 9);
  const std::vector<float> d_out(c.q.size());
  for (const bool narrow : {true, false}) {
    CaseMemory m(c);
    Attention(m.args);
    const KvCache cache = Fill(KvType::kBf16, c, {9});
    if (narrow) m.args.cache = &cache;
    if (!narrow) m.args.compute = ComputeType::kBFloat16;
    std::vector<float> d_q(c.q.size()), d_k(c.k.size()), d_v(c.v.size());
    AttentionBackwardArgs b;
    b.forward = &m.args;
    b.d_out = TensorView::Of(d_out.data(), {9, 2, 16});
    b.d_q = TensorView::Of(d_q.data(), {9, 2, 16});
    b.d_k = TensorView::Of(d_k.data(), {9, 1, 16});
    b.d_v = TensorView::Of(d_v.data(), {9, 1, 16});
    EXPECT_NE(MessageOf([&] {
                AttentionBackward(b);
              }).find(narrow ? "forward.cache: expected a cache of type f32" : "forward.compute"),
              std::string::npos);
  }
}

}  // namespace kv_type_test
}  // namespace ropewalk
