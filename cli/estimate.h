// Estimates the cost of a sweep before it starts, and a smaller sweep that fits in an hour.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/options.h"
#include "ropewalk/eval/prepare.h"
#include "ropewalk/eval/results.h"
#include "ropewalk/model/model.h"

namespace ropewalk::cli {

// A sweep with all options resolved.
struct Sweep : PreparedSweep {
  ModelFiles files;
  TokenText text;
};

struct Estimate {
  std::vector<CellCost> cells;  // of each task; 0 for finished and shared ones
  std::vector<bool> finished;   // of each task: its row exists
  int64_t most_costs = 0;       // cells that AddCosts may add
  int64_t search_trials = 0;
  int64_t tokens = 0, memory_bytes = 0;  // tokens: of all cells, through the model
  double flops = 0, seconds = 0;
};

// Measures the seconds per floating-point operation on this machine: runs the first chunk of the
// text (for a large model its first 64 tokens) for a second or two.
double SecondsPerFlop(const ScoringEngine& engine, const Sweep& sweep);

// `costs_known`: AddCosts has been applied to the tasks. `searches`: the number of trials that
// each kind of --search still has to compute; each adds a method. `seconds_per_flop` null: it is
// measured if there is anything to compute.
Estimate EstimateSweep(const Sweep& sweep, const SweepInputs& inputs, std::vector<bool> finished,
                       bool costs_known, const std::vector<int64_t>& searches,
                       const double* seconds_per_flop);

// One line: time, memory, tokens.
std::string Text(const Estimate& estimate);

// Throws UsageError if the estimate is above an hour, after a message with a smaller sweep, unless
// the options or the user at the terminal confirm it.
void CheckWithinAnHour(const Options& options, const Sweep& sweep, const SweepInputs& inputs,
                       const Estimate& estimate);
// A smaller sweep as text: "ropewalk sweep ..." with other options.
std::string WhatFits(const Options& options, const Sweep& sweep, const SweepInputs& inputs,
                     const Estimate& estimate);

}  // namespace ropewalk::cli
