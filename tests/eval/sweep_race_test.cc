// Racing in a sweep: who leaves, that nothing is measured twice at whatever point a sweep is
// interrupted, and that a race and an exhaustive sweep agree on what both measure.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

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

constexpr int64_t kRaceTrained = 128, kLength = 512, kWindows = 12;

// Nats per token that a method loses beyond the trained length.
double Penalty(const PositionPlan& plan) {
  const Scaling& scaling = plan.layers[0].rotation->scaling;
  if (std::holds_alternative<YarnScaling>(scaling)) return 0;
  if (std::holds_alternative<ByPartsScaling>(scaling)) return 0.01;  // as good as the best
  if (std::holds_alternative<LinearScaling>(scaling)) return 0.6;
  return 2;
}

// Made-up losses with noise per window, the same for every method up to a tenth. Counts what it is
// asked, and stops after a number of calls.
class NoisyEngine : public ScoringEngine {
 public:
  mutable std::map<std::pair<std::string, std::vector<int32_t>>, int> asked;  // plan, ids
  mutable int calls = 0;
  int last_call = -1;  // then it is interrupted

  EngineFacts Facts() const override { return {.name = "noisy", .vocab = 257, .compute = "none"}; }
  int64_t MemoryBytes(const PositionPlan&, int64_t) const override { return 0; }

 private:
  Scores DoScore(const EngineCall& call, std::span<const ScoreRequest> requests) const override {
    if (calls++ == last_call) throw Interrupted();
    const std::string hash = Resolve(*call.plan, call.final_length).hash;
    Scores scores;
    for (const ScoreRequest& request : requests) {
      std::vector<int32_t> ids(request.prefix.begin(), request.prefix.end());
      ids.insert(ids.end(), request.ids.begin(), request.ids.end());
      ++asked[{hash, ids}];
      const double shared = std::sin(static_cast<double>(ids[5] + 7 * ids[9]));
      const double own = 0.05 * std::sin(static_cast<double>(ids[7] * 31 + hash[3] + ids[2]));
      const bool beyond = call.final_length > kRaceTrained;
      const double loss = 4 + shared + own + (beyond ? Penalty(*call.plan) : 0);
      std::vector<TokenScore>& tokens = scores.tokens.emplace_back();
      for (const int64_t p : request.positions)
        tokens.push_back({static_cast<float>(-loss), ids[p]});
    }
    return scores;
  }
};

struct Made {
  PositionPlan plan = test::MadeUpPlan(kRaceTrained);
  ByteTokenizer tokenizer;
  TokenText text = RandomText(4000, 11);
  NoisyEngine engine;
  SweepSpec spec;
  SweepInputs inputs;
  SweepHeader header;
  std::vector<SweepTask> tasks;

  explicit Made(bool race = true) {
    for (const char* name : {"none", "linear", "by-parts", "yarn"}) {
      spec.methods.emplace_back(PositionMethod::Parse(name));
    }
    spec.lengths = {kRaceTrained, kLength};
    spec.trained_length = kRaceTrained;
    spec.protocol = Protocol::Parse("aligned:32");
    spec.protocol.anchors = kWindows;
    if (race) spec.race = RaceRule{.margin = kRaceMargin};
    // A passkey behind each window of 512 bytes, kv behind prompts of its own.
    spec.tasks = {std::make_shared<SampledTask>(MakePasskeyTask({}, tokenizer), kWindows, false),
                  std::make_shared<SampledTask>(MakeKvTask({}, tokenizer), 2, false)};
    inputs.engine = &engine;
    inputs.tokenizer = &tokenizer;
    inputs.text = &text;
    inputs.model_hash = "made up";
    tasks = PlanSweep(spec, plan);
    header.common = CommonFields(spec, inputs, kLength);
  }
  std::vector<Cell> Run(const TempFolder& folder) {
    return RunSweep(tasks, spec, inputs, header, folder.path(), {});
  }
};

const Cell& Of(const std::vector<Cell>& cells, const std::string& method, int64_t length) {
  for (const Cell& cell : cells) {
    if (cell.method == method && cell.length == length) return cell;
  }
  ADD_FAILURE() << method << " at " << length << " is missing";
  return cells.front();
}

