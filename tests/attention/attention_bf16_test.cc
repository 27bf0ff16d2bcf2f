// Attention with products in bf16: its error is compared with that of the plain bf16 formula, typed
// here in double but for its roundings, and with the float32 path, which other files compare with
// the reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "ropewalk/base/threads.h"
#include "ropewalk/rotary/rotate.h"
#include "src/attention/kernel/pairs.h"
#include "src/attention/kernel/tile.h"
#include "tests/attention/attention_cases.h"
#include "tests/support/targets.h"
#include "tests/support/tolerances.h"

namespace ropewalk {
namespace attention_bf16_test {

// The nearest number of 8 bits (Veltkamp 1968): 2^45 + 1 times x keeps the other 45 apart.
double Bf16(double x) {
  const double apart = x * (0x1p45 + 1);
  return apart - (apart - x);
}

void RoundInputs(AttentionCase& c) {
  for (std::vector<float>* x : {&c.q, &c.k, &c.v}) {
    for (float& y : *x) y = static_cast<float>(Bf16(y));
  }
}

// scale x in bf16, of one head of a token, rotated to its position where the case rotates.
std::vector<double> Rounded(const AttentionCase& c, const float* x, int64_t position,
                            double scale) {
  std::vector<double> out(x, x + c.head_dim);
  for (size_t p = 0; p < c.frequencies.size(); ++p) {
    const int64_t a = c.pairs[2 * p], b = c.pairs[2 * p + 1];
    const double angle = static_cast<double>(position) * c.frequencies[p];
    out[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
    out[b] = x[b] * std::cos(angle) + x[a] * std::sin(angle);
  }
  for (double& y : out) y = Bf16(scale * y);
  return out;
}

// One row: softmax(q k) in double, its weights rounded, times bf16(v).
void AddPlainRow(const AttentionCase& c, int64_t query, int64_t head, int64_t first,
                 const std::vector<std::vector<double>>& keys, std::vector<double>& out) {
  const int64_t own = c.keys - c.queries + query, kv = head / (c.heads / c.kv_heads);
  const std::vector<double> q =
      Rounded(c, c.q.data() + (query * c.heads + head) * c.head_dim, own, c.scale);
  const int64_t begin = c.window == 0 ? 0 : std::max<int64_t>(0, own - c.window + 1);
  std::vector<double> scores, row(static_cast<size_t>(c.head_dim));
  for (int64_t j = begin; j <= own; ++j) {
    const std::vector<double>& k = keys[(j - first) * c.kv_heads + kv];
    scores.push_back(std::inner_product(q.begin(), q.end(), k.begin(), 0.0));
  }
  const double most = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (int64_t j = begin; j <= own; ++j) {
    const double weight = std::exp(scores[j - begin] - most), rounded = Bf16(weight);
    sum += weight;
    const float* v = c.v.data() + (j * c.kv_heads + kv) * c.head_dim;
    for (int64_t x = 0; x < c.head_dim; ++x) row[x] += rounded * Bf16(v[x]);
  }
  for (const double x : row) out.push_back(x / sum);
}

// Of a causal case without a form.
std::vector<double> PlainBf16(const AttentionCase& c) {
  const int64_t reach = c.window == 0 ? c.keys : c.window;
  const int64_t first = std::max<int64_t>(0, c.keys - c.queries - reach + 1);
  std::vector<std::vector<double>> keys;
  for (int64_t j = first * c.kv_heads; j < c.keys * c.kv_heads; ++j) {
    keys.push_back(Rounded(c, c.k.data() + j * c.head_dim, j / c.kv_heads, 1));
  }
  std::vector<double> out;
  for (int64_t i = 0; i < c.queries; ++i) {
    for (int64_t h = 0; h < c.heads; ++h) AddPlainRow(c, i, h, first, keys, out);
  }
  return out;
}

// Root mean square of the difference, over that of the expected.
template <class A, class B>
double Error(const std::vector<A>& got, const std::vector<B>& expected) {
  EXPECT_EQ(got.size(), expected.size());
  double error = 0, size = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    error += (got[i] - expected[i]) * (got[i] - expected[i]);
    size += double{expected[i]} * double{expected[i]};
  }
  return std::sqrt(error / size);
}

struct Result {
  std::vector<float> out, log_sum_exp, entropy;
};

Result Attend(const AttentionCase& c, ComputeType compute, const LoadRotation* rotation = nullptr,
              KvType type = KvType::kF32) {
  CaseMemory m(c, rotation);
  KvCache cache(c.kv_heads, c.head_dim, c.keys, type);
  cache.Append(TensorView::Of(c.k.data(), {c.keys, c.kv_heads, c.head_dim}),
               TensorView::Of(c.v.data(), {c.keys, c.kv_heads, c.head_dim}));
  m.args.cache = &cache;
  m.args.compute = compute;
  m.args.entropy = m.entropy;
  Attention(m.args);
  return {m.out, m.log_sum_exp, m.entropy};
}

// Against the reference in double: at most twice the error of the plain formula.
void ExpectPlain(const AttentionCase& c, const std::string& what,
                 const LoadRotation* rotation = nullptr) {
  const std::vector<double> expected = reference::Attention(c).out;
  const double plain = Error(PlainBf16(c), expected);
  for (const KvType type : {KvType::kF32, KvType::kBf16}) {
    const std::vector<float> got = Attend(c, ComputeType::kBFloat16, rotation, type).out;
    EXPECT_LE(Error(got, expected), tolerances::kAttentionBf16 * plain)
        << what << ", " << c.queries << " of " << c.keys << " tokens, heads " << c.heads << "/"
        << c.kv_heads << " of " << c.head_dim << ", cache " << Name(type) << ", plain " << plain;
  }
}

// Against float32, by what the plain formula gets of the same q, k and v without a form.
class NearFloat {
 public:
  explicit NearFloat(const AttentionCase& bare)
      : most_(tolerances::kAttentionBf16 * Error(PlainBf16(bare), reference::Attention(bare).out)) {
  }

