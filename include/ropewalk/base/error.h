// The one error type of the library. Thrown at public boundaries only; kernels are noexcept.
#pragma once

#include <stdexcept>
#include <string>

namespace ropewalk {

enum class ErrorCode {
  kInvalidArgument,  // an argument of a call: shape, range, unknown name
  kInvalidFile,      // bytes that do not follow their format, or contradict themselves
  kInvalidConfig,    // a key or value of a model's configuration
  kUnsupported,      // valid, but not implemented here; the message tells an alternative
  kIo,               // from the operating system: missing file, full disk, no permission
  kMismatch,         // results, model or text that do not belong together
};

class Error : public std::runtime_error {
 public:
  // `message` names the file, key, tensor or argument, what was expected and what was given, and
  // what to do.
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace ropewalk
