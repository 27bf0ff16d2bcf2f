// Checks of the arguments of Rerotate, for the CPU and for a GPU. Memory is not read.
#pragma once

#include <cstdint>
#include <string>

#include "ropewalk/rotary/rerotate.h"

namespace ropewalk::internal {

[[noreturn]] void BadRerotate(const std::string& message);  // Error: "Rerotate: " + message

struct RerotateShape {
  int64_t batch, tokens;
  int64_t all() const { return batch * tokens; }
};

// All but what the rotation asks of the keys (strides, memory, first_dim).
RerotateShape CheckRerotate(const RerotateArgs& args);

inline Device DeviceOf(const RerotateArgs& args) {
  return args.keys.rank != 0 ? args.keys.device : args.q8_keys.device;
}

// What keys are multiplied by.
inline double AmplitudeOf(const RerotateArgs& args) {
  return args.amplitude == AmplitudeChange::kRatio
             ? args.frequencies->amplitude / args.from->amplitude
             : 1;
}

}  // namespace ropewalk::internal
