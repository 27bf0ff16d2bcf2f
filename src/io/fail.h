// Errors of a file that is read: "path: what".
#pragma once

#include <string>

#include "ropewalk/base/error.h"

namespace ropewalk::internal {

[[noreturn]] inline void Fail(const std::string& file, const std::string& what,
                              ErrorCode code = ErrorCode::kInvalidFile) {
  throw Error(code, file + ": " + what);
}

}  // namespace ropewalk::internal
