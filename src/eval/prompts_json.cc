// Prompts as JSON lines, a line for each question.
#include <ostream>
#include <set>

#include "ropewalk/eval/results.h"
#include "ropewalk/eval/task.h"
#include "src/eval/cell_work.h"
#include "src/io/json.h"

namespace ropewalk {
namespace {

void Write(std::ostream& out, const Task& task, const std::string& protocol,
           std::span<const TaskPrompt> prompts, int64_t length) {
  const std::string name = task.Name(), hash = task.DataHash();
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

// Bytes that are not UTF-8 become U+FFFD.
std::string Utf8(const std::string& text) {
  using Json = nlohmann::json;
  return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace));
}

// Windows of a text, which may cut its characters, as prompts.
std::vector<TaskPrompt> PromptsOf(std::span<const AskedWindow> windows, bool bos,
                                  const Tokenizer& tokenizer) {
  std::vector<TaskPrompt> prompts;
  for (const AskedWindow& asked : windows) {
    const std::vector<int32_t>& ids = asked.window.ids;
    const std::string text = tokenizer.Decode(std::span(ids).subspan(bos ? 1 : 0));
    prompts.push_back({.context = ids, .text = Utf8(text), .questions = asked.questions});
  }
  return prompts;
}

}  // namespace

void WritePrompts(std::ostream& out, const Task& task, std::span<const TaskPrompt> prompts,
                  int64_t length) {
  Write(out, task, task.Protocol(), prompts, length);
}

void WritePrompts(std::ostream& out, const std::vector<SweepTask>& tasks, const SweepSpec& spec,
                  const TokenText& text, const Tokenizer& tokenizer) {
  std::set<int64_t> lengths;
  for (const SweepTask& task : tasks) lengths.insert(task.length);
  for (const int64_t length : lengths) {
    const internal::CellWindows windows =
        internal::WindowsOf(spec, &text, length, *lengths.rbegin());
    for (const auto& sampled : spec.tasks) {
      const Task& task = sampled->task();
      if (sampled.get() == windows.shared) {
        Write(out, task, internal::BehindWindows(task),
              PromptsOf(windows.windows, spec.protocol.bos, tokenizer), length);
      } else {
        WritePrompts(out, task, sampled->Prompts(length), length);
      }
    }
  }
}

}  // namespace ropewalk
