// Greedy continuations of the decoder, against the argmax of each step and calls of their own, and
// how many tokens they and what is scored beside them cost.
#include <gtest/gtest.h>

#include <algorithm>

#include "ropewalk/eval/decoder_engine.h"
#include "tests/eval/decoder_cases.h"

namespace ropewalk {
namespace {

using namespace test::cases;
using test::RandomText;
using test::Tiny;

TEST(DecoderEngine, ContinuesGreedilyFromASharedPrefix) {
  const PositionPlan plan = Method("yarn");
  const Case shared(530, {1, 12});
  EngineCall call{.plan = &plan, .final_length = 600};
  std::vector<GenerateRequest> requests;
  for (const Ids& suffix : shared.suffixes) {
    requests.push_back({.prefix = shared.prefix, .ids = suffix, .max_tokens = 9});
  }
  requests.push_back({.prefix = shared.prefix, .max_tokens = 9});  // nothing behind the prefix
  requests.push_back({.ids = shared.prefix, .max_tokens = 0});
  const std::vector<Continuation> made = Tiny().engine->Generate(call, requests);
  ASSERT_EQ(made.size(), 4u);
  EXPECT_TRUE(made[3].ids.empty());
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(made[i].ids.size(), 9u);
    EXPECT_FALSE(made[i].stopped);
    Ids ids = i < 2 ? shared.Whole(i) : shared.prefix;
    const size_t prompt = ids.size();
    ids.insert(ids.end(), made[i].ids.begin(), made[i].ids.end());
    const Ids best = test::ReferenceArgmax(*Tiny().decoder, plan, ids);
    for (size_t p = prompt; p < ids.size(); ++p) EXPECT_EQ(ids[p], best[p]) << i << " " << p;
  }
  call.reuse = PrefixReuse::kWhole;
  EXPECT_EQ(Tiny().engine->Generate(call, requests)[1].ids, made[1].ids);
  // Up to the first of the ids that end it.
  const Ids stop = {made[1].ids[4], made[1].ids[6]};
  requests[1].stop = stop;
  const Continuation stopped = Tiny().engine->Generate(call, requests)[1];
  EXPECT_TRUE(stopped.stopped);
  const auto end =
      std::find_first_of(made[1].ids.begin(), made[1].ids.end(), stop.begin(), stop.end());
  EXPECT_EQ(stopped.ids, Ids(made[1].ids.begin(), end));
}

// Counted against the calls of each request alone: the context goes through the model once, whether
// its last token is scored, or others alone, or none.
TEST(DecoderEngine, AScoredContextAndAllBehindItCostOnePrefill) {
  const PositionPlan plan = Method("yarn");
  for (const std::vector<int64_t>& scored :
       {std::vector<int64_t>{1500, 1699}, std::vector<int64_t>{900, 1000},
        std::vector<int64_t>{}}) {
    const Unit unit(scored);
    EngineCall call{.plan = &plan, .final_length = 1740, .reuse = PrefixReuse::kWhole};
    int64_t ticked = 0;
    call.tick = [&](int64_t tokens) { ticked += tokens; };
    const Scores scores = Tiny().engine->Score(call, unit.requests);
    // The last token of the context, then 20 of question and answer, or the question and 6 made.
    EXPECT_EQ(scores.fed_tokens, 1699 + 25 * (1 + 20) + 25 * (1 + 12 + 6));
    EXPECT_EQ(ticked, (scored.empty() ? 0 : scored.back()) + 25 * 1720 + 25 * (1712 + 6));
    ASSERT_EQ(scores.continuations.size(), unit.requests.size());
    for (const size_t i : {size_t{0}, size_t{1}, size_t{2}, size_t{49}, size_t{50}}) {
      SCOPED_TRACE(i);
      const ScoreRequest& request = unit.requests[i];
      const Scores alone = Tiny().engine->Score(call, std::span(&request, 1));
      ExpectSame(scores.tokens[i], alone.tokens[0]);
      EXPECT_EQ(scores.continuations[i].ids.size(), request.continue_tokens);
      if (request.continue_tokens == 0) continue;
      EXPECT_EQ(scores.continuations[i].ids, alone.continuations[0].ids);
      const GenerateRequest prompt{
          .prefix = request.prefix, .ids = request.ids, .max_tokens = request.continue_tokens};
      EXPECT_EQ(scores.continuations[i].ids,
                Tiny().engine->Generate(call, std::span(&prompt, 1))[0].ids);
    }
    call.reuse = PrefixReuse::kSameBits;
    const Scores same = Tiny().engine->Score(call, unit.requests);
    for (size_t i = 0; i < 4; ++i) {
      ExpectClose(scores.tokens[i], same.tokens[i]);
      EXPECT_EQ(scores.continuations[i].ids, same.continuations[i].ids);
    }
  }
}

// One request may ask for both; the continuation begins behind its last token, which is fed.
TEST(DecoderEngine, ScoresAndContinuesOneRequest) {
  const PositionPlan plan = Method("none");
  const Ids ids = RandomText(700, 4).ids;
  const EngineCall call{.plan = &plan, .final_length = 710};
  ScoreRequest both{.ids = ids, .positions = {3, 600}, .continue_tokens = 10};
  const Scores scores = Tiny().engine->Score(call, std::span(&both, 1));
  EXPECT_EQ(scores.fed_tokens, 700 + 9);
  const ScoreRequest scored{.ids = ids, .positions = {3, 600}};
  ExpectClose(scores.tokens[0], Tiny().engine->Score(call, std::span(&scored, 1)).tokens[0]);
  const GenerateRequest prompt{.ids = ids, .max_tokens = 10};
  const Ids made = Tiny().engine->Generate(call, std::span(&prompt, 1))[0].ids;
  EXPECT_EQ(scores.continuations[0].ids, made);
  const Ids stop = {made[3]};
  both.stop = stop;
  const Continuation stopped = Tiny().engine->Score(call, std::span(&both, 1)).continuations[0];
  EXPECT_TRUE(stopped.stopped);
  EXPECT_EQ(stopped.ids, Ids(made.begin(), std::find(made.begin(), made.end(), made[3])));
}

}  // namespace
}  // namespace ropewalk
