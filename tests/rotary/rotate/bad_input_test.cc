// What Rotate refuses, always before it writes anything, and what empty input is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "ropewalk/base/error.h"
#include "ropewalk/rotary/rotate.h"

namespace ropewalk {
namespace rotate_bad_input_test {

constexpr int64_t kTokens = 4, kHeads = 2, kDim = 8;

class RotateBadInput : public ::testing::Test {
 protected:
  RotateBadInput() : x_(256, 1.0f), y_(256, 2.0f) {
    RotarySpec spec(PairLayout::kHalf);
    spec.head_dim = spec.rotary_dim = kDim;
    table_ = CosSinTable(Resolve(spec, 1), 10, 20, AnglePrecision::kExact);
  }

  RotateArgs Good() {
    return {&table_,
            PairLayout::kHalf,
            Positions::From(10),
            TensorView::Of(x_.data(), {kTokens, kHeads, kDim}),
            {},
            {},
            {}};
  }

  void ExpectRefused(const char* says, const std::function<void(RotateArgs&)>& change) {
    RotateArgs args = Good();
    change(args);
    try {
      Rotate(args);
      ADD_FAILURE() << "accepted; expected: " << says;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), ::testing::HasSubstr(says));
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    }
    EXPECT_EQ(x_, std::vector<float>(256, 1.0f)) << "written before: " << says;
    EXPECT_EQ(y_, std::vector<float>(256, 2.0f)) << "written before: " << says;
  }

  TensorView X(int64_t offset) {
    return TensorView::Of(x_.data() + offset, {kTokens, kHeads, kDim});
  }
  TensorView Y() { return TensorView::Of(y_.data(), {kTokens, kHeads, kDim}); }

  CosSinTable table_;
  std::vector<float> x_, y_;
};

TEST_F(RotateBadInput, Positions) {
  ExpectRefused("position 9 ", [](RotateArgs& a) { a.positions = Positions::From(9); });
  ExpectRefused("position 30 ", [](RotateArgs& a) { a.positions = Positions::From(27); });
  ExpectRefused("positions 10 to 29", [](RotateArgs& a) { a.positions = Positions::From(27); });
  ExpectRefused("outside", [](RotateArgs& a) { a.positions = Positions::From(INT64_MAX); });
  ExpectRefused("outside", [](RotateArgs& a) { a.positions = Positions::From(INT64_MIN); });
  const int64_t far[] = {10, 11, 30, 12};
  ExpectRefused("position 30 (of token 2)", [&](RotateArgs& a) {
    a.positions = Positions::Each(std::span<const int64_t>(far));
  });
  const int32_t negative[] = {10, -1, 12, 13};
  ExpectRefused("position -1 (of token 1)", [&](RotateArgs& a) {
    a.positions = Positions::Each(std::span<const int32_t>(negative));
  });
  ExpectRefused("expected one per token, 4, got 3", [&](RotateArgs& a) {
    a.positions = Positions::Each(std::span<const int64_t>(far, 3));
  });
  ExpectRefused("got none",
                [](RotateArgs& a) { a.positions = Positions::Each(std::span<const int64_t>()); });
  ExpectRefused("one start a sequence, 1, got 2", [&](RotateArgs& a) {
    a.positions = Positions::Starts(std::span<const int64_t>(far, 2));
  });
  const int64_t outside[] = {28};
  ExpectRefused("position 31", [&](RotateArgs& a) { a.positions = Positions::Starts(outside); });
  const int64_t decreasing[] = {0, 3, 2, 4};
  ExpectRefused("decrease", [&](RotateArgs& a) { a.positions = Positions::Packed(decreasing); });
  const int64_t wrong_end[] = {0, 3};
  ExpectRefused("from 0 to", [&](RotateArgs& a) { a.positions = Positions::Packed(wrong_end); });
  const int64_t packed[] = {0, 2, 4};  // starts at 0, the table at 10
  ExpectRefused("position 0", [&](RotateArgs& a) { a.positions = Positions::Packed(packed); });
}

