// What is said of types of the KV cache, of made-up sweeps whose answer is known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/report.h"
#include "cli/report_text.h"
#include "ropewalk/eval/ladder.h"
#include "tests/report/synthetic.h"

namespace ropewalk::cli {
namespace {

using ropewalk::testing::MakeCell;
using ropewalk::testing::WithBaseline;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// The cell with another type, which adds `nats` to each window, and to every other one `spread` more.
Cell WithKv(Cell cell, KvType kv, double nats, double spread) {
  cell.kv = kv;
  cell.kv_keys = cell.method == "rerope" ? "unrotated" : "rotated";
  for (std::size_t w = 0; w < cell.window_nll.size(); ++w) {
    cell.window_nll[w] += nats + (w % 2 == 0 ? spread : -spread);
  }
  cell.mean_nll += nats;
  cell.perplexity = std::exp(cell.mean_nll);
  return cell;
}

// No scaling, yarn and rerope at 256 and 1024 tokens; q8_0 costs 0.002 nats under the first two and
// `rerope` under the last, bf16 nothing.
std::vector<Cell> Cells(double rerope) {
  std::vector<Cell> cells =
      WithBaseline({MakeCell({"yarn", 4, 256, 20.5, 20}), MakeCell({"yarn", 4, 1024, 21, 20}),
                    MakeCell({"rerope", 4, 1024, 23, 20, 0.01})});
  for (Cell& cell : cells) {
    if (cell.method == "rerope") cell.plan_hash = "a map";  // frequencies are those of no scaling
  }
  const std::vector<Cell> plain = cells;
  for (const Cell& cell : plain) {
    // The spread differs a little, or differences of differences would have no error.
    const double spread = cell.method == "none" ? 0.0004 : 0.0006;
    cells.push_back(WithKv(cell, KvType::kBf16, 0, 0.0001));
    cells.push_back(WithKv(cell, KvType::kQ8_0, cell.method == "rerope" ? rerope : 0.002, spread));
  }
  return cells;
}

const KvCost& CostOf(const std::vector<KvCost>& costs, const std::string& method, int64_t length,
                     KvType kv) {
  for (const KvCost& cost : costs) {
    if (cost.method == method && cost.length == length && cost.kv == kv) return cost;
  }
  ADD_FAILURE() << method << " at " << length;
  return costs.front();
}

TEST(KvCost, DifferencesUnderTheSameMethod) {
  const std::vector<KvCost> costs = KvCosts(Cells(0.01));
  EXPECT_EQ(costs.size(), 10u);  // five cells, two types
  const KvCost& yarn = CostOf(costs, "yarn", 1024, KvType::kQ8_0);
  EXPECT_NEAR(yarn.loss.mean, 0.002, 1e-12);
  // Of eight differences of +- 0.0006 about the mean.
  EXPECT_NEAR(yarn.loss.standard_error, 0.0006 / std::sqrt(7), 1e-12);
  EXPECT_TRUE(yarn.loss.outside_noise);
  EXPECT_EQ(yarn.keys, "rotated");
  ASSERT_TRUE(yarn.beyond_unscaled);
  EXPECT_NEAR(yarn.beyond_unscaled->mean, 0, 1e-12);
  EXPECT_GT(yarn.p_value, 0.5);
  const KvCost& rerope = CostOf(costs, "rerope", 1024, KvType::kQ8_0);
  EXPECT_NEAR(rerope.beyond_unscaled->mean, 0.008, 1e-12);
  EXPECT_NEAR(rerope.beyond_unscaled->standard_error, 0.0002 / std::sqrt(7), 1e-12);
  EXPECT_LT(rerope.p_value, 1e-6);
  EXPECT_FALSE(CostOf(costs, "none", 1024, KvType::kQ8_0).beyond_unscaled);
  EXPECT_FALSE(CostOf(costs, "none", 256, KvType::kBf16).loss.outside_noise);
  ASSERT_EQ(yarn.tasks.size(), 1u);
  EXPECT_EQ(yarn.tasks[0].answers.difference, 0);
}

TEST(KvCost, TheSentenceSaysWhetherItDependsOnTheMethod) {
  const std::string depends = KvText(Cells(0.01));
  EXPECT_THAT(
      depends,
      AllOf(
          HasSubstr(
              "A KV cache of q8_0 in place of f32 changes the loss at 1024 tokens by +0.00200 "
              "± 0.00015 nats per token without scaling, +0.00200 ± 0.00023 under yarn with "
              "factor 4 and +0.01000 ± 0.00023 under rerope (whose keys it rounds "
              "unrotated): the cache's loss depends on the method: under rerope it differs "
              "by +0.00800 ± 0.00008 nats from that without scaling."),
          HasSubstr("A KV cache of bf16 in place of f32 changes the loss at 1024 tokens by +0.0")));
  EXPECT_THAT(KvText(Cells(0.002)),
              AllOf(HasSubstr("the cache's loss does not measurably depend on the method"),
                    Not(HasSubstr("depends on the method"))));
  std::vector<Cell> alone = CellsOf(Cells(0.01), KvType::kF32);
  EXPECT_EQ(KvText(alone), "");
  EXPECT_TRUE(KvCosts(alone).empty());
  alone.push_back(WithKv(alone.back(), KvType::kQ8_0, 0.002, 0.001));  // without none beside it
  EXPECT_THAT(KvText(alone),
              HasSubstr("whether the cache's loss depends on the method is not known"));
}

TEST(KvCost, RecommendationsRestOnTheMostPreciseType) {
  const std::vector<Cell> cells = Cells(0.01);
  const std::vector<Cell> plain = CellsOf(cells, KvType::kF32);
  const auto r = Recommend(cells), without = Recommend(plain);
  ASSERT_EQ(r.size(), 1u);
  EXPECT_EQ(r[0].method, "yarn");
  EXPECT_EQ(r[0].methods.size(), without[0].methods.size());
  EXPECT_EQ(r[0].text.substr(0, without[0].text.size()), without[0].text);
  EXPECT_THAT(
      r[0].text.substr(without[0].text.size()),
      AllOf(
          HasSubstr("A KV cache of bf16 in place of f32 changes its loss by "),
          HasSubstr("0.00000 ± 0.00004 nats per token (within the noise); vLLM: --dtype bfloat16"),
          HasSubstr(
              "A KV cache of q8_0 in place of f32 changes its loss by +0.00200 ± 0.00023 nats "
              "per token; llama.cpp: --cache-type-k q8_0 --cache-type-v q8_0 --flash-attn "
              "on.")));
  ASSERT_EQ(r[0].kv_costs.size(), 2u);
  EXPECT_EQ(RulesText(cells), RulesText(plain));
  EXPECT_EQ(ScoresByLength(cells).size(), ScoresByLength(plain).size());
  EXPECT_EQ(LadderText(*LadderOf(cells)), LadderText(*LadderOf(plain)));
  // Without f32 the next one.
  std::vector<Cell> others = CellsOf(cells, KvType::kBf16);
  const std::vector<Cell> q8 = CellsOf(cells, KvType::kQ8_0);
  others.insert(others.end(), q8.begin(), q8.end());
  EXPECT_EQ(RecommendedKv(others), KvType::kBf16);
  EXPECT_THAT(Recommend(others)[0].text, HasSubstr("of q8_0 in place of bf16"));
}

TEST(KvCost, SettingsAreThoseOfEnginesThatHaveTheType) {
  for (const KvSetting& s : SettingsFor(KvType::kQ8_0)) {
    EXPECT_EQ(s.setting.empty(), s.engine == "vLLM");
    if (s.engine == "llama.cpp") {
      EXPECT_THAT(s.note, AllOf(HasSubstr("needs flash attention"), HasSubstr("since 2026-04-01"),
                                HasSubstr("Hadamard")));
    }
  }
}

TEST(KvCost, ReportsOfOneTypeAreAsTheyWere) {
  SweepResults results;
  results.cells = CellsOf(Cells(0.01), KvType::kF32);
  const SweepReport report = MakeSweepReport("x", results);
  EXPECT_FALSE(ReportJson({report})["sweeps"][0].contains("kv"));
  EXPECT_THAT(SummaryText(report), Not(HasSubstr("KV cache")));
  EXPECT_THAT(Csv({report}), Not(HasSubstr("kv_keys")));
  EXPECT_THAT(Markdown({report}), Not(HasSubstr("KV cache")));
}

TEST(KvCost, ReportsOfSeveralTypesKeepThemApart) {
  SweepResults results;
  results.cells = Cells(0.01);
  const SweepReport report = MakeSweepReport("x", results);
  const auto json = ReportJson({report})["sweeps"][0];
  EXPECT_EQ(json["cells"].size(), 5u);
  for (const auto& cell : json["cells"]) EXPECT_FALSE(cell.contains("kv"));
  EXPECT_EQ(json["kv"]["recommended_on"], "f32");
  EXPECT_EQ(json["kv"]["types"], (std::vector<std::string>{"bf16", "q8_0"}));
  EXPECT_EQ(json["kv"]["cells"].size(), 10u);
  EXPECT_EQ(json["kv"]["costs"].size(), 10u);
  const std::string text = SummaryText(report);
  EXPECT_THAT(text, AllOf(HasSubstr("q8_0 - f32"), HasSubstr("+0.01000 ± 0.00023"),
                          HasSubstr("+0.00 (p 1)"), HasSubstr("Recommendations rest on f32")));
  const std::string csv = Csv({report});
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 16);
  EXPECT_THAT(
      csv, AllOf(HasSubstr(",kv,kv_keys\n"), HasSubstr(",f32,\n"), HasSubstr(",q8_0,unrotated\n")));
  EXPECT_THAT(Markdown({report}), HasSubstr("| q8\\_0 - f32 "));
  // q8_0 alone: said with the tables.
  results.cells = CellsOf(Cells(0.01), KvType::kQ8_0);
  EXPECT_THAT(SummaryText(MakeSweepReport("x", results)), HasSubstr("With a KV cache of q8_0."));
}

}  // namespace
}  // namespace ropewalk::cli
