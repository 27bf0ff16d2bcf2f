// Passkeys hidden in the windows of perplexity: what a window then is, and that one prefill gives the
// numbers that the model gives to the same tokens one by one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ropewalk/base/error.h"
#include "ropewalk/eval/key_tokens.h"
#include "ropewalk/eval/tasks.h"
#include "src/eval/cell_work.h"
#include "src/eval/passkey.h"
#include "tests/eval/tiny_model.h"

namespace ropewalk {
namespace {

using test::ByteTokenizer;
using test::RandomText;
using test::Tiny;
using testing::HasSubstr;

constexpr int64_t kScored = 48, kAnchors = 4, kTrials = 10;  // 3 in each window
constexpr int32_t kBos = 256;

struct SharedSweep {
  ByteTokenizer tokenizer;
  TokenText text = RandomText(6000, 5);
  SweepSpec spec;
  SweepInputs inputs;

  explicit SharedSweep(bool bos = true) {
    spec.protocol = Protocol::Parse("aligned:48");
    spec.protocol.anchors = kAnchors;
    spec.protocol.bos = bos;
    spec.bos_id = kBos;
    spec.trained_length = test::kTinyTrained;
    const PasskeyOptions options{.bos_id = bos ? std::optional(kBos) : std::nullopt};
    spec.tasks = {
        std::make_shared<SampledTask>(MakePasskeyTask(options, tokenizer), kTrials, false)};
    inputs.engine = Tiny().engine.get();
    inputs.tokenizer = &tokenizer;
    inputs.text = &text;
  }
  internal::CellWindows Windows(int64_t length) const {
    return internal::WindowsOf(spec, &text, length, 2000);
  }
  std::vector<EvalWindow> Plain(int64_t length) const {
    return MakeWindows(text, spec.protocol, length, 2000, spec.bos_id);
  }
};

TEST(SharedWindows, HoldTheTextInFrontOfTheSameTokens) {
  for (const bool bos : {true, false}) {
    const SharedSweep sweep(bos);
    const auto front = static_cast<std::ptrdiff_t>(bos ? 1 : 0);
    for (const int64_t length : {1000, 1500, 2000}) {
      SCOPED_TRACE(length);
      const internal::CellWindows there = sweep.Windows(length);
      const std::vector<EvalWindow> plain = sweep.Plain(length);
      ASSERT_EQ(there.shared, sweep.spec.tasks[0].get());
      ASSERT_EQ(there.windows.size(), plain.size());
      for (size_t w = 0; w < plain.size(); ++w) {
        const AskedWindow& asked = there.windows[w];
        const EvalWindow& window = asked.window;
        EXPECT_EQ(asked.questions.size(), 3u);
        int64_t behind = 0;
        for (const TaskQuestion& q : asked.questions) {
          behind = std::max(behind, static_cast<int64_t>(q.ids.size() + q.answer.size()));
        }
        EXPECT_EQ(static_cast<int64_t>(window.ids.size()) + behind, length);
        // The same tokens are scored, at the same place of the text.
        EXPECT_EQ(static_cast<int64_t>(window.ids.size()) - window.score_begin, kScored);
        EXPECT_TRUE(
            std::equal(window.ids.end() - kScored, window.ids.end(), plain[w].ids.end() - kScored));
        EXPECT_EQ(window.text_begin + window.score_begin,
                  plain[w].text_begin + plain[w].score_begin);
        // Without what is hidden it is the end of the plain window.
        std::vector<int32_t> left(window.ids.begin() + front, window.ids.end());
        for (auto range = asked.hidden.rbegin(); range != asked.hidden.rend(); ++range) {
          const std::string said = sweep.tokenizer.Decode(
              {window.ids.data() + range->first, window.ids.data() + range->second});
          const auto i = static_cast<size_t>(asked.hidden.rend() - range - 1);
          EXPECT_THAT(said, HasSubstr(" is " + asked.questions[i].references[0] + ". Remember"));
          EXPECT_LE(range->second, window.score_begin);
          EXPECT_NEAR(asked.questions[i].depth * static_cast<double>(window.ids.size()),
                      static_cast<double>(range->first), 1e-6);
          left.erase(left.begin() + range->first - front, left.begin() + range->second - front);
        }
        EXPECT_TRUE(std::equal(left.begin(), left.end(),
                               plain[w].ids.end() - static_cast<std::ptrdiff_t>(left.size())));
        const auto hidden = static_cast<int64_t>(window.ids.size() - left.size()) - front;
        EXPECT_LE(3 * hidden, length);
      }
    }
  }
}

TEST(SharedWindows, WhereTheyDoNotHoldItAndElsewhereTasksHavePromptsOfTheirOwn) {
  SharedSweep sweep;
  EXPECT_EQ(sweep.Windows(600).shared, nullptr);  // three of 80 bytes are more than a third
  EXPECT_EQ(sweep.Windows(600).windows.size(), size_t{kAnchors});
  EXPECT_EQ(internal::ProtocolOf(sweep.spec), "aligned:48+passkey");
  sweep.spec.share = false;
  EXPECT_EQ(sweep.Windows(2000).shared, nullptr);
  EXPECT_EQ(internal::ProtocolOf(sweep.spec), "aligned:48");
  sweep.spec.share = true;
  sweep.spec.protocol = Protocol::Parse("windows");
  EXPECT_EQ(sweep.Windows(2000).shared, nullptr);
  EXPECT_EQ(internal::ProtocolOf(sweep.spec), "windows");
  sweep.spec.tasks.clear();
  sweep.spec.protocol = Protocol::Parse("aligned:48");
  EXPECT_EQ(internal::ProtocolOf(sweep.spec), "aligned:48");
}

// Counts what goes through the model.
class FedTokensEngine : public ScoringEngine {
 public:
  mutable int64_t fed_tokens = 0, calls = 0;
  EngineFacts Facts() const override { return Tiny().engine->Facts(); }
  int64_t MemoryBytes(const PositionPlan&, int64_t) const override { return 0; }

