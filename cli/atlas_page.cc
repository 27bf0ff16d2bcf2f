// The page of the atlas.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <tuple>
#include <utility>

#include "cli/atlas.h"
#include "cli/report_text.h"
#include "cli/rows.h"

namespace ropewalk::cli {
namespace {

using Facts = std::vector<std::pair<std::string, std::string>>;

// Rows that compare: all that decides their numbers is the same, but for method, factor and length.
struct Group {
  Facts facts;
  std::vector<std::string> folders = {}, commands = {}, versions = {};
  std::string model = {}, family = {};
  std::vector<Cell> cells = {};
};

Facts FactsOf(const Cell& c) {
  const auto words = [](const std::string& text) { return text.empty() ? "none" : text; };
  return {{"model", c.model_hash},
          {"text", words(c.text_hash)},
          {"tokenizer", words(c.tokenizer_hash)},
          {"trained length", c.trained_length > 0 ? std::to_string(c.trained_length) : "not known"},
          {"protocol", c.protocol},
          {"anchors", std::to_string(c.anchors)},
          {"longest length", std::to_string(c.longest_length)},
          {"BOS", c.bos},
          {"seed", std::to_string(c.seed)},
          {"tasks", words(c.tasks_protocol)},
          {"compute", c.compute},
          {"angles", c.angles},
          {"KV cache", Name(c.kv)}};
}

void AddOnce(std::vector<std::string>& list, const std::string& text) {
  if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(text);
}

// A method that several folders measured in the same way counts once, where most was measured.
void Add(const Cell& cell, std::vector<Cell>& cells) {
  const auto same = std::find_if(cells.begin(), cells.end(), [&](const Cell& c) {
    return c.method == cell.method && c.factor == cell.factor && c.length == cell.length &&
           c.plan_hash == cell.plan_hash;
  });
  const auto measured = [](const Cell& c) {
    return std::tuple(!c.race_exit && !c.unfinished, c.windows, c.tasks.size());
  };
  if (same == cells.end()) {
    cells.push_back(cell);
  } else if (measured(cell) > measured(*same)) {
    *same = cell;
  }
}

std::vector<Group> GroupsOf(const std::vector<AtlasFolder>& folders) {
  std::vector<Group> groups;
  for (const AtlasFolder& folder : folders) {
    if (!folder.sweep) continue;
    const SweepHeader& header = folder.sweep->header;
    for (const Cell& cell : folder.sweep->cells) {
      const Facts facts = FactsOf(cell);
      auto group = std::find_if(groups.begin(), groups.end(),
                                [&](const Group& g) { return g.facts == facts; });
      if (group == groups.end()) {
        groups.push_back({.facts = facts, .model = header.model_name, .family = header.family});
        group = groups.end() - 1;
      }
      AddOnce(group->folders, folder.name);
      AddOnce(group->commands, header.command);
      AddOnce(group->versions, fmt::format("{} with {} threads", cell.version, cell.threads));
      Add(cell, group->cells);
    }
  }
  for (Group& group : groups) {
    std::stable_sort(group.cells.begin(), group.cells.end(),
                     [](const Cell& a, const Cell& b) { return a.length < b.length; });
  }
  // Models side by side, in the order in which they came.
  std::vector<Group> sorted;
  for (const Group& first : groups) {
    for (const Group& group : groups) {
      const bool there = std::any_of(sorted.begin(), sorted.end(),
                                     [&](const Group& g) { return g.facts == group.facts; });
      if (!there && group.facts[0] == first.facts[0]) sorted.push_back(group);
    }
  }
  return sorted;
}

std::string Title(const Group& group) {
  return fmt::format("{} ({})", group.model, fmt::join(group.folders, ", "));
}

SweepReport ReportOf(const Group& group) {
  SweepResults results;
  results.header.family = group.family;
  results.cells = group.cells;
  return MakeSweepReport(Title(group), results);
}

// "passkey 0.96, kv 0.06" of the method's row.
std::string Scores(const Cell& cell) {
  std::string out;
  for (const TaskResult& r : cell.tasks) {
    const std::string score = r.task == kKeyTokensTask
                                  ? "LongPPL " + PerplexityText(std::exp(r.mean_nll))
                                  : fmt::format("{} {:.2f}", r.task, ScoreOf(r));
    out += (out.empty() ? "" : ", ") + score;
  }
  return out.empty() ? "-" : out;
}

// Of a length: what is recommended with its numbers beside those without scaling.
std::vector<std::string> UseRow(const Group& group, size_t number, const Recommendation& r) {
  const Cell* cell =
      r.method.empty() ? nullptr : FindCell(group.cells, r.method, r.factor, r.length);
  const Cell* none = FindCell(group.cells, "none", 1, r.length);
  return {fmt::format("{}", number),
          Title(group),
          std::to_string(group.cells.front().trained_length),
          std::to_string(r.length),
          cell != nullptr ? MethodLabel(r.method, r.factor)
          : r.judged      ? "none is usable"
                          : "not judged",
          cell != nullptr ? PerplexityText(cell->perplexity) : "-",
          none != nullptr ? PerplexityText(none->perplexity) : "-",
          cell != nullptr ? Scores(*cell) : "-"};
}

std::vector<EngineSetting> SettingsOf(const Group& group, const MethodVerdict& v, int64_t length) {
  const Cell* cell = FindCell(group.cells, v.method, v.factor, length);
  if (cell == nullptr || cell->rotary_dim < 2) return {};
  return SettingsFor(*cell, length, group.family);
}

bool IsUsable(const MethodVerdict& v) {
  return v.standing != Standing::kNotUsable && v.standing != Standing::kLeftRace &&
         v.standing != Standing::kNotJudged;
}

// A note in one line.
std::string NoteText(const EngineSetting& s) {
  std::string out = MarkdownText(s.note);
  while (out.ends_with(' ')) out.pop_back();
  return Replaced(out, "  ", " ");
}

bool HasAny(const std::vector<EngineSetting>& settings) {
  return std::any_of(settings.begin(), settings.end(),
                     [](const EngineSetting& s) { return s.expressible; });
}

// Of the method with the lowest loss among the usable ones that an engine has; the recommended one,
// where it is among them.
std::string Settings(const Group& group, const Recommendation& r) {
  const MethodVerdict* best = nullptr;
  for (const MethodVerdict& v : r.methods) {
    if (!IsUsable(v) || !HasAny(SettingsOf(group, v, r.length))) continue;
    if (best == nullptr || v.standing == Standing::kRecommended) best = &v;
  }
  if (best == nullptr) {
    return fmt::format("No engine has a setting of a method that is usable at {} tokens.\n\n",
                       r.length);
  }
  std::string out =
      fmt::format("Settings for {} tokens, {}{}:\n\n", r.length,
                  MarkdownText(MethodLabel(best->method, best->factor)),
                  best->standing == Standing::kRecommended
                      ? ""
                      : fmt::format(" (by the rules: {}; no engine has the recommended method)",
                                    Word(best->standing)));
  for (const EngineSetting& s : SettingsOf(group, *best, r.length)) {
    out += fmt::format("{}: {}\n\n", MarkdownText(s.Title()), NoteText(s));
    std::istringstream lines(s.setting);
    for (std::string line; std::getline(lines, line);) out += "    " + line + "\n";
    if (!s.setting.empty()) out += "\n";
  }
  return out;
}

// One table for each task and form of it: rows of schema 1 may have another form.
std::string TaskTables(const Group& group) {
  std::vector<std::pair<std::string, std::string>> forms;
  for (const Cell& cell : group.cells) {
    for (const TaskResult& r : cell.tasks) {
      const std::pair<std::string, std::string> form = {r.task, r.protocol};
      if (std::find(forms.begin(), forms.end(), form) == forms.end()) forms.push_back(form);
    }
  }
  std::string out;
  for (const auto& [name, protocol] : forms) {
    std::vector<Cell> cells = group.cells;
    std::erase_if(cells, [&, n = name, p = protocol](const Cell& cell) {
      const TaskResult* r = FindTask(cell.tasks, n);
      return r == nullptr || r->protocol != p;
    });
    out += MarkdownTable(TaskRows(cells, name, TableForm::kMarkdown)) + "\n" +
           MarkdownText(TaskCaption(cells, name, TableForm::kMarkdown)) +
           " Form: " + MarkdownText(protocol) + ".\n\n";
  }
  return out;
}

std::string Section(const Group& group, size_t number, const SweepReport& report) {
  std::string out = fmt::format("## {}: {}\n\n", number, MarkdownText(Title(group)));
  out += MarkdownTable(
      GridRows(group.cells, [&](const Cell& cell) { return MarkedPerplexity(cell, group.cells); }));
  out += "\nPerplexity by length in tokens; (xN): the factor of the scaled methods." +
         MarkdownText(MarksCaption(group.cells)) + "\n\n";
  out += TaskTables(group);
  for (const Recommendation& r : report.recommendations) out += "- " + MarkdownText(r.text) + "\n";
  if (!report.recommendations.empty()) out += "\n";
  for (const Recommendation& r : report.recommendations) {
    if (!r.method.empty()) out += Settings(group, r);
  }
  std::string facts;
  for (const auto& [name, value] : group.facts) {
    facts += fmt::format("{}{} {}", facts.empty() ? "" : "; ", name, MarkdownText(value));
  }
  out += fmt::format("Measured with: {}; version {}.\n\n", facts, fmt::join(group.versions, ", "));
  for (const std::string& command : group.commands) {
    if (!command.empty()) out += "    " + command + "\n\n";
  }
  return out;
}

}  // namespace

std::string AtlasPage(const std::vector<AtlasFolder>& folders) {
  const std::vector<Group> groups = GroupsOf(folders);
  TextRows use = {
      {"protocol", "model", "trained", "tokens", "use", "perplexity", "without scaling", "scores"}};
  std::string sections;
  for (size_t i = 0; i < groups.size(); ++i) {
    const SweepReport report = ReportOf(groups[i]);
    for (const Recommendation& r : report.recommendations) {
      use.push_back(UseRow(groups[i], i + 1, r));
    }
    sections += Section(groups[i], i + 1, report);
  }
  std::string out =
      std::string(kAtlasTitle) +
      "\nWhat was measured of each model: every method at every length, perplexity and "
      "tasks, with the settings to paste. `ropewalk atlas` writes this page; `ropewalk "
      "atlas add FOLDER` adds a sweep.\n\n";
  if (!groups.empty()) {
    out +=
        "Numbers compare within one protocol, which has a number here and a section below: the "
        "same "
        "model, text, windows, prompts and arithmetic. Those of two protocols do not.\n\n";
  }
  if (use.size() > 1) {
    out += "## What to use\n\n" + MarkdownTable(use) +
           "\nWhat is recommended for a length beyond the trained one, by the rules of "
           "docs/recommendation.md.\n\n";
  }
  out += sections;
  for (const AtlasFolder& folder : folders) {
    if (folder.zoo) out += ZooSection(*folder.zoo, folder.name);
  }
  out.pop_back();  // one end of a line at the end
  return out;
}

}  // namespace ropewalk::cli
