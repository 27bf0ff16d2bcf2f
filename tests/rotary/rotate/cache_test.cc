// Rotation into a KV cache, and what such a call refuses before it writes anything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "ropewalk/base/error.h"
#include "ropewalk/rotary/rotate.h"
#include "tests/support/values.h"

namespace ropewalk {
namespace rotate_cache_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kBatch = 2, kTokens = 5, kKv = 2, kDim = 16;

Frequencies PlainFrequencies(int64_t dim = kDim) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = dim;
  return Resolve(spec, 1);
}

TEST(Slots, BlockTable) {
  // Sequence 0 has 3 tokens already, sequence 1 none; blocks of 4 slots.
  const int32_t table[] = {7, 2, 9, 5, 0, -1};
  const int64_t first[] = {3, 0};
  EXPECT_THAT(BlockTableSlots(table, 3, 4, first, 5),
              ElementsAre(31, 8, 9, 10, 11, 20, 21, 22, 23, 0));
  EXPECT_THAT(BlockTableSlots({}, 0, 4, {}, 5), ElementsAre());
}

TEST(Slots, Ring) {
  const int64_t first[] = {6, 1};
  EXPECT_THAT(RingSlots(4, first, 3), ElementsAre(2, 3, 0, 5, 6, 7));
  const int64_t start[] = {0};
  EXPECT_THAT(RingSlots(2, start, 5), ElementsAre(-1, -1, -1, 1, 0));
}

// Keys and values in their slots are what a plain rotation and a copy give; nothing else is
// written; the cache is of another type, paged, k and v in turns of one buffer.
TEST(RotateIntoCache, PagedWithKAndVInTurns) {
  const Frequencies f = PlainFrequencies();
  std::vector<float> q = RandomValues<float>(kBatch * kTokens * 3 * kDim, 1), plain_q = q;
  std::vector<float> k = RandomValues<float>(kBatch * kTokens * kKv * kDim, 2), plain_k = k;
  const std::vector<float> v = RandomValues<float>(kBatch * kTokens * kKv * kDim, 3);
  const int64_t starts[] = {3, 0};
  const Positions positions = Positions::Starts(starts);
  const std::initializer_list<int64_t> shape = {kBatch, kTokens, kKv, kDim};
  Rotate({.layout = PairLayout::kHalf,
          .positions = positions,
          .q = TensorView::Of(plain_q.data(), {kBatch, kTokens, 3, kDim}),
          .k = TensorView::Of(plain_k.data(), shape),
          .frequencies = &f});
  const int64_t blocks = 10, block = 4, row = kKv * kDim;
  std::vector<Float16> cache(static_cast<std::size_t>(blocks * 2 * block * row), Float16{0x5555});
  TensorView k_cache = TensorView::Of(cache.data(), {blocks, block, kKv, kDim});
  k_cache.strides[0] = 2 * block * row;
  TensorView v_cache = k_cache;
  v_cache.data = cache.data() + block * row;
  const int32_t table[] = {7, 2, 9, 5, 0, 1};
  std::vector<int64_t> slots = BlockTableSlots(table, 3, block, starts, kTokens);
  slots[6] = -1;  // as if padding
  Rotate({.layout = PairLayout::kHalf,
          .positions = positions,
          .q = TensorView::Of(q.data(), {kBatch, kTokens, 3, kDim}),
          .k = TensorView::Of(k.data(), shape),
          .k_out = k_cache,
          .frequencies = &f,
          .v = TensorView::Of(v.data(), shape),
          .v_out = v_cache,
          .slots = slots});
  EXPECT_EQ(q, plain_q);
  std::vector<bool> written(cache.size(), false);
  for (std::size_t t = 0; t < slots.size(); ++t) {
    if (slots[t] < 0) continue;
    for (int64_t i = 0; i < row; ++i) {
      const std::size_t at =
          static_cast<std::size_t>(slots[t] / block * 2 * block * row + slots[t] % block * row + i);
      const std::size_t from = t * static_cast<std::size_t>(row) + static_cast<std::size_t>(i);
      EXPECT_EQ(cache[at].bits, ToFloat16(plain_k[from]).bits);
      const std::size_t v_at = at + static_cast<std::size_t>(block * row);
      EXPECT_EQ(cache[v_at].bits, ToFloat16(v[from]).bits);
      written[at] = written[v_at] = true;
    }
  }
  for (std::size_t i = 0; i < cache.size(); ++i) {
    if (!written[i]) {
      EXPECT_EQ(cache[i].bits, 0x5555) << i;
    }
  }
}

