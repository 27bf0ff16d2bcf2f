// The worked examples of positions.h, and what the rules promise.
#include "ropewalk/rotary/positions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "ropewalk/base/error.h"
#include "ropewalk/rotary/table.h"

namespace ropewalk {
namespace positions_positions_test {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

std::vector<int64_t> Axis(const TokenPositions& p, int64_t axis) {
  EXPECT_EQ(static_cast<int64_t>(p.values.size()), p.axes * p.tokens);
  const auto first = p.values.begin() + axis * p.tokens;
  return {first, first + p.tokens};
}

TEST(Positions, Flat) {
  PositionBuilder b({.rule = PositionRule::kFlat}, 7);
  b.Text(2);
  b.Image(4, 4);
  b.Video(2, 2, 2);
  b.Text(1);
  const TokenPositions p = b.Build();
  EXPECT_EQ(p.axes, 1);
  EXPECT_THAT(p.values, ElementsAre(7, 8, 9, 10, 11, 12, 13, 14, 15));
  EXPECT_EQ(p.next, 16);
}

TEST(Positions, Qwen2Vl) {
  PositionBuilder b({.rule = PositionRule::kQwen2Vl});
  b.Text(3);
  b.Image(4, 4);
  b.Text(2);
  const TokenPositions p = b.Build();
  EXPECT_THAT(Axis(p, 0), ElementsAre(0, 1, 2, 3, 3, 3, 3, 5, 6));
  EXPECT_THAT(Axis(p, 1), ElementsAre(0, 1, 2, 3, 3, 4, 4, 5, 6));
  EXPECT_THAT(Axis(p, 2), ElementsAre(0, 1, 2, 3, 4, 3, 4, 5, 6));
  EXPECT_EQ(p.next, 7);
  EXPECT_EQ(p.denominator, 1);
}

// Not square, and the longest side is each of the three in turn: height and width are not swapped,
// and text goes on behind the longest.
TEST(Positions, Qwen2VlContinuesBehindTheLongestSide) {
  const auto next_after = [](int64_t t, int64_t h, int64_t w) {
    PositionBuilder b({.rule = PositionRule::kQwen2Vl});
    b.Video(t, h, w);
    const TokenPositions p = b.Build();
    EXPECT_EQ(p.tokens, t * h * w / 4);
    EXPECT_EQ(Axis(p, 0).back(), t - 1);
    EXPECT_EQ(Axis(p, 1).back(), h / 2 - 1);
    EXPECT_EQ(Axis(p, 2).back(), w / 2 - 1);
    return p.next;
  };
  EXPECT_EQ(next_after(9, 4, 6), 9);
  EXPECT_EQ(next_after(2, 14, 6), 7);
  EXPECT_EQ(next_after(2, 4, 16), 8);
}

TEST(Positions, Qwen25VlCountsSeconds) {
  PositionBuilder b({.rule = PositionRule::kQwen25Vl});
  b.Text(2);
  b.Video(3, 2, 4, 1.0);
  b.Text(1);
  const TokenPositions p = b.Build();
  EXPECT_THAT(Axis(p, 0), ElementsAre(0, 1, 2, 2, 4, 4, 6, 6, 7));
  EXPECT_THAT(Axis(p, 1), ElementsAre(0, 1, 2, 2, 2, 2, 2, 2, 7));
  EXPECT_THAT(Axis(p, 2), ElementsAre(0, 1, 2, 3, 2, 3, 2, 3, 7));
  // Half a second per grid, 25 tokens per second: 0, 12.5, 25, 37.5, cut to whole positions.
  PositionBuilder c({.rule = PositionRule::kQwen25Vl, .tokens_per_second = 25});
  c.Video(4, 2, 2, 0.5);
  EXPECT_THAT(Axis(c.Build(), 0), ElementsAre(0, 12, 25, 37));
  EXPECT_EQ(c.Build().next, 38);
}

TEST(Positions, Qwen3VlPutsFramesBehindTimestamps) {
  PositionBuilder b({.rule = PositionRule::kQwen3Vl});
  const int64_t timestamps[] = {2, 2};
  b.TimestampedVideo(timestamps, 2, 4);
  b.Text(1);
  const TokenPositions p = b.Build();
  EXPECT_THAT(Axis(p, 0), ElementsAre(0, 1, 2, 2, 4, 5, 6, 6, 8));
  EXPECT_THAT(Axis(p, 1), ElementsAre(0, 1, 2, 2, 4, 5, 6, 6, 8));
  EXPECT_THAT(Axis(p, 2), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_EQ(p.next, 9);
}

TEST(Positions, ErnieMergesFrames) {
  PositionBuilder b({.rule = PositionRule::kErnie});
  b.Text(1);
  b.Video(4, 2, 4);
  b.Text(1);
  const TokenPositions p = b.Build();
  EXPECT_THAT(Axis(p, 0), ElementsAre(0, 1, 1, 2, 2, 3));
  EXPECT_THAT(Axis(p, 1), ElementsAre(0, 1, 1, 1, 1, 3));
  EXPECT_THAT(Axis(p, 2), ElementsAre(0, 1, 2, 1, 2, 3));
  PositionBuilder one({.rule = PositionRule::kErnie});  // a single frame is not merged away
  one.Image(2, 2);
  EXPECT_EQ(one.Build().tokens, 1);
}

TEST(Positions, XdRope) {
  PositionBuilder b({.rule = PositionRule::kXdRope});
  b.Text(2);
  b.Image(2, 4);
  b.Text(1);
  b.Image(4, 2);
  const TokenPositions p = b.Build();
  EXPECT_THAT(Axis(p, 0), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_THAT(Axis(p, 1), ElementsAre(0, 1, 0, 1, 2, 5, 0, 1, 0, 1));
  EXPECT_THAT(Axis(p, 2), ElementsAre(0, 1, 0, 0, 0, 5, 0, 0, 1, 1));
  EXPECT_THAT(Axis(p, 3), ElementsAre(0, 1, 0, 0, 0, 5, 1, 1, 1, 1));
}

TEST(Positions, RopeTie) {
  PositionBuilder b({.rule = PositionRule::kRopeTie, .spatial_merge = 1});
  b.Text(2);
  b.Image(1, 2);
  b.Text(1);
  const TokenPositions p = b.Build();
  EXPECT_EQ(p.denominator, 2);
  EXPECT_THAT(Axis(p, 0), ElementsAre(0, 2, 5, 5, 8));
  EXPECT_THAT(Axis(p, 1), ElementsAre(0, 2, 4, 6, 8));
}

TEST(Positions, RopeTv) {
  PositionBuilder b({.rule = PositionRule::kRopeTv, .spatial_merge = 1});
  b.Text(1);
  b.Image(2, 3);
  b.Text(1);
  const TokenPositions p = b.Build();
  EXPECT_EQ(p.denominator, 2);
  EXPECT_THAT(Axis(p, 0), ElementsAre(0, 6, 6, 6, 8, 8, 8, 14));
  EXPECT_THAT(Axis(p, 1), ElementsAre(0, 5, 7, 9, 5, 7, 9, 14));
}

// What the articles ask for: an image takes as much room as its patches as text would
// (equivalence), and the gap before it is the gap behind it, on both axes (symmetry).
TEST(Positions, ArticlesRulesAreEquivalentAndSymmetric) {
  for (const PositionRule rule : {PositionRule::kRopeTie, PositionRule::kRopeTv}) {
    for (int64_t w = 1; w <= 9; ++w) {
      for (int64_t h = 1; h <= 9; ++h) {
        PositionBuilder b({.rule = rule, .spatial_merge = 1});
        b.Text(5);
        b.Image(h, w);
        b.Text(1);
        const TokenPositions p = b.Build();
        const int64_t unit = p.denominator;
        EXPECT_EQ(p.next, (5 + w * h + 1) * unit);
        for (int64_t axis = 0; axis < 2; ++axis) {
          const std::vector<int64_t> at = Axis(p, axis);
          const int64_t behind = at.back();
          const int64_t before = at[4];
          EXPECT_EQ(at[5] - before, behind - at[at.size() - 2]) << w << " x " << h;
          // Neighbours are apart by one position (TV), or as far as all gaps are (Tie).
          const int64_t n = axis == 0 ? h : w;
          if (n < 2) continue;
          const std::size_t step = axis == 0 ? static_cast<std::size_t>(w) : 1;
          const int64_t gap = at[5 + step] - at[5];
          EXPECT_EQ(gap, rule == PositionRule::kRopeTv ? unit : at[5] - before);
        }
      }
    }
  }
}

// Images of different sizes share one denominator, and positions in its units turn as the fractions
// that they are.
TEST(Positions, DenominatorsAndTheirFrequencies) {
  PositionBuilder b({.rule = PositionRule::kRopeTie, .spatial_merge = 1});
  b.Text(1);
  b.Image(1, 2);  // halves
  b.Image(2, 3);  // (wh+1)/(w+1) = 7/4, (wh+1)/(h+1) = 7/3
  const TokenPositions p = b.Build();
  EXPECT_EQ(p.denominator, 12);
  EXPECT_THAT(Axis(p, 0), ElementsAre(0, 18, 18, 52, 52, 52, 80, 80, 80));
  EXPECT_THAT(Axis(p, 1), ElementsAre(0, 12, 24, 24 + 21, 24 + 42, 24 + 63, 45, 66, 87));
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = 8;
  const Frequencies plain = Resolve(spec, 1);
  const Frequencies twelfth = PerUnit(plain, 12);
  for (const int64_t n : {0, 1, 255, 257, 131071, 1048575}) {
    float want[8], got[8];
    const int64_t a[] = {n}, c[] = {12 * n};
    FillCosSin(plain, a, AnglePrecision::kExact, want);
    FillCosSin(twelfth, c, AnglePrecision::kExact, got);
    EXPECT_THAT(got, ElementsAreArray(want)) << n;
  }
}

TEST(Positions, VisionTowerFeedsMergedBlocks) {
  const TokenPositions p = VisionTowerPositions(1, 2, 4, 2);
  EXPECT_THAT(Axis(p, 0), ElementsAre(0, 0, 1, 1, 0, 0, 1, 1));
  EXPECT_THAT(Axis(p, 1), ElementsAre(0, 1, 0, 1, 2, 3, 2, 3));
  EXPECT_EQ(VisionTowerPositions(3, 4, 6, 2).tokens, 72);
}

TEST(Positions, BadInput) {
  const auto refused = [](const char* says, const std::function<void()>& call) {
    try {
      call();
      ADD_FAILURE() << "accepted; expected: " << says;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), ::testing::HasSubstr(says));
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    }
  };
  refused("start must", [] { PositionBuilder({.rule = PositionRule::kFlat}, -1); });
  refused("at least 1", [] { PositionBuilder({.rule = PositionRule::kFlat, .spatial_merge = 0}); });
  refused("tokens_per_second",
          [] { PositionBuilder({.rule = PositionRule::kQwen25Vl, .tokens_per_second = -1}); });
  PositionBuilder qwen({.rule = PositionRule::kQwen2Vl});
  refused("not a multiple of spatial_merge 2", [&] { qwen.Image(3, 4); });
  refused("1 to 2147483648 patches", [&] { qwen.Image(0, 4); });
  refused("1 to 2147483648 patches", [&] { qwen.Video(1 << 20, 1 << 20, 1 << 30); });
  refused("tokens", [&] { qwen.Text(-1); });
  refused("seconds_per_grid", [&] { qwen.Video(1, 2, 2, -1.0); });
  const int64_t two[] = {1, 1};
  refused("kQwen3Vl alone", [&] { qwen.TimestampedVideo(two, 2, 2); });
  PositionBuilder qwen3({.rule = PositionRule::kQwen3Vl});
  refused("TimestampedVideo", [&] { qwen3.Video(1, 2, 2); });
  PositionBuilder tie({.rule = PositionRule::kRopeTie});
  refused("no axis of time", [&] { tie.Video(1, 2, 2); });
  PositionBuilder ernie({.rule = PositionRule::kErnie});
  refused("temporal_merge", [&] { ernie.Video(3, 2, 2); });
  EXPECT_EQ(qwen.Build().tokens, 0) << "a refused call adds nothing";
}

// A call that is refused in its middle leaves the builder as it was.
TEST(Positions, RefusedCallsAddNothing) {
  const auto unchanged = [](PositionBuilder& builder, auto call) {
    const TokenPositions before = builder.Build();
    EXPECT_THROW(call(), Error);
    const TokenPositions after = builder.Build();
    EXPECT_EQ(after.values, before.values);
    EXPECT_EQ(after.tokens, before.tokens);
    EXPECT_EQ(after.denominator, before.denominator);
    EXPECT_EQ(after.next, before.next);
  };
  PositionBuilder far({.rule = PositionRule::kQwen25Vl, .tokens_per_second = 1e6});
  far.Text(2);
  unchanged(far, [&] { far.Video(5, 2, 2, 1000); });
  PositionBuilder timed({.rule = PositionRule::kQwen3Vl});
  timed.Text(2);
  const int64_t one_bad[] = {3, INT64_MAX}, good[] = {3, 2};
  unchanged(timed, [&] { timed.TimestampedVideo(one_bad, 2, 2); });
  unchanged(timed, [&] { timed.TimestampedVideo(good, 3, 2); });
  PositionBuilder tie({.rule = PositionRule::kRopeTie, .spatial_merge = 1});
  tie.Text(3);
  bool refused = false;
  for (const int64_t n : {2, 4, 6, 10, 12, 16, 18, 22, 28, 30, 36, 40, 42}) {
    if (refused) break;
    const TokenPositions before = tie.Build();
    try {
      tie.Image(n, n + 1);
    } catch (const Error&) {
      refused = true;
      EXPECT_EQ(tie.Build().values, before.values);
      EXPECT_EQ(tie.Build().denominator, before.denominator);
      EXPECT_EQ(tie.Build().next, before.next);
    }
  }
  EXPECT_TRUE(refused);
}

}  // namespace positions_positions_test
}  // namespace ropewalk
