// The results of sweeps as a summary for the terminal, report.html, CSV, Markdown and JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ropewalk/eval/eval.h"
#include "ropewalk/eval/ladder.h"
#include "ropewalk/eval/recommend.h"
#include "ropewalk/eval/results.h"

namespace ropewalk::cli {

// One sweep with its recommendations.
struct SweepReport {
  std::string label;  // name of the folder; made unique among the sweeps of a report
  SweepResults results;
  std::vector<Recommendation> recommendations;
  std::vector<MethodReach> reaches;
  std::optional<Ladder> ladder;
  std::vector<MethodScores> scores;
  std::string rules;       // by what it is judged, with this sweep's numbers
  std::string tasks_note;  // why tasks do not count; empty where all do
  // `results` holds the cells of RecommendedKv alone; these are of the other types of KV cache.
  std::vector<Cell> other_kv = {};
  std::vector<KvCost> kv_costs = {};
  std::string kv_text = {};                // empty where one type alone was measured
  std::vector<EngineChoice> engines = {};  // whose settings are shown; empty: all
};
SweepReport MakeSweepReport(const std::string& label, const SweepResults& results);
// What a folder is called, also one that is given as "." or with a slash at its end.
std::string FolderName(const std::string& folder);
std::vector<SweepReport> LoadSweeps(const std::vector<std::string>& folders,
                                    const std::vector<EngineChoice>& engines = {});

// Methods by lengths. Beyond the trained length a cell has the factor that matches its length (the
// smallest that is large enough); up to it the largest factor, which has the largest cost there.
struct Grid {
  struct Column {
    int64_t length = 0;
    double factor = 0;  // of all scaled cells in the column; 0 when they differ or there are none
  };
  std::vector<std::string> methods;
  std::vector<Column> columns;
  std::vector<std::vector<int64_t>> cells;  // [method][column] index into the cells, -1: missing
};
Grid MakeGrid(const std::vector<Cell>& cells);

// The end of a sweep on the terminal: aligned table, recommendations, the rule.
std::string SummaryText(const SweepReport& sweep);
// CSV (RFC 4180), one line per cell of every type of KV cache; for several sweeps one line per method, factor and length,
// with the other columns once per sweep.
std::string Csv(const std::vector<SweepReport>& sweeps);
// Tables and recommendations; several sweeps side by side first.
std::string Markdown(const std::vector<SweepReport>& sweeps);
nlohmann::ordered_json KvJson(const SweepReport& sweep);  // null where one type alone was measured
nlohmann::ordered_json ReportJson(const std::vector<SweepReport>& sweeps);
std::string Html(const std::vector<SweepReport>& sweeps);  // one file, no network

// Whether (xN) says something of it: not where its name has its factor (yarn:4) or it has none.
bool ShowsFactor(const std::string& method);

// Throws Error if a file of this name exists that is not a report of ropewalk: it is never
// replaced.
void RefuseForeign(const std::string& path);

// Renders folders that hold a results.jsonl into one HTML file and returns its path. `out` empty:
// DIR/report.html for one folder, ./report.html for several. Throws Error.
std::string WriteReport(const std::vector<std::string>& folders, const std::string& out,
                        const std::vector<EngineChoice>& engines = {});

}  // namespace ropewalk::cli
