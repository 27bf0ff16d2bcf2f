#include "ropewalk/eval/ruler.h"

#include <algorithm>

#include "ropewalk/base/did_you_mean.h"
#include "ropewalk/base/hash.h"
#include "src/eval/ruler/generator.h"
#include "src/eval/ruler/haystack.h"
#include "src/eval/ruler/noise.h"
#include "src/eval/ruler/prompt.h"
#include "src/eval/ruler/qa_file.h"
#include "src/eval/ruler/words.h"

namespace ropewalk {
namespace internal {

std::string JoinList(const std::vector<std::string>& items) {
  std::string text;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) text += i + 1 < items.size() ? ", " : ", and ";
    text += items[i];
  }
  return text;
}

void ThrowTooShort(const RulerInput& input, int64_t required) {
  std::string text = "ruler:" + input.task + ": no prompt fits " + std::to_string(input.length) +
                     " tokens with this tokenizer";
  if (required < std::numeric_limits<int64_t>::max()) {
    text += "; the smallest that was drawn takes " + std::to_string(required);
  }
  throw Error(ErrorCode::kInvalidArgument, text);
}

}  // namespace internal

namespace {

constexpr int64_t kLongest = int64_t{1} << 24;

constexpr RulerTaskInfo kTasks[] = {
    {"niah_single_1", "", 128, TaskMatch::kAll},
    {"niah_single_2", "haystack", 128, TaskMatch::kAll},
    {"niah_single_3", "haystack", 128, TaskMatch::kAll},
    {"niah_multikey_1", "haystack", 128, TaskMatch::kAll},
    {"niah_multikey_2", "", 128, TaskMatch::kAll},
    {"niah_multikey_3", "", 128, TaskMatch::kAll},
    {"niah_multivalue", "haystack", 128, TaskMatch::kAll},
    {"niah_multiquery", "haystack", 128, TaskMatch::kAll},
    {"vt", "", 30, TaskMatch::kAll},
    {"cwe", "", 120, TaskMatch::kAll},
    {"fwe", "", 50, TaskMatch::kAll},
    {"qa_1", "squad", 32, TaskMatch::kAny},
    {"qa_2", "hotpot", 32, TaskMatch::kAny},
};

const RulerTaskInfo& FindTask(const std::string& name) {
  const auto task = std::ranges::find_if(kTasks, [&](const auto& t) { return name == t.name; });
  if (task != std::end(kTasks)) return *task;
  std::vector<std::string_view> known;
  std::string list;
  for (const RulerTaskInfo& t : kTasks) {
    known.emplace_back(t.name);
    list += (list.empty() ? "" : ", ") + std::string(t.name);
  }
  throw Error(ErrorCode::kInvalidArgument, "unknown task of RULER \"" + name + "\"" +
                                               DidYouMean(name, known) + "; there are " + list);
}

using MakeSamples = std::vector<internal::RulerSample>(const internal::RulerInput&, int64_t);

MakeSamples& SamplesOf(const std::string& name) {
  if (name == "vt") return internal::VtSamples;
  if (name == "cwe") return internal::CweSamples;
  if (name == "fwe") return internal::FweSamples;
  return name.starts_with("qa_") ? internal::QaSamples : internal::NiahSamples;
}

class RulerTask : public Task {
 public:
  RulerTask(const RulerTaskInfo& info, RulerOptions options, const Tokenizer& tokenizer)
      : info_(info), options_(std::move(options)), tokenizer_(tokenizer) {
    CheckOptions();
  }

  std::string Name() const override { return "ruler:" + std::string(info_.name); }
  std::string Protocol() const override {
    const std::string needs = info_.needs;
    std::string text = (needs == "haystack" ? "RULER-form-1 " : "RULER-c3f5e3b ") +
                       std::string(info_.name) + " seed=" + std::to_string(options_.seed);
    if (options_.questions > 1) text += " questions=" + std::to_string(options_.questions);
    return text + (options_.bos_id ? " bos" : "");
  }
  std::string DataHash() const override {
    const std::string name = info_.name;
    if (const RulerFile* file = File()) return HashHex(file->content);
    if (name == "cwe") return HashHex(internal::WordsHash() + options_.english_words.content);
    if (name == "niah_single_1" || name == "niah_multikey_2") return internal::WordsHash();
    return HashHex(name == "vt" ? internal::kNoise : "");
  }
  TaskMatch Match() const override { return info_.match; }
  int64_t MaxNewTokens() const override { return info_.max_new_tokens; }
  std::vector<TaskPrompt> Prompts(int64_t length, int64_t count) const override;

 private:
  // The user's file that the task is made of; null: none.
  const RulerFile* File() const {
    const std::string needs = info_.needs;
    if (needs.empty()) return nullptr;
    return needs == "haystack" ? &options_.haystack
           : needs == "squad"  ? &options_.squad
                               : &options_.hotpot;
  }
  void CheckOptions() const;

  const RulerTaskInfo& info_;
  const RulerOptions options_;
  const Tokenizer& tokenizer_;
};

// Files are read here, so that a bad one is refused before anything is measured.
void RulerTask::CheckOptions() const {
  if (options_.seed > 0xffffffffu) {
    throw Error(
        ErrorCode::kInvalidArgument,
        Name() + ": expected a seed from 0 to 4294967295, got " + std::to_string(options_.seed));
  }
  if (options_.questions < 1) {
    throw Error(ErrorCode::kInvalidArgument, Name() + ": expected at least one question, got " +
                                                 std::to_string(options_.questions));
  }
  const RulerFile* file = File();
  if (file == nullptr) return;
  const std::string needs = info_.needs;
  if (file->empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                Name() + " needs a file: --" + needs + " FILE (docs/tasks/ruler.md)");
  }
  if (needs == "haystack") internal::ReadHaystack(*file);
  if (needs == "squad") internal::ReadSquad(*file);
  if (needs == "hotpot") internal::ReadHotpot(*file);
}

std::vector<TaskPrompt> RulerTask::Prompts(int64_t length, int64_t count) const {
  if (length < 1 || length > kLongest || count < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                Name() + ": expected a length from 1 to " + std::to_string(kLongest) +
                    " and 0 prompts or more, got " + std::to_string(length) + " and " +
                    std::to_string(count));
  }
  const internal::RulerInput input = {&tokenizer_, options_, length, info_.max_new_tokens,
                                      info_.name};
  std::vector<TaskPrompt> prompts;
  try {
    for (const internal::RulerSample& sample : SamplesOf(info_.name)(input, count)) {
      prompts.push_back(internal::EncodeSample(input, sample));
    }
  } catch (const internal::PythonError& error) {
    throw Error(ErrorCode::kInvalidArgument, Name() + ": RULER's generator fails with seed " +
                                                 std::to_string(options_.seed) + " at " +
                                                 std::to_string(length) + " tokens (" +
                                                 error.what() + "); choose another seed");
  }
  return prompts;
}

}  // namespace

std::span<const RulerTaskInfo> RulerTasks() { return kTasks; }

std::unique_ptr<Task> MakeRulerTask(const std::string& name, const RulerOptions& options,
                                    const Tokenizer& tokenizer) {
  return std::make_unique<RulerTask>(FindTask(name), options, tokenizer);
}

}  // namespace ropewalk
