// The 13 tasks of RULER (Hsieh et al. 2024, arXiv 2404.06654): prompts as NVIDIA's generator makes
// them, byte for byte, with the same tokenizer, seed and length (NVIDIA/RULER, commit c3f5e3b, its
// template "base"). docs/tasks/ruler.md says what each asks and what is exact.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "ropewalk/eval/task.h"

namespace ropewalk {

// A file of the user: its bytes, and a name for messages.
struct RulerFile {
  std::string name = {}, content = {};
  bool empty() const { return name.empty() && content.empty(); }
};

struct RulerOptions {
  uint64_t seed = 42;  // RULER's own; 0 .. 2^32 - 1, as numpy takes them
  // In front of every prompt where the model has one. As in RULER it is not counted: a prompt, this
  // token and MaxNewTokens() can be one token more than the length, of which the last one is
  // generated and never fed.
  std::optional<int32_t> bos_id = {};
  // Questions behind one context: the first is RULER's; the others ask for further keys of the same
  // haystack (niah_multikey_1, _2, _3 and multiquery; other tasks have one). A context may have
  // fewer than this.
  int64_t questions = 1;
  // Of the essay tasks (niah_single_2, _3, multikey_1, multivalue, multiquery): a text; JSON
  // {"text": ...} as RULER's PaulGrahamEssays.json; or that with "sentences": [...], the sentences
  // of the text in its order, which are then not looked for here.
  RulerFile haystack = {};
  RulerFile squad = {};   // of qa_1: SQuAD v2, dev-v2.0.json
  RulerFile hotpot = {};  // of qa_2: HotpotQA, hotpot_dev_distractor_v1.json
  // Of cwe where it needs more than the 8166 words of wonderwords, from about 100k tokens on:
  // RULER's english_words.json, an object whose values are words.
  RulerFile english_words = {};
};

struct RulerTaskInfo {
  const char* name;        // "vt"; the task's Name() is "ruler:vt"
  const char* needs;       // option that names its file ("haystack"); empty: none
  int64_t max_new_tokens;  // as RULER generates
  TaskMatch match;
};
// In RULER's order.
std::span<const RulerTaskInfo> RulerTasks();

// `name` is one of RulerTasks(). `tokenizer` must outlive the task. Throws Error for an unknown
// name, a seed out of range, a file that is missing or does not follow its format.
std::unique_ptr<Task> MakeRulerTask(const std::string& name, const RulerOptions& options,
                                    const Tokenizer& tokenizer);

}  // namespace ropewalk
