// What threads.h says that several threads may do at once, done by several at once.
#include "ropewalk/base/threads.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "ropewalk/attention/attention.h"
#include "ropewalk/model/model.h"
#include "ropewalk/relative/t5.h"
#include "ropewalk/rotary/rotate.h"
#include "tests/model/support.h"

namespace ropewalk {
namespace threads_test {

using Numbers = std::vector<float>;

// What `work` gives for 0 .. 3, alone, and then by four threads at once, again and again: the same
// bits.
void ExpectTheSameAtOnce(const std::function<Numbers(int)>& work) {
  constexpr int kCallers = 4, kRounds = 3;
  const int before = NumThreads();
  for (const int threads : {1, 3}) {
    SetNumThreads(threads);
    std::vector<Numbers> expected;
    for (int i = 0; i < kCallers; ++i) expected.push_back(work(i));
    std::vector<std::thread> callers;
    std::vector<int> wrong(kCallers);
    for (int i = 0; i < kCallers; ++i) {
      callers.emplace_back([&, i] {
        for (int round = 0; round < kRounds; ++round) wrong[i] += work(i) != expected[i] ? 1 : 0;
      });
    }
    for (std::thread& caller : callers) caller.join();
    EXPECT_EQ(wrong, std::vector<int>(kCallers)) << threads << " threads";
  }
  SetNumThreads(before);
}

Numbers Wave(int64_t n, int seed) {
  Numbers x(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) x[i] = std::sin(0.37f * static_cast<float>(i % 9973 + seed));
  return x;
}

class AtOnce : public testing::Test {
 protected:
  static const ModelFiles& Files() {
    static const ModelFiles files = OpenModel(ROPEWALK_SOURCE_DIR "/models");
    return files;
  }
};

TEST_F(AtOnce, SequencesOfOneDecoder) {
  const auto decoder = Decoder::Load(Files());
  ExpectTheSameAtOnce([&](int caller) {
    std::vector<int32_t> ids;
    for (int t = 0; t < 200; ++t) ids.push_back((7 * t + 31 * caller) % 1000 + 3);
    return test::LogitsOf(*decoder, Files().config.plan, ids);
  });
}

TEST_F(AtOnce, OneTokenizer) {
  ExpectTheSameAtOnce([&](int caller) {
    std::string text;
    for (int i = 0; i < 300; ++i) text += "The king " + std::to_string(i * caller) + " said, ";
    const std::vector<int32_t> ids = Files().tokenizer->Encode(text);
    EXPECT_EQ(Files().tokenizer->Decode(ids), text);
    return Numbers(ids.begin(), ids.end());
  });
}

TEST_F(AtOnce, OneTableRotates) {
  constexpr int64_t kTokens = 600, kHeads = 16, kDim = 64;
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = kDim;
  const Frequencies frequencies = Resolve(spec, kTokens);
  const CosSinTable table(frequencies, 0, kTokens, AnglePrecision::kExact);
  ExpectTheSameAtOnce([&](int caller) {
    Numbers q = Wave(kTokens * kHeads * kDim, caller);
    Rotate({.table = &table,
            .layout = spec.layout,
            .positions = Positions::From(0),
            .q = TensorView::Of(q.data(), {kTokens, kHeads, kDim})});
    const CosSinTable own(frequencies, caller, kTokens, AnglePrecision::kExact);
    q.push_back(own.Row(caller + 9)[3]);
    return q;
  });
}

TEST_F(AtOnce, OneCacheAndOneForm) {
  constexpr int64_t kTokens = 500, kHeads = 4, kDim = 32;
  KvCache cache(kHeads, kDim, kTokens);
  Numbers k = Wave(kTokens * kHeads * kDim, 3), v = Wave(kTokens * kHeads * kDim, 5);
  const auto view = [&](Numbers& x) { return TensorView::Of(x.data(), {kTokens, kHeads, kDim}); };
  cache.Append(view(k), view(v));
  const T5Bias t5{.bidirectional = false, .embedding = Wave(32 * kHeads, 8)};
  const PreparedForm form(t5.Lower(kHeads, 128), kHeads, kDim);
  ExpectTheSameAtOnce([&](int caller) {
    Numbers q = Wave(kTokens * kHeads * kDim, caller), out(q.size());
    Attention({.q = view(q), .out = view(out), .cache = &cache, .prepared = &form});
    return out;
  });
}

}  // namespace threads_test
}  // namespace ropewalk
