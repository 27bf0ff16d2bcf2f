// The ladder of factors of sweeps whose answer is known.
#include "ropewalk/eval/ladder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/report/synthetic.h"

namespace ropewalk {
namespace {

using testing::AddTask;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MakeCell;
using ::testing::Not;
using Json = nlohmann::json;

// yarn with factors 2, 4 and 8 at 128 to 2048 tokens, trained at 256: perplexities by length, then
// factor 1, 2, 4, 8. At 1024 factors 4 and 8 are within the noise of each other.
std::vector<Cell> Sweep(double noise = 0.02) {
  const double perplexity[5][4] = {{22, 22.6, 23.2, 24},
                                   {20, 20.6, 21, 22},
                                   {40, 20.5, 20.9, 21.8},
                                   {90, 60, 20.8, 20.75},
                                   {150, 120, 70, 21}};
  std::vector<Cell> cells;
  for (int i = 0; i < 5; ++i) {
    for (int f = 0; f < 4; ++f) {
      cells.push_back(MakeCell({f == 0 ? "none" : "yarn", f == 0 ? 1.0 : double(1 << f),
                                int64_t{128} << i, perplexity[i][f], -1, noise}));
      // The noise of MakeCell is of a method; here it is of a factor too.
      for (size_t w = 0; w < 8; ++w) {
        cells.back().window_nll[w] += noise * std::cos(w * (f + 1.0)) / 2;
      }
      cells.back().mean_nll = 0;
      for (const double x : cells.back().window_nll) cells.back().mean_nll += x / 8;
      cells.back().perplexity = std::exp(cells.back().mean_nll);
    }
  }
  return cells;
}

EngineSetting SettingOf(const std::vector<EngineSetting>& all, const std::string& name) {
  for (const EngineSetting& s : all) {
    if (s.engine.starts_with(name)) return s;
  }
  ADD_FAILURE() << "no setting for " << name;
  return all.front();
}

TEST(Ladder, TheSmallestFactorThatWillDo) {
  const std::optional<Ladder> ladder = LadderOf(Sweep());
  ASSERT_TRUE(ladder);
  EXPECT_EQ(ladder->method, "yarn");
  ASSERT_EQ(ladder->rungs.size(), 5u);
  std::vector<double> factors, best;
  for (const LadderRung& rung : ladder->rungs) {
    factors.push_back(rung.factor);
    best.push_back(rung.best_factor);
    EXPECT_THAT(rung.measured, ElementsAre(1, 2, 4, 8));
  }
  EXPECT_THAT(factors, ElementsAre(1, 1, 2, 4, 8));
  EXPECT_THAT(best, ElementsAre(1, 1, 2, 8, 8));
  EXPECT_EQ(ladder->rungs[0].above, 0);
  EXPECT_EQ(ladder->rungs[3].above, 512);
  EXPECT_EQ(ladder->rungs[3].up_to, 1024);
  EXPECT_GT(ladder->rungs[3].behind_best->mean, 0);
  EXPECT_FALSE(ladder->rungs[3].behind_best->outside_noise);
  EXPECT_FALSE(ladder->rungs[4].behind_best);
  // What factor 8 costs at the trained length.
  EXPECT_NEAR(ladder->rungs[1].static_cost->mean, std::log(22 / 20.0), 0.02);
  EXPECT_FALSE(ladder->rungs[4].static_cost);
  ASSERT_EQ(ladder->break_even.size(), 3u);
  for (const BreakEven& even : ladder->break_even) EXPECT_EQ(even.length, 512) << even.factor;
  EXPECT_THAT(LadderText(*ladder),
              HasSubstr("Ladder of yarn: no scaling up to 256 tokens, factor 2 up to 512, factor 4 "
                        "up to 1024 and factor 8 up to 2048. Factor 8 for all text costs "));
}

// A factor that loses a task is worse, whatever its perplexity.
TEST(Ladder, TasksComeFirst) {
  std::vector<Cell> cells = Sweep();
  for (Cell& c : cells) AddTask(c, "kv", c.length == 1024 && c.factor == 4 ? 33 : 40, 40);
  const Ladder ladder = *LadderOf(cells);
  EXPECT_EQ(ladder.rungs[3].factor, 8);
  EXPECT_EQ(ladder.rungs[0].static_task_costs.at(0).answers.difference, 0);
}

// One window cannot say that a smaller factor is as good: the best is taken.
TEST(Ladder, OneWindowTakesTheBest) {
  std::vector<Cell> cells;
  for (const auto& [factor, perplexity] : {std::pair(1.0, 90.0), {2.0, 24.0}, {4.0, 21.0}}) {
    for (const int64_t length : {256, 1024}) {
      cells.push_back(MakeCell({factor == 1 ? "none" : "yarn", factor, length,
                                length == 256 ? 20 + factor : perplexity, -1, 0, 1}));
    }
  }
  const Ladder ladder = *LadderOf(cells);
  EXPECT_EQ(ladder.rungs[1].factor, 4);
  EXPECT_EQ(ladder.break_even[0].length, 0);
  EXPECT_THAT(LadderText(ladder), HasSubstr("factor 4 nowhere significantly"));
  EXPECT_THAT(LadderText(ladder), Not(HasSubstr("nan")));
}

TEST(Ladder, EndsWhereNoFactorIsUsable) {
  std::vector<Cell> cells = Sweep();
  for (Cell& c : cells) {
    if (c.length == 2048) c.perplexity *= 2, c.mean_nll += std::log(2.0);
  }
  EXPECT_EQ(LadderOf(cells)->rungs.back().up_to, 1024);
}

TEST(Ladder, ThereIsNone) {
  EXPECT_FALSE(LadderOf({}));
  EXPECT_FALSE(LadderOf({MakeCell({"none", 1, 256, 20}), MakeCell({"none", 1, 1024, 21})}));
  EXPECT_FALSE(LadderOf({MakeCell({"yarn", 4, 256, 20}), MakeCell({"yarn", 4, 1024, 21})}));
  // Methods without a factor, or that follow the length.
  for (const char* method : {"rerope", "dynamic", "custom"}) {
    EXPECT_FALSE(LadderOf({MakeCell({"none", 1, 256, 20}), MakeCell({method, 4, 1024, 21})}));
  }
}

// Lengths that the default sweep measures: one factor each.
TEST(Ladder, OfADefaultSweep) {
  const Ladder ladder = *LadderOf(testing::MakeSweep("m").cells);
  EXPECT_EQ(ladder.method, "llama3");
  EXPECT_THAT(LadderText(ladder), HasSubstr("no scaling up to"));
  EXPECT_EQ(ladder.rungs.back().factor, 8);
}

TEST(LadderSettings, Engines) {
  const std::vector<Cell> cells = Sweep();
  const std::vector<EngineSetting> all = LadderSettings(*LadderOf(cells), cells);
  const EngineSetting servers = SettingOf(all, "vLLM, 4 servers");
  EXPECT_THAT(servers.setting, HasSubstr("# 1: no scaling, up to 256 tokens\n"
                                         "vllm serve MODEL --port 8001 --max-model-len 256 --hf-"));
  EXPECT_THAT(servers.setting, HasSubstr("\"rope_parameters\":{\"rope_type\":\"default\""));
  EXPECT_THAT(servers.setting, HasSubstr("\n# 2: factor 2, up to 512 tokens\n"
                                         "vllm serve MODEL --port 8002 --max-model-len 512 --hf-"));
  EXPECT_THAT(servers.note, HasSubstr("up to 256 go to server 1, up to 512 go to server 2"));
  const EngineSetting flag = SettingOf(all, "vLLM, request-static");
  EXPECT_THAT(flag.setting, ::testing::EndsWith(" --request-static-yarn-factors 1 2 4 8"));
  EXPECT_THAT(flag.setting, HasSubstr("\"factor\":8"));  // the largest, as the flag asks for
  EXPECT_THAT(flag.note, HasSubstr("In no release yet: pull request 53964"));
  const EngineSetting profiles = SettingOf(all, "llama.cpp");
  EXPECT_THAT(profiles.setting, HasSubstr("\n\n; no scaling\n[model-256]\nmodel = MODEL.gguf\n"
                                          "c = 256\nrope-scaling = none\n\n"));
  EXPECT_THAT(profiles.setting, HasSubstr("[model-2048]\nmodel = MODEL.gguf\nc = 2048\n"
                                          "rope-scaling = yarn\nrope-scale = 8\n"
                                          "yarn-orig-ctx = 256"));
  const EngineSetting code = SettingOf(all, "Hugging Face");
  EXPECT_THAT(code.setting,
              HasSubstr("    (256, '{\"max_position_embeddings\":256,\"rope_parameters\":"
                        "{\"rope_type\":\"default\",\"rope_theta\":10000.0}}'),\n"
                        "    (512, '{\"max_position_embeddings\""));
  EXPECT_EQ(all.size(), 5u);
  for (const EngineSetting& s : all) EXPECT_TRUE(s.expressible && s.kind) << s.engine;
}

// The files may have a scaling of their own, so no scaling has to be said.
TEST(LadderSettings, NoScalingIsSaid) {
  const std::vector<Cell> cells = Sweep();
  const auto all = LadderSettings(*LadderOf(cells), cells);
  EXPECT_THAT(SettingOf(all, "Hugging Face transformers 4").setting,
              HasSubstr("\"rope_scaling\":null"));
  // Of a configuration that is loaded, this would take rope_parameters away.
  EXPECT_THAT(SettingOf(all, "Hugging Face transformers 5").setting,
              Not(HasSubstr("rope_scaling")));
  EXPECT_THAT(SettingOf(all, "llama.cpp").setting, HasSubstr("rope-scaling = none"));
}

TEST(LadderSettings, DivisorsThatNoFlagTakesOut) {
  std::vector<Cell> cells = Sweep();
  for (Cell& c : cells) {
    c.setting_place.shipped = "llama3";
    c.setting_place.kept_in_gguf = true;
  }
  const EngineSetting profiles =
      SettingOf(LadderSettings(*LadderOf(cells), cells), "llama.cpp, profiles");
  EXPECT_FALSE(profiles.expressible);
  EXPECT_THAT(profiles.note, HasSubstr("ropewalk extend"));
}

// llama-server lost its flags before it got profiles.
TEST(LadderSettings, NoProfilesOfSelfExtend) {
  std::vector<Cell> cells = Sweep();
  for (Cell& c : cells) {
    if (c.method == "yarn") c.method = "self-extend";
  }
  const EngineSetting profiles =
      SettingOf(LadderSettings(*LadderOf(cells), cells), "llama.cpp, profiles");
  EXPECT_FALSE(profiles.expressible);
  EXPECT_EQ(profiles.setting, "");
  EXPECT_THAT(profiles.note, HasSubstr("Not for llama-server"));
}

// The flag takes the smallest factor that covers a request: another ladder it cannot say.
TEST(LadderSettings, WhatTheFlagCannotSay) {
  std::vector<Cell> cells = Sweep();
  for (Cell& c : cells) {  // factor 4 is better than 2 at 512 already
    if (c.length == 512 && c.factor == 2) {
      c.perplexity *= 1.2, c.mean_nll += std::log(1.2);
      for (double& x : c.window_nll) x += std::log(1.2);
    }
    if (c.length == 1024 && c.factor == 2) {
      for (double& x : c.window_nll) x -= std::log(3.0);
      c.perplexity /= 3, c.mean_nll -= std::log(3.0);
    }
  }
  const Ladder ladder = *LadderOf(cells);
  EXPECT_EQ(ladder.rungs[2].factor, 4);
  EXPECT_EQ(ladder.rungs[3].factor, 2);
  const EngineSetting flag = SettingOf(LadderSettings(ladder, cells), "vLLM, request-static");
  EXPECT_FALSE(flag.expressible);
  EXPECT_THAT(flag.note, HasSubstr("the smallest factor that covers a request, 2 at 512 tokens "
                                   "instead of 4"));
  const auto other = testing::MakeSweep("m").cells;  // llama3
  const auto settings = LadderSettings(*LadderOf(other), other);
  EXPECT_THAT(SettingOf(settings, "vLLM, request-static").note, HasSubstr("not those of llama3"));
  EXPECT_FALSE(SettingOf(settings, "llama.cpp").expressible);
}

// What the largest factor does to text of the trained length: its loss, and tasks.
TEST(LadderText, OfTheLargestFactorForAllText) {
  const auto text = [](double with_factor, int64_t right, int64_t windows = 8) {
    const auto cell = [&](const std::string& method, int64_t length, double perplexity) {
      return MakeCell({method, method == "none" ? 1.0 : 4.0, length, perplexity, -1, 0, windows});
    };
    std::vector<Cell> cells = {cell("none", 256, 20), cell("none", 1024, 90),
                               cell("yarn", 256, with_factor), cell("yarn", 1024, 21)};
    for (Cell& c : cells) AddTask(c, "kv", &c == &cells[2] ? right : 40, 40);
    return LadderText(*LadderOf(cells));
  };
  EXPECT_THAT(text(21, 40), HasSubstr("for all text costs 5.0 % of perplexity at 256 tokens."));
  EXPECT_THAT(text(21, 20), HasSubstr("for all text costs 5.0 % of perplexity at 256 tokens and "
                                      "loses 0.50 of kv there, significantly."));
  EXPECT_THAT(text(19, 20), HasSubstr("for all text gains 5.0 % of perplexity at 256 tokens, but "
                                      "loses 0.50 of kv there, significantly."));
  EXPECT_THAT(text(21, 40, 1), HasSubstr("costs 5.0 % of perplexity at 256 tokens (one window, so "
                                         "without an error estimate)."));
  const std::string broken = text(std::numeric_limits<double>::quiet_NaN(), 40);
  EXPECT_THAT(broken, HasSubstr("breaks text of 256 tokens, where its loss is not finite."));
  EXPECT_THAT(broken, Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace ropewalk
