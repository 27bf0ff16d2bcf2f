// Tasks by name, as --tasks has them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ropewalk/eval/ruler.h"
#include "ropewalk/eval/task.h"

namespace ropewalk {

// JSON key-value retrieval (Liu et al. 2023, "Lost in the Middle", arXiv 2307.03172): as many pairs
// of UUIDs as the length holds, and questions spread evenly over their places.
struct KvOptions {
  uint64_t seed = 1;
  std::optional<int32_t> bos_id = {};  // the prompt begins with it
  // Behind each context; 0: as many as a fifth of the length holds, 4 to 50.
  int64_t questions = 0;
};
std::unique_ptr<Task> MakeKvTask(const KvOptions& options, const Tokenizer& tokenizer);

struct TaskSettings {
  KvOptions kv = {};
  RulerOptions ruler = {};
};

// "kv"; "ruler" is every task of RULER for which `settings` has the data, "ruler:vt" one of them; a name
// behind it that is RULER's too belongs to it ("ruler:vt", "cwe"). Duplicates are left out. Throws
// Error for unknown names, and as the makers of the tasks do. `tokenizer` must outlive the tasks.
std::vector<std::unique_ptr<Task>> MakeTasks(const std::vector<std::string>& names,
                                             const TaskSettings& settings,
                                             const Tokenizer& tokenizer);

}  // namespace ropewalk
