// What FrequencyGradient asks of its arguments, on the CPU and on a GPU alike.
#pragma once

#include <string>

#include "ropewalk/rotary/gradient.h"

namespace ropewalk::internal {

[[noreturn]] void BadGradient(
    const std::string& message);  // Error: "FrequencyGradient: " + message

// All but positions. Memory is not read.
void CheckGradient(const RotaryGradientArgs& args, Device device);

}  // namespace ropewalk::internal
