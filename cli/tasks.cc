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

// --seed (RULER's own, 42, where it is not given), --questions, --bos and the files of the tasks,
// which are read here.
TaskSettings TaskSettingsOf(const Options& options, const ModelFiles& files,
                            const TokenText* text) {
  const bool seeded = std::ranges::any_of(
      options.given, [](const Given& given) { return MainName(*given.option) == "--seed"; });
  TaskSettings settings;
  RulerOptions& ruler = settings.ruler;
  if (seeded) ruler.seed = options.seed;
  ruler.questions = std::max<int64_t>(1, options.questions);
  if (WantsBos(options, files)) ruler.bos_id = files.tokenizer->bos_id();
  settings.passkey = {.seed = options.seed, .bos_id = ruler.bos_id};
  if (options.passkey_filler == "text") {
    if (text == nullptr) throw UsageError("--passkey-filler text: give the text with --text FILE");
    settings.passkey.filler = text->ids;
  }
  settings.kv = {.seed = options.seed, .bos_id = ruler.bos_id, .questions = options.questions};
  ruler.haystack = Read(options.haystack);
  ruler.squad = Read(options.squad);
  ruler.hotpot = Read(options.hotpot);
  ruler.english_words = Read(options.english_words);
  return settings;
}

// How much of a task is asked at each length.
int64_t SamplesOf(const Options& options, const std::string& name) {
  if (name == "passkey") return options.passkey_trials;
  return options.samples.value_or(name == "kv" ? 1 : 10);
}

}  // namespace

std::vector<std::shared_ptr<const SampledTask>> TasksOf(const Options& options,
                                                        const std::vector<std::string>& names,
                                                        const ModelFiles& files,
                                                        const TokenText* text) {
  std::vector<std::shared_ptr<const SampledTask>> tasks;
  if (names.empty()) return tasks;
  for (std::unique_ptr<Task>& task :
       MakeTasks(names, TaskSettingsOf(options, files, text), RequireTokenizer(files))) {
    const std::string name = task->Name();
    const bool generates = options.generate.value_or(name.starts_with("ruler:"));
    tasks.push_back(
        std::make_shared<SampledTask>(std::move(task), SamplesOf(options, name), generates));
  }
  return tasks;
}

}  // namespace ropewalk::cli
