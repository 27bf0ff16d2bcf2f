// Samples as token ids.
#pragma once

#include "src/eval/ruler/generator.h"

namespace ropewalk::internal {

// The ids of context and first question together are those of the whole prompt, encoded at once,
// behind BOS where the options have one. They part where the ids of all questions' prompts and of
// the context alone do.
TaskPrompt EncodeSample(const RulerInput& input, const RulerSample& sample);

}  // namespace ropewalk::internal