  void Expect(const AttentionCase& c, const std::string& what,
              const LoadRotation* rotation = nullptr) const {
    const Result exact = Attend(c, ComputeType::kFloat32, rotation);
    const Result got = Attend(c, ComputeType::kBFloat16, rotation);
    EXPECT_LE(Error(got.out, exact.out), most_) << what;
    EXPECT_GT(Error(got.out, exact.out), 0) << what << ": nothing was rounded";
    EXPECT_LE(Error(got.log_sum_exp, exact.log_sum_exp), most_) << what;
    EXPECT_LE(Error(got.entropy, exact.entropy), most_) << what;
  }

 private:
  const double most_;
};

// By AMX's tiles or, the parameter false, by avx512_bf16.
class AttentionBf16 : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!HasBf16Attention()) GTEST_SKIP() << "no bf16 instructions that attention uses here";
    if (GetParam() && !internal::HasPairTiles()) GTEST_SKIP() << "no amx_bf16 here";
    internal::AllowPairTiles(GetParam());
  }
  void TearDown() override { internal::AllowPairTiles(true); }
};
INSTANTIATE_TEST_SUITE_P(Units, AttentionBf16, testing::Bool(),
                         [](const auto& info) { return info.param ? "amx" : "avx512"; });

TEST(AttentionBf16Everywhere, IsFloat32WhereTheCpuHasNone) {
  AttentionCase c = MakeCase(4, 2, 64, 300, 100);
  const bool equal = Attend(c, ComputeType::kBFloat16).out == Attend(c, ComputeType::kFloat32).out;
  EXPECT_EQ(equal, !HasBf16Attention());
}

// Small whole numbers, whose sums are exact.
float Whole(int64_t i) { return static_cast<float>(i * 7 % 31 - 15); }

struct Product {
  int64_t rows, width, depth, words;  // words: 0 without tiles
};

