// ropewalk report: renders the report of a sweep again, or of several sweeps in one.
#include "cli/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "cli/engines.h"
#include "cli/output.h"
#include "ropewalk/base/error.h"

namespace ropewalk::cli {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;
constexpr auto kReplace = Json::error_handler_t::replace;

// The cell of a method that a column shows; see Grid.
int64_t PickCell(const std::vector<Cell>& cells, const std::string& method, int64_t length) {
  int64_t picked = -1;
  for (size_t i = 0; i < cells.size(); ++i) {
    const Cell& c = cells[i];
    if (c.method != method || c.length != length) continue;
    if (picked < 0) {
      picked = static_cast<int64_t>(i);
      continue;
    }
    const Cell& p = cells[picked];
    const double need = static_cast<double>(length) / static_cast<double>(c.trained_length);
    const bool reaches = c.factor >= need * (1 - 1e-9), p_reaches = p.factor >= need * (1 - 1e-9);
    bool better = c.factor > p.factor;
    if (length > c.trained_length && reaches && p_reaches) better = c.factor < p.factor;
    if (length > c.trained_length && reaches != p_reaches) better = reaches;
    if (better) picked = static_cast<int64_t>(i);
  }
  return picked;
}

// Recognises each form of a report, also of older versions.
bool IsReport(const std::string& text) {
  const auto begins = [&](const char* with) { return text.starts_with(with); };
  const auto holds = [&](const char* what) { return text.find(what) != text.npos; };
  return holds("\"format\":\"ropewalk-report\"") || begins("{\n \"format\": \"ropewalk-report\"") ||
         begins("sweep,method,factor,") || begins("method,factor,length,") ||
         (begins("## ") && holds("\nHashes: model "));
}

}  // namespace

bool ShowsFactor(const std::string& method) {
  const auto named = PositionMethod::TryParse(method);
  return named && named->uses_factor();
}

std::string FolderName(const std::string& folder) {
  fs::path path = fs::path(folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  if (path.empty() || path == "." || path == "..") {
    std::error_code ignored;
    path = fs::weakly_canonical(folder, ignored);
  }
  return path.filename().empty() ? folder : path.filename().string();
}

SweepReport MakeSweepReport(const std::string& label, const SweepResults& results) {
  SweepReport report;
  report.label = label;
  report.results = results;
  report.recommendations = Recommend(results.cells);
  report.reaches = Reaches(results.cells);
  report.ladder = LadderOf(results.cells);
  report.scores = ScoresByLength(results.cells);
  report.rules = RulesText(results.cells);
  report.tasks_note = TasksNote(results.cells);
  report.kv_costs = KvCosts(results.cells);
  report.kv_text = KvText(results.cells);
  const KvType kv = RecommendedKv(results.cells);
  report.results.cells = CellsOf(results.cells, kv);
  for (const Cell& cell : results.cells) {
    if (cell.kv != kv) report.other_kv.push_back(cell);
  }
  return report;
}

std::vector<SweepReport> LoadSweeps(const std::vector<std::string>& folders,
                                    const std::vector<EngineChoice>& engines) {
  std::vector<SweepReport> sweeps;
  std::map<std::string, int> names;
  for (const std::string& folder : folders) ++names[FolderName(folder)];
  for (const std::string& folder : folders) {
    const std::string name = FolderName(folder);
    sweeps.push_back(MakeSweepReport(names[name] > 1 ? folder : name, ReadResults(folder)));
    sweeps.back().engines = engines;
    if (sweeps.back().results.cells.empty()) {
      throw Error(ErrorCode::kInvalidFile,
                  fmt::format("{} holds no finished cell yet; run its sweep first", folder));
    }
  }
  return sweeps;
}

Grid MakeGrid(const std::vector<Cell>& cells) {
  Grid grid;
  std::set<int64_t> lengths;
  for (const Cell& c : cells) {
    lengths.insert(c.length);
    if (std::find(grid.methods.begin(), grid.methods.end(), c.method) == grid.methods.end()) {
      grid.methods.push_back(c.method);
    }
  }
  grid.cells.resize(grid.methods.size());
  for (const int64_t length : lengths) {
    Grid::Column column{length, 0};
    bool uniform = true;
    for (size_t m = 0; m < grid.methods.size(); ++m) {
      const int64_t index = PickCell(cells, grid.methods[m], length);
      grid.cells[m].push_back(index);
      if (index < 0 || !ShowsFactor(grid.methods[m])) continue;
      if (column.factor == 0) column.factor = cells[index].factor;
      uniform = uniform && cells[index].factor == column.factor;
    }
    if (!uniform) column.factor = 0;
    grid.columns.push_back(column);
  }
  return grid;
}

void RefuseForeign(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return;
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  if (text.str().empty() || IsReport(text.str())) return;
  throw Error(ErrorCode::kIo,
              path +
                  ": exists and is no report of ropewalk, so it is not replaced; move it away, "
                  "or choose another place with -o");
}

std::string WriteReport(const std::vector<std::string>& folders, const std::string& out,
                        const std::vector<EngineChoice>& engines) {
  const std::vector<SweepReport> sweeps = LoadSweeps(folders, engines);
  std::string path = out;
  if (path.empty()) {
    path = folders.size() == 1 ? (fs::path(folders[0]) / "report.html").string() : "report.html";
  }
  RefuseForeign(path);
  WriteWhole(path, Html(sweeps));
  return path;
}

void RunReport(const Options& options) {
  if (!options.csv && !options.markdown && !options.json) {
    fmt::print("{}\n", WriteReport(options.folders, options.output, EnginesOf(options.engines)));
    return;
  }
  const std::vector<SweepReport> sweeps = LoadSweeps(options.folders, EnginesOf(options.engines));
  if (!options.output.empty()) RefuseForeign(options.output);
  WriteResult(options, options.csv ? Csv(sweeps)
                       : options.markdown
                           ? Markdown(sweeps)
                           : ReportJson(sweeps).dump(1, ' ', false, kReplace) + "\n");
}

}  // namespace ropewalk::cli
