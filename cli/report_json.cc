// The report as JSON, which is also the data of the HTML page.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/engines.h"
#include "cli/report.h"
#include "cli/report_text.h"
#include "ropewalk/engines/settings.h"
#include "ropewalk/plan/method.h"

namespace ropewalk::cli {
namespace {

using Json = nlohmann::ordered_json;

Json DifferenceJson(const std::optional<PairedDifference>& d) {
  if (!d) return nullptr;
  return {{"nats", d->mean},
          {"standard_error", d->standard_error},
          {"windows", d->windows},
          {"outside_noise", d->outside_noise}};
}

Json TaskCostsJson(const std::vector<TaskCost>& costs) {
  Json out = Json::array();
  for (const TaskCost& c : costs) {
    out.push_back({{"task", c.task},
                   {"difference", c.answers.difference},
                   {"questions", c.answers.questions},
                   {"p_value", c.answers.p_value}});
  }
  return out;
}

Json KeyTokensJson(const std::optional<KeyTokenVerdict>& keys) {
  if (!keys) return nullptr;
  return {{"tokens", keys->tokens},
          {"windows", keys->windows},
          {"nats", keys->nats},
          {"standard_error", keys->standard_error},
          {"longppl", std::exp(keys->nats)},
          {"difference", DifferenceJson(keys->difference)},
          {"against", keys->against},
          {"p_value", keys->p_value}};
}

Json VerdictJson(const MethodVerdict& v) {
  Json tasks = Json::array();
  for (const TaskVerdict& t : v.tasks) {
    tasks.push_back({{"task", t.task},
                     {"score", t.score},
                     {"low", t.interval.low},
                     {"high", t.interval.high},
                     {"answers", t.answers},
                     {"prompts", t.prompts},
                     {"counts", t.counts},
                     {"worse", t.worse},
                     {"against", t.against},
                     {"p_value", t.p_value},
                     {"below_own", t.below_own}});
  }
  return {{"method", v.method},
          {"factor", v.factor},
          {"perplexity", v.perplexity},
          {"standing", Word(v.standing)},
          {"reason", v.reason},
          {"key_tokens", KeyTokensJson(v.key_tokens)},
          {"difference", DifferenceJson(v.difference)},
          {"p_value", v.p_value},
          {"detectable", v.detectable},
          {"tasks", tasks}};
}

Json SettingsOf(const Recommendation& r, const SweepReport& sweep) {
  const Cell* cell = FindCell(sweep.results.cells, r.method, r.factor, r.length);
  if (cell == nullptr || cell->rotary_dim < 2) return Json::array();
  return SettingsJson(
      Narrow(SettingsFor(*cell, r.length, sweep.results.header.family), sweep.engines));
}

Json RecommendationJson(const Recommendation& r, const SweepReport& sweep) {
  Json ties = Json::array(), methods = Json::array();
  for (const MethodVerdict& v : r.methods) {
    if (v.standing == Standing::kTie) {
      ties.push_back({{"method", v.method}, {"factor", v.factor}, {"detectable", v.detectable}});
    }
    methods.push_back(VerdictJson(v));
  }
  return {{"length", r.length},
          {"judged", r.judged},
          {"method", r.method.empty() ? Json(nullptr) : Json(r.method)},
          {"factor", r.factor},
          {"perplexity", r.perplexity},
          {"ties", ties},
          {"trained_length_cost", r.trained_length_cost},
          {"task_costs", TaskCostsJson(r.task_costs)},
          {"longest_usable", r.longest_usable},
          {"text", r.text},
          {"settings", SettingsOf(r, sweep)},
          {"methods", methods}};
}

Json UsableJson(const std::vector<MethodReach>& reaches) {
  Json out = Json::array();
  for (const MethodReach& reach : reaches) {
    out.push_back({{"method", reach.method},
                   {"longest_usable", reach.longest_usable},
                   {"factor", reach.factor},
                   {"cost_at_trained_length", DifferenceJson(reach.cost)},
                   {"task_costs", TaskCostsJson(reach.task_costs)}});
  }
  return out;
}

Json EffectiveJson(const EffectiveLength& e) {
  return {{"threshold", e.threshold},
          {"length", e.length},
          {"at_least", e.at_least},
          {"at_most", e.at_most},
          {"gap", e.gap}};
}

Json ScoresJson(const std::vector<MethodScores>& methods) {
  Json out = Json::array();
  for (const MethodScores& m : methods) {
    Json scores = Json::array();
    for (const LengthScore& s : m.scores) {
      scores.push_back({{"length", s.length}, {"score", s.score}, {"answers", s.trials}});
    }
    out.push_back({{"method", m.method},
                   {"tasks", m.tasks},
                   {"scores", scores},
                   {"ruler", EffectiveJson(m.ruler)},
                   {"own", EffectiveJson(m.own)},
                   {"wavg_inc", m.averages.increasing},
                   {"wavg_dec", m.averages.decreasing}});
  }
  return out;
}

Json LadderJson(const SweepReport& sweep) {
  if (!sweep.ladder) return nullptr;
  const Ladder& ladder = *sweep.ladder;
  Json rungs = Json::array(), even = Json::array();
  for (const LadderRung& rung : ladder.rungs) {
    rungs.push_back({{"above", rung.above},
                     {"up_to", rung.up_to},
                     {"factor", rung.factor},
                     {"best_factor", rung.best_factor},
                     {"perplexity", rung.perplexity},
                     {"measured", rung.measured},
                     {"behind_best", DifferenceJson(rung.behind_best)},
                     {"static_cost", DifferenceJson(rung.static_cost)},
                     {"static_task_costs", TaskCostsJson(rung.static_task_costs)}});
  }
  for (const BreakEven& b : ladder.break_even) {
    even.push_back({{"factor", b.factor}, {"length", b.length}});
  }
  return {{"method", ladder.method},
          {"largest", ladder.largest},
          {"rungs", rungs},
          {"break_even", even},
          {"text", LadderText(ladder)},
          {"settings", SettingsJson(Narrow(
                           LadderSettings(ladder, sweep.results.cells, sweep.results.header.family),
                           sweep.engines))}};
}

Json SweepJson(const SweepReport& sweep) {
  const std::vector<Cell>& cells = sweep.results.cells;
  Json out;
  out["label"] = sweep.label;
  out["header"] = Json::parse(ToJson(sweep.results.header));
  out["recommendations"] = Json::array();
  for (const Recommendation& r : sweep.recommendations) {
    out["recommendations"].push_back(RecommendationJson(r, sweep));
  }
  out["rules"] = sweep.rules;
  out["tasks"] = Json::array();
  for (const TaskUse& use : TaskUses(cells)) {
    out["tasks"].push_back({{"task", use.task},
                            {"counts", use.counts},
                            {"reason", use.reason},
                            {"own_score", use.own_score}});
  }
  out["usable"] = UsableJson(sweep.reaches);
  out["effective_length"] = ScoresJson(sweep.scores);
  out["ladder"] = LadderJson(sweep);
  const Grid grid = MakeGrid(cells);
  out["grid"]["methods"] = grid.methods;
  out["grid"]["columns"] = Json::array();
  for (const Grid::Column& c : grid.columns) {
    out["grid"]["columns"].push_back({{"length", c.length}, {"factor", c.factor}});
  }
  out["grid"]["cells"] = grid.cells;
  out["cells"] = Json::array();
  for (const Cell& cell : cells) out["cells"].push_back(Json::parse(ToJson(cell)));
  if (Json kv = KvJson(sweep); !kv.is_null()) out["kv"] = std::move(kv);
  return out;
}

// All named methods, and the combinations that the sweeps measured.
Json MethodsJson(const std::vector<SweepReport>& sweeps) {
  std::vector<std::string> names;
  for (const MethodInfo& m : Methods()) names.emplace_back(m.name);
  for (const MethodPart& part : MethodParts()) names.emplace_back(part.name);
  for (const SweepReport& sweep : sweeps) {
    for (const Cell& c : sweep.results.cells) {
      const bool listed = std::find(names.begin(), names.end(), c.method) != names.end();
      if (!listed && PositionMethod::TryParse(c.method)) names.push_back(c.method);
    }
  }
  Json out = Json::array();
  for (const std::string& name : names) {
    const PositionMethod m = PositionMethod::Parse(name);
    out.push_back({{"name", name},
                   {"title", m.title()},
                   {"source", m.source()},
                   {"length_dependent", m.length_dependent()},
                   {"uses_factor", m.uses_factor()}});
  }
  return out;
}

}  // namespace

Json ReportJson(const std::vector<SweepReport>& sweeps) {
  Json out;
  out["format"] = "ropewalk-report";
  out["schema"] = 2;
  out["version"] = Version();
  out["methods"] = MethodsJson(sweeps);
  if (sweeps.size() > 1) out["compared"] = ComparedText(sweeps);
  out["sweeps"] = Json::array();
  for (const SweepReport& sweep : sweeps) out["sweeps"].push_back(SweepJson(sweep));
  return out;
}

}  // namespace ropewalk::cli