 private:
  Scores DoScore(const EngineCall& call, std::span<const ScoreRequest> requests) const override {
    Scores scores = Tiny().engine->Score(call, requests);
    fed_tokens += scores.fed_tokens;
    ++calls;
    return scores;
  }
};

// The sum over the last `tokens` of a sequence by itself, in a call that declares `length`.
double NllAlone(const PositionPlan& plan, const std::vector<int32_t>& ids, int64_t tokens,
                int64_t length) {
  ScoreRequest request{.ids = ids};
  request.positions.resize(static_cast<size_t>(tokens));
  std::iota(request.positions.begin(), request.positions.end(),
            static_cast<int64_t>(ids.size()) - tokens);
  const Scores scores =
      Tiny().engine->Score({.plan = &plan, .final_length = length}, std::span(&request, 1));
  double nll = 0;
  for (const TokenScore& score : scores.tokens[0]) nll -= score.log_prob;
  return nll;
}

// `dynamic` depends on the length: it is that of the cell, also for a window that is shorter.
TEST(SharedWindows, OnePrefillGivesLossAndAnswers) {
  for (const char* method : {"ntk", "dynamic"}) {
    SharedSweep sweep;
    const FedTokensEngine engine;
    sweep.inputs.engine = &engine;
    const int64_t length = 1000;
    const SweepTask task = MakeTask(PositionMethod::Parse(method), 12, length,
                                    sweep.spec.trained_length, Tiny().files.config.plan);
    const Cell common = CommonFields(sweep.spec, sweep.inputs, 2000);
    const Cell cell = RunCell(task, sweep.spec, sweep.inputs, common, {});
    EXPECT_EQ(engine.calls, 1);
    EXPECT_GT(engine.fed_tokens, kAnchors * 900);
    EXPECT_LE(engine.fed_tokens, kAnchors * (length + 2 * 70));  // two more questions
    EXPECT_EQ(cell.protocol, "aligned:48+passkey");
    ASSERT_EQ(cell.tasks.size(), 1u);
    const TaskResult& passkey = cell.tasks[0];
    EXPECT_EQ(passkey.prompts, kAnchors);
    ASSERT_EQ(passkey.answers.size(), size_t{3 * kAnchors});
    const internal::CellWindows there = sweep.Windows(length);
    size_t next = 0;
    for (size_t w = 0; w < there.windows.size(); ++w) {
      const std::vector<int32_t>& ids = there.windows[w].window.ids;
      EXPECT_NEAR(cell.window_nll[w] * kScored, NllAlone(task.plan, ids, kScored, length), 1e-2);
      for (const TaskQuestion& q : there.windows[w].questions) {
        std::vector<int32_t> whole = ids;
        whole.insert(whole.end(), q.ids.begin(), q.ids.end());
        whole.insert(whole.end(), q.answer.begin(), q.answer.end());
        const TaskAnswer& answer = passkey.answers[next++];
        EXPECT_NEAR(answer.nll, NllAlone(task.plan, whole, 5, length), 1e-3);
        EXPECT_EQ(answer.prompt, static_cast<int32_t>(w));
        EXPECT_EQ(answer.tokens, 5);
        EXPECT_EQ(answer.depth, q.depth);
      }
    }
    if (method == std::string("dynamic")) continue;
    // And token by token.
    const std::vector<double> nll =
        test::ReferenceNll(*Tiny().decoder, task.plan, there.windows[0].window.ids);
    EXPECT_NEAR(cell.window_nll[0], std::accumulate(nll.end() - kScored, nll.end(), 0.0) / kScored,
                1e-4);
  }
}

// Loss by position is that of the text.
TEST(SharedWindows, HiddenTokensAreNotInTheLossByPosition) {
  const SharedSweep sweep;
  const internal::CellWindows there = sweep.Windows(1000);
  RunOptions options;
  options.bos_id = kBos;
  options.by_position = true;
  const std::vector<internal::WindowScore> scores =
      internal::ScoreWindows(*Tiny().engine, Tiny().files.config.plan, sweep.text,
                             sweep.spec.protocol, there.windows, 0, 1, 1000, options, nullptr);
  const AskedWindow& asked = there.windows[0];
  int64_t text = static_cast<int64_t>(asked.window.ids.size()) - 1;
  for (const auto& [begin, end] : asked.hidden) text -= end - begin;
  EXPECT_EQ(
      std::accumulate(scores[0].bucket_tokens.begin(), scores[0].bucket_tokens.end(), int64_t{0}),
      text);
}

// The loss of key tokens is that of ScoreKeyTokens, over the same tokens with needles and without.
TEST(SharedWindows, KeyTokensAreScoredWhereTheyStand) {
  for (const bool share : {false, true}) {
    SharedSweep sweep;
    sweep.spec.share = share;
    const int64_t length = 1000;
    const std::vector<EvalWindow> plain = sweep.Plain(length);
    KeyTokenTask keys{.protocol = "by hand", .data_hash = "d"};
    for (const size_t w : {0, 1, 3}) {                                       // none in one window
      const int64_t first = plain[w].text_begin + plain[w].score_begin - 1;  // BOS
      for (const int64_t i : {int64_t{0}, int64_t{7}, kScored - 1})
        keys.tokens.push_back(first + i);
      keys.tokens.push_back(first + kScored);  // scored by none
    }
    sweep.spec.key_tokens = keys;
    const PositionPlan& plan = Tiny().files.config.plan;
    const SweepTask task = MakeTask(PositionMethod(), 1, length, sweep.spec.trained_length, plan);
    const Cell common = CommonFields(sweep.spec, sweep.inputs, 2000);
    EXPECT_THAT(common.tasks_protocol, HasSubstr("key-tokens = by hand, data d"));
    std::vector<ScoredToken> tokens;
    const Cell cell = RunCell(task, sweep.spec, sweep.inputs, common, {}, &tokens);
    const TaskResult* result = FindTask(cell.tasks, "key-tokens");
    ASSERT_NE(result, nullptr);
    EXPECT_EQ(result->data_hash, "d");
    ASSERT_EQ(result->answers.size(), 9u);
    std::vector<EvalWindow> windows;
    for (const AskedWindow& asked : sweep.Windows(length).windows) windows.push_back(asked.window);
    PerplexityResult measured;
    measured.tokens = tokens;
    measured.windows = kAnchors;
    const KeyTokenResult expected = ScoreKeyTokens(measured, windows, true, keys.tokens);
    EXPECT_EQ(expected.key_tokens, 9);
    EXPECT_NEAR(result->mean_nll, expected.mean_nll, 1e-6);
    EXPECT_NEAR(result->standard_error, expected.standard_error, 1e-6);
    for (size_t i = 0; i < result->answers.size(); ++i) {
      const TaskAnswer& answer = result->answers[i];
      EXPECT_EQ(answer.prompt, std::vector<int32_t>({0, 1, 3})[i / 3]);
      EXPECT_EQ(answer.question, static_cast<int32_t>(i % 3));
      EXPECT_EQ(answer.tokens, 1);
      const auto w = static_cast<size_t>(answer.prompt);
      const int64_t position = keys.tokens[i / 3 * 4 + i % 3] - windows[w].text_begin + 1;
      const std::vector<int32_t> said =
          test::ReferenceArgmax(*Tiny().decoder, task.plan, windows[w].ids);
      EXPECT_EQ(answer.exact, said[static_cast<size_t>(position)] ==
                                  windows[w].ids[static_cast<size_t>(position)]);
    }
  }
}

}  // namespace
}  // namespace ropewalk
