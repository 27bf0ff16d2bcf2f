// Proof that what was written is what was asked for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ropewalk/model/model.h"
#include "src/tokenizer/extras.h"

namespace ropewalk::internal {

struct PlanProof {
  int64_t length = 0;             // tokens that the hashes are for
  std::string asked, read;        // hash of the plan asked for, and of the plan read back
  double largest_difference = 0;  // of a frequency, relative; not 0 where a format rounds
};

// `read` (from the new files) has the hash of `stored` (as their format holds it) at every length
// that can matter: 1 token, the trained length and one more, the served length. And `stored` is
// `asked` up to rounding to float32. Throws Error(kMismatch) that names the length and both.
PlanProof ProvePlan(const PositionPlan& asked, const PositionPlan& stored, const PositionPlan& read,
                    int64_t served_length);

// Logits [tokens, vocab] of a fixed sequence of ids at every position.
std::vector<float> ProbeLogits(const ModelFiles& files);
// The same at the positions of `plan`: what files have to give whose format rounds frequencies.
std::vector<float> ProbeLogits(const ModelFiles& files, const PositionPlan& plan);

// Both spell and cut a text full of traps (digits, contractions, spaces, scripts, added tokens)
// alike. Throws Error(kMismatch) that shows where they differ.
void ProveTokenizer(const Tokenizer& before, const Tokenizer& after);
// The roles of tokens and the chat templates in `read`, a folder or a GGUF file, are `written`.
void ProveExtras(const TokenizerExtras& written, const ModelFiles& read);

}  // namespace ropewalk::internal
