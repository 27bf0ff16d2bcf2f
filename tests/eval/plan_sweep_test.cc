// Which cells a sweep has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "ropewalk/base/error.h"
#include "tests/eval/tiny_model.h"

namespace ropewalk {
namespace {

using test::Tiny;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

SweepSpec Spec(const std::vector<std::string>& methods, std::vector<int64_t> lengths) {
  SweepSpec spec;
  for (const std::string& name : methods) {
    spec.methods.emplace_back(PositionMethod::Parse(name));
  }
  spec.lengths = std::move(lengths);
  spec.trained_length = test::kTinyTrained;
  spec.protocol = Protocol::Parse("aligned:8");
  return spec;
}

std::vector<std::string> Names(const std::vector<SweepTask>& tasks) {
  std::vector<std::string> names;
  for (const SweepTask& t : tasks) {
    names.push_back(t.method + " x" + std::to_string(static_cast<int>(t.factor)) + " " +
                    std::to_string(t.length));
  }
  return names;
}

std::string MessageOf(const SweepSpec& spec) {
  try {
    PlanSweep(spec, Tiny().files.config.plan);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(PlanSweep, OneCellForEachMethodAtEachLength) {
  const auto tasks =
      PlanSweep(Spec({"none", "yarn"}, {32, 64, 128, 256}), Tiny().files.config.plan);
  // Up to the trained 64 tokens the largest factor, which shows the most that it costs.
  EXPECT_THAT(Names(tasks),
              ElementsAre("none x1 32", "yarn x4 32", "none x1 64", "yarn x4 64", "none x1 128",
                          "yarn x2 128", "none x1 256", "yarn x4 256"));
  for (const SweepTask& t : tasks) {
    EXPECT_EQ(t.plan_hash, Resolve(t.plan, t.length).hash);
    EXPECT_EQ(t.shares, -1);
    EXPECT_FALSE(t.added);
  }
  const std::vector<std::string> ten = {"none",     "linear",        "ntk",  "dynamic",
                                        "by-parts", "by-parts-repo", "yarn", "llama3",
                                        "hope",     "ntk-mixed"};
  EXPECT_EQ(PlanSweep(Spec(ten, {64, 128, 256, 512}), Tiny().files.config.plan).size(), 40u);
}

TEST(PlanSweep, AddsNoScalingAtTheTrainedLengthAlone) {
  const auto tasks = PlanSweep(Spec({"yarn"}, {16, 256}), Tiny().files.config.plan);
  EXPECT_THAT(Names(tasks), ElementsAre("yarn x4 16", "none x1 64", "yarn x4 256"));
  EXPECT_FALSE(tasks[0].added);
  EXPECT_TRUE(tasks[1].added);
  EXPECT_THAT(Names(PlanSweep(Spec({"none", "yarn"}, {256}), Tiny().files.config.plan)),
              ElementsAre("none x1 64", "none x1 256", "yarn x4 256"));
  EXPECT_THAT(Names(PlanSweep(Spec({"none"}, {256}), Tiny().files.config.plan)),
              ElementsAre("none x1 64", "none x1 256"));
  // Nothing is judged where no length lies beyond the trained one, or where that is unknown.
  EXPECT_THAT(Names(PlanSweep(Spec({"none"}, {32}), Tiny().files.config.plan)),
              ElementsAre("none x1 32"));
  SweepSpec unknown = Spec({"none"}, {32, 256});
  unknown.trained_length = 0;
  EXPECT_FALSE(JudgesBeyondTrained(unknown));
  EXPECT_THAT(Names(PlanSweep(unknown, Tiny().files.config.plan)),
              ElementsAre("none x1 32", "none x1 256"));
}

TEST(PlanSweep, AddsNothingThatTheProtocolCannotScore) {
  SweepSpec spec = Spec({"yarn"}, {256});
  for (const char* protocol : {"sliding:64", "aligned:64", "aligned:100"}) {
    spec.protocol = Protocol::Parse(protocol);
    EXPECT_FALSE(JudgesBeyondTrained(spec)) << protocol;
    EXPECT_THAT(Names(PlanSweep(spec, Tiny().files.config.plan)), ElementsAre("yarn x4 256"));
  }
  for (const char* protocol : {"sliding:63", "sliding:32", "aligned:63", "windows", "half"}) {
    spec.protocol = Protocol::Parse(protocol);
    EXPECT_TRUE(JudgesBeyondTrained(spec)) << protocol;
  }
}

Cell CellOf(const SweepTask& task, double perplexity) {
  Cell cell;
  cell.method = task.method;
  cell.factor = task.factor;
  cell.length = task.length;
  cell.plan_hash = task.plan_hash;
  cell.trained_length = test::kTinyTrained;
  cell.perplexity = perplexity;
  cell.mean_nll = std::log(perplexity);
  return cell;
}

TEST(AddCosts, OfWhatIsRecommendedAndNothingElse) {
  const SweepSpec spec = Spec({"none", "yarn", "ntk", "dynamic"}, {64, 128, 256});
  const auto tasks = PlanSweep(spec, Tiny().files.config.plan);
  ASSERT_EQ(tasks.size(), 12u);
  std::vector<Cell> cells;
  for (const SweepTask& t : tasks) {
    const bool best = t.method == (t.length == 128 ? "ntk" : "yarn");
    cells.push_back(CellOf(t, t.method == "none" && t.length > 64 ? 90 : best ? 20 : 21));
  }
  // yarn with factor 4 was measured at 64 tokens, ntk with factor 2 was not.
  auto more = AddCosts(tasks, spec, Tiny().files.config.plan, cells);
  ASSERT_EQ(more.size(), 13u);
  EXPECT_EQ(Names({more.back()}), std::vector<std::string>({"ntk x2 64"}));
  EXPECT_TRUE(more.back().added);
  EXPECT_EQ(more.back().shares, -1);
  // Again, with that row: nothing more.
  cells.push_back(CellOf(more.back(), 20.5));
  EXPECT_EQ(AddCosts(more, spec, Tiny().files.config.plan, cells).size(), 13u);
  // Nothing usable, nothing to add.
  for (Cell& c : cells) {
    if (c.length > 64) c.perplexity = 90;
  }
  EXPECT_EQ(AddCosts(tasks, spec, Tiny().files.config.plan, cells).size(), 12u);
}

TEST(AddCosts, SharesThePlanOfNoScalingWhereItIsTheSame) {
  const SweepSpec spec = Spec({"dynamic"}, {128, 256});
  const auto tasks = PlanSweep(spec, Tiny().files.config.plan);
  EXPECT_THAT(Names(tasks), ElementsAre("none x1 64", "dynamic x2 128", "dynamic x4 256"));
  std::vector<Cell> cells;
  for (const SweepTask& t : tasks) cells.push_back(CellOf(t, 20));
  const auto more = AddCosts(tasks, spec, Tiny().files.config.plan, cells);
  ASSERT_EQ(more.size(), 5u);  // dynamic with factor 2 and 4 at 64 tokens
  EXPECT_EQ(more[3].shares, 0);
  EXPECT_EQ(more[4].shares, 0);
}

TEST(PlanSweep, FactorsGivenAreScoredAtEveryLength) {
  SweepSpec spec = Spec({"none", "linear"}, {64, 128});
  spec.factors = {2, 4};
  EXPECT_THAT(Names(PlanSweep(spec, Tiny().files.config.plan)),
              ElementsAre("none x1 64", "linear x2 64", "linear x4 64", "none x1 128",
                          "linear x2 128", "linear x4 128"));
  // No trained length is needed for that.
  spec.trained_length = 0;
  EXPECT_EQ(PlanSweep(spec, Tiny().files.config.plan).size(), 6u);
}

// A method whose formula has the trained length in it is refused where that is unknown.
TEST(PlanSweep, FactorsWithoutATrainedLength) {
  PositionPlan plan = Tiny().files.config.plan;
  plan.trained_length = 0;
  for (LayerPlan& layer : plan.layers) layer.rotation->trained_length = 0;
  for (const MethodInfo& method : Methods()) {
    SweepSpec spec = Spec({"none", method.name}, {64, 128});
    spec.trained_length = 0;
    spec.factors = {2};
    std::string message;
    try {
      message = std::to_string(PlanSweep(spec, plan).size()) + " cells";
    } catch (const Error& e) {
      message = e.what();
    }
    const std::string name = method.name;
    if (name == "none") {
      EXPECT_EQ(message, "2 cells");
    } else if (name == "linear" || name.starts_with("ntk")) {
      EXPECT_EQ(message, "4 cells") << name;
    } else {
      EXPECT_THAT(message, HasSubstr("trained_length")) << name;
    }
  }
}

TEST(PlanSweep, EqualPlansAreComputedOnce) {
  // Dynamic NTK is no scaling up to the trained length; linear by 1 is none anywhere.
  SweepSpec spec = Spec({"none", "dynamic", "dynamic"}, {64, 256});
  auto tasks = PlanSweep(spec, Tiny().files.config.plan);
  EXPECT_THAT(Names(tasks),
              ElementsAre("none x1 64", "dynamic x4 64", "none x1 256", "dynamic x4 256"));
  EXPECT_EQ(tasks[1].shares, 0);
  EXPECT_EQ(tasks[3].shares, -1);
  spec = Spec({"none", "linear"}, {64, 256});
  spec.factors = {1};
  tasks = PlanSweep(spec, Tiny().files.config.plan);
  EXPECT_EQ(tasks[1].shares, 0);
  EXPECT_EQ(tasks[3].shares, 2);
}

TEST(PlanSweep, FixedMethodsRunEverywhereWithTheirOwnFactor) {
  SweepSpec spec = Spec({"none"}, {64, 256});
  FixedPlan custom;
  custom.name = "custom";
  custom.plan = WithScaling(Tiny().files.config.plan, FindMethod("linear").make(3), 64);
  custom.dictionary = "{\"rope_type\":\"linear\",\"factor\":3}";
  spec.methods.emplace_back(custom);
  const auto tasks = PlanSweep(spec, Tiny().files.config.plan);
  EXPECT_THAT(Names(tasks),
              ElementsAre("none x1 64", "custom x3 64", "none x1 256", "custom x3 256"));
  EXPECT_EQ(tasks[1].scaling, custom.dictionary);
}

TEST(PlanSweep, LearnedPositionsHaveNothingToScale) {
  PositionPlan plan;
  plan.layers.resize(2);
  const auto message = [&](const SweepSpec& spec) -> std::string {
    try {
      PlanSweep(spec, plan);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(Names(PlanSweep(Spec({"none"}, {64}), plan)), ElementsAre("none x1 64"));
  EXPECT_THAT(message(Spec({"yarn"}, {256})), HasSubstr("no layer of this model rotates"));
  plan.learned = LearnedPositions{256, 0};
  const auto tasks = PlanSweep(Spec({"none"}, {64, 256}), plan);
  EXPECT_THAT(Names(tasks), ElementsAre("none x1 64", "none x1 256"));
  EXPECT_EQ(tasks[0].scaling, "none");
  EXPECT_THAT(message(Spec({"none"}, {257})), HasSubstr("learned vectors for 256 positions"));
  EXPECT_THAT(message(Spec({"yarn"}, {256})), HasSubstr("no layer of this model rotates"));
  plan.learned.reset();
  plan.absolute = DigitsEmbedding{};
  EXPECT_THAT(Names(PlanSweep(Spec({"none"}, {64, 1000}), plan)),
              ElementsAre("none x1 64", "none x1 1000"));
  EXPECT_THAT(message(Spec({"none"}, {1001})),
              HasSubstr("length 1001: position 1000 has no row: digits(base 10, digits 3) has 1000 "
                        "positions, 0 to 999"));
  EXPECT_THAT(message(Spec({"yarn"}, {256})), HasSubstr("positions are in the embeddings"));
}

TEST(PlanSweep, MapsAndTemperaturesAreMethodsToo) {
  SweepSpec spec = Spec({"none", "rerope", "self-extend:16", "ntk+log-n"}, {64, 256});
  spec.factors = {4};
  const auto tasks = PlanSweep(spec, Tiny().files.config.plan);
  EXPECT_THAT(Names(tasks), ElementsAre("none x1 64", "rerope x4 64", "self-extend:16 x4 64",
                                        "ntk+log-n x4 64", "none x1 256", "rerope x4 256",
                                        "self-extend:16 x4 256", "ntk+log-n x4 256"));
  EXPECT_EQ(tasks[1].scaling, "rerope(window 32)");
  EXPECT_EQ(tasks[2].scaling, "self-extend(window 16, group 6)");
  EXPECT_EQ(tasks[3].scaling, "ntk(factor 4) + log-n(length 64)");
  std::set<std::string> hashes;
  for (const SweepTask& t : tasks) {
    hashes.insert(t.plan_hash);
    EXPECT_EQ(t.shares, -1);
  }
  EXPECT_EQ(hashes.size(), 4u);  // the same at both lengths
  EXPECT_THAT(MessageOf(Spec({"dynamic+rerope"}, {256})), HasSubstr("both would extend twice"));
  EXPECT_THAT(MessageOf(Spec({"rerope:64"}, {256})), HasSubstr("expected distances below 64"));
}

TEST(PlanSweep, BiasesHaveNothingToScale) {
  PositionPlan plan;
  plan.layers.resize(2);
  for (LayerPlan& layer : plan.layers) layer.bias = LayerBias{6, AlibiBias{}};
  const auto tasks = PlanSweep(Spec({"none"}, {64, 1048576}), plan);
  EXPECT_THAT(Names(tasks), ElementsAre("none x1 64", "none x1 1048576"));
  EXPECT_EQ(tasks[0].plan_hash, tasks[1].plan_hash);
  for (const char* method : {"yarn", "ntk", "linear", "dynamic"}) {
    try {
      PlanSweep(Spec({method}, {64, 256}), plan);
      ADD_FAILURE() << method << " was accepted";
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr("positions are a bias on the scores")) << method;
    }
  }
}

TEST(PlanSweep, Refusals) {
  EXPECT_THAT(MessageOf(Spec({"yarn"}, {64})), HasSubstr("nothing to do"));
  EXPECT_THAT(MessageOf(Spec({}, {64})), HasSubstr("at least one method"));
  EXPECT_THAT(MessageOf(Spec({"none"}, {})), HasSubstr("one length"));
  EXPECT_THAT(MessageOf(Spec({"none"}, {3})), HasSubstr("got 3"));
  SweepSpec spec = Spec({"yarn"}, {256});
  spec.trained_length = 0;
  EXPECT_THAT(MessageOf(spec), HasSubstr("--trained N, or --factors"));
  spec = Spec({"yarn"}, {256});
  spec.factors = {0.5};
  EXPECT_THAT(MessageOf(spec), HasSubstr("0.5"));
}

}  // namespace
}  // namespace ropewalk
