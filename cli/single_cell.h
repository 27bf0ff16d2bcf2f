// What the commands that compute one cell share.
#pragma once

#include <vector>

#include "cli/options.h"
#include "ropewalk/eval/results.h"

namespace ropewalk::cli {

// The one of --length; UsageError where there are none or several.
int64_t OneLength(const SweepSpec& spec);
// RunCell with a line of progress. `tokens` may be null. longest: of the lengths that are compared.
Cell ComputeCell(const SweepTask& task, const SweepSpec& spec, const SweepInputs& inputs,
                 int64_t longest, std::vector<ScoredToken>* tokens);
// What --dry-run prints.
void DryRunCell(const Options& options, const SweepTask& task, const SweepSpec& spec,
                const SweepInputs& inputs);
// The lines about model, text, tokenizer and computation.
void PrintProvenance(const Options& options, const Cell& cell);

// --per-token: one JSON row per scored token.
void WriteTokens(const std::string& path, const std::vector<ScoredToken>& tokens);

}  // namespace ropewalk::cli
