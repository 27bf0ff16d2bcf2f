#include "src/base/cuda_describe.h"

#include <cstdlib>
#include <sstream>

#include "ropewalk/base/error.h"

namespace ropewalk::internal {
namespace {

std::string Version(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version / 10 % 100);
}

std::string Describe(const CudaDevice& d) {
  return d.name + " (compute capability " + std::to_string(d.major) + "." +
         std::to_string(d.minor) + ")";
}

std::string WhyNone(const CudaProbe& p) {
  if (p.toolkit == 0) {
    return "this build has no CUDA; build with ROPEWALK_CUDA=ON and nvcc 12.8 or newer";
  }
  if (p.driver == 0) {
    return "there is no NVIDIA driver; install one for CUDA " + Version(p.toolkit) +
           " or newer, or, in a container, start it with its GPUs";
  }
  switch (p.status) {
    case CudaProbe::kDriverTooOld:
      return "the driver knows CUDA up to " + Version(p.driver) + ", and this build needs " +
             Version(p.toolkit) +
             "; update the driver, or build with an nvcc from 12.8 on that is " +
             "not newer than it";
    case CudaProbe::kNoDevice:
      return "the driver finds no GPU; see what nvidia-smi says, and whether CUDA_VISIBLE_DEVICES "
             "hides it";
    case CudaProbe::kFailed:
      return "the CUDA runtime says: " + p.error;
    case CudaProbe::kSuccess:
      break;
  }
  std::string devices;
  for (const CudaDevice& d : p.devices) devices += (devices.empty() ? "" : ", ") + Describe(d);
  return "this build has code for " + p.targets + ", none of which runs on " + devices +
         "; it takes compute capability 8.0 or newer, and CMAKE_CUDA_ARCHITECTURES names others";
}

}  // namespace

CudaInfo DescribeCuda(const CudaProbe& probe) {
  CudaInfo info;
  if (probe.toolkit != 0) info.toolkit = Version(probe.toolkit);
  info.targets = probe.targets;
  if (probe.driver != 0) info.driver = Version(probe.driver);
  for (const CudaDevice& d : probe.devices) {
    if (HasCodeFor(probe.targets, d.major, d.minor)) info.devices.push_back(d);
  }
  if (info.devices.empty()) info.why_none = WhyNone(probe);
  return info;
}

bool HasCodeFor(const std::string& targets, int major, int minor) {
  std::istringstream words(targets);
  for (std::string word; words >> word;) {
    const std::size_t number = word.find('_') + 1;
    char* end = nullptr;
    const long target = std::strtol(word.c_str() + number, &end, 10);
    const bool has_letter = *end != '\0';
    if (target == major * 10 + minor) return true;
    if (has_letter || target > major * 10 + minor) continue;
    if (word.compare(0, number, "ptx_") == 0 || target / 10 == major) return true;
  }
  return false;
}

void ThrowFaults(const CudaFaults& faults) {
  const auto said = [&](CudaFaults::Kind kind, const char* what) {
    const auto count = faults.count[kind];
    return what + std::to_string(faults.first[kind]) + " (met " +
           (count == 1 ? "once" : std::to_string(count) + " times") + ")";
  };
  std::string text;
  if (faults.count[CudaFaults::kPosition] != 0) {
    text = said(CudaFaults::kPosition, "position ") +
           " is outside its call's table, or not in 0 to 2147483647: what it rotates became NaN; "
           "build the table for more positions";
  }
  if (faults.count[CudaFaults::kSlot] != 0) {
    if (!text.empty()) text += ". And ";
    text += said(CudaFaults::kSlot, "slot ") +
            " is outside its call's cache: nothing was written for it; -1 is the slot of a token "
            "that goes nowhere";
  }
  if (text.empty()) return;
  throw Error(ErrorCode::kInvalidArgument, "on the GPU, since the last CudaSynchronize: " + text);
}

}  // namespace ropewalk::internal
