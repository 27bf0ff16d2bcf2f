#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ropewalk/base/error.h"
#include "src/tokenizer/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto tokenizer = ropewalk::internal::ReadTokenizerJson(text, "tokenizer.json", {});
    tokenizer->Decode(tokenizer->Encode("The rope 123\n\xc3\xa9\xff", {.special = true}));
    tokenizer->Decode(tokenizer->Encode(text.substr(0, 256), {}));
  } catch (const ropewalk::Error&) {  // anything else that is thrown is a finding
  }
  return 0;
}