TEST(SweepRace, MethodsFarBehindLeaveEarlyAndTheRestIsMeasuredWhole) {
  Made made;
  const TempFolder folder;
  const std::vector<Cell> cells = made.Run(folder);
  for (const char* method : {"none", "linear"}) {
    const Cell& cell = Of(cells, method, kLength);
    ASSERT_TRUE(cell.race_exit) << method;
    EXPECT_LT(cell.windows, kWindows / 2 + 1);
    // What it loses by is known: it has the passkeys behind its windows alone.
    ASSERT_EQ(cell.tasks.size(), 1u);
    EXPECT_EQ(cell.tasks[0].prompts, cell.windows);
    EXPECT_EQ(static_cast<int64_t>(cell.tasks[0].answers.size()), cell.windows);
    EXPECT_TRUE(cell.race_exit->against == "yarn" || cell.race_exit->against == "by-parts");
    EXPECT_NEAR(cell.race_exit->difference, method == std::string("none") ? 2 : 0.6, 0.15);
    EXPECT_GT(cell.race_exit->at_least, 0);
    EXPECT_LT(cell.race_exit->at_least, cell.race_exit->difference);
    EXPECT_EQ(static_cast<int64_t>(cell.window_nll.size()), cell.windows);
  }
  for (const char* method : {"by-parts", "yarn"}) {
    const Cell& cell = Of(cells, method, kLength);
    EXPECT_FALSE(cell.race_exit) << method;
    EXPECT_EQ(cell.windows, kWindows);
    ASSERT_EQ(cell.tasks.size(), 2u);
    EXPECT_EQ(cell.tasks[0].task, "passkey");
    EXPECT_THAT(cell.tasks[0].protocol, HasSubstr(", behind windows"));
    EXPECT_EQ(cell.tasks[0].prompts, kWindows);
    EXPECT_EQ(cell.tasks[1].task, "kv");
  }
  EXPECT_EQ(Of(cells, "none", kRaceTrained).windows, kWindows);  // everything is judged by it
  EXPECT_EQ(Recommend(cells).at(0).method, "yarn");
}

TEST(SweepRace, RowsGoThroughJson) {
  Made made;
  const TempFolder folder;
  const std::vector<Cell> cells = made.Run(folder);
  const std::vector<Cell> read = ReadResults(folder.path()).cells;
  ASSERT_EQ(read.size(), cells.size());
  for (size_t i = 0; i < cells.size(); ++i) {
    EXPECT_EQ(ToJson(read[i]), ToJson(cells[i]));
  }
}

std::string WithoutSeconds(const std::vector<Cell>& cells) {
  std::string text;
  for (Cell cell : cells) {
    cell.seconds = 0;
    text += ToJson(cell) + "\n";
  }
  return text;
}

// Interrupted before every single call of the engine in turn: what was measured is not measured
// again, and the rows are those of an undisturbed sweep.
TEST(SweepRace, ResumesAtEveryPoint) {
  Made whole;
  const TempFolder undisturbed;
  const std::string expected = WithoutSeconds(whole.Run(undisturbed));
  const int calls = whole.engine.calls;
  ASSERT_GT(calls, 20);
  const auto asked = whole.engine.asked;
  for (int last = 0; last < calls; ++last) {
    SCOPED_TRACE(last);
    Made made;
    const TempFolder folder;
    made.engine.last_call = last;
    EXPECT_THROW(made.Run(folder), Interrupted);
    made.engine.last_call = -1;
    EXPECT_EQ(WithoutSeconds(made.Run(folder)), expected);
    EXPECT_EQ(made.engine.calls, calls + 1);  // the one that was interrupted is made again
    EXPECT_EQ(made.engine.asked, asked);
  }
}

// A kill may also leave the last line of either file without its end.
TEST(SweepRace, ResumesBehindATornLine) {
  Made whole;
  const TempFolder undisturbed;
  const std::string expected = WithoutSeconds(whole.Run(undisturbed));
  for (const char* name : {"results.jsonl", "units.jsonl"}) {
    for (const int cut : {1, 7, 40}) {
      Made made;
      const TempFolder folder;
      made.engine.last_call = 14;
      EXPECT_THROW(made.Run(folder), Interrupted);
      made.engine.last_call = -1;
      const std::string path = folder / name;
      const auto bytes = std::filesystem::file_size(path);
      std::filesystem::resize_file(path, bytes - static_cast<uintmax_t>(cut));
      EXPECT_EQ(WithoutSeconds(made.Run(folder)), expected) << name << " without " << cut;
    }
  }
}

TEST(SweepRace, ExhaustiveSweepGoesOnFromARaceAndKeepsItsWindows) {
  Made race;
  const TempFolder folder;
  const std::vector<Cell> raced = race.Run(folder);
  Made whole(false);
  const auto finished = FinishedTasks(whole.tasks, whole.header, folder.path(), false);
  EXPECT_EQ(std::count(finished.begin(), finished.end(), false),
            std::count_if(raced.begin(), raced.end(),
                          [](const Cell& c) { return c.race_exit.has_value(); }));
  const std::vector<Cell> cells = whole.Run(folder);
  Made fresh(false);
  const TempFolder other;
  EXPECT_EQ(WithoutSeconds(cells), WithoutSeconds(fresh.Run(other)));
  EXPECT_LT(whole.engine.calls, fresh.engine.calls);
  for (const Cell& cell : cells) {
    EXPECT_FALSE(cell.race_exit);
    EXPECT_EQ(cell.windows, kWindows);
  }
  EXPECT_EQ(ReadResults(folder.path()).cells.size(), cells.size());  // the later row of two
}

TEST(SweepRace, UnitsThatSomethingElseWroteAreRefused) {
  for (const char* line :
       {"{\"cell\": 1}\n", "[]\n", "no json\n", "{\"cell\":\"x\",\"seconds\":1,\"window\":0}\n"}) {
    Made made;
    const TempFolder folder;
    std::ofstream(folder / "units.jsonl") << line;
    try {
      made.Run(folder);
      FAIL() << line;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalidFile);
      EXPECT_THAT(e.what(), HasSubstr("units.jsonl, line 1"));
    }
  }
}

}  // namespace
}  // namespace ropewalk
