#include "fuzz/memory_file.h"
#include "ropewalk/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  try {
    ropewalk::fuzz::ReadAll(ropewalk::OpenSafetensors(ropewalk::fuzz::MemoryFile(data, size)));
  } catch (const ropewalk::Error&) {  // anything else that is thrown is a finding
  }
  return 0;
}
