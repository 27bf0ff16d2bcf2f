// Which cells a sweep has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
    SweepMethod method;
    method.name = name;
    spec.methods.push_back(method);
  }
  spec.lengths = std::move(lengths);
  spec.trained_length = test::kTinyTrained;
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

TEST(PlanSweep, EachFactorAtItsLengthAndWhereItCosts) {
  const auto tasks =
      PlanSweep(Spec({"none", "yarn"}, {32, 64, 128, 256}), Tiny().files.config.plan);
  EXPECT_THAT(Names(tasks), ElementsAre("none x1 32", "yarn x2 32", "yarn x4 32", "none x1 64",
                                        "yarn x2 64", "yarn x4 64", "none x1 128", "yarn x2 128",
                                        "none x1 256", "yarn x4 256"));
  for (const SweepTask& t : tasks) {
    EXPECT_EQ(t.plan_hash, Resolve(t.plan, t.length).hash);
    EXPECT_EQ(t.shares, -1);
  }
}

TEST(PlanSweep, AddsTheTrainedLengthAndHalfOfIt) {
  EXPECT_THAT(Names(PlanSweep(Spec({"none", "yarn"}, {256}), Tiny().files.config.plan)),
              ElementsAre("none x1 32", "yarn x4 32", "none x1 64", "yarn x4 64", "none x1 256",
                          "yarn x4 256"));
  // A length below was given: no other is added.
  EXPECT_THAT(Names(PlanSweep(Spec({"yarn"}, {16, 256}), Tiny().files.config.plan)),
              ElementsAre("yarn x4 16", "yarn x4 64", "yarn x4 256"));
  // Without a method that takes factors there is no cost to show.
  EXPECT_THAT(Names(PlanSweep(Spec({"none"}, {256}), Tiny().files.config.plan)),
              ElementsAre("none x1 256"));
}

TEST(PlanSweep, FactorsGivenAreScoredAtEveryLength) {
  SweepSpec spec = Spec({"linear"}, {64, 128});
  spec.factors = {2, 4};
  EXPECT_THAT(Names(PlanSweep(spec, Tiny().files.config.plan)),
              ElementsAre("linear x2 64", "linear x4 64", "linear x2 128", "linear x4 128"));
}

TEST(PlanSweep, EqualPlansAreComputedOnce) {
  // Dynamic NTK is no scaling up to the trained length; linear by 1 is none anywhere.
  SweepSpec spec = Spec({"none", "dynamic", "dynamic"}, {64, 256});
  auto tasks = PlanSweep(spec, Tiny().files.config.plan);
  EXPECT_THAT(Names(tasks), ElementsAre("none x1 32", "dynamic x4 32", "none x1 64",
                                        "dynamic x4 64", "none x1 256", "dynamic x4 256"));
  EXPECT_EQ(tasks[1].shares, 0);
  EXPECT_EQ(tasks[3].shares, 2);
  EXPECT_EQ(tasks[5].shares, -1);
  spec = Spec({"none", "linear"}, {64, 256});
  spec.factors = {1};
  tasks = PlanSweep(spec, Tiny().files.config.plan);
  EXPECT_EQ(tasks[1].shares, 0);
  EXPECT_EQ(tasks[3].shares, 2);
}

TEST(PlanSweep, FixedMethodsRunEverywhereWithTheirOwnFactor) {
  SweepSpec spec = Spec({"none"}, {64, 256});
  SweepMethod custom;
  custom.name = "custom";
  custom.fixed = true;
  custom.plan = WithScaling(Tiny().files.config.plan, FindMethod("linear").make(3), 64);
  custom.dictionary = "{\"rope_type\":\"linear\",\"factor\":3}";
  spec.methods.push_back(custom);
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
  EXPECT_THAT(message(Spec({"none"}, {64})), HasSubstr("no rotary layer"));
  plan.learned = LearnedPositions{256, 0};
  const auto tasks = PlanSweep(Spec({"none"}, {64, 256}), plan);
  EXPECT_THAT(Names(tasks), ElementsAre("none x1 64", "none x1 256"));
  EXPECT_EQ(tasks[0].scaling, "none");
  EXPECT_THAT(message(Spec({"none"}, {257})), HasSubstr("learned vectors for 256 positions"));
  EXPECT_THAT(message(Spec({"yarn"}, {256})), HasSubstr("no layer of this model rotates"));
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
  EXPECT_THAT(MessageOf(Spec({"bogus"}, {256})), HasSubstr("bogus"));
  SweepSpec spec = Spec({"yarn"}, {256});
  spec.trained_length = 0;
  EXPECT_THAT(MessageOf(spec), HasSubstr("--trained"));
  spec = Spec({"yarn"}, {256});
  spec.factors = {0.5};
  EXPECT_THAT(MessageOf(spec), HasSubstr("0.5"));
}

}  // namespace
}  // namespace ropewalk
