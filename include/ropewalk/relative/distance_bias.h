// The biases over distance alone, which lower to slopes or to a table: a variant, and a row for
// each kind from the end of its file in src/relative/.
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

// How many learned numbers it has for these heads: its lists, one after the other.
int64_t LearnedNumbers(const DistanceBias& bias, int64_t heads);
// Sets them; an empty span where a bias can do without (ALiBi). Throws Error for another number.
void SetLearned(std::span<const float> values, int64_t heads, DistanceBias& bias);

// Throws Error for parameters that the bias refuses.
ScoreForm Lower(const DistanceBias& bias, int64_t heads, int64_t max_distance);

// d(loss) / d(learned numbers) of the gradient of a form that Lower gave, which has the gradient in
// the place of each number. Throws Error where nothing is learned.
std::vector<double> Backward(const DistanceBias& bias, const ScoreForm& gradient);

}  // namespace ropewalk
