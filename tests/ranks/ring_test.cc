// The deal of a sequence, and the ring against attention on one rank.
#include "ropewalk/ranks/ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <random>
#include <sstream>
#include <string>

#include "tests/support/message_of.h"

namespace ropewalk {
namespace {

using test::MessageOf;
using testing::HasSubstr;

TEST(Deal, EveryTokenOnceAndWorkAlike) {
  for (const int64_t tokens : {1, 63, 64, 65, 700, 4096, 131072, 1048575}) {
    for (int ranks = 1; ranks <= 5; ++ranks) {
      const Deal deal(tokens, ranks);
      int64_t next = 0;
      for (int run = 0; run < deal.runs(); ++run) {
        const TokenRun at = deal.Run(run);
        EXPECT_EQ(at.first, next);
        EXPECT_LE(at.tokens(), deal.run_tokens());
        EXPECT_EQ(at.tokens() > 0 ? at.first % kRotatedBlock : 0, 0);
        next = at.end;
      }
      EXPECT_EQ(next, tokens);
      std::vector<int> owners(static_cast<size_t>(deal.runs()));
      double least = INFINITY, most = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        double pairs = 0;
        for (const int run : deal.RunsOf(rank)) {
          ++owners[static_cast<size_t>(run)];
          const TokenRun at = deal.Run(run);
          pairs +=
              double(at.end) * double(at.end + 1) / 2 - double(at.first) * double(at.first + 1) / 2;
        }
        least = std::min(least, pairs), most = std::max(most, pairs);
      }
      EXPECT_EQ(owners, std::vector<int>(owners.size(), 1));
      EXPECT_LT(tokens >= 131072 ? most / least : 1, 1.02) << tokens << " over " << ranks;
    }
  }
}

TEST(Deal, Refusals) {
  EXPECT_THAT(MessageOf([] { Deal(0, 2); }), HasSubstr("got 0 and 2"));
  EXPECT_THAT(MessageOf([] { Deal(5, 0); }), HasSubstr("got 5 and 0"));
}

// tools/scale_model.py computes with the same: its test reads the same table.
TEST(Deal, IsThatOfTheCostsOnPaper) {
  std::ifstream table(ROPEWALK_SOURCE_DIR "/tests/ranks/deals.txt");
  int deals = 0, caches = 0;
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::string what, type;
    int64_t tokens = 0, heads = 0, dim = 0, bytes = 0;
    words >> what;
    if (what == "deal") {
      int ranks = 0;
      words >> tokens >> ranks;
      const Deal deal(tokens, ranks);
      for (int run = 0; run < deal.runs(); ++run) {
        int64_t end = -1;
        words >> end;
        EXPECT_EQ(deal.Run(run).end, end) << line;
      }
      ++deals;
    } else if (what == "cache") {
      words >> type >> heads >> dim >> tokens >> bytes;
      const KvType kv = type == "float32" ? KvType::kF32
                        : type == "bf16"  ? KvType::kBf16
                                          : KvType::kQ8_0;
      EXPECT_EQ(KvCache(heads, dim, tokens, kv).bytes(), bytes) << line;
      ++caches;
    }
    EXPECT_FALSE(words.fail()) << line;
  }
  EXPECT_GE(deals, 20);
  EXPECT_GE(caches, 40);
}

constexpr int64_t kHeads = 4, kKvHeads = 2, kDim = 16, kTokens = 900;

std::vector<float> Normal(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(static_cast<size_t>(count));
  for (float& x : out) x = normal(random);
  return out;
}

struct Inputs {
  std::vector<float> q = Normal(kTokens * kHeads * kDim, 1),
                     k = Normal(kTokens * kKvHeads * kDim, 2),
                     v = Normal(kTokens * kKvHeads * kDim, 3);
  static TensorView View(std::vector<float>& all, int64_t heads, const TokenRun& at) {
    return TensorView::Of(all.data() + at.first * heads * kDim, {at.tokens(), heads, kDim});
  }
};

TEST(Ring, IsAttentionOfOneRank) {
  Inputs in;
  const TokenRun whole{0, kTokens};
  for (const KvType kv : {KvType::kF32, KvType::kBf16}) {
    KvCache cache(kKvHeads, kDim, kTokens, kv);
    cache.Append(Inputs::View(in.k, kKvHeads, whole), Inputs::View(in.v, kKvHeads, whole));
    std::vector<float> expected(in.q.size());
    AttentionArgs args;
    args.q = Inputs::View(in.q, kHeads, whole);
    args.out = Inputs::View(expected, kHeads, whole);
    args.cache = &cache;
    Attention(args);
    std::vector<std::vector<float>> found;
    for (const int ranks : {1, 2, 3, 5, 5}) {
      std::vector<float> out(in.q.size(), NAN);
      RunThreadRanks(ranks, 1, [&](RankGroup& group) {
        const Deal deal(kTokens, ranks);
        Ring ring(group, deal,
                  {.kv_heads = kKvHeads, .key_dim = kDim, .value_dim = kDim, .kv = kv});
        for (int layer = 0; layer < 2; ++layer) {  // blocks are used again
          RingBlock& block = ring.Begin();
          std::array<RingQueries, 2> queries;
          std::array<AttentionSums, 2> sums;
          for (size_t r = 0; r < 2; ++r) {
            const TokenRun at = deal.Run(deal.RunsOf(group.rank())[r]);
            if (at.tokens() == 0) continue;
            block.cache[r].Append(Inputs::View(in.k, kKvHeads, at),
                                  Inputs::View(in.v, kKvHeads, at));
            queries[r] = {.q = Inputs::View(in.q, kHeads, at), .first_position = at.first};
            sums[r] = AttentionSums(at.tokens(), kHeads, kDim);
          }
          ring.Attend(AttentionArgs(), 0, queries, sums);
          for (size_t r = 0; r < 2; ++r) {
            const TokenRun at = deal.Run(deal.RunsOf(group.rank())[r]);
            if (at.tokens() > 0) FinishParts(sums[r], 0, {.out = Inputs::View(out, kHeads, at)});
          }
        }
      });
      double largest = 0;
      for (size_t i = 0; i < out.size(); ++i) {
        ASSERT_TRUE(std::isfinite(out[i]));
        largest = std::max(largest, std::abs(double(out[i]) - expected[i]));
      }
      EXPECT_LE(largest, 2e-6) << ranks;
      found.push_back(std::move(out));
    }
    EXPECT_EQ(found[3], found[4]);  // bits, from run to run
  }
}

}  // namespace
}  // namespace ropewalk
