#include "cli/slurm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "cli/parse.h"
#include "cli/rows.h"

namespace ropewalk::cli {
namespace {

// Of this program, where it is one by itself.
std::string ProgramPath() {
  std::error_code none;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", none);
  return path.filename() == "ropewalk" ? Quoted(path.string()) : "ropewalk";
}

// One for each hour of work, but none without a cell.
int64_t TasksOf(const Estimate& estimate) {
  constexpr int64_t kMost = 1000;  // what SLURM allows unless it is told otherwise
  const auto cells = std::count_if(estimate.left.begin(), estimate.left.end(),
                                   [](const CellLeft& l) { return !l.finished; });
  const auto hours = static_cast<int64_t>(std::ceil(estimate.price.seconds / 3600));
  return std::clamp<int64_t>(hours, 1, std::clamp<int64_t>(cells, 1, kMost));
}

// Of a task: its share and half of it more, since machines differ and the last ones wait for each
// other, at least twice the longest cell; 10 minutes to begin and to end.
int64_t MinutesOf(const Estimate& estimate, int64_t tasks, bool budget_given) {
  constexpr double kMargin = 10;
  if (budget_given && std::isfinite(estimate.budget)) {
    return static_cast<int64_t>(std::ceil(estimate.budget / 60 * 1.1 + kMargin));
  }
  double longest = 0;
  for (const double seconds : estimate.cell_seconds) longest = std::max(longest, seconds);
  const double share = estimate.price.seconds / static_cast<double>(tasks);
  return static_cast<int64_t>(std::ceil(std::max(1.5 * share, 2 * longest) / 60 + kMargin));
}

// What the estimate has, a quarter more, and what the program itself takes.
int64_t MebibytesOf(const Estimate& estimate) {
  const auto bytes = static_cast<double>(estimate.memory_bytes + estimate.mapped_bytes);
  return static_cast<int64_t>(std::ceil(1.25 * bytes / (1 << 20))) + 256;
}

bool HasBudget(const Options& options) {
  return std::any_of(options.given.begin(), options.given.end(),
                     [](const Given& given) { return MainName(*given.option) == "--budget"; });
}

}  // namespace

void CheckForSlurm(const Options& options) {
  if (options.text == "-" || options.ids == "-") {
    throw UsageError("--slurm: a job has no standard input of yours; give a file");
  }
}

void PrintSlurmScript(const Options& options, const Estimate& estimate, int threads) {
  const int64_t tasks = TasksOf(estimate);
  const bool budget = HasBudget(options);
  const int64_t minutes = MinutesOf(estimate, tasks, budget);
  const bool gpu = options.device.starts_with("cuda") || options.device == "auto";
  std::map<std::string, std::string> values = {
      {"--output", options.output}, {"--shard", "auto"}, {"--threads", std::to_string(threads)}};
  if (!budget) values.insert({"--budget", "none"});  // SLURM has a limit of its own
  std::string command = CommandWith(options, values, {"--slurm"});
  command.replace(0, std::string("ropewalk").size(), ProgramPath());
  fmt::print("#!/bin/bash\n");
  fmt::print("#SBATCH --job-name=ropewalk\n");
  fmt::print("#SBATCH --array=1-{}\n", tasks);
  fmt::print("#SBATCH --cpus-per-task={}\n", threads);
  fmt::print("#SBATCH --mem={}M\n", MebibytesOf(estimate));
  fmt::print("#SBATCH --time={}-{:02}:{:02}:00\n", minutes / 1440, minutes / 60 % 24, minutes % 60);
  if (gpu) fmt::print("#SBATCH --gres=gpu:1\n");
  fmt::print("#SBATCH --requeue\n#SBATCH --open-mode=append\n");
  fmt::print("#SBATCH --output=ropewalk-%A_%a.log\n");
  fmt::print("#SBATCH --chdir={}\n", std::filesystem::current_path().string());
  fmt::print("# On the machine that wrote this: {}.\n", Text(estimate));
  fmt::print(
      "# More or fewer tasks: sbatch --array=1-N. What a time limit cuts off the same job goes on "
      "with.\n");
  fmt::print("exec {}\n", command);
}

}  // namespace ropewalk::cli
