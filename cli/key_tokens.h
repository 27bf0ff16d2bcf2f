// The key tokens of a text in a sweep.
#pragma once

#include "cli/estimate.h"
#include "cli/options.h"

namespace ropewalk::cli {

// Sets the key tokens of `sweep` (--tasks key-tokens): those of --spans, or of DIR/key-tokens.json,
// where that file exists; else found by --evaluator, or by the model without scaling within its
// trained length, among the tokens that the windows score, and written there; the seconds that this
// takes are taken off `budget`. Where they are still to be found a dry run sets what that will take.
void AddKeyTokens(const Options& options, const ScoringEngine& engine, Sweep& sweep,
                  double& budget);

}  // namespace ropewalk::cli
