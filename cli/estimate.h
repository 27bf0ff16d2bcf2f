// What a sweep will cost, before it starts.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cli/options.h"
#include "ropewalk/eval/prepare.h"
#include "ropewalk/eval/results.h"
#include "ropewalk/model/model.h"

namespace ropewalk::cli {

// Between what remains if all but two methods leave in the first round of windows, and everything.
struct Price {
  int64_t least_tokens = 0, tokens = 0;  // through the model
  double least_seconds = 0, seconds = 0;

  Price& operator+=(const Price& other);
};

// A sweep with all options resolved.
struct Sweep : PreparedSweep {
  ModelFiles files;
  TokenText text;
  std::string bytes = {};       // of the text; empty for --ids
  Price key_tokens_price = {};  // of finding them, where a dry run leaves that undone
};

struct LengthEstimate {
  int64_t length = 0, cells = 0;  // that are computed
  int64_t memory_bytes = 0;
  Price price = {};
  double first_seconds = 0;  // of a round of windows and the tasks of every method
  bool left_out = false;     // the budget ends before, if nobody leaves
};

// The trials that a search still has to compute, and what each measures.
struct SearchLeft {
  int64_t trials = 0;
  SweepSpec spec = {};
};

struct Estimate {
  std::vector<CellLeft> left = {};  // of each task
  std::vector<double> cell_seconds =
      {};  // of each task, if nobody leaves; 0 where nothing is computed
  std::vector<LengthEstimate> lengths = {};
  int64_t most_costs = 0;  // cells that AddCosts may add
  int64_t search_trials = 0;
  Price price = {};             // of everything
  Price key_tokens = {};        // of finding them, where that is still to be done
  double costs_seconds = 0;     // of the cells that AddCosts may add
  double searches_seconds = 0;  // of the trials
  double budget = 0;            // seconds
  int64_t shards = 1;           // that work for so long each
  int64_t memory_bytes = 0;
  int64_t mapped_bytes = 0;  // of the model's files, where weights stay there
  Pace pace = {};
};

// `costs_known`: AddCosts has been applied to the tasks. Each of `searches` adds a method. Measures
// the pace of this machine if there is anything to compute.
Estimate EstimateSweep(const Sweep& sweep, const SweepInputs& inputs, std::vector<CellLeft> left,
                       bool costs_known, const std::vector<SearchLeft>& searches, double budget,
                       int64_t shards = 1);

// One line: cells, tokens, memory, time, what the budget leaves out.
std::string Text(const Estimate& estimate);
// A table of lengths.
std::string LengthsText(const Estimate& estimate);

// The sweep's command line with other values of some options and without others.
std::string CommandWith(const Options& options, const std::map<std::string, std::string>& values,
                        const std::set<std::string>& without = {});

// What a budget left out, and the command that goes on.
std::string LeftOutText(const Options& options, const std::vector<LeftOut>& left_out);

}  // namespace ropewalk::cli
