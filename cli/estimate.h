// What a sweep will take, said before it starts; and what of it would fit in an hour.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/options.h"
#include "ropewalk/eval/results.h"
#include "ropewalk/model/model.h"

namespace ropewalk::cli {

// A sweep with every option settled.
struct Sweep {
  ModelFiles files;
  TokenText text;
  SweepSpec spec;
  std::vector<SweepTask> tasks;
  int64_t longest = 0;
  std::vector<std::string> notes;
};

struct Estimate {
  std::vector<CellCost> cells;  // of each task; 0 for those that are there already or shared
  std::vector<bool> finished;   // there already
  int64_t most_costs = 0;       // cells that AddCosts may add
  int64_t search_trials = 0;
  int64_t tokens = 0, memory_bytes = 0;  // tokens of all of it, through the model
  double flops = 0, seconds = 0;
};

// Seconds that a floating-point operation takes here: a second or two of the text's first chunk, on
// a large model of its first 64 tokens.
double SecondsPerFlop(const ScoringEngine& engine, const Sweep& sweep);

// `costs_known`: AddCosts has added to the tasks what it will. `searches` are the trials that
// --search has yet to compute, one number for each kind; what it finds is a method more.
// `seconds_per_flop` null: measured, where there is anything to compute.
Estimate EstimateSweep(const Sweep& sweep, const SweepInputs& inputs, std::vector<bool> finished,
                       bool costs_known, const std::vector<int64_t>& searches,
                       const double* seconds_per_flop);

// One line: time, memory, tokens.
std::string Text(const Estimate& estimate);

// Throws UsageError where the estimate is above an hour, after saying what would fit, unless the
// options or the user at the terminal say to go on.
void CheckWithinAnHour(const Options& options, const Sweep& sweep, const SweepInputs& inputs,
                       const Estimate& estimate);
// What would fit: "ropewalk sweep ..." with other options, or that nothing does.
std::string WhatFits(const Options& options, const Sweep& sweep, const SweepInputs& inputs,
                     const Estimate& estimate);

}  // namespace ropewalk::cli