TEST(RotateIntoCache, RingOfTheSameType) {
  const Frequencies f = PlainFrequencies();
  std::vector<BFloat16> k = RandomValues<BFloat16>(kTokens * kKv * kDim, 4), plain = k;
  std::vector<BFloat16> none(1), ring(static_cast<std::size_t>(3 * kKv * kDim), BFloat16{0});
  const TensorView q = TensorView::Of(none.data(), {kTokens, 0, kDim});
  RotateArgs args{.layout = PairLayout::kInterleaved,
                  .positions = Positions::From(131071),
                  .q = q,
                  .k = TensorView::Of(plain.data(), {kTokens, kKv, kDim}),
                  .frequencies = &f};
  Rotate(args);
  const int64_t first[] = {131071};
  const std::vector<int64_t> slots = RingSlots(3, first, kTokens);
  args.k.data = k.data();
  args.k_out = TensorView::Of(ring.data(), {3, kKv, kDim});
  args.slots = slots;
  Rotate(args);
  for (int64_t t = kTokens - 3; t < kTokens; ++t) {
    const int64_t slot = (131071 + t) % 3;
    for (int64_t i = 0; i < kKv * kDim; ++i) {
      EXPECT_EQ(ring[static_cast<std::size_t>(slot * kKv * kDim + i)].bits,
                plain[static_cast<std::size_t>(t * kKv * kDim + i)].bits);
    }
  }
}

class RotateCacheBadInput : public ::testing::Test {
 protected:
  void ExpectRefused(const std::string& says, const std::function<void(RotateArgs&)>& change) {
    RotateArgs args{.layout = PairLayout::kHalf,
                    .positions = Positions::From(0),
                    .q = TensorView::Of(q_.data(), {4, 2, 8}),
                    .k = TensorView::Of(k_.data(), {4, 1, 8}),
                    .frequencies = &f_,
                    .v = TensorView::Of(v_.data(), {4, 1, 8}),
                    .v_out = TensorView::Of(out_.data(), {4, 1, 8})};
    change(args);
    try {
      Rotate(args);
      ADD_FAILURE() << "accepted; expected: " << says;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr(says));
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    }
    EXPECT_EQ(q_, std::vector<float>(64, 1.0f)) << "written before: " << says;
    EXPECT_EQ(k_, std::vector<float>(32, 2.0f)) << "written before: " << says;
    EXPECT_EQ(out_, std::vector<float>(256, 4.0f)) << "written before: " << says;
  }
  // Slots for k and v, into caches of `slots`.
  static void Cache(RotateArgs& a, float* out, int64_t slots, std::span<const int64_t> where) {
    a.k_out = TensorView::Of(out, {slots, 1, 8});
    a.v_out = TensorView::Of(out + 128, {slots, 1, 8});
    a.slots = where;
  }

  Frequencies f_ = PlainFrequencies(8);
  CosSinTable table_{f_, 0, 4, AnglePrecision::kExact};
  std::vector<float> q_ = std::vector<float>(64, 1.0f), k_ = std::vector<float>(32, 2.0f),
                     v_ = std::vector<float>(32, 3.0f), out_ = std::vector<float>(256, 4.0f);
};

TEST_F(RotateCacheBadInput, TablesAndPositions) {
  ExpectRefused("not both", [&](RotateArgs& a) { a.table = &table_; });
  ExpectRefused("expected a CosSinTable", [](RotateArgs& a) { a.frequencies = nullptr; });
  ExpectRefused("got -1", [](RotateArgs& a) { a.positions = Positions::From(-1); });
  ExpectRefused("position 4 ", [&](RotateArgs& a) {
    a.frequencies = nullptr;
    a.table = &table_;
    a.positions = Positions::From(1);
  });
  const std::vector<int64_t> eight(8, 0);
  ExpectRefused("a row of positions an axis", [&](RotateArgs& a) {
    a.positions = Positions::Each(std::span<const int64_t>(eight), 2);
  });
  Frequencies axes = f_;
  axes.axes = 2;
  axes.axis = {0, 1, 1, 0};
  ExpectRefused("a row of positions an axis", [&](RotateArgs& a) {
    a.frequencies = &axes;
    a.positions = Positions::Each(std::span<const int64_t>(eight).first(4));
  });
  axes.axis = {0, 1, 2, 0};
  ExpectRefused("at most 4 axes", [&](RotateArgs& a) { a.frequencies = &axes; });
  const int64_t pads[] = {5};
  ExpectRefused("5 pads among 4",
                [&](RotateArgs& a) { a.positions = Positions::LeftPadded(pads); });
}

TEST_F(RotateCacheBadInput, HeadsAndNorms) {
  const std::vector<float> w(8, 1.0f), seven(7, 1.0f);
  ExpectRefused("rotated_heads 2", [](RotateArgs& a) { a.rotated_heads = 2; });  // k has one
  ExpectRefused("rotated_heads -1", [](RotateArgs& a) { a.rotated_heads = -1; });
  ExpectRefused("q_norm: expected a weight of head_dim 8, got 7",
                [&](RotateArgs& a) { a.q_norm.weight = seven; });
  ExpectRefused("eps", [&](RotateArgs& a) { a.k_norm = {w, -1.0}; });
  ExpectRefused("no adjoint", [&](RotateArgs& a) {
    a.k_norm.weight = w;
    a.direction = Direction::kAdjoint;
  });
  ExpectRefused("without k", [&](RotateArgs& a) {
    a.k = {};
    a.k_norm.weight = w;
  });
}

