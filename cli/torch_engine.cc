#include "cli/torch_engine.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "cli/rows.h"

namespace ropewalk::cli {
namespace {

MakeTorchEngine& Maker() {
  static MakeTorchEngine make;
  return make;
}

bool IsGiven(const Options& options, std::string_view name) {
  return std::any_of(options.given.begin(), options.given.end(),
                     [&](const Given& given) { return MainName(*given.option) == name; });
}

}  // namespace

void SetTorchEngine(MakeTorchEngine make) { Maker() = std::move(make); }

bool TakeTorch(Options& options) {
  const bool torch = std::erase(options.engines, "torch") > 0;
  for (const char* name : {"--device", "--dtype"}) {
    if (!torch && IsGiven(options, name)) {
      throw UsageError(std::string(name) + " goes with --engine torch");
    }
  }
  if (!torch) return false;
  if (!Maker()) {
    throw UsageError(
        "--engine torch: only the program of the Python package has it (pip install "
        "'ropewalk[torch]')");
  }
  for (const char* name : {"--compute", "--weights", "--angles"}) {
    if (IsGiven(options, name)) {
      throw UsageError(std::string(name) +
                       " does not go with --engine torch: --dtype says in which type it computes, "
                       "and transformers computes angles in float32");
    }
  }
  if (IsGiven(options, "--kv")) {
    throw UsageError(
        "--kv does not go with --engine torch: its KV cache has the type that it computes in, "
        "which "
        "--dtype says; without --engine torch ropewalk's own decoder measures every type");
  }
  options.angles = "float32";
  return true;
}

std::unique_ptr<ScoringEngine> LoadTorchEngine(const Options& options) {
  return Maker()(options.model, options.device, options.dtype);
}

}  // namespace ropewalk::cli
