// Prompts as JSON lines, a line for each question.
#include <ostream>

#include "ropewalk/eval/task.h"
#include "src/io/json.h"

namespace ropewalk {

void WritePrompts(std::ostream& out, const Task& task, std::span<const TaskPrompt> prompts,
                  int64_t length) {
  const std::string name = task.Name(), protocol = task.Protocol(), hash = task.DataHash();
  for (size_t i = 0; i < prompts.size(); ++i) {
    for (size_t j = 0; j < prompts[i].questions.size(); ++j) {
      const TaskQuestion& question = prompts[i].questions[j];
      const nlohmann::ordered_json line = {
          {"task", name},
          {"protocol", protocol},
          {"data_hash", hash},
          {"length", length},
          {"prompt", i},
          {"question", j},
          {"context", prompts[i].text},
          {"question_text", question.text},
          {"answer", question.answer_text},
          {"references", question.references},
          {"depth", question.depth},  // null where it is NaN
          {"max_new_tokens", task.MaxNewTokens()},
          {"context_ids", prompts[i].context},
          {"question_ids", question.ids},
          {"answer_ids", question.answer},
          {"scored", question.scored},
      };
      out << internal::DumpJson(line, -1, "a prompt of " + name) << '\n';
    }
  }
}

}  // namespace ropewalk
