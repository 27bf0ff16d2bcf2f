#include "src/capi/capi.h"

namespace ropewalk::capi {
namespace {

// Fixed memory, so that running out of it can be reported.
thread_local char last_error[2048] = "";

}  // namespace

void SetLastError(const char* text) noexcept {
  std::strncpy(last_error, text, sizeof(last_error) - 1);
  last_error[sizeof(last_error) - 1] = '\0';
}

}  // namespace ropewalk::capi

const char* ropewalk_last_error(void) { return ropewalk::capi::last_error; }
const char* ropewalk_version(void) { return ROPEWALK_VERSION; }
