// Tables over distance know the distances that they were lowered for, and those beyond an end only
// where the method has one number for all of them: attention refuses every other one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ropewalk/attention/backward.h"
#include "ropewalk/base/error.h"
#include "ropewalk/relative/deberta.h"
#include "ropewalk/relative/kerple.h"
#include "ropewalk/relative/sandwich.h"
#include "ropewalk/relative/shaw.h"
#include "ropewalk/relative/t5.h"
#include "ropewalk/relative/transformer_xl.h"
#include "tests/attention/attention_cases.h"

namespace ropewalk {
namespace attention_distances_test {

constexpr int64_t kHeads = 2, kDim = 8, kTokens = 150;

std::string ErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    return e.what();
  }
  return "";
}

AttentionCase Case(bool causal = true, int64_t queries = kTokens) {
  AttentionCase c = MakeCase(kHeads, 1, kDim, kTokens, queries);
  c.causal = causal;
  return c;
}

std::string Refusal(AttentionCase c, const ScoreForm& form) {
  c.form = form;
  CaseMemory m(c);
  return ErrorOf([&] { Attention(m.args); });
}

std::vector<float> Output(AttentionCase c, const ScoreForm& form) {
  c.form = form;
  CaseMemory m(c);
  Attention(m.args);
  return m.out;
}

T5Bias T5(bool bidirectional = false) {
  return {.bidirectional = bidirectional, .embedding = Normal(32 * kHeads, 3)};
}
KerpleBias Kerple(bool causal = true) {
  return {.r1 = {0.7f, 0.2f}, .r2 = {0.3f, 0.9f}, .causal = causal};
}
TransformerXlBias Xl(bool causal, int64_t clamp) {
  return {.model_dim = 4,
          .head_dim = kDim,
          .causal = causal,
          .clamp_distance = clamp,
          .projection = Normal(kHeads * kDim * 4, 5),
          .content_bias = Normal(kHeads * kDim, 6),
          .position_bias = Normal(kHeads * kDim, 7)};
}
DebertaBias Deberta(int64_t buckets, int64_t max_position) {
  DebertaBias b{.buckets = buckets, .max_position = max_position, .model_dim = 4, .head_dim = kDim};
  b.embedding = Normal(2 * b.Span() * 4, 8);
  b.key_projection = Normal(kHeads * kDim * 4, 9);
  return b;
}

constexpr const char* kTwenty =
    "Attention: DistanceForm: knows distances 0 to 20, and a query sees a key at distance 149; "
    "make it for that one: Lower with a max_distance of 149 or more";

TEST(AttentionDistances, AT5TableThatEndsTooEarlyIsRefused) {
  const ScoreForm early = T5().Lower(kHeads, 20);
  EXPECT_EQ(Refusal(Case(), early), kTwenty);
  EXPECT_EQ(Refusal(Case(true, 1), early), kTwenty) << "one token decoded";

  AttentionCase c = Case();
  const PreparedForm prepared(early, kHeads, kDim);
  CaseMemory m(c);
  m.args.prepared = &prepared;
  EXPECT_EQ(ErrorOf([&] { Attention(m.args); }), kTwenty);
  m.args.prepared = nullptr;
  Attention(m.args);
  m.args.form = &early;
  std::vector<float> d_q(c.q.size()), d_k(c.k.size()), d_v(c.v.size());
  const AttentionBackwardArgs backward{&m.args, TensorView::Of(d_q.data(), {kTokens, kHeads, kDim}),
                                       TensorView::Of(d_q.data(), {kTokens, kHeads, kDim}),
                                       TensorView::Of(d_k.data(), {kTokens, 1, kDim}),
                                       TensorView::Of(d_v.data(), {kTokens, 1, kDim})};
  EXPECT_EQ(ErrorOf([&] { AttentionBackward(backward); }), kTwenty);
}

// 113 is the first distance of the last bucket of 32 to 128, as transformers' formula has it.
TEST(AttentionDistances, AT5TableRepeatsFromItsLastBucketOn) {
  int64_t first = 0;
  while (T5().Bucket(first) != 31) ++first;
  EXPECT_EQ(first, 113);
  const std::vector<float> whole = Output(Case(), T5().Lower(kHeads, kTokens));
  EXPECT_EQ(Output(Case(), T5().Lower(kHeads, first)), whole);
  EXPECT_EQ(Output(Case(), T5().Lower(kHeads, 128)), whole);
  EXPECT_THAT(Refusal(Case(), T5().Lower(kHeads, first - 1)),
              ::testing::HasSubstr("knows distances 0 to 112, and a query sees a key at"));
  // Keys ahead have the bucket of distance 0, or, where both sides have buckets, their own.
  EXPECT_EQ(Refusal(Case(false), T5().Lower(kHeads, 149)), "");
  EXPECT_EQ(Refusal(Case(false), T5(true).Lower(kHeads, 128)), "");
  EXPECT_THAT(Refusal(Case(false), T5(true).Lower(kHeads, 20)),
              ::testing::HasSubstr("knows distances -20 to 20, and a query sees a key at distance "
                                   "149; make it for that one: Lower with a max_distance of 149"));
}

