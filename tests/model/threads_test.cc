// What threads.h says that several threads may do at once, done by several at once.
#include "ropewalk/base/threads.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "ropewalk/attention/backward.h"
#include "ropewalk/linear/linear.h"
#include "ropewalk/model/model.h"
#include "ropewalk/relative/distance_bias.h"
#include "ropewalk/rotary/rerotate.h"
#include "ropewalk/rotary/rotate.h"
#include "tests/model/encoder_support.h"

namespace ropewalk {
namespace threads_test {

using Numbers = std::vector<float>;
constexpr int kCallers = 8;

// What `work` gives for each caller alone, and then by all at once, again and again: the same bits.
void ExpectTheSameAtOnce(const std::function<Numbers(int)>& work) {
  constexpr int kRounds = 3;
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
    Rerotate({.frequencies = &frequencies,
              .layout = spec.layout,
              .moves = Moves::All(-100 - caller),
              .keys = TensorView::Of(q.data(), {kTokens, kHeads, kDim})});
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
    Numbers q = Wave(kTokens * kHeads * kDim, caller), out(q.size()), d_q(q), d_k(q), d_v(q);
    Numbers sums(kTokens * kHeads);
    const AttentionArgs forward = {
        .q = view(q), .out = view(out), .cache = &cache, .prepared = &form, .log_sum_exp = sums};
    Attention(forward);
    Numbers d_out = Wave(kTokens * kHeads * kDim, caller + 1);
    FormGradient d_form;
    AttentionBackward({.forward = &forward,
                       .d_out = view(d_out),
                       .d_q = view(d_q),
                       .d_k = view(d_k),
                       .d_v = view(d_v),
                       .d_form = &d_form});
    for (const Numbers* x : {&d_q, &d_k, &d_v}) out.insert(out.end(), x->begin(), x->end());
    return out;
  });
}

TEST_F(AtOnce, EveryBiasOverDistance) {
  constexpr int64_t kHeads = 8, kFar = 3000;
  ExpectTheSameAtOnce([&](int caller) {
    Numbers all;
    for (const DistanceBiasInfo& info : DistanceBiases()) {
      DistanceBias bias = info.make();
      Numbers learned = Wave(LearnedNumbers(bias, kHeads), caller);
      for (float& x : learned) x = 1.5f + x;  // KERPLE's are positive
      SetLearned(learned, kHeads, bias);
      const ScoreForm form = Lower(bias, kHeads, kFar);
      if (const auto* slopes = std::get_if<SlopeForm>(&form)) {
        all.insert(all.end(), slopes->behind.begin(), slopes->behind.end());
      } else {
        const Numbers& values = std::get<DistanceForm>(form).values;
        all.insert(all.end(), values.begin(), values.end());
      }
      if (learned.empty()) continue;
      for (const double d : Backward(bias, form)) all.push_back(static_cast<float>(d));
    }
    return all;
  });
}

TEST_F(AtOnce, OneLinearLayer) {
  constexpr int64_t kIn = 256, kOut = 384, kRows = 40;
  const Numbers weight = Wave(kIn * kOut, 1);
  const Linear layer(
      kOut, kIn,
      [&](int64_t first, int64_t rows, float* out) {
        std::copy_n(weight.data() + first * kIn, rows * kIn, out);
      },
      nullptr);
  ExpectTheSameAtOnce([&](int caller) {
    Numbers all;
    for (const int64_t rows : {int64_t{1}, kRows + caller}) {  // shapes of their own, made at once
      const Numbers x = Wave(rows * kIn, caller);
      Numbers y(static_cast<size_t>(rows * kOut));
      layer.Apply(x.data(), rows, kIn, y.data(), kOut);
      all.insert(all.end(), y.begin(), y.end());
    }
    return all;
  });
}

// What grows with the text grows in an encoder that has read none, by threads whose texts are of
// different lengths.
TEST_F(AtOnce, OneEncoderGrows) {
  const auto cases = test::ReadJson(test::kGoldens / "cases.json");
  const auto ids = cases["ids"].get<std::vector<int32_t>>();
  const auto text = [&](int caller) {
    return std::span(ids).first(static_cast<size_t>(20 + 35 * ((5 * caller) % kCallers)));
  };
  for (const char* name : {"xlnet", "roformer", "t5", "nezha", "deberta_v3"}) {
    SCOPED_TRACE(name);
    std::vector<Numbers> expected(kCallers), got(kCallers);
    const auto alone = test::LoadGolden(name), shared = test::LoadGolden(name);
    for (int i = 0; i < kCallers; ++i) expected[i] = test::States(*alone, text(i));
    std::vector<std::jthread> callers;
    for (int i = 0; i < kCallers; ++i) {
      callers.emplace_back([&, i] { got[i] = test::States(*shared, text(i)); });
    }
    callers.clear();
    EXPECT_TRUE(got == expected);
  }
}

}  // namespace threads_test
}  // namespace ropewalk
