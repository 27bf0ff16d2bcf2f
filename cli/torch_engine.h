// PyTorch as the engine of a sweep (--engine torch), which the program of the Python package has.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cli/options.h"
#include "ropewalk/eval/scoring_engine.h"

namespace ropewalk::cli {

// Loads a model; empty device and dtype: the defaults.
using MakeTorchEngine = std::function<std::unique_ptr<ScoringEngine>(
    const std::string& model, const std::string& device, const std::string& dtype)>;
void SetTorchEngine(MakeTorchEngine make);

// Takes torch from options.engines, which then name the engines whose settings are shown, and says
// whether it was there. Angles are float32 then. Throws UsageError without SetTorchEngine, for
// options that do not go with it, and for --device and --dtype without it.
bool TakeTorch(Options& options);
std::unique_ptr<ScoringEngine> LoadTorchEngine(const Options& options);

}  // namespace ropewalk::cli
