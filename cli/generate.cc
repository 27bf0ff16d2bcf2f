// ropewalk generate: greedy and streamed; checks that the model is read correctly.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "cli/input.h"
#include "cli/json_text.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "ropewalk/base/error.h"

namespace ropewalk::cli {
namespace {

// Bytes of `text` that end a UTF-8 sequence: an unfinished one waits for the next token.
size_t WholeUtf8(const std::string& text) {
  size_t end = text.size();
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const unsigned char c = static_cast<unsigned char>(text[text.size() - back]);
    if ((c & 0xc0) == 0x80) continue;
    const size_t needed = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
    if (needed > back) end = text.size() - back;
    break;
  }
  return end;
}

int32_t Greedy(const Decoder& decoder, const float* hidden, std::vector<float>& logits) {
  decoder.Logits(hidden, 1, logits.data());
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace

void RunGenerate(const Options& options) {
  const ModelFiles files = OpenRunnable(options);
  const Tokenizer& tokenizer = RequireTokenizer(files);
  const bool bos = WantsBos(options, files);
  const std::string prompt = TextOf(options.prompt, "--prompt");
  std::vector<int32_t> ids = tokenizer.Encode(prompt, {options.special});
  if (bos) ids.insert(ids.begin(), *tokenizer.bos_id());
  if (ids.empty()) {
    throw UsageError("the prompt is empty and has no BOS token; give --prompt TEXT");
  }
  const SweepSpec spec = SpecOf(options, files);
  const int64_t final_length = static_cast<int64_t>(ids.size()) + options.max_tokens;
  const SweepTask task = SingleTask(options, files, spec, final_length);
  const std::unique_ptr<Decoder> decoder = LoadDecoder(options, files);
  Sequence sequence(*decoder, task.plan, final_length, spec.angles);
  std::vector<float> hidden(static_cast<size_t>(decoder->config().hidden));
  std::vector<float> logits(static_cast<size_t>(decoder->config().vocab));

  const size_t prompt_tokens = ids.size();
  size_t printed = tokenizer.Decode(ids).size();
  if (!options.json) fmt::print("{}", prompt);
  InterruptScope scope;
  std::span<const int32_t> next = ids;
  std::string stop = "max_tokens";
  std::vector<int32_t> last(1);
  for (int64_t i = 0; i < options.max_tokens; ++i) {
    decoder->Forward(sequence, next, hidden.data(), 1);
    last[0] = Greedy(*decoder, hidden.data(), logits);
    next = last;
    if (tokenizer.eos_id() && last[0] == *tokenizer.eos_id()) {
      stop = "eos";
      break;
    }
    ids.push_back(last[0]);
    if (!options.json) {
      const std::string text = tokenizer.Decode(ids);
      const size_t whole = WholeUtf8(text);
      if (whole > printed) {
        fmt::print("{}", std::string_view(text).substr(printed, whole - printed));
        if (std::fflush(stdout) != 0) throw Error(ErrorCode::kIo, "cannot write to stdout");
        printed = whole;
      }
    }
    if (IsInterrupted()) {
      fmt::print("\n");
      throw Interrupted();
    }
  }
  if (!options.json) {
    fmt::print("\n");
    return;
  }
  const std::vector<int32_t> made(ids.begin() + static_cast<int64_t>(prompt_tokens), ids.end());
  const std::string before = tokenizer.Decode(std::span(ids).first(prompt_tokens));
  const nlohmann::ordered_json json = {{"prompt", prompt},
                                       {"text", tokenizer.Decode(ids).substr(before.size())},
                                       {"ids", made},
                                       {"prompt_tokens", prompt_tokens},
                                       {"stop", stop},
                                       {"scaling", task.scaling},
                                       {"plan_hash", task.plan_hash},
                                       {"compute", decoder->arithmetic()}};
  fmt::print("{}\n", JsonLine(json));
}

}  // namespace ropewalk::cli
