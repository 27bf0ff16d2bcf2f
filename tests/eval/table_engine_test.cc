// A whole sweep over an engine that has no model at all, only a table of made-up probabilities:
// measurements know the interface and nothing behind it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ropewalk/base/error.h"
#include "ropewalk/eval/recommend.h"
#include "ropewalk/eval/results.h"
#include "ropewalk/eval/tasks.h"
#include "src/eval/cell_json.h"
#include "tests/eval/tiny_model.h"

namespace ropewalk {
namespace {

using test::ByteTokenizer;
using test::RandomText;
using test::TempFolder;
using testing::HasSubstr;

constexpr int64_t kTrained = 128, kVocab = 257;

// How far a plan reaches: none to the trained length, YaRN to factor times it, others half as far.
double Reach(const PositionPlan& plan) {
  const Scaling& scaling = plan.layers[0].rotation->scaling;
  const bool yarn = std::holds_alternative<YarnScaling>(scaling);
  return std::max(1.0, FactorOf(scaling) * (yarn ? 1 : 0.5)) * kTrained;
}

// Nats of one token behind another: a bigram's, and much more beyond the reach.
float Loss(const PositionPlan& plan, int64_t position, int32_t before, int32_t id) {
  const float bigram = 1 + static_cast<float>((before * 31 + id * 17) % 64) / 64;
  return static_cast<double>(position) < Reach(plan) ? bigram : bigram + 3;
}

class TableEngine : public ScoringEngine {
 public:
  EngineFacts Facts() const override {
    return {.name = "table", .vocab = kVocab, .compute = "by hand", .threads = 7, .angles = "none"};
  }
  int64_t MemoryBytes(const PositionPlan&, int64_t) const override { return 0; }

