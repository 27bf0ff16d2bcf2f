#include "ropewalk/eval/tasks.h"

#include <algorithm>
#include <cstring>

#include "ropewalk/base/error.h"

namespace ropewalk {
namespace {

constexpr char kRuler[] = "ruler", kRulerPrefix[] = "ruler:";

bool HasData(const RulerTaskInfo& task, const RulerOptions& options) {
  const std::string needs = task.needs;
  return needs.empty() || (needs == "haystack" && !options.haystack.empty()) ||
         (needs == "squad" && !options.squad.empty()) ||
         (needs == "hotpot" && !options.hotpot.empty());
}

bool IsRulerTask(const std::string& name) {
  return std::ranges::any_of(RulerTasks(), [&](const auto& task) { return name == task.name; });
}

// With groups written out: "ruler:vt" for each.
std::vector<std::string> Expand(const std::vector<std::string>& names,
                                const TaskSettings& settings) {
  std::vector<std::string> expanded;
  bool in_ruler = false;
  for (const std::string& name : names) {
    if (name == kRuler) {
      for (const RulerTaskInfo& task : RulerTasks()) {
        if (HasData(task, settings.ruler))
          expanded.push_back(kRulerPrefix + std::string(task.name));
      }
    } else {
      expanded.push_back(in_ruler && IsRulerTask(name) ? kRulerPrefix + name : name);
    }
    in_ruler = expanded.back().starts_with(kRulerPrefix);
  }
  return expanded;
}

std::unique_ptr<Task> MakeTask(const std::string& name, const TaskSettings& settings,
                               const Tokenizer& tokenizer) {
  if (name == "passkey") return MakePasskeyTask(settings.passkey, tokenizer);
  if (name == "kv") return MakeKvTask(settings.kv, tokenizer);
  if (name.starts_with(kRulerPrefix)) {
    return MakeRulerTask(name.substr(std::strlen(kRulerPrefix)), settings.ruler, tokenizer);
  }
  throw Error(ErrorCode::kInvalidArgument,
              "unknown task \"" + name +
                  "\"; there are passkey, kv, ruler, and ruler:NAME for one of its tasks");
}

}  // namespace

std::vector<std::unique_ptr<Task>> MakeTasks(const std::vector<std::string>& names,
                                             const TaskSettings& settings,
                                             const Tokenizer& tokenizer) {
  std::vector<std::string> seen;
  std::vector<std::unique_ptr<Task>> tasks;
  for (const std::string& name : Expand(names, settings)) {
    if (std::ranges::find(seen, name) != seen.end()) continue;
    seen.push_back(name);
    tasks.push_back(MakeTask(name, settings, tokenizer));
  }
  return tasks;
}

}  // namespace ropewalk
