// Tasks by name, as --tasks has them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ropewalk/eval/ruler.h"
#include "ropewalk/eval/task.h"

namespace ropewalk {

// Passkey retrieval (Mohtashami & Jaggi 2023, arXiv 2305.16300): numbers that belong to names,
// hidden in filler at depths spread evenly, all asked behind one context. Prompts are counted by
// their questions, up to 9 behind each context. docs/tasks/passkey.md has the form.
struct PasskeyOptions {
  uint64_t seed = 1;
  std::optional<int32_t> bos_id = {};  // the prompt begins with it
  // Tokens of a text, of which filler is taken; empty: a built-in sentence, repeated.
  std::vector<int32_t> filler = {};
};
std::unique_ptr<Task> MakePasskeyTask(const PasskeyOptions& options, const Tokenizer& tokenizer);

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
  PasskeyOptions passkey = {};
  KvOptions kv = {};
  RulerOptions ruler = {};
};

// "passkey"; "kv"; "ruler" is every task of RULER for which `settings` has the data, "ruler:vt" one of them; a name
// behind it that is RULER's too belongs to it ("ruler:vt", "cwe"). Duplicates are left out. Throws
// Error for unknown names, and as the makers of the tasks do. `tokenizer` must outlive the tasks.
std::vector<std::unique_ptr<Task>> MakeTasks(const std::vector<std::string>& names,
                                             const TaskSettings& settings,
                                             const Tokenizer& tokenizer);

}  // namespace ropewalk
