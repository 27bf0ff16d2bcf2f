#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ropewalk/attention/attention.h"
#include "ropewalk/base/error.h"
#include "tests/support/sanitizer.h"

namespace ropewalk {
namespace attention_errors_test {

using ::testing::HasSubstr;

class AttentionErrors : public ::testing::Test {
 protected:
  AttentionErrors() : cache_(2, 16, 10), data_(4096, 0.5f), out_(4096) {
    cache_.Append(View(data_, 5, 2), View(data_, 5, 2));
    args_.q = View(data_, 3, 4);
    args_.out = View(out_, 3, 4);
    args_.cache = &cache_;
    args_.scale = 0.25f;
  }
  static TensorView View(std::vector<float>& data, int64_t tokens, int64_t heads) {
    return TensorView::Of(data.data(), {tokens, heads, 16});
  }
  static void ExpectRefusal(const std::function<void()>& call, const std::string& part) {
    try {
      call();
      ADD_FAILURE() << "no error; expected one that says " << part;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(e.what(), HasSubstr(part));
    }
  }
  void Refused(const std::string& part) {
    ExpectRefusal([this] { Attention(args_); }, part);
  }

  KvCache cache_;
  std::vector<float> data_, out_;
  AttentionArgs args_;
};

TEST_F(AttentionErrors, TheFixtureItselfIsLegal) { EXPECT_NO_THROW(Attention(args_)); }

TEST_F(AttentionErrors, NoQueriesIsLegal) {
  args_.q.shape[0] = args_.out.shape[0] = 0;
  args_.q.data = args_.out.data = nullptr;
  EXPECT_NO_THROW(Attention(args_));
}

TEST_F(AttentionErrors, NullCache) {
  args_.cache = nullptr;
  Refused("cache");
}
TEST_F(AttentionErrors, WrongType) {
  args_.q.dtype = DType::kF16;
  Refused("got f16");
}
TEST_F(AttentionErrors, WrongRank) {
  args_.q.rank = 2;
  Refused("q: expected float32 [tokens, heads, 16]");
}
TEST_F(AttentionErrors, WrongHeadDim) {
  args_.q = TensorView::Of(data_.data(), {3, 4, 8});
  Refused("[3, 4, 8]");
}
TEST_F(AttentionErrors, HeadNotContiguous) {
  args_.q.strides[2] = 2;
  Refused("last stride of 1");
}
TEST_F(AttentionErrors, HeadsNotAMultiple) {
  args_.q = View(data_, 3, 3);
  args_.out = View(out_, 3, 3);
  Refused("multiple of the cache's 2 key heads, got 3");
}
TEST_F(AttentionErrors, OutOfAnotherShape) {
  args_.out = View(out_, 2, 4);
  Refused("out: expected the tokens and heads of q, [3, 4, 16], got [2, 4, 16]");
}
TEST_F(AttentionErrors, MoreQueriesThanKeys) {
  args_.q = View(data_, 6, 4);
  args_.out = View(out_, 6, 4);
  Refused("has 6 tokens but the cache holds 5");
}
TEST_F(AttentionErrors, ScaleThatIsNone) {
  for (const float scale : {0.0f, -0.0f, -0.25f, NAN, INFINITY}) {
    args_.scale = scale;
    Refused("scale: expected a finite number above 0, or kScaleByHeadDim, got " +
            std::to_string(scale));
  }
}
TEST_F(AttentionErrors, WithoutAScaleItIsThatOfTheHeadDim) {
  Attention(args_);
  const std::vector<float> expected = out_;
  args_.scale = kScaleByHeadDim;
  std::fill(out_.begin(), out_.end(), NAN);
  Attention(args_);
  EXPECT_EQ(std::vector<float>(out_.begin(), out_.begin() + 3 * 4 * 16),
            std::vector<float>(expected.begin(), expected.begin() + 3 * 4 * 16));
  EXPECT_EQ(AttentionArgs{}.scale, kScaleByHeadDim);
}
TEST_F(AttentionErrors, NegativeWindow) {
  args_.window_tokens = -1;
  Refused("window_tokens");
}
TEST_F(AttentionErrors, NullData) {
  args_.out.data = nullptr;
  Refused("null");
}
TEST_F(AttentionErrors, PartialOverlap) {
  args_.out.data = data_.data() + 64;
  Refused("overlaps");
}

TEST_F(AttentionErrors, SinksTemperaturesAndCap) {
  const std::vector<float> three(3, 0.5f), four(4, 0.5f), bad{0.5f, NAN, 0.5f, 0.5f};
  args_.sinks = three;
  Refused("sinks: expected 4, one for each query head, got 3");
  args_.sinks = bad;
  Refused("sinks: expected finite numbers, got nan");
  args_.sinks = four;
  args_.temperatures = four;
  Refused("temperatures: expected 3, one for each query, got 4");
  args_.temperatures = three;
  EXPECT_NO_THROW(Attention(args_));
  args_.soft_cap = -1;
  Refused("soft_cap");
  args_.soft_cap = INFINITY;
  Refused("soft_cap");
}
TEST_F(AttentionErrors, LogSumExpOfAnotherSize) {
  std::vector<float> room(11);
  args_.log_sum_exp = room;
  Refused("log_sum_exp: expected room for 12 numbers, got 11");
  args_.log_sum_exp = {};
  args_.entropy = room;
  Refused("entropy: expected room for 12 numbers, got 11");
}
TEST_F(AttentionErrors, PositionsThatFallOrAreTooFew) {
  const std::vector<int64_t> three{4, 5, 6}, falls{0, 1, 2, 1, 5},
      far{0, 1, 2, 3, int64_t{1} << 60};
  args_.key_positions = three;
  Refused("key_positions: expected 5, one for each key of the cache, got 3");
  args_.key_positions = falls;
  Refused(
      "key_positions: expected positions within 2^52 that do not fall within a document, got 1");
  const std::vector<int64_t> starts{0, 3};
  args_.document_starts = starts;  // where they may start again
  EXPECT_NO_THROW(Attention(args_));
  args_.key_positions = far;
  Refused("2^52");
  args_.key_positions = {};
  args_.query_positions = three;
  Refused("query_document_starts: expected one for each document");
  args_.document_starts = {};
  EXPECT_NO_THROW(Attention(args_));
  args_.query_positions = falls;
  Refused("query_positions: expected 3");
}
TEST_F(AttentionErrors, DocumentStarts) {
  const std::vector<int64_t> late{1, 3}, falls{0, 4, 3}, beyond{0, 6};
  for (const auto* starts : {&late, &falls, &beyond}) {
    args_.document_starts = *starts;
    Refused("document_starts: expected starts from 0 on that never fall nor pass 5");
  }
}
TEST_F(AttentionErrors, FormsThatDoNotFit) {
  ScoreForm form = SlopeForm{{1, 2, 3}, {}};
  args_.form = &form;
  Refused("SlopeForm.behind: expected 4 numbers, got 3");
  form = SlopeForm{{1, 2, 3, 4}, {}};
  EXPECT_NO_THROW(Attention(args_));
  args_.mask = AttentionMask::kBidirectional;
  Refused("SlopeForm.ahead");
  RunningForm gates;
  gates.log_gates.assign(20, -0.1f);
  form = gates;
  Refused("mask: expected a causal one");
  args_.mask = AttentionMask::kCausal;
  EXPECT_NO_THROW(Attention(args_));
  gates.log_gates.resize(12);
  form = gates;
  Refused("log_gates: expected 20 numbers, 5 keys times 4 heads, got 12");
  const std::vector<int64_t> positions{4, 5, 6}, gaps{0, 1, 3, 4, 5};
  gates.log_gates.resize(20);
  form = gates;
  args_.query_positions = positions;
  Refused("query_positions: expected none");
  args_.query_positions = {};
  ContentForm rows;
  rows.row_of = {0}, rows.rows = 1, rows.head_dim = 16;
  rows.repeats_ahead = rows.repeats_behind = true;
  rows.query_rows.assign(16, 0.5f);
  form = rows;
  EXPECT_NO_THROW(Attention(args_));
  args_.key_positions = gaps;
  Refused("key_positions: expected consecutive ones");
}

TEST_F(AttentionErrors, PositionsThatAPairFunctionDoesNotKnow) {
  class Four : public PairFunction {
    int64_t heads() const override { return 4; }
    int64_t positions() const override { return 4; }
    int64_t parameters() const override { return 0; }
    void Evaluate(int64_t, std::span<const int64_t>, std::span<const int64_t>, float*,
                  int64_t) const override {
      throw Error(ErrorCode::kInvalidArgument, "asked");
    }
    void Backward(int64_t, std::span<const int64_t>, std::span<const int64_t>, const float*,
                  int64_t, std::span<double>) const override {}
  };
  const ScoreForm form = PairForm{std::make_shared<Four>()};
  args_.form = &form;
  Refused("PairForm.function: knows positions 0 to 3, got a query at 4");
  const std::vector<int64_t> behind{-1, 0, 1, 2, 3}, queries{0, 1, 2};
  args_.key_positions = behind;
  args_.query_positions = queries;
  Refused("got a key at -1");
}

TEST_F(AttentionErrors, CacheFull) {
  ExpectRefusal([this] { cache_.Append(View(data_, 6, 2), View(data_, 6, 2)); },
                "holds 5 of 10 tokens and cannot take 6");
  EXPECT_EQ(cache_.tokens(), 5);
  EXPECT_NO_THROW(cache_.Append(View(data_, 5, 2), View(data_, 5, 2)));
  ExpectRefusal([this] { cache_.Append(View(data_, 1, 2), View(data_, 1, 2)); }, "10 of 10");
}
TEST_F(AttentionErrors, KeysAndValuesDiffer) {
  ExpectRefusal([this] { cache_.Append(View(data_, 2, 2), View(data_, 3, 2)); }, "v: expected");
  ExpectRefusal([this] { cache_.Append(View(data_, 2, 3), View(data_, 2, 2)); }, "k: expected");
}
TEST_F(AttentionErrors, TruncateForward) {
  ExpectRefusal([this] { cache_.Truncate(6); }, "0 to 5");
  ExpectRefusal([this] { cache_.Truncate(-1); }, "got -1");
}
TEST_F(AttentionErrors, CacheOfAbsurdShape) {
  ExpectRefusal([] { KvCache(0, 16, 10); }, "kv_heads");
  ExpectRefusal([] { KvCache(2, 0, 10); }, "head_dim");
  ExpectRefusal([] { KvCache(2, 16, -1); }, "capacity");
  ExpectRefusal([] { KvCache(2, 16, int64_t{1} << 40); }, "capacity");
  ExpectRefusal([] { KvCache(32769, 16, 10); }, "kv_heads");
}
TEST_F(AttentionErrors, NoMemory) {
  if (UnderAddressSanitizer()) {
    GTEST_SKIP() << "the address sanitizer ends the program where malloc would fail";
  }
  for (const KvType type : kKvTypes) {
    ExpectRefusal([&] { KvCache(32768, 32768, int64_t{1} << 30, type); }, "no memory for");
  }
}

}  // namespace attention_errors_test
}  // namespace ropewalk
