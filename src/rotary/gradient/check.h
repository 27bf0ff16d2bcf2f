// Checks of the arguments of FrequencyGradient, for the CPU and for a GPU.
#pragma once

#include <string>

#include "ropewalk/rotary/gradient.h"

namespace ropewalk::internal {

[[noreturn]] void BadGradient(
    const std::string& message);  // Error: "FrequencyGradient: " + message

// All but positions. Memory is not read.
void CheckGradient(const RotaryGradientArgs& args, Device device);

}  // namespace ropewalk::internal
