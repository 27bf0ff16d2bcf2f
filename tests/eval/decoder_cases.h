// Requests to the decoder as an engine, and how their numbers compare.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "ropewalk/plan/method.h"
#include "tests/eval/tiny_model.h"

namespace ropewalk::test::cases {

using Ids = std::vector<int32_t>;

inline PositionPlan Method(const std::string& name, double factor = 4) {
  return PositionMethod::Parse(name).Apply(Tiny().files.config.plan, factor, test::kTinyTrained);
}

inline PositionPlan Windows(int64_t first, int64_t second) {
  PositionPlan plan = Tiny().files.config.plan;
  plan.layers[0].window_tokens = first;
  plan.layers[1].window_tokens = second;
  return plan;
}

// Suffixes behind one prefix; which tokens of each are scored.
struct Case {
  Ids prefix;
  std::vector<Ids> suffixes;

  Case(int64_t prefix_tokens, const std::vector<int64_t>& suffix_tokens) {
    prefix = RandomText(prefix_tokens, 11).ids;
    uint64_t seed = 12;
    for (const int64_t n : suffix_tokens) suffixes.push_back(RandomText(n, seed++).ids);
  }
  std::vector<ScoreRequest> Requests() const {
    std::vector<ScoreRequest> requests;
    for (const Ids& suffix : suffixes) {
      ScoreRequest& request = requests.emplace_back(ScoreRequest{.prefix = prefix, .ids = suffix});
      request.positions.resize(suffix.size());
      std::iota(request.positions.begin(), request.positions.end(),
                static_cast<int64_t>(prefix.size()));
    }
    return requests;
  }
  Ids Whole(size_t i) const {
    Ids ids = prefix;
    ids.insert(ids.end(), suffixes[i].begin(), suffixes[i].end());
    return ids;
  }
};

// Of a sequence of its own, nothing shared.
inline std::vector<TokenScore> Alone(const ScoringEngine& engine, EngineCall call,
                                     const ScoreRequest& request) {
  Ids ids(request.prefix.begin(), request.prefix.end());
  ids.insert(ids.end(), request.ids.begin(), request.ids.end());
  call.reuse = PrefixReuse::kSameBits;
  const ScoreRequest alone{.ids = ids, .positions = request.positions};
  return engine.Score(call, std::span(&alone, 1)).tokens.at(0);
}

inline void ExpectSame(const std::vector<TokenScore>& a, const std::vector<TokenScore>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].log_prob, b[i].log_prob) << i;
    EXPECT_EQ(a[i].top, b[i].top) << i;
  }
}

// Other chunks round otherwise: what tests of chunked prefill allow the losses of this model.
inline void ExpectClose(const std::vector<TokenScore>& a, const std::vector<TokenScore>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i].log_prob, b[i].log_prob, 2e-4 * (1 - b[i].log_prob)) << i;
  }
}

// A context whose own tokens are scored, with questions behind it, answers given and continuations
// asked for: every request has the context as its prefix.
struct Unit {
  Ids context = RandomText(1700, 31).ids;
  std::vector<Ids> questions, answered;
  std::vector<ScoreRequest> requests;

  explicit Unit(const std::vector<int64_t>& scored) {
    requests.push_back({.prefix = context, .positions = scored});
    for (uint64_t i = 0; i < 25; ++i) {
      questions.push_back(RandomText(12, 100 + i).ids);
      answered.push_back(questions.back());
      const Ids answer = RandomText(9, 200 + i).ids;
      answered.back().insert(answered.back().end(), answer.begin(), answer.end());
    }
    for (size_t i = 0; i < questions.size(); ++i) {
      ScoreRequest& forced =
          requests.emplace_back(ScoreRequest{.prefix = context, .ids = answered[i]});
      forced.positions.resize(9);
      std::iota(forced.positions.begin(), forced.positions.end(), 1712);
      requests.push_back({.prefix = context, .ids = questions[i], .continue_tokens = 7});
    }
  }
};

}  // namespace ropewalk::test::cases