TEST_F(RotateCacheBadInput, Views) {
  ExpectRefused("where to copy v", [](RotateArgs& a) { a.v_out = {}; });
  ExpectRefused("v_out is given without v", [](RotateArgs& a) { a.v = {}; });
  ExpectRefused("expected f32 as q", [](RotateArgs& a) { a.v.dtype = DType::kF16; });
  ExpectRefused("does not fit", [](RotateArgs& a) { a.v.shape[0] = 3; });
  ExpectRefused("q and v are written to overlapping", [&](RotateArgs& a) {
    a.v_out = TensorView::Of(q_.data(), {4, 1, 8});
  });
  ExpectRefused("overlapping memory", [&](RotateArgs& a) {
    a.k_out = TensorView::Of(out_.data() + 8, {4, 1, 8});
  });
  // Of another type in the same place: neither in place nor apart.
  ExpectRefused("q_out overlaps q in part", [&](RotateArgs& a) {
    a.q_out = a.q;
    a.q_out.dtype = DType::kBF16;
  });
  ExpectRefused("do not fit head_dim", [](RotateArgs& a) { a.first_dim = 1; });
}

TEST_F(RotateCacheBadInput, Slots) {
  const int64_t fine[] = {0, 1, 2, 3}, twice[] = {3, 1, 3, 0}, far[] = {0, 1, 2, 9},
                low[] = {0, 1, -2, 3};
  ExpectRefused("need the cache", [&](RotateArgs& a) { a.slots = fine; });
  ExpectRefused("slot 3 is given to two", [&](RotateArgs& a) { Cache(a, out_.data(), 9, twice); });
  ExpectRefused("slot 9 of a cache of 9", [&](RotateArgs& a) { Cache(a, out_.data(), 9, far); });
  ExpectRefused("slot -2", [&](RotateArgs& a) { Cache(a, out_.data(), 9, low); });
  ExpectRefused("expected one per token, 4, got 3", [&](RotateArgs& a) {
    Cache(a, out_.data(), 9, std::span<const int64_t>(fine).first(3));
  });
  ExpectRefused("does not hold heads", [&](RotateArgs& a) {
    Cache(a, out_.data(), 9, fine);
    a.v_out = TensorView::Of(out_.data(), {9, 2, 8});
  });
  ExpectRefused("neither k nor v", [&](RotateArgs& a) {
    a.k = a.v = a.v_out = {};
    a.slots = fine;
  });
  const auto refused = [](const char* says, const std::function<void()>& call) {
    try {
      call();
      ADD_FAILURE() << "accepted; expected: " << says;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr(says));
    }
  };
  const int32_t table[] = {1, -1}, full[] = {1, 3};
  const int64_t first[] = {0}, negative[] = {-1};
  refused("needs block 2", [&] { BlockTableSlots(full, 2, 2, first, 5); });
  refused("not allocated", [&] { BlockTableSlots(table, 2, 2, first, 3); });
  refused("expected a table of 1 sequences", [&] { BlockTableSlots(table, 3, 2, first, 3); });
  refused("starts at token -1", [&] { RingSlots(4, negative, 1); });
  refused("expected 0 to 2147483648 tokens", [&] { RingSlots(4, first, int64_t{1} << 62); });
  refused("a ring capacity of 1 to 2147483648 slots",
          [&] { RingSlots(int64_t{1} << 62, first, 1); });
  refused("a block of 1 to 2147483648 slots", [&] { BlockTableSlots(full, 2, 0, first, 1); });
  refused("a ring capacity of 1 to 2147483648 slots", [&] { RingSlots(0, first, 1); });
}

TEST_F(RotateCacheBadInput, XposFarFromItsCentre) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = 8;
  spec.xpos = XposDecay{};
  const Frequencies f = Resolve(spec, 1);
  // Keys shrink... by the inverse of a number below 1: they grow with distance from the centre.
  ExpectRefused("centre nearer", [&](RotateArgs& a) {
    a.frequencies = &f;
    a.positions = Positions::From(20000);
  });
  std::vector<Float16> half(32);
  ExpectRefused("out of the range of f16", [&](RotateArgs& a) {
    a.frequencies = &f;
    a.positions = Positions::From(5000);
    a.k_out = TensorView::Of(half.data(), {4, 1, 8});
  });
}

TEST(RotateCache, EmptyInputIsLegal) {
  const Frequencies f = PlainFrequencies(8);
  std::vector<float> x(8, 1.0f);
  Rotate({.layout = PairLayout::kHalf,
          .positions = Positions::From(0),
          .q = TensorView::Contiguous(nullptr, DType::kF32, {0, 2, 8}),
          .frequencies = &f});
  Rotate({.layout = PairLayout::kHalf,
          .positions = Positions::From(0),
          .q = TensorView::Contiguous(nullptr, DType::kF32, {1, 0, 8}),
          .k = TensorView::Contiguous(nullptr, DType::kF32, {1, 0, 8}),
          .frequencies = &f});
}

}  // namespace rotate_cache_test
}  // namespace ropewalk
