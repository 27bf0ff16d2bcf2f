// The container, then what is built from its metadata: the configuration and the tokenizer.
#include "fuzz/memory_file.h"
#include "ropewalk/base/error.h"
#include "ropewalk/config/config.h"
#include "ropewalk/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  ropewalk::GgufFile file;
  try {
    file = ropewalk::OpenGguf(ropewalk::fuzz::MemoryFile(data, size));
    ropewalk::fuzz::ReadAll(file.tensors);
  } catch (const ropewalk::Error&) {  // anything else that is thrown is a finding
    return 0;
  }
  try {
    ropewalk::ParseGgufConfig(file);
  } catch (const ropewalk::Error&) {
  }
  try {
    const auto tokenizer = ropewalk::LoadTokenizerGguf(file);
    tokenizer->Decode(tokenizer->Encode("The rope 123\n\xc3\xa9\xff", {.special = true}));
  } catch (const ropewalk::Error&) {
  }
  return 0;
}