 private:
  Scores DoScore(const EngineCall& call, std::span<const ScoreRequest> requests) const override {
    Scores scores;
    for (const ScoreRequest& request : requests) {
      std::vector<int32_t> ids(request.prefix.begin(), request.prefix.end());
      ids.insert(ids.end(), request.ids.begin(), request.ids.end());
      std::vector<TokenScore>& tokens = scores.tokens.emplace_back();
      for (const int64_t p : request.positions) {
        const bool reached = static_cast<double>(ids.size()) <= Reach(*call.plan);
        tokens.push_back({-Loss(*call.plan, p, ids[p - 1], ids[p]), reached ? ids[p] : 256});
      }
      if (call.tick) call.tick(static_cast<int64_t>(ids.size()) - 1);
    }
    return scores;
  }
};

TEST(TableEngine, RunsAWholeSweep) {
  const TableEngine engine;
  const ByteTokenizer tokenizer;
  const TokenText text = RandomText(1500, 3);
  SweepSpec spec;
  for (const char* name : {"none", "ntk", "yarn"}) {
    spec.methods.emplace_back(PositionMethod::Parse(name));
  }
  spec.lengths = {64, 128, 256, 512};
  spec.trained_length = kTrained;
  spec.protocol = Protocol::Parse("aligned:32");
  spec.protocol.anchors = 4;
  for (std::unique_ptr<Task>& task : MakeTasks({"passkey", "kv"}, {}, tokenizer)) {
    spec.tasks.push_back(std::make_shared<SampledTask>(std::move(task), 2, false));
  }
  SweepInputs inputs;
  inputs.engine = &engine;
  inputs.tokenizer = &tokenizer;
  inputs.text = &text;
  inputs.model_hash = "made up";
  const PositionPlan plan = test::MadeUpPlan(kTrained);
  std::vector<SweepTask> tasks = PlanSweep(spec, plan);
  SweepHeader header;
  header.common = CommonFields(spec, inputs, 512);
  const TempFolder folder;
  std::vector<Cell> cells = RunSweep(tasks, spec, inputs, header, folder.path(), {});
  tasks = AddCosts(tasks, spec, plan, cells);
  cells = RunSweep(tasks, spec, inputs, header, folder.path(), {});
  ASSERT_EQ(cells.size(), tasks.size());
  EXPECT_GE(cells.size(), 10u);  // 4 of none; ntk and yarn at 4 lengths, but for equal plans
  for (size_t i = 0; i < cells.size(); ++i) {
    const Cell& cell = cells[i];
    SCOPED_TRACE(cell.method + " at " + std::to_string(cell.length));
    EXPECT_EQ(cell.compute, "by hand");
    EXPECT_EQ(cell.angles, "none");  // as the engine says, not as asked
    EXPECT_EQ(cell.threads, 7);
    double sum = 0;
    for (const EvalWindow& w : MakeWindows(text, spec.protocol, cell.length, 512, {})) {
      for (size_t p = static_cast<size_t>(w.score_begin); p < w.ids.size(); ++p) {
        sum += Loss(tasks[i].plan, static_cast<int64_t>(p), w.ids[p - 1], w.ids[p]);
      }
    }
    EXPECT_EQ(cell.scored_tokens, 4 * 32);
    EXPECT_NEAR(cell.mean_nll, sum / (4 * 32), 1e-6);
    EXPECT_TRUE(std::isnan(cell.entropy));  // this engine has no attention
    // A passkey takes 143 bytes with its question, two pairs of kv between 256 and 512.
    ASSERT_EQ(cell.tasks.size(), cell.length < 256 ? 0u : cell.length < 512 ? 1u : 2u);
    for (const TaskResult& result : cell.tasks) {
      EXPECT_GE(result.answers.size(), 2u);
      EXPECT_EQ(result.exact, static_cast<double>(cell.length) <= Reach(tasks[i].plan) ? 1 : 0);
    }
  }
  EXPECT_EQ(ReadResults(folder.path()).cells.size(), cells.size());
  const std::vector<Recommendation> recommended = Recommend(cells);
  ASSERT_EQ(recommended.size(), 2u);
  for (const Recommendation& r : recommended) {
    EXPECT_TRUE(r.judged);
    EXPECT_EQ(r.method, "yarn") << r.length;
    EXPECT_EQ(r.factor, static_cast<double>(r.length) / kTrained);
    EXPECT_EQ(r.longest_usable, 512);
  }
}

// Rows describe, and settings say, the layers that are extended: not a sliding one with a base of
// its own in front of them.
TEST(TableEngine, RowsDescribeTheExtendedLayers) {
  const TableEngine engine;
  const TokenText text = RandomText(600, 3);
  PositionPlan plan = test::MadeUpPlan(kTrained);
  plan.layers[0].window_tokens = 32;
  plan.layers[0].rotation->base = 777;
  SweepSpec spec;
  spec.lengths = {256};
  spec.trained_length = kTrained;
  spec.protocol = Protocol::Parse("aligned:32");
  spec.protocol.anchors = 2;
  spec.methods.emplace_back(PositionMethod::Parse("linear"));
  SweepInputs inputs;
  inputs.engine = &engine;
  inputs.text = &text;
  const SweepTask task = PlanSweep(spec, plan).back();
  const Cell cell = RunCell(task, spec, inputs, CommonFields(spec, inputs, 256), {}, nullptr);
  EXPECT_EQ(cell.method, "linear");
  EXPECT_EQ(cell.rope_base, 10000);
  EXPECT_EQ(cell.local_base, 777);
  EXPECT_EQ(cell.inv_freq.at(0), 0.5);  // linear halves all of them
  const Cell again = internal::CellFromJson(internal::ToJson(cell));
  for (const EngineSetting& s : SettingsFor(again, 256)) {
    if (s.engine == "Hugging Face transformers 5") {
      EXPECT_THAT(s.setting, HasSubstr("777"));
    }
  }
}

// What an engine gets wrong is found here, not in a table of results.
TEST(TableEngine, AnswersAreChecked) {
  class Broken : public TableEngine {
   public:
    explicit Broken(Scores scores) : scores_(std::move(scores)) {}

   private:
    Scores DoScore(const EngineCall&, std::span<const ScoreRequest>) const override {
      return scores_;
    }
    Scores scores_;
  };
  const PositionPlan plan = test::MadeUpPlan(kTrained);
  const std::vector<int32_t> ids = {1, 2, 3};
  const ScoreRequest request{.ids = ids, .positions = {1, 2}};
  const auto message = [&](std::vector<std::vector<TokenScore>> tokens) -> std::string {
    try {
      Broken({.tokens = std::move(tokens)})
          .Score({.plan = &plan, .final_length = 3}, std::span(&request, 1));
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(message({{{-1, 2}, {-2, 3}}}), "no error");
  EXPECT_THAT(message({}), HasSubstr("'table' did not answer one score for each position"));
  EXPECT_THAT(message({{{-1, 2}}}), HasSubstr("did not answer one score for each position"));
  EXPECT_THAT(message({{{-1, 2}, {-2, 3}}, {}}), HasSubstr("did not answer"));
  EXPECT_THROW(Broken({.tokens = {{{-1, 2}, {-2, 3}}}, .entropy = {{1, 1}, {1, 1}}})
                   .Score({.plan = &plan, .final_length = 3}, std::span(&request, 1)),
               Error);
  EXPECT_THAT(message({{{-1, 2}, {std::nanf(""), 3}}}),
              HasSubstr("loss at position 2 is not a finite number"));
  const auto continued = [&](std::vector<Continuation> made) -> std::string {
    const ScoreRequest more{.ids = ids, .continue_tokens = 2};
    try {
      Broken({.tokens = {{}}, .continuations = std::move(made)})
          .Score({.plan = &plan, .final_length = 5}, std::span(&more, 1));
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(continued({{.ids = {1, 2}}}), "no error");
  EXPECT_THAT(continued({{.ids = {1, 2, 3}}}), HasSubstr("one continuation of at most the tokens"));
  EXPECT_THAT(continued({{}, {}}), HasSubstr("one continuation of at most the tokens"));
  EXPECT_THAT(continued({}), HasSubstr("does not generate text"));
  const GenerateRequest prompt{.ids = ids, .max_tokens = 0};
  EXPECT_THROW(TableEngine().Generate({.plan = &plan, .final_length = 3}, std::span(&prompt, 1)),
               Error);
}

// An engine that knows nothing of continuations in a call of Score is asked by Generate.
TEST(TableEngine, ContinuationsComeFromGenerateWhereScoreHasNone) {
  class Counting : public TableEngine {
   private:
    std::vector<Continuation> DoGenerate(const EngineCall&,
                                         std::span<const GenerateRequest> requests) const override {
      std::vector<Continuation> made;
      for (const GenerateRequest& r : requests) {
        made.push_back({.ids = std::vector<int32_t>(static_cast<size_t>(r.max_tokens),
                                                    static_cast<int32_t>(r.ids.size())),
                        .stopped = !r.stop.empty()});
      }
      return made;
    }
  };
  const PositionPlan plan = test::MadeUpPlan(kTrained);
  const std::vector<int32_t> ids = {1, 2, 3}, stop = {7};
  const std::span all(ids);
  const std::vector<ScoreRequest> requests = {
      {.prefix = all.first(2), .ids = all.subspan(2), .continue_tokens = 2},
      {.ids = ids, .positions = {1}},
      {.ids = ids, .positions = {2}, .continue_tokens = 1, .stop = stop}};
  const Scores scores = Counting().Score({.plan = &plan, .final_length = 5}, requests);
  ASSERT_EQ(scores.continuations.size(), 3u);
  EXPECT_EQ(scores.continuations[0].ids, (std::vector<int32_t>{1, 1}));
  EXPECT_FALSE(scores.continuations[0].stopped);
  EXPECT_TRUE(scores.continuations[1].ids.empty());
  EXPECT_EQ(scores.continuations[2].ids, (std::vector<int32_t>{3}));
  EXPECT_TRUE(scores.continuations[2].stopped);
  EXPECT_EQ(scores.tokens[2].size(), 1u);
}

}  // namespace
}  // namespace ropewalk
