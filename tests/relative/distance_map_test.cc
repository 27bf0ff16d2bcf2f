// Distance maps: what the rotation sees between a pair, which view scores it, what goes together.
#include "ropewalk/relative/distance_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "reference/relative.h"
#include "ropewalk/base/error.h"
#include "tests/relative/support.h"

namespace ropewalk {
namespace distance_map_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

// Queries far and near with keys on both sides of everything.
template <class Body>
void ForPairs(int64_t boundary, const Body& body) {
  for (const int64_t query : Distances(4096)) {
    for (const int64_t d : Distances(boundary)) {
      if (d <= query) body(query, query - d);
    }
    for (int64_t d = 0; d <= std::min<int64_t>(query, 40); ++d) body(query, query - d);
  }
  for (int64_t query = 0; query < 80; ++query) {
    for (int64_t key = 0; key <= query; ++key) body(query, key);
  }
}

TEST(DistanceMap, Rerope) {
  for (const int64_t window : {1, 10, 512}) {
    const DistanceMap map = Rerope{window};
    ForPairs(window, [&](int64_t i, int64_t j) {
      ASSERT_EQ(RelativePosition(map, i, j), reference::LeakyRerope(i - j, window, 0));
      ASSERT_EQ(RelativePosition(map, i, j), std::min(i - j, window));
    });
    EXPECT_EQ(LargestRelativePosition(map, 1048576), window);
    EXPECT_EQ(LargestRelativePosition(map, 1), 0);
  }
}

TEST(DistanceMap, LeakyRerope) {
  for (const int64_t factor : {1, 4, 16}) {
    const DistanceMap map = LeakyRerope{512, factor};
    ForPairs(512, [&](int64_t i, int64_t j) {
      ASSERT_EQ(RelativePosition(map, i, j), reference::LeakyRerope(i - j, 512, factor));
    });
    EXPECT_EQ(LargestRelativePosition(map, 4097), 512 + 3584. / factor);
    EXPECT_EQ(LargestRelativePosition(map, 100), 99);
  }
}

TEST(DistanceMap, SelfExtend) {
  for (const SelfExtend& m : {SelfExtend{512, 8}, {10, 3}, {7, 1}, {1, 4}}) {
    const DistanceMap map = m;
    ForPairs(m.window, [&](int64_t i, int64_t j) {
      ASSERT_EQ(RelativePosition(map, i, j), reference::SelfExtend(i, j, m.window, m.group));
    });
    for (const int64_t length : {1, 5, 11, 60, 600}) {
      double largest = 0;
      for (int64_t j = 0; j < length; ++j) {
        for (int64_t i = j; i < length; ++i) {
          largest = std::max(largest, RelativePosition(map, i, j));
        }
      }
      EXPECT_EQ(LargestRelativePosition(map, length), largest) << length;
    }
  }
}

TEST(DistanceMap, DualChunk) {
  for (const DualChunk& m : {DualChunk{3072, 4095}, {6, 9}, {6, 12}, {6, 6}, {1, 2}}) {
    const DistanceMap map = m;
    ForPairs(m.chunk, [&](int64_t i, int64_t j) {
      ASSERT_EQ(RelativePosition(map, i, j), reference::DualChunk(i, j, m.chunk, m.limit));
      // The nearest tokens, at least limit - chunk of them, keep their distance.
      if (i - j <= m.limit - m.chunk) {
        ASSERT_EQ(RelativePosition(map, i, j), i - j);
      }
      ASSERT_LE(RelativePosition(map, i, j), LargestRelativePosition(map, i + 1));
    });
  }
  // The paper's figure 2: 12 tokens, trained at 10, chunks of 6.
  const int64_t succ[] = {6, 7, 8, 9, 9, 9};
  const std::vector<DistanceView> views = Views(DualChunk{6, 9});
  ASSERT_EQ(views.size(), 3u);
  for (int64_t i = 0; i < 12; ++i) {
    EXPECT_EQ(views[0].key(i), i % 6);
    EXPECT_EQ(views[0].query(i), i % 6);
    EXPECT_EQ(views[1].query(i), succ[i % 6]);
    EXPECT_EQ(views[2].query(i), 9);
  }
  EXPECT_EQ(LargestRelativePosition(DualChunk{6, 9}, 8), 7);
}

// The paper's figure 3: the matrix of distances loses its last S diagonals, and those before take
// their place; with a window W the first shifted diagonal is W.
TEST(DistanceMap, String) {
  for (const StringMap& m : {StringMap{1365, 128}, {6, 2}, {6, 0}, {5, 5}, {1, 1}, {1, 0}}) {
    const DistanceMap map = m;
    ForPairs(m.shift, [&](int64_t i, int64_t j) {
      ASSERT_EQ(RelativePosition(map, i, j), reference::String(i - j, m.shift, m.window));
    });
    for (const int64_t length : {1, 2, 5, 6, 7, 11, 60}) {
      double largest = 0;
      for (int64_t d = 0; d < length; ++d) {
        largest = std::max(largest, RelativePosition(map, length - 1, length - 1 - d));
      }
      EXPECT_EQ(LargestRelativePosition(map, length), largest) << length;
    }
  }
  // Llama 3.1 in the authors' README: 131072 tokens without the last third of the positions.
  EXPECT_EQ(LargestRelativePosition(StringMap{43253, 128}, 131072), 87946);
}

TEST(DistanceMap, Lampe) {
  for (const Lampe& m : {Lampe{},
                         {8, 20, 5, 48},
                         {3, 7, 2, 40},
                         {1, 1, 1, 9},
                         {5, 30, 0, 32},
                         {4, 6, 60, 50},
                         {64, 200, 10, 1048576}}) {
    const DistanceMap map = m;
    ForPairs(m.head, [&](int64_t i, int64_t j) {
      ASSERT_EQ(RelativePosition(map, i, j),
                reference::Lampe(i, j, m.head, m.mapped, m.tail, m.length))
          << Describe(map) << " " << i << " " << j;
    });
    for (const int64_t length : {1, 2, 9, 31, 48, 60, 150}) {
      double largest = 0;
      for (int64_t i = 0; i < length; ++i) {
        for (int64_t j = 0; j <= i; ++j) {
          largest = std::max(largest, RelativePosition(map, i, j));
        }
      }
      EXPECT_EQ(LargestRelativePosition(map, length), largest) << Describe(map) << " " << length;
    }
  }
  // The regions join: from one distance to the next, positions grow by at most one more than a
  // squeezed step, and never fall by more than its rounding.
  const Lampe m{64, 300, 20, 2000};
  for (int64_t d = 1; d < m.length; ++d) {
    const double step = RelativePosition(m, m.length - 1, m.length - 1 - d) -
                        RelativePosition(m, m.length - 1, m.length - d);
    ASSERT_TRUE(step >= 0 && step <= 1) << d << " " << step;
  }
  // Short sequences, and those that nothing squeezes, stay as they are.
  for (const Lampe& plain : {Lampe{8, 4, 2, 15}, {8, 47, 2, 48}, {8, 100, 2, 48}}) {
    EXPECT_EQ(Views(plain).size(), 1u);
    EXPECT_EQ(RelativePosition(plain, 1048575, 0), 1048575);
  }
}

// Self-Extend with the group of each eighth of the pairs.
TEST(DistanceMap, Dpe) {
  for (const Dpe& m : {Dpe{}, {10, 1, 2, 3, 4, 5, 6, 7, 8}, {7, 128, 1, 9, 9, 2, 3, 1, 1}}) {
    const int64_t groups[] = {m.group1, m.group2, m.group3, m.group4,
                              m.group5, m.group6, m.group7, m.group8};
    const DistanceMap map = m;
    ASSERT_EQ(Views(map)[1].shares.size(), 8u);
    ForPairs(m.window, [&](int64_t i, int64_t j) {
      for (int share = 0; share < 8; ++share) {
        ASSERT_EQ(RelativePosition(map, i, j, share),
                  reference::SelfExtend(i, j, m.window, groups[share]));
      }
    });
    for (const int64_t length : {1, 7, 8, 60}) {
      double largest = 0;
      for (int64_t i = 0; i < length; ++i) {
        for (int64_t j = 0; j <= i; ++j) {
          for (int s = 0; s < 8; ++s) largest = std::max(largest, RelativePosition(map, i, j, s));
        }
      }
      EXPECT_EQ(LargestRelativePosition(map, length), largest) << Describe(map) << " " << length;
    }
  }
  EXPECT_EQ(RelativePosition(Rerope{5}, 9, 0, 7), 5);  // one share
  for (const int share : {-1, 8}) {
    EXPECT_THAT([&] { RelativePosition(Dpe{}, 9, 0, share); },
                ThrowsMessage<Error>(HasSubstr("share: expected 0 to 7")));
  }
}

// By keeping the cache that the paper keeps, token by token.
TEST(DistanceMap, AttentionSinks) {
  for (const auto& [sinks, window] : {std::pair<int64_t, int64_t>{4, 12}, {0, 5}, {3, 1}}) {
    const DistanceMap map = AttentionSinks{sinks, window};
    std::vector<int64_t> cache;
    for (int64_t query = 0; query < 60; ++query) {
      cache.push_back(query);
      if (static_cast<int64_t>(cache.size()) > sinks + window) cache.erase(cache.begin() + sinks);
      for (int64_t key = 0; key <= query; ++key) {
        const auto found = std::find(cache.begin(), cache.end(), key);
        if (found == cache.end()) {
          EXPECT_EQ(ViewOf(map, query, key), -1) << query << ", " << key;
        } else {
          EXPECT_EQ(RelativePosition(map, query, key), cache.end() - 1 - found);
        }
      }
      EXPECT_EQ(LargestRelativePosition(map, query + 1), static_cast<double>(cache.size()) - 1);
    }
    if (sinks > 0) {
      EXPECT_EQ(RelativePosition(map, 1048575, 0), sinks + window - 1);
    }
  }
}

const DistanceMap kMaps[] = {Rerope{5},
                             Rerope{1},
                             LeakyRerope{6, 4},
                             SelfExtend{7, 3},
                             DualChunk{6, 9},
                             DualChunk{1, 2},
                             DualChunk{4, 8},
                             AttentionSinks{3, 5},
                             AttentionSinks{0, 4},
                             AttentionSinks{9, 2},
                             StringMap{6, 2},
                             StringMap{5, 5},
                             StringMap{3, 0},
                             Lampe{3, 7, 2, 20},
                             Lampe{2, 3, 9, 12},
                             Lampe{3, 3, 18, 20},
                             Lampe{9, 4, 2, 17},
                             Dpe{7, 1, 2, 3, 4, 5, 6, 7, 8}};

TEST(DistanceMap, ViewsOfTilesAreThoseOfTheirPairs) {
  for (const DistanceMap& map : kMaps) {
    ASSERT_LE(Views(map).size(), 3u);
    for (int64_t i0 = 0; i0 < 22; ++i0) {
      for (int64_t i1 = i0; i1 < 22; i1 += 1 + i1 % 3) {
        for (int64_t j0 = 0; j0 < 22; ++j0) {
          for (int64_t j1 = j0; j1 < 22; j1 += 1 + j1 % 2) {
            uint32_t pairs = 0;
            for (int64_t i = i0; i <= i1; ++i) {
              for (int64_t j = j0; j <= j1; ++j) {
                const int v = ViewOf(map, i, j);
                pairs |= v < 0 ? kUnseenBit : 1u << v;
                ASSERT_TRUE(v >= 0 || j > i || map.index() == 4);
                ASSERT_LT(v, static_cast<int>(Views(map).size()));
              }
            }
            ASSERT_EQ(ViewsOfTile(map, i0, i1, j0, j1), pairs)
                << Describe(map) << ": queries " << i0 << " to " << i1 << ", keys " << j0 << " to "
                << j1;
          }
        }
      }
    }
  }
}

// No map changes what stands near, and none lets a distance grow beyond its largest.
TEST(DistanceMap, NearStaysAndFarIsBounded) {
  for (const DistanceMap& map : kMaps) {
    for (const int64_t query : Distances(4096)) {
      EXPECT_EQ(RelativePosition(map, query, query), 0);
      for (int64_t key = std::max<int64_t>(0, query - 50); key <= query; ++key) {
        if (ViewOf(map, query, key) < 0) continue;
        EXPECT_LE(RelativePosition(map, query, key), LargestRelativePosition(map, query + 1));
      }
    }
  }
}

TEST(DistanceMap, BadInput) {
  EXPECT_THAT([] { Views(Rerope{0}); },
              ThrowsMessage<Error>(HasSubstr("Rerope.window: expected 1 or more, got 0")));
  EXPECT_THAT(
      [] {
        Views(LeakyRerope{5, 0});
      },
      ThrowsMessage<Error>(HasSubstr("LeakyRerope.factor: expected 1 or more")));
  EXPECT_THAT(
      [] {
        Views(SelfExtend{5, 0});
      },
      ThrowsMessage<Error>(HasSubstr("SelfExtend.group: expected 1 or more")));
  EXPECT_THAT(
      [] {
        Views(DualChunk{6, 13});
      },
      ThrowsMessage<Error>(HasSubstr("DualChunk.limit: expected 6 to 12")));
  // Not from Views alone: a division by a chunk of 0 would end the process.
  for (const DistanceMap& map :
       std::vector<DistanceMap>{DualChunk{0, 0}, DualChunk{-3, 1}, DualChunk{6, 13},
                                AttentionSinks{-1, 4}, AttentionSinks{4, 0}}) {
    EXPECT_THROW((void)ViewOf(map, 9, 3), Error);
    EXPECT_THROW((void)RelativePosition(map, 9, 3), Error);
    EXPECT_THROW((void)KeysOfView(map, 0, 9), Error);
    EXPECT_THROW((void)ViewsOfTile(map, 0, 9, 0, 9), Error);
    EXPECT_THROW((void)LargestRelativePosition(map, 9), Error);
  }
  EXPECT_THAT(
      [] {
        Views(AttentionSinks{-1, 4});
      },
      ThrowsMessage<Error>(HasSubstr("AttentionSinks.sinks: expected 0 or more")));
  EXPECT_THAT(
      [] {
        Views(StringMap{0, 0});
      },
      ThrowsMessage<Error>(HasSubstr("StringMap.shift: expected 1 or more, got 0")));
  for (const int64_t window : {int64_t{-1}, int64_t{6}, INT64_MIN}) {
    EXPECT_THAT(
        [&] {
          Views(StringMap{5, window});
        },
        ThrowsMessage<Error>(HasSubstr("StringMap.window: expected 0 to 5")));
  }
  const auto refuses = [](const DistanceMap& map, const char* says) {
    EXPECT_THAT([&] { Views(map); }, ThrowsMessage<Error>(HasSubstr(says)));
  };
  refuses(Lampe{0, 5, 2, 20}, "Lampe.head: expected 1 or more, got 0");
  refuses(Lampe{5, 0, 2, 20}, "Lampe.mapped: expected 1 or more");
  refuses(Lampe{5, 5, -1, 20}, "Lampe.tail: expected 0 or more");
  refuses(Lampe{5, 5, 2, 1}, "Lampe.length: expected 2 or more");
  refuses(Lampe{5, INT64_MAX, 2, INT64_MAX}, "mapped: expected at most 2^31");
  refuses(Lampe{INT64_MAX, 5, 2, 20}, "head: expected at most 2^31");
  refuses(StringMap{5, INT64_MAX}, "window: expected at most 2^31");
  refuses(AttentionSinks{INT64_MAX, 8}, "sinks: expected at most 2^31");
  refuses(LeakyRerope{8, INT64_MAX}, "factor: expected at most 2^31");
  refuses(Dpe{.window = 0}, "Dpe.window: expected 1 or more");
  refuses(Dpe{.group8 = 0}, "Dpe.group8: expected 1 or more, got 0");
  EXPECT_THAT([] { RelativePosition(Rerope{5}, 3, 4); },
              ThrowsMessage<Error>(HasSubstr("does not let the query at 3 see the key at 4")));
  EXPECT_THAT([] { LargestRelativePosition(Rerope{5}, 0); },
              ThrowsMessage<Error>(HasSubstr("length: expected 1 or more")));
}

RotarySpec Spec(const Scaling& scaling) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = 64;
  spec.trained_length = 4096;
  spec.scaling = scaling;
  return spec;
}