void ExpectExactSums(const Product& p, float factor) {
  const int64_t a_stride = 2 * p.depth + 6, b_stride = p.width + 16, c_stride = p.width + 32;
  const int64_t held = p.words == 0 ? p.rows : internal::WholeRows(p.rows);
  std::vector<uint16_t> a(static_cast<size_t>(held * a_stride));
  std::vector<uint32_t> b(static_cast<size_t>(p.depth * b_stride));
  std::vector<float> c(static_cast<size_t>(held * c_stride), 3.0f);
  for (size_t i = 0; i < a.size(); ++i) a[i] = ToBFloat16(Whole(int64_t(i))).bits;
  for (size_t i = 0; i < b.size(); ++i) {
    b[i] = ToBFloat16(Whole(int64_t(3 * i))).bits |
           uint32_t{ToBFloat16(Whole(int64_t(5 * i + 2))).bits} << 16;
  }
  const bool accumulate = factor == internal::kAccumulatePairs;
  if (p.words == 0) {
    internal::MultiplyPairs(p.rows, p.width, a.data(), a_stride, b.data(), b_stride, p.depth,
                            factor, c.data(), c_stride);
  } else {
    internal::ConfigurePairTiles(p.words);
    internal::MultiplyPairTiles(p.rows, p.width, a.data(), a_stride, b.data(), b_stride, p.words,
                                p.depth, factor, c.data(), c_stride);
    internal::ReleasePairTiles();
  }
  for (int64_t r = 0; r < p.rows; ++r) {
    for (int64_t x = 0; x < c_stride; ++x) {
      float sum = 0;
      for (int64_t k = 0; k < p.depth; ++k) {
        sum += Whole(r * a_stride + 2 * k) * Whole(3 * (k * b_stride + x)) +
               Whole(r * a_stride + 2 * k + 1) * Whole(5 * (k * b_stride + x) + 2);
      }
      const float expected = x >= p.width ? 3.0f : accumulate ? 3.0f + sum : factor * sum;
      ASSERT_EQ(c[r * c_stride + x], expected)
          << p.rows << " x " << p.width << " x " << p.depth << ", words " << p.words;
    }
  }
  for (size_t i = static_cast<size_t>(p.rows * c_stride); factor == 2 && i < c.size(); ++i) {
    ASSERT_EQ(c[i], 3.0f) << "beyond " << p.rows << " rows";
  }
}

TEST_P(AttentionBf16, ProductsAreExactSumsOfPairs) {
  for (const int64_t width : {16, 32, 48, 64, 80, 144}) {
    for (const float factor : {internal::kAccumulatePairs, 1.0f, 2.0f}) {
      if (!GetParam()) {
        for (const int64_t rows : {1, 2, 3, 4, 5, 6}) {
          for (const int64_t depth : {1, 5, 32}) {
            ExpectExactSums({rows, width, depth, 0}, factor);
          }
        }
        continue;
      }
      for (const int64_t rows : {1, 15, 16, 17, 31, 32}) {
        for (const int64_t depth : {8, 16, 40, 48, 128}) {
          ExpectExactSums({rows, width, depth, internal::WordsOfPairTiles(depth)}, factor);
        }
      }
    }
  }
}

TEST(PairTiles, DepthIsCutIntoEqualWords) {
  for (const auto& [depth, words] : {std::pair<int64_t, int64_t>{1, 0},
                                     {7, 0},
                                     {8, 8},
                                     {16, 16},
                                     {17, 0},
                                     {20, 10},
                                     {28, 14},
                                     {32, 16},
                                     {36, 12},
                                     {40, 10},
                                     {48, 16},
                                     {56, 14},
                                     {64, 16},
                                     {96, 16},
                                     {128, 16}}) {
    EXPECT_EQ(internal::WordsOfPairTiles(depth), words) << depth;
  }
}

TEST_P(AttentionBf16, RowsAreRoundedToPairs) {
  std::vector<float> x = Normal(5 * 48, 3);
  x[7] = std::bit_cast<float>(0xffffffffu);
  x[8] = 1 + 0x1p-8f, x[9] = 1 + 0x3p-8f;  // ties
  for (const int64_t rows : {1, 4, 5}) {
    std::vector<uint32_t> words(static_cast<size_t>((rows + 1) / 2 * 48));
    internal::RoundPairs(x.data(), rows, 48, words.data());
    for (int64_t i = 0; i < static_cast<int64_t>(words.size()) * 2; ++i) {
      const int64_t row = i / 96 * 2 + i % 2, column = i / 2 % 48;
      const BFloat16 got{static_cast<uint16_t>(words[i / 2] >> (i % 2 * 16))};
      const float given = row < rows ? x[row * 48 + column] : 0.0f;
      if (std::isnan(given)) {
        EXPECT_TRUE(std::isnan(ToFloat(got)));
      } else {
        EXPECT_EQ(ToFloat(got), static_cast<float>(Bf16(given))) << row << ", " << column;
      }
    }
  }
  std::vector<uint16_t> scaled(48, 1);
  internal::RoundScaled(x.data() + 48, 37, 0.125f, scaled.data());
  for (int64_t i = 0; i < 48; ++i) {
    EXPECT_EQ(ToFloat(BFloat16{scaled[i]}),
              i < 37 ? static_cast<float>(Bf16(x[48 + i] * 0.125)) : 0.0f);
  }
}

