// The biases that depend on the distance alone and lower to slopes or to a table: a variant, and
// one row of information per kind, from the end of its file in src/relative/.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "ropewalk/relative/alibi.h"
#include "ropewalk/relative/forms.h"
#include "ropewalk/relative/kerple.h"
#include "ropewalk/relative/sandwich.h"
#include "ropewalk/relative/t5.h"

namespace ropewalk {

using DistanceBias = std::variant<AlibiBias, T5Bias, KerpleBias, SandwichBias>;

struct DistanceBiasInfo {
  const char* name;        // "kerple"
  const char* title;       // "KERPLE"
  const char* source;      // paper
  DistanceBias (*make)();  // with the defaults of its struct
};
// In the order of DistanceBias.
const std::vector<DistanceBiasInfo>& DistanceBiases();
const DistanceBiasInfo& InfoOf(const DistanceBias& bias);

// The number of learned values for this many heads: all lists of its struct together.
int64_t LearnedNumbers(const DistanceBias& bias, int64_t heads);
// Sets the learned values, the lists one after the other. An empty span is allowed where a bias
// needs none (ALiBi). Throws Error for a wrong number of values.
void SetLearned(std::span<const float> values, int64_t heads, DistanceBias& bias);

// Throws Error for parameters that the bias refuses.
ScoreForm Lower(const DistanceBias& bias, int64_t heads, int64_t max_distance);

// d(loss) / d(learned values), from `gradient`: a form as Lower returns it, with the gradient in
// place of each value. Throws Error where nothing is learned.
std::vector<double> Backward(const DistanceBias& bias, const ScoreForm& gradient);

}  // namespace ropewalk