TEST(AttentionDistances, OnlyWhatIsSeenCounts) {
  const ScoreForm early = T5().Lower(kHeads, 20);
  const ScoreForm late = T5().Lower(kHeads, kTokens);
  AttentionCase c = Case();
  c.window = 21;
  EXPECT_EQ(Output(c, early), Output(c, late));
  c.window = 22;
  EXPECT_THAT(Refusal(c, early), ::testing::HasSubstr("at distance 21;"));
  c.window = 0;
  for (int64_t j = 0; j < kTokens; ++j) c.key_documents.push_back(j / 21);
  c.query_documents = c.key_documents;
  EXPECT_EQ(Output(c, early), Output(c, late));
  for (int64_t j = 0; j < kTokens; ++j) c.key_documents[j] = j / 22;
  c.query_documents = c.key_documents;
  EXPECT_THAT(Refusal(c, early), ::testing::HasSubstr("at distance 21;"));

  AttentionCase gaps = Case();
  gaps.window = 21;
  for (int64_t j = 0; j < kTokens; ++j) gaps.key_positions.push_back(5 * j);
  EXPECT_EQ(Refusal(gaps, early), "");
  gaps.window = 22;  // 20 is seen, and no distance from 21 to 24 exists
  EXPECT_EQ(Refusal(gaps, early), "");
  gaps.window = 26;
  EXPECT_THAT(Refusal(gaps, early), ::testing::HasSubstr("at distance 25;"));
}

TEST(AttentionDistances, AMapThatDropsKeys) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = kDim;
  const ScoreForm early = T5().Lower(kHeads, 20);
  for (const int64_t sinks : {0, 4}) {
    LoadRotation rotation(spec, Resolve(spec, 1024), AnglePrecision::kExact,
                          AttentionSinks{sinks, 21});
    rotation.Grow(kTokens);
    AttentionCase c = Case();
    c.form = early;
    CaseMemory m(c, &rotation);
    EXPECT_EQ(ErrorOf([&] { Attention(m.args); }), sinks == 0 ? "" : kTwenty);
  }
}

TEST(AttentionDistances, TablesThatNeverRepeat) {
  EXPECT_EQ(Refusal(Case(), Kerple().Lower(kHeads, 20)), kTwenty);
  EXPECT_EQ(Refusal(Case(), Kerple().Lower(kHeads, 149)), "");
  EXPECT_EQ(Refusal(Case(false), Kerple(false).Lower(kHeads, 149)), "");
  EXPECT_EQ(Refusal(Case(), SandwichBias{}.Lower(kHeads, 20)), kTwenty);
  EXPECT_EQ(Refusal(Case(), SandwichBias{}.Lower(kHeads, 149)), "");
  constexpr const char* kCausal =
      "sees a key at distance -149; make it for that one: Lower of a bias that is not causal with "
      "a max_distance of 149 or more";
  EXPECT_THAT(Refusal(Case(false), Kerple().Lower(kHeads, 149)), ::testing::HasSubstr(kCausal));
  EXPECT_THAT(Refusal(Case(false), SandwichBias{}.Lower(kHeads, 149)),
              ::testing::HasSubstr(kCausal));
  EXPECT_THAT(Refusal(Case(false), Xl(true, 0).Lower(kHeads, 149)), ::testing::HasSubstr(kCausal));
}

TEST(AttentionDistances, RowsByDistance) {
  const auto knows = [](int64_t distance) {
    return ::testing::HasSubstr("ContentForm: knows distances 0 to " + std::to_string(distance) +
                                ", and a query sees a key at distance 149");
  };
  EXPECT_THAT(Refusal(Case(), Xl(true, 0).Lower(kHeads, 100)), knows(100));
  EXPECT_EQ(Refusal(Case(), Xl(true, 0).Lower(kHeads, 149)), "");
  EXPECT_THAT(Refusal(Case(), Xl(true, 50).Lower(kHeads, 49)), knows(49));
  for (const bool causal : {true, false}) {
    EXPECT_EQ(Refusal(Case(causal), Xl(causal, 50).Lower(kHeads, 50)), "");
    EXPECT_EQ(Refusal(Case(causal), Xl(causal, 149).Lower(kHeads, 149)), "");
  }
  const ShawBias shaw{8, 3, kDim, 1, Normal(12 * kDim, 4)};
  for (const int64_t distance : {0, 2, 400}) {
    EXPECT_EQ(Refusal(Case(false), shaw.Lower(kHeads, distance)), "") << "clipped by definition";
  }
  // By version 1 rows are clipped, by the later ones the last bucket begins at max_position - 1.
  for (const DebertaBias& deberta : {Deberta(0, 30), Deberta(16, 30)}) {
    EXPECT_EQ(Refusal(Case(false), deberta.Lower(kHeads, 30)), "");
    EXPECT_EQ(Refusal(Case(false), deberta.Lower(kHeads, 149)), "");
    EXPECT_EQ(Output(Case(false), deberta.Lower(kHeads, 30)),
              Output(Case(false), deberta.Lower(kHeads, 149)));
    EXPECT_THAT(Refusal(Case(false), deberta.Lower(kHeads, 20)),
                ::testing::HasSubstr("knows distances -20 to 20, and a query sees a key at"));
  }
}

// A table that is made by hand says so itself.
TEST(AttentionDistances, ATableOfOnesOwn) {
  DistanceForm table{-1, 3, Normal(3 * kHeads, 4)};
  AttentionCase c = Case(false);
  c.window = 2;
  EXPECT_EQ(Refusal(c, table), "");
  c.window = 3;
  EXPECT_THAT(Refusal(c, table), ::testing::HasSubstr("at distance 2;"));
  table.repeats_behind = true;
  EXPECT_THAT(Refusal(c, table), ::testing::HasSubstr("at distance -2;"));
  table.repeats_ahead = true;
  EXPECT_EQ(Refusal(c, table), "");
}

}  // namespace attention_distances_test
}  // namespace ropewalk
