// make_report FILE [one|two|hostile]: a report of made-up sweeps, for the check in a browser.
#include <fstream>
#include <iostream>

#include "cli/report.h"
#include "ropewalk/eval/task.h"
#include "tests/report/synthetic.h"

namespace {

// Two tasks from the trained length on, one of them with continuations, and a method that left the race.
void AddTasks(const std::string& name, ropewalk::SweepResults& results) {
  for (ropewalk::Cell& cell : results.cells) {
    if (cell.length < 256) continue;
    if (cell.method == "linear" && cell.length > 256) {
      cell.race_exit = ropewalk::RaceExit{
          .round = 2, .against = name, .difference = 1.5, .standard_error = 0.2, .at_least = 0.3};
      continue;
    }
    for (const bool generated : {false, true}) {
      ropewalk::TaskResult& task = cell.tasks.emplace_back();
      task.task = generated ? "ruler:vt" : name;
      task.protocol = "made up";
      task.prompts = 2;
      for (int i = 0; i < 20; ++i) {
        ropewalk::TaskAnswer& answer = task.answers.emplace_back();
        answer.prompt = i / 10;
        answer.question = i % 10;
        if (!generated) answer.depth = (i % 10 + 0.5) / 10;
        answer.nll = 0.1 * i;
        answer.tokens = 4;
        answer.exact = (i * cell.length / 512) % 5 != 0;
        if (generated) answer.recall = i % 3 / 2.0;
      }
      Summarise(task);
    }
    // Longer texts have a lower loss of key tokens; one window in three has none.
    std::vector<std::vector<double>> keys(8);
    for (size_t w = 0; w < keys.size(); ++w) {
      if (w % 3 > 0) keys[w] = {1 + 0.05 * w, 150 / static_cast<double>(cell.length)};
    }
    cell = ropewalk::testing::WithKeys(cell, keys);
  }
}

// Every cell with a KV cache of another type too, which costs more where the text is longer.
void AddKv(ropewalk::SweepResults& results) {
  const std::vector<ropewalk::Cell> cells = results.cells;
  for (ropewalk::Cell cell : cells) {
    cell.kv = ropewalk::KvType::kQ8_0;
    cell.kv_keys = "rotated";
    for (size_t w = 0; w < cell.window_nll.size(); ++w) {
      cell.window_nll[w] += 1e-6 * static_cast<double>(cell.length * (w + 1));
    }
    results.cells.push_back(std::move(cell));
  }
}

}  // namespace

int main(int argc, char** argv) {
  using ropewalk::cli::MakeSweepReport;
  const std::string kind = argc > 2 ? argv[2] : "one";
  if (argc < 2) {
    std::cerr << "make_report FILE [one|two|hostile]\n";
    return 2;
  }
  const std::string hostile = "</script><img src=x onerror=\"document.title='broken'\">'{{data}}";
  const std::string name = kind == "hostile" ? hostile : "ropewalk-small";
  ropewalk::SweepResults results = ropewalk::testing::MakeSweep(name);
  AddTasks(kind == "hostile" ? hostile : "kv", results);
  if (kind != "two") AddKv(results);
  if (kind == "hostile") {
    results.header.command = results.header.text_path = hostile;
    results.header.notes = {hostile, "<!-- <script>"};
    for (ropewalk::Cell& cell : results.cells) {
      cell.scaling = hostile;
      if (cell.method == "linear") cell.method = "__proto__";
      if (cell.method == "ntk") cell.method = hostile;
    }
  }
  std::vector<ropewalk::cli::SweepReport> sweeps = {MakeSweepReport(name, results)};
  if (kind == "two") sweeps.push_back(MakeSweepReport("second", ropewalk::testing::MakeSweep("x")));
  std::ofstream(argv[1]) << ropewalk::cli::Html(sweeps);
  std::cout << ropewalk::cli::SummaryText(sweeps[0]);
  return 0;
}