TEST(DistanceMap, GoesWithEveryScalingOfAFixedFactor) {
  for (const MethodInfo& method : Methods()) {
    const auto check = [&] { CheckComposition(Rerope{512}, Spec(method.make(4))); };
    if (method.length_dependent) {
      EXPECT_THAT(check, ThrowsMessage<Error>(AllOf(HasSubstr("rerope(window 512)"),
                                                    HasSubstr("both would extend twice"))))
          << method.name;
    } else {
      EXPECT_NO_THROW(check()) << method.name;
    }
  }
  // What a scaling knows, a map may use.
  EXPECT_NO_THROW(CheckComposition(DualChunk{12288, 16383}, Spec(LinearScaling{4})));
  EXPECT_NO_THROW(CheckComposition(AttentionSinks{}, Spec(NoScaling{})));
}

TEST(DistanceMap, RefusesWithAReason) {
  EXPECT_THAT([] { CheckComposition(Rerope{4096}, Spec(NoScaling{})); },
              ThrowsMessage<Error>(HasSubstr("expected distances below 4096")));
  EXPECT_THAT(
      [] {
        CheckComposition(AttentionSinks{4, 4093}, Spec(NoScaling{}));
      },
      ThrowsMessage<Error>(HasSubstr("got 4096; make the window smaller")));
  EXPECT_THAT([] { CheckComposition(Rerope{512}, Spec(NoScaling{}), 512); },
              ThrowsMessage<Error>(HasSubstr("got a sliding window of 512")));
  EXPECT_NO_THROW(CheckComposition(Rerope{512}, Spec(NoScaling{}), 513));
  RotarySpec two = Spec(NoScaling{});
  two.axes.sections = {16, 16};
  EXPECT_THAT([&] { CheckComposition(SelfExtend{}, two); },
              ThrowsMessage<Error>(HasSubstr("expected positions on one axis, got 2")));
  RotarySpec xpos = Spec(NoScaling{});
  xpos.xpos = XposDecay{};
  EXPECT_THAT([&] { CheckComposition(LeakyRerope{}, xpos); },
              ThrowsMessage<Error>(HasSubstr("without xPos")));
}

TEST(DistanceMap, Describe) {
  EXPECT_EQ(Describe(Rerope{}), "rerope(window 512)");
  EXPECT_EQ(Describe(LeakyRerope{}), "leaky-rerope(window 512, factor 16)");
  EXPECT_EQ(Describe(SelfExtend{}), "self-extend(window 512, group 8)");
  EXPECT_EQ(Describe(DualChunk{}), "dual-chunk(chunk 3072, limit 4095)");
  EXPECT_EQ(Describe(AttentionSinks{}), "sinks(sinks 4, window 1020)");
  EXPECT_EQ(Describe(StringMap{}), "string(shift 1365, window 128)");
  EXPECT_EQ(Describe(Lampe{}), "lampe(head 1024, mapped 4914, tail 200, length 32768)");
  EXPECT_EQ(Describe(Dpe{}),
            "dpe(window 1024, group1 2, group2 8, group3 2, group4 8, group5 32, group6 32, "
            "group7 32, group8 4)");
}

}  // namespace distance_map_test
}  // namespace ropewalk
