// ropewalk prompts: what tasks ask, without running a model.
#include <sstream>

#include "cli/input.h"
#include "cli/output.h"
#include "cli/tasks.h"

namespace ropewalk::cli {

void RunPrompts(const Options& options) {
  const ModelFiles files = OpenModelFor(options, false);
  TokenText filler;
  if (!options.text.empty()) filler = ReadTokenText(options, files);
  const auto tasks =
      TasksOf(options, options.tasks, files, options.text.empty() ? nullptr : &filler);
  std::ostringstream lines;
  for (const std::string& text : options.lengths) {
    const int64_t length = ParseLength(text);
    for (const auto& sampled : tasks) {
      const Task& task = sampled->task();
      WritePrompts(lines, task, task.Prompts(length, sampled->samples()), length);
    }
  }
  WriteResult(options, lines.str());
}

}  // namespace ropewalk::cli
