// What types of the KV cache cost: tables, and JSON for the page.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/report_text.h"

namespace ropewalk::cli {
namespace {

using Json = nlohmann::ordered_json;

KvType BaseOf(const SweepReport& sweep) { return sweep.results.cells.front().kv; }

std::vector<KvType> OthersOf(const SweepReport& sweep) {
  std::set<KvType> types;
  for (const Cell& cell : sweep.other_kv) types.insert(cell.kv);
  return {types.begin(), types.end()};
}

const KvCost* CostOf(const SweepReport& sweep, const Cell& cell, KvType kv) {
  const auto found = std::ranges::find_if(sweep.kv_costs, [&](const KvCost& c) {
    return c.method == cell.method && c.factor == cell.factor && c.length == cell.length &&
           c.kv == kv;
  });
  return found == sweep.kv_costs.end() ? nullptr : &*found;
}

const Cell* CellOf(const SweepReport& sweep, const Cell& cell, KvType kv) {
  const auto found = std::ranges::find_if(sweep.other_kv, [&](const Cell& c) {
    return c.method == cell.method && c.factor == cell.factor && c.length == cell.length &&
           c.kv == kv;
  });
  return found == sweep.other_kv.end() ? nullptr : &*found;
}

// A row for each cell that another type was measured for; `text` of it with its type, and what the
// type costs it.
template <class Text, class Cost>
TextRows Rows(const SweepReport& sweep, const std::string& title, Text&& text, Cost&& difference) {
  const std::string base = Name(BaseOf(sweep));
  TextRows rows = {{title, "tokens", base}};
  for (const KvType kv : OthersOf(sweep)) {
    rows[0].push_back(Name(kv));
    rows[0].push_back(fmt::format("{} - {}", Name(kv), base));
  }
  for (const Cell& cell : sweep.results.cells) {
    std::vector<std::string> row = {MethodLabel(cell.method, cell.factor),
                                    std::to_string(cell.length), text(cell)};
    bool any = false;
    for (const KvType kv : OthersOf(sweep)) {
      const Cell* with = CellOf(sweep, cell, kv);
      const KvCost* cost = CostOf(sweep, cell, kv);
      any = any || with != nullptr;
      row.push_back(with == nullptr ? "-" : text(*with));
      row.push_back(cost == nullptr ? "-" : difference(*cost));
    }
    if (any) rows.push_back(std::move(row));
  }
  return rows;
}

std::string LossText(const KvCost& cost) {
  if (std::isnan(cost.loss.standard_error)) return fmt::format("{:+.5f}", cost.loss.mean);
  return fmt::format("{:+.5f} ± {:.5f}", cost.loss.mean, cost.loss.standard_error);
}

Json LossJson(const PairedDifference& d) {
  return {{"nats", d.mean},
          {"standard_error", d.standard_error},
          {"windows", d.windows},
          {"outside_noise", d.outside_noise}};
}

Json CostJson(const KvCost& cost) {
  Json tasks = Json::array();
  for (const TaskCost& t : cost.tasks) {
    tasks.push_back({{"task", t.task},
                     {"difference", t.answers.difference},
                     {"questions", t.answers.questions},
                     {"p_value", t.answers.p_value}});
  }
  return {
      {"method", cost.method},
      {"factor", cost.factor},
      {"length", cost.length},
      {"kv", Name(cost.kv)},
      {"kv_keys", cost.keys},
      {"perplexity", cost.perplexity},
      {"loss", LossJson(cost.loss)},
      {"beyond_unscaled", cost.beyond_unscaled ? LossJson(*cost.beyond_unscaled) : Json(nullptr)},
      {"p_value", cost.p_value},
      {"tasks", tasks}};
}

}  // namespace

std::vector<TextRows> KvTables(const SweepReport& sweep) {
  std::vector<TextRows> tables = {Rows(
      sweep, "perplexity", [](const Cell& c) { return PerplexityText(c.perplexity); }, LossText)};
  for (const std::string& name : TaskNames(sweep.results.cells)) {
    if (name == kKeyTokensTask) continue;
    tables.push_back(Rows(
        sweep, name,
        [&](const Cell& c) {
          const TaskResult* r = FindTask(c.tasks, name);
          return r == nullptr ? std::string("-") : fmt::format("{:.2f}", ScoreOf(*r));
        },
        [&](const KvCost& cost) {
          const auto found = std::ranges::find(cost.tasks, name, &TaskCost::task);
          return found == cost.tasks.end()
                     ? std::string("-")
                     : fmt::format("{:+.2f} (p {:.2g})", found->answers.difference,
                                   found->answers.p_value);
        }));
  }
  return tables;
}

std::string KvCaption(const SweepReport& sweep) {
  return fmt::format(
      "By type of the KV cache, under the same method: perplexity, and behind it the difference of "
      "loss to {} in nats per token, window by window, ± its standard error; of tasks the score, "
      "and the difference with the p-value of the sign test. Recommendations rest on {}.",
      Name(BaseOf(sweep)), Name(BaseOf(sweep)));
}

Json KvJson(const SweepReport& sweep) {
  if (sweep.other_kv.empty()) return nullptr;
  Json types = Json::array(), costs = Json::array(), settings = Json::array(),
       cells = Json::array();
  for (const KvType kv : OthersOf(sweep)) {
    types.push_back(Name(kv));
    for (const KvSetting& s : SettingsFor(kv)) {
      settings.push_back(
          {{"kv", Name(kv)}, {"engine", s.engine}, {"setting", s.setting}, {"note", s.note}});
    }
  }
  for (const KvCost& cost : sweep.kv_costs) costs.push_back(CostJson(cost));
  for (const Cell& cell : sweep.other_kv) cells.push_back(Json::parse(ToJson(cell)));
  return {{"recommended_on", Name(BaseOf(sweep))},
          {"types", types},
          {"text", sweep.kv_text},
          {"costs", costs},
          {"settings", settings},
          {"cells", cells}};
}

}  // namespace ropewalk::cli
