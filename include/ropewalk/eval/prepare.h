// A sweep from what somebody asks for: methods by name, and defaults for what is left open.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ropewalk/eval/eval.h"

namespace ropewalk {

// Methods by name, without duplicates; kAsShipped is the model's own plan. "self-extend:window=512",
// "group=8" are one method that was split at its comma. Throws Error that lists the names.
std::vector<SweepMethod> ParseMethods(const std::vector<std::string>& names,
                                      const PositionPlan& model_plan);
// Types of the KV cache by name, by precision and without duplicates; none: f32. Throws Error that
// lists the names.
std::vector<KvType> ParseKvTypes(const std::vector<std::string>& names);
// Adds the method of a rope dictionary (JSON), with a name of its own; one that is there already is
// left out. `what` names it in errors. Returns what its plan notes beyond the model's.
std::vector<std::string> AddDictionary(const std::string& dictionary, const std::string& what,
                                       const PositionPlan& model_plan, bool allow_unknown,
                                       std::vector<SweepMethod>& methods);

// `aligned` without K scores half the shortest length per anchor, at most 1024 tokens.
void SettleProtocol(int64_t shortest_length, SweepSpec& spec);
// How many windows have, with K scored tokens each, a standard error no larger than 8 windows of 128
// (docs/tasks/statistics.md).
int64_t WindowsFor(int64_t scored_per_anchor);

// A sweep with nothing left open.
struct PreparedSweep {
  SweepSpec spec;
  std::vector<SweepTask> tasks;         // of PlanSweep
  int64_t longest = 0;                  // length of the tasks
  std::vector<std::string> notes = {};  // for the user: what was added, what is left out
};
// Settles what `spec` leaves open, and plans its tasks.
//   lengths empty   half the trained length, the trained length, 2, 4 and 8 times it, as far as the
//                   text goes
//   methods empty   the usual ones, and the plan of the files where that is scaled
//   settle          K of the protocol aligned (SettleProtocol)
// Throws Error for a text that is too short, an unknown trained length, and as PlanSweep does.
PreparedSweep PrepareSweep(SweepSpec spec, bool settle, const PositionPlan& model_plan,
                           const TokenText& text);

}  // namespace ropewalk
