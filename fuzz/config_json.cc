#include <cstddef>
#include <cstdint>
#include <string>

#include "ropewalk/base/error.h"
#include "ropewalk/model/model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    ropewalk::ParseHfConfig(text, "config.json");
  } catch (const ropewalk::Error&) {  // anything else that is thrown is a finding
  }
  return 0;
}
