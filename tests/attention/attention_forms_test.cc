// Attention with every form of a bias, every mask, caps, sinks and temperatures, against the
// N x N reference in double.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "ropewalk/base/error.h"
#include "ropewalk/base/threads.h"
#include "src/attention/kernel/tile.h"
#include "tests/attention/attention_cases.h"
#include "tests/attention/attention_reference.h"
#include "tests/support/targets.h"

namespace ropewalk {
namespace attention_forms_test {

// Scores with a content bias are sums of up to four terms of deviation 1 and reach some 15: float32
// rounds them to 1e-6, and with it every weight; |v| is below 5, a value row adds as much.
constexpr double kTolerance = 2e-5;

void ExpectReference(const AttentionCase& c, const std::string& what,
                     double tolerance = kTolerance) {
  CaseMemory m(c);
  m.args.entropy = m.entropy;
  Attention(m.args);
  const auto expected = reference::Attention(c);
  double worst = 0, worst_lse = 0;
  for (size_t i = 0; i < m.out.size(); ++i) {
    const double difference = std::abs(m.out[i] - expected.out[i]);
    if (!(difference <= worst)) worst = difference;
  }
  for (size_t i = 0; i < m.log_sum_exp.size(); ++i) {
    if (m.log_sum_exp[i] == expected.log_sum_exp[i]) continue;  // -infinity
    const double size = std::max(1.0, std::abs(expected.log_sum_exp[i]));
    const double difference = std::abs(m.log_sum_exp[i] - expected.log_sum_exp[i]) / size;
    if (!(difference <= worst_lse)) worst_lse = difference;
  }
  EXPECT_LE(worst, tolerance) << what << ", " << c.heads << "/" << c.kv_heads << " heads of "
                              << c.head_dim << ", " << c.queries << " of " << c.keys
                              << " tokens, window " << c.window << (c.causal ? "" : ", all ways");
  EXPECT_LE(worst_lse, tolerance) << what << ", log-sum-exp";
  EXPECT_LE(MaxDifference(m.entropy, expected.entropy), tolerance) << what << ", entropy";
}

void ExpectEveryForm(AttentionCase c, bool running, double tolerance = kTolerance) {
  for (const NamedForm& f : EveryForm(c, running)) {
    c.form = f.form;
    ExpectReference(c, f.name, tolerance);
  }
}

std::vector<int64_t> Count(int64_t from, int64_t count) {
  std::vector<int64_t> out(static_cast<size_t>(count));
  std::iota(out.begin(), out.end(), from);
  return out;
}

TEST(AttentionForms, CausalAtOddSizes) {
  for (const int64_t keys : {1, 2, 6, 7, 63, 65, 255, 256, 257, 300}) {
    ExpectEveryForm(MakeCase(3, 1, 20, keys, keys), true);
  }
  ExpectEveryForm(MakeCase(2, 2, 64, 530, 200), true);
  ExpectEveryForm(MakeCase(4, 2, 33, 150, 150), true);
}

TEST(AttentionForms, EveryHeadDimAndGrouping) {
  for (const int64_t dim : {1, 3, 16, 80, 128}) ExpectEveryForm(MakeCase(6, 2, dim, 70, 70), true);
  ExpectEveryForm(MakeCase(7, 1, 16, 130, 130), true);
  ExpectEveryForm(MakeCase(5, 5, 16, 130, 130), true);
}

TEST(AttentionForms, Windows) {
  for (const int64_t window : {1, 7, 65, 256}) {
    AttentionCase c = MakeCase(4, 2, 16, 400, 270);
    c.window = window;
    ExpectEveryForm(c, true);
    c.causal = false;
    ExpectEveryForm(c, false);
  }
}

TEST(AttentionForms, Bidirectional) {
  for (const int64_t tokens : {1, 5, 64, 257, 600}) {
    AttentionCase c = MakeCase(3, 1, 24, tokens, tokens);
    c.causal = false;
    ExpectReference(c, "no form");
    ExpectEveryForm(c, false);
  }
}

// Queries that are few against many keys are cut into spans and merged.
TEST(AttentionForms, Decoding) {
  for (const int64_t queries : {1, 3}) {
    AttentionCase c = MakeCase(4, 2, 16, 2600, queries);
    c.sinks = Normal(4, 5);
    ExpectEveryForm(c, true);
  }
}

TEST(AttentionForms, PackedDocuments) {
  for (const bool causal : {true, false}) {
    AttentionCase c = MakeCase(4, 2, 20, 420, 300);
    c.causal = causal;
    for (int64_t j = 0; j < c.keys; ++j) {
      c.key_documents.push_back(j < 150 ? 0 : j < 151 ? 1 : j < 390 ? 3 : 4);  // 2 is empty
    }
    c.query_documents.assign(c.key_documents.begin() + 120, c.key_documents.end());
    ExpectReference(c, "no form");
    ExpectEveryForm(c, causal);
    // Positions that start again in each document change nothing.
    for (int64_t j = 0; j < c.keys; ++j) {
      c.key_positions.push_back(j < 150 ? j : j < 151 ? 0 : j < 390 ? j - 151 : j - 390);
    }
    ExpectReference(c, "no form");
    ExpectEveryForm(c, causal);
    c.window = 33;
    ExpectEveryForm(c, causal);
  }
}

TEST(AttentionForms, CrossAttentionWithPositionsOfItsOwn) {
  for (const bool causal : {true, false}) {
    AttentionCase c = MakeCase(4, 2, 20, 300, 500);  // more queries than keys
    c.causal = causal;
    for (int64_t i = 0; i < c.queries; ++i) c.query_positions.push_back(i * 3 / 2);
    c.key_positions = Count(40, c.keys);  // the first queries see nothing, the last all
    ExpectReference(c, "no form");
    ExpectEveryForm(c, false);
    c.query_positions = Count(0, c.queries);
    for (int64_t& p : c.query_positions) p = p * p / 100;  // far apart
    // Biases of the slope reach 1250, which float32 rounds to 6e-5.
    ExpectEveryForm(c, false, 2e-4);
    // Documents of both sides.
    c.query_positions.clear();
    c.key_positions.clear();
    for (int64_t i = 0; i < c.queries; ++i) {
      c.query_documents.push_back(i < 200 ? 0 : 1);
      c.query_positions.push_back(i < 200 ? i : i - 200);
    }
    for (int64_t j = 0; j < c.keys; ++j) {
      c.key_documents.push_back(j < 100 ? 0 : 1);
      c.key_positions.push_back(j < 100 ? j : j - 100);
    }
    ExpectEveryForm(c, false);
  }
}

// Keys with gaps: forms that read distances take them one by one.
TEST(AttentionForms, PositionsWithGaps) {
  AttentionCase c = MakeCase(4, 2, 20, 300, 300);
  for (int64_t j = 0; j < c.keys; ++j) c.key_positions.push_back(j + j / 7 * 2 + j / 100);
  for (const NamedForm& f : EveryForm(c, true)) {
    c.form = f.form;
    if (std::holds_alternative<ContentForm>(f.form)) continue;
    ExpectReference(c, f.name);
  }
  c.form.reset();
  c.window = 50;
  ExpectReference(c, "no form");
}

TEST(AttentionForms, FarPositions) {
  for (const int64_t first : {0, 1, 255, 256, 257, 4095, 4096, 4097, 16384, 131071, 1048575}) {
    AttentionCase c = MakeCase(2, 1, 16, 90, 90);
    c.key_positions = Count(first, c.keys);
    ExpectEveryForm(c, true);
    c.query_positions = Count(first + 37, c.queries);  // ahead of the keys
    ExpectEveryForm(c, false);
    c.query_positions = Count(0, c.queries);  // keys of which some, or all, are ahead
    ExpectEveryForm(c, false);
  }
}

TEST(AttentionForms, AQueryThatSeesNothingGivesZeros) {
  AttentionCase c = MakeCase(2, 1, 16, 40, 30);
  c.query_positions = Count(-20, 30);
  CaseMemory m(c);
  Attention(m.args);
  for (int64_t i = 0; i < 20 * 2 * 16; ++i) ASSERT_EQ(m.out[i], 0.0f);
  for (int64_t i = 0; i < 20 * 2; ++i) ASSERT_EQ(m.log_sum_exp[i], -INFINITY);
  m.args.entropy = m.entropy;
  Attention(m.args);
  for (int64_t i = 0; i < 20 * 2; ++i) ASSERT_EQ(m.entropy[i], 0);
  ExpectReference(c, "no form");
  c.sinks = {0.5f, -3.0f};
  ExpectReference(c, "sinks");
  c.keys = 0, c.k.clear(), c.v.clear();  // no key at all
  CaseMemory none(c);
  Attention(none.args);
  for (const float x : none.out) ASSERT_EQ(x, 0.0f);
}

TEST(AttentionForms, SoftCapSinksAndTemperatures) {
  for (const int64_t queries : {300, 2}) {
    AttentionCase c = MakeCase(4, 2, 20, 1300, queries);
    for (float& x : c.q) x *= 4;  // scores far into the bend
    c.soft_cap = 5;
    ExpectReference(c, "soft cap");
    ExpectEveryForm(c, true);
    c.soft_cap = 50;
    ExpectReference(c, "soft cap");
    c.sinks = {-1.0f, 0.0f, 6.0f, 40.0f};
    ExpectReference(c, "sinks");
    for (int64_t i = 0; i < queries; ++i) {
      c.temperatures.push_back(0.5f + 0.01f * static_cast<float>(i));
    }
    c.soft_cap = 4;
    ExpectEveryForm(c, true);
    c.soft_cap = 0;
    c.q = Normal(static_cast<int64_t>(c.q.size()), 3);
    for (float& x : c.temperatures) x = 1.5f - 0.3f * x;
    ExpectEveryForm(c, true);
  }
}

// cap tanh(x / cap) of one score, near 0 and far: two keys, values 1 and 0, the second's score 0.
TEST(AttentionForms, SoftCapIsATanh) {
  for (const float cap : {1.0f, 30.0f, 50.0f}) {
    for (int i = -600; i <= 600; ++i) {
      AttentionCase c = MakeCase(1, 1, 1, 2, 1);
      c.soft_cap = cap;
      c.scale = 1;
      c.q = {static_cast<float>(i) * 0.01f};
      c.k = {1.0f, 0.0f};
      c.v = {1.0f, 0.0f};
      ExpectReference(c, "soft cap", 3e-7);
    }
  }
}

TEST(AttentionForms, HugeSinksAndBiasesStayNumbers) {
  AttentionCase c = MakeCase(2, 2, 16, 600, 600);
  c.sinks = {1e30f, -1e30f};
  ExpectReference(c, "sinks");
  c.sinks.clear();
  SlopeForm slope{{1e4f, 0.0f}, {}};
  c.form = slope;
  ExpectReference(c, "slope");
}

TEST(AttentionForms, NaNStaysInItsRow) {
  AttentionCase c = MakeCase(2, 1, 16, 300, 300);
  c.q[(200 * 2 + 1) * 16 + 3] = NAN;
  for (const NamedForm& f : EveryForm(c, true)) {
    c.form = f.form;
    CaseMemory m(c);
    Attention(m.args);
    for (size_t i = 0; i < m.out.size(); ++i) {
      ASSERT_EQ(std::isnan(m.out[i]), i / 16 == 200 * 2 + 1) << f.name << " " << i;
    }
  }
}

// Who asks for the entropy gets the same bits of everything else, one span or several, and the same
// entropy whatever the threads.
TEST(AttentionForms, EntropyChangesNoBit) {
  const int threads = NumThreads();
  for (const int64_t queries : {700, 1}) {
    AttentionCase c = MakeCase(4, 2, 32, 1900, queries);
    for (const NamedForm& f : EveryForm(c, true)) {
      c.form = f.form;
      CaseMemory plain(c), one(c), more(c);
      plain.args.log_sum_exp = {};
      Attention(plain.args);
      one.args.log_sum_exp = {};
      one.args.entropy = one.entropy;
      SetNumThreads(1);
      Attention(one.args);
      EXPECT_EQ(one.out, plain.out) << f.name;
      more.args.entropy = more.entropy;
      SetNumThreads(3);
      Attention(more.args);
      EXPECT_EQ(more.entropy, one.entropy) << f.name;
      SetNumThreads(threads);
    }
  }
}

// Equal scores: ln of the keys seen. One key with all the weight: 0, not less.
TEST(AttentionForms, EntropyOfEqualScoresAndOfOne) {
  AttentionCase c = MakeCase(2, 1, 16, 5000, 5000);
  c.q.assign(c.q.size(), 0.0f);
  CaseMemory m(c);
  m.args.entropy = m.entropy;
  Attention(m.args);
  for (int64_t i = 0; i < c.queries; ++i) {
    ASSERT_NEAR(m.entropy[2 * i], std::log(static_cast<double>(i + 1)), 2e-6) << i;
  }
  c.form = SlopeForm{{1e4f, 1e4f}, {}};
  CaseMemory steep(c);
  steep.args.entropy = steep.entropy;
  Attention(steep.args);
  for (const float x : steep.entropy) ASSERT_EQ(x, 0.0f);
}

// Prefill, chunks and decoding: every query gets what it gets in one call.
TEST(AttentionForms, ChunksAndDecodingEqualOneCall) {
  for (const int64_t window : {0, 150}) {
    AttentionCase whole = MakeCase(4, 2, 32, 1400, 1400);
    whole.window = window;
    whole.sinks = Normal(4, 9);
    for (const NamedForm& f : EveryForm(whole, true)) {
      whole.form = f.form;
      CaseMemory m(whole);
      Attention(m.args);
      for (const int64_t first : {1399, 1390, 777}) {
        AttentionCase part = whole;
        part.queries = 1400 - first;
        part.q.assign(whole.q.begin() + first * 4 * 32, whole.q.end());
        CaseMemory p(part);
        Attention(p.args);
        for (size_t i = 0; i < p.out.size(); ++i) {
          ASSERT_NEAR(p.out[i], m.out[static_cast<size_t>(first * 4 * 32) + i], 4e-6) << f.name;
        }
      }
    }
  }
}

TEST(AttentionForms, SameBitsForAnyThreads) {
  const int threads = NumThreads();
  for (const int64_t queries : {700, 1}) {
    AttentionCase c = MakeCase(4, 2, 32, 1900, queries);
    for (const NamedForm& f : EveryForm(c, true)) {
      c.form = f.form;
      SetNumThreads(1);
      CaseMemory one(c);
      Attention(one.args);
      for (const int n : {2, 3}) {
        SetNumThreads(n);
        CaseMemory more(c);
        Attention(more.args);
        EXPECT_EQ(one.out, more.out) << f.name;
        EXPECT_EQ(one.log_sum_exp, more.log_sum_exp) << f.name;
      }
    }
  }
  SetNumThreads(threads);
}

TEST(AttentionForms, PreparedOnceChangesNoBit) {
  AttentionCase c = MakeCase(4, 2, 20, 130, 90);
  for (const NamedForm& f : EveryForm(c, true)) {
    c.form = f.form;
    CaseMemory expected(c);
    Attention(expected.args);
    const PreparedForm prepared(f.form, 4, 20);
    CaseMemory m(c);
    m.args.form = nullptr;
    m.args.prepared = &prepared;
    Attention(m.args);
    EXPECT_EQ(m.out, expected.out) << f.name;
    m.args.form = expected.args.form;
    EXPECT_THROW(Attention(m.args), Error);
    const PreparedForm other(f.form, 4, 20);
    AttentionCase fewer = MakeCase(2, 2, 20, 130, 90);
    CaseMemory wrong(fewer);
    wrong.args.prepared = &other;
    EXPECT_THROW(Attention(wrong.args), Error);
  }
}

TEST(AttentionForms, EveryTargetEqualsTheReference) {
  ForEachTarget(internal::AttentionTarget, [&](const char* name) {
    SCOPED_TRACE(name);
    AttentionCase c = MakeCase(6, 2, 20, 301, 290);
    ExpectEveryForm(c, true);
    c.soft_cap = 3;
    c.sinks = Normal(6, 8);
    ExpectEveryForm(c, true);
    c.causal = false;
    ExpectEveryForm(c, false);
  });
}

}  // namespace attention_forms_test
}  // namespace ropewalk