TEST_F(RotateBadInput, Shapes) {
  ExpectRefused("table", [](RotateArgs& a) { a.table = nullptr; });
  const CosSinTable empty;
  ExpectRefused("rotary_dim", [&](RotateArgs& a) { a.table = &empty; });
  ExpectRefused("layout", [](RotateArgs& a) { a.layout = static_cast<PairLayout>(9); });
  ExpectRefused("first_dim", [](RotateArgs& a) { a.first_dim = 1; });
  ExpectRefused("first_dim", [](RotateArgs& a) { a.first_dim = -1; });
  ExpectRefused("first_dim", [](RotateArgs& a) { a.first_dim = INT64_MIN; });
  ExpectRefused("[tokens, heads, head_dim]", [](RotateArgs& a) { a.q.rank = 2; });
  ExpectRefused("contiguous", [](RotateArgs& a) { a.q.strides[2] = 2; });
  ExpectRefused("addressable", [](RotateArgs& a) { a.q.strides[0] = INT64_MAX; });
  ExpectRefused("addressable", [](RotateArgs& a) { a.q.strides[1] = INT64_MIN; });
  ExpectRefused("addressable", [](RotateArgs& a) { a.q.shape[0] = -1; });
  ExpectRefused("CPU", [](RotateArgs& a) { a.q.device = Device::kCuda; });
  ExpectRefused("data is null", [](RotateArgs& a) { a.q.data = nullptr; });
  ExpectRefused("k: shape", [&](RotateArgs& a) {
    a.k = TensorView::Of(y_.data(), {kTokens + 1, kHeads, kDim});
  });
  ExpectRefused("k: expected f32", [&](RotateArgs& a) {
    a.k = Y();
    a.k.dtype = DType::kBF16;
  });
  ExpectRefused("q_out: shape", [&](RotateArgs& a) {
    a.q_out = TensorView::Of(y_.data(), {kTokens, kHeads + 1, kDim});
  });
  ExpectRefused("k_out is given", [&](RotateArgs& a) { a.k_out = Y(); });
}

TEST_F(RotateBadInput, Overlap) {
  ExpectRefused("overlaps q in part", [&](RotateArgs& a) { a.q_out = X(4); });
  ExpectRefused("overlaps q in part", [&](RotateArgs& a) { a.q_out = X(kHeads * kDim); });
  ExpectRefused("share memory", [](RotateArgs& a) { a.q.strides[1] = 0; });
  ExpectRefused("share memory", [](RotateArgs& a) { a.q.strides[0] = kDim; });
  ExpectRefused("q and k are written", [&](RotateArgs& a) { a.k = X(0); });
  ExpectRefused("q_out overlaps k", [&](RotateArgs& a) {  // q in place, before k is read
    a.k = X(0);
    a.k_out = Y();
  });
  ExpectRefused("q_out overlaps k", [&](RotateArgs& a) {
    a.k = Y();
    a.q_out = Y();
    a.k_out = X(0);
    a.q = X(128);
  });
  ExpectRefused("k_out overlaps q", [&](RotateArgs& a) {
    a.k = TensorView::Of(y_.data() + 128, {kTokens, kHeads, kDim});
    a.q_out = Y();
    a.k_out = X(0);
  });
}

TEST_F(RotateBadInput, ColumnsOfOneMatrixDoNotOverlap) {
  // q is the left and q_out the right half of [tokens, 2 * heads, dim].
  RotateArgs args = Good();
  args.q.strides[0] = 2 * kHeads * kDim;
  args.q_out = args.q;
  args.q_out.data = x_.data() + kHeads * kDim;
  EXPECT_NO_THROW(Rotate(args));
}

TEST_F(RotateBadInput, EmptyIsLegal) {
  RotateArgs none = Good();
  none.q = TensorView::Of(static_cast<float*>(nullptr), {0, kHeads, kDim});
  none.positions = Positions::Each(std::span<const int64_t>());
  EXPECT_NO_THROW(Rotate(none));
  RotateArgs no_heads = Good();
  no_heads.q = TensorView::Of(static_cast<float*>(nullptr), {kTokens, 0, kDim});
  no_heads.k = Y();
  EXPECT_NO_THROW(Rotate(no_heads));
  EXPECT_NE(y_[kHeads * kDim], 2.0f) << "k was not rotated";
}

}  // namespace rotate_bad_input_test
}  // namespace ropewalk