TEST_P(AttentionBf16, WeightsAreRoundedPowersOfTwo) {
  std::vector<float> scores = Normal(176, 5, 20);
  scores[3] = -std::numeric_limits<float>::infinity();
  scores[4] = 7, scores[5] = 7 - 95, scores[6] = 7 - 89.5f;
  for (const float factor : {1.0f, 1.5f}) {
    for (const int64_t count : {16, 64, 112, 176}) {
      std::vector<uint16_t> to(static_cast<size_t>(count));
      float sums[16];
      const float max = 7 * factor;
      internal::WeighRounded(scores.data(), count, factor, max, to.data(), sums);
      double expected = 0;
      for (int64_t i = 0; i < count; ++i) {
        const double x = double{scores[i]} * factor - max, weight = x < -90 ? 0 : std::exp2(x);
        EXPECT_NEAR(ToFloat(BFloat16{to[i]}), weight, 0x1.01p-8 * weight) << scores[i];
        expected += ToFloat(BFloat16{to[i]});
      }
      EXPECT_EQ(ToFloat(BFloat16{to[4]}), 1) << "the largest";
      EXPECT_NEAR(std::accumulate(sums, sums + 16, 0.0), expected, 1e-6 * expected) << count;
    }
  }
  scores[0] = std::numeric_limits<float>::quiet_NaN();
  std::vector<uint16_t> to(16);
  float sums[16];
  internal::WeighRounded(scores.data(), 16, 1, 7, to.data(), sums);
  EXPECT_TRUE(std::isnan(ToFloat(BFloat16{to[0]})));
}

TEST_P(AttentionBf16, NoWorseThanThePlainFormula) {
  for (const int64_t dim : {1, 2, 17, 33, 64, 80, 96, 128, 256}) {
    for (const auto& [keys, queries] :
         {std::pair{1, 1}, std::pair{65, 65}, std::pair{257, 20}, std::pair{700, 7}}) {
      AttentionCase c = MakeCase(4, 2, dim, keys, queries);
      RoundInputs(c);
      ExpectPlain(c, "rounded inputs");
      ExpectPlain(MakeCase(4, 2, dim, keys, queries), "float32 inputs");
    }
  }
  AttentionCase c = MakeCase(9, 3, 64, 2500, 1);  // in spans
  RoundInputs(c);
  ExpectPlain(c, "spans");
}

TEST_P(AttentionBf16, EveryTarget) {
  AttentionCase c = MakeCase(4, 2, 80, 333, 110);
  RoundInputs(c);
  AttentionCase windowed = c, formed = c;
  windowed.window = 45;
  formed.form = MakeContent(c, false, 30, 300, "qkvuw");
  const NearFloat near(c);
  ForEachTarget(internal::AttentionTarget, [&](const char* name) {
    ExpectPlain(windowed, name);
    near.Expect(c, name);
    near.Expect(formed, name);
  });
}

// Queries and keys are rotated in float32 and rounded then, so that far positions lose nothing.
TEST_P(AttentionBf16, FarPositionsWithFusedRotation) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = 16;
  for (const int64_t position :
       {0, 1, 254, 255, 256, 257, 4095, 4096, 4097, 16384, 131071, 1048575}) {
    const int64_t keys = position + 1;
    AttentionCase c = MakeCase(2, 1, 16, keys, std::min<int64_t>(keys, 3));
    c.window = 300;
    RoundInputs(c);
    LoadRotation rotation(spec, Resolve(spec, keys), AnglePrecision::kExact);
    rotation.Grow(keys);
    for (int64_t p = 0; p < 8; ++p) {
      c.pairs.insert(c.pairs.end(), {p, p + 8});
      c.frequencies.push_back(std::pow(spec.base, -static_cast<double>(p) / 8));
    }
    c.relative = [](int64_t i, int64_t j) { return static_cast<double>(i - j); };
    ExpectPlain(c, "position " + std::to_string(position), &rotation);
  }
}

