#include <cstddef>
#include <cstdint>
#include <string>

#include "ropewalk/base/error.h"
#include "ropewalk/config/config.h"
#include "src/config/text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const bool allow_unknown : {false, true}) {
    try {  // config.json, params.json or arguments of Megatron-LM, as the text looks
      ropewalk::internal::ParseConfigText(text, "config.json", allow_unknown);
    } catch (const ropewalk::Error&) {  // anything else that is thrown is a finding
    }
  }
  return 0;
}
