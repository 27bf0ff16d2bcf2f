// What measurements read: a sweep's rows and units, spans of key tokens, questions of SQuAD and HotpotQA. Each input is read as
// all of them; what is no such file is refused.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "fuzz/memory_file.h"
#include "ropewalk/base/error.h"
#include "ropewalk/eval/key_tokens.h"
#include "src/eval/results_text.h"
#include "src/eval/ruler/qa_file.h"
#include "src/eval/unit_store.h"

namespace {

template <class Read>
void Refusing(Read&& read) {
  try {
    read();
  } catch (const ropewalk::Error&) {  // anything else that is thrown is a finding
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  Refusing([&] {
    // What was read can be written, and read again.
    for (const ropewalk::Cell& cell :
         ropewalk::internal::ParseResults(text, "results.jsonl").results.cells) {
      ropewalk::ToJson(cell);
      cell.Identity();
    }
  });
  Refusing([&] {
    int64_t line = 0;
    const int64_t whole = ropewalk::internal::UnitStore().AddLines(text, "units.jsonl", line);
    if (whole < 0 || whole > static_cast<int64_t>(text.size())) std::abort();
  });
  const std::string path = ropewalk::fuzz::MemoryFile(data, size);
  Refusing([&] {
    ropewalk::ReadKeySpans(path, "In the beginning was the word, and the word was long.");
  });
  const ropewalk::RulerFile questions{.name = "questions.json", .content = text};
  Refusing([&] { ropewalk::internal::ReadSquad(questions); });
  Refusing([&] { ropewalk::internal::ReadHotpot(questions); });
  return 0;
}