TEST_P(AttentionBf16, EveryMap) {
  RotarySpec spec(PairLayout::kInterleaved);
  spec.head_dim = spec.rotary_dim = 32;
  spec.base = 500;
  AttentionCase c = MakeCase(4, 2, 32, 400, 250);
  const NearFloat near(c);
  for (const DistanceMap& map :
       {DistanceMap(Rerope{60}), DistanceMap(LeakyRerope{60, 3}), DistanceMap(SelfExtend{60, 4}),
        DistanceMap(DualChunk{50, 75}), DistanceMap(AttentionSinks{4, 100}),
        DistanceMap(StringMap{60, 20}), DistanceMap(Lampe{60, 60, 20, 350}),
        DistanceMap(Dpe{60, 3, 1, 5, 2, 7, 4, 9, 6})}) {
    LoadRotation rotation(spec, Resolve(spec, 400), AnglePrecision::kExact, map);
    rotation.Grow(400);
    c.window = 0;
    near.Expect(c, Describe(map), &rotation);
    c.window = 150;
    near.Expect(c, Describe(map) + " with a window", &rotation);
  }
}

TEST_P(AttentionBf16, EveryFormAndMask) {
  AttentionCase c = MakeCase(4, 2, 64, 301, 177);
  const NearFloat near(c);
  for (const NamedForm& f : EveryForm(c, true)) {
    c.form = f.form;
    near.Expect(c, f.name);
  }
  c.form.reset();
  c.soft_cap = 4;
  c.sinks = Normal(4, 8);
  c.temperatures = Normal(177, 9, 0.3f);
  for (float& x : c.temperatures) x += 1;
  near.Expect(c, "a cap, sinks and temperatures");
  c.window = 60;
  near.Expect(c, "a window as well");
  AttentionCase packed = MakeCase(4, 1, 48, 399, 399);
  for (int64_t j = 0; j < 399; ++j) packed.key_documents.push_back(j / 133);
  packed.query_documents = packed.key_documents;
  near.Expect(packed, "documents");
  packed.causal = false;
  near.Expect(packed, "documents, all ways");
}

TEST_P(AttentionBf16, ChunksChangeRoundingAloneAndThreadsNothing) {
  const int64_t tokens = 515, heads = 4, dim = 64;
  const AttentionCase c = MakeCase(heads, 2, dim, tokens, tokens);
  const std::vector<float> whole = Attend(c, ComputeType::kBFloat16).out;
  const int before = NumThreads();
  for (const int threads : {1, 3}) {
    SetNumThreads(threads);
    EXPECT_EQ(Attend(c, ComputeType::kBFloat16).out, whole) << threads << " threads";
  }
  SetNumThreads(before);
  const double plain = Error(PlainBf16(c), reference::Attention(c).out);
  for (const int64_t step : {1, 7, 64, 200}) {
    KvCache cache(2, dim, tokens, KvType::kBf16);
    std::vector<float> out(whole.size());
    for (int64_t t = 0; t < tokens; t += step) {
      const int64_t n = std::min(step, tokens - t);
      cache.Append(TensorView::Of(c.k.data() + t * 2 * dim, {n, 2, dim}),
                   TensorView::Of(c.v.data() + t * 2 * dim, {n, 2, dim}));
      AttentionArgs args;
      args.q = TensorView::Of(c.q.data() + t * heads * dim, {n, heads, dim});
      args.out = TensorView::Of(out.data() + t * heads * dim, {n, heads, dim});
      args.cache = &cache;
      args.compute = ComputeType::kBFloat16;
      Attention(args);
    }
    EXPECT_LE(Error(out, whole), tolerances::kAttentionBf16 * plain) << "chunks of " << step;
  }
}

TEST_P(AttentionBf16, NoNumberStaysNone) {
  const float nan = std::bit_cast<float>(0xffffffffu);  // of which rounding could make 0
  for (const int which : {0, 1, 2}) {
    AttentionCase c = MakeCase(1, 1, 48, 70, 5);
    (which == 0 ? c.q[2 * 48] : which == 1 ? c.k[67 * 48 + 3] : c.v[67 * 48 + 3]) = nan;
    const std::vector<float> out = Attend(c, ComputeType::kBFloat16).out;
    EXPECT_TRUE(std::isnan(out[2 * 48 + 3])) << which;
    EXPECT_EQ(std::isfinite(out[3 * 48 + 3]), which == 0) << which;
  }
}

}  // namespace attention_bf16_test
}  // namespace ropewalk
