// make_report FILE [one|two|hostile]: a report of made-up sweeps, for the check in a browser.
#include <fstream>
#include <iostream>

#include "cli/report.h"
#include "tests/report/synthetic.h"

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
