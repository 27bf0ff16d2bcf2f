#include "cli/tasks.h"

#include <algorithm>

#include "cli/input.h"
#include "cli/rows.h"

namespace ropewalk::cli {
namespace {

RulerFile Read(const std::string& path) {
  if (path.empty()) return {};
  return {path, ReadText(path)};
}

}  // namespace

TaskSettings TaskSettingsOf(const Options& options, const ModelFiles& files) {
  const bool seeded = std::ranges::any_of(
      options.given, [](const Given& given) { return MainName(*given.option) == "--seed"; });
  TaskSettings settings;
  RulerOptions& ruler = settings.ruler;
  if (seeded) ruler.seed = options.seed;
  ruler.questions = std::max<int64_t>(1, options.questions);
  if (WantsBos(options, files)) ruler.bos_id = files.tokenizer->bos_id();
  settings.kv = {.seed = options.seed, .bos_id = ruler.bos_id, .questions = options.questions};
  ruler.haystack = Read(options.haystack);
  ruler.squad = Read(options.squad);
  ruler.hotpot = Read(options.hotpot);
  ruler.english_words = Read(options.english_words);
  return settings;
}

std::vector<std::shared_ptr<const SampledTask>> TasksOf(const Options& options,
                                                        const std::vector<std::string>& names,
                                                        const ModelFiles& files) {
  std::vector<std::shared_ptr<const SampledTask>> tasks;
  if (names.empty()) return tasks;
  for (std::unique_ptr<Task>& task :
       MakeTasks(names, TaskSettingsOf(options, files), RequireTokenizer(files))) {
    const bool kv = task->Name() == "kv";
    tasks.push_back(std::make_shared<SampledTask>(
        std::move(task), options.samples.value_or(kv ? 1 : 10), options.generate.value_or(!kv)));
  }
  return tasks;
}

}  // namespace ropewalk::cli
