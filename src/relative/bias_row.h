// The interface of a bias that depends on distance: one row, at the end of its file in this folder.
#pragma once

#include <cstdint>
#include <vector>

#include "ropewalk/relative/distance_bias.h"
#include "src/base/required.h"

namespace ropewalk::internal {

template <class B>
struct BiasRow {
  Required<const char*> name;    // "kerple"
  Required<const char*> title;   // "KERPLE"
  Required<const char*> source;  // paper
  // Whether it can do without its learned numbers.
  Required<bool> learned_optional;
  // The length of each list of learned numbers, in the order of the struct.
  Required<std::vector<int64_t> (*)(const B&, int64_t heads)> learned;
  Required<ScoreForm (*)(const B&, int64_t heads, int64_t max_distance)> lower;
  // d(loss) / d(learned numbers), list after list.
  Required<std::vector<double> (*)(const B&, const ScoreForm& gradient)> backward;
};

// Each file defines the specialization of its bias; the linker misses one that is not there.
template <class B>
BiasRow<B> BiasRowOf();

// For a row: B's own Lower.
template <class B>
ScoreForm LowerOf(const B& bias, int64_t heads, int64_t max_distance) {
  return bias.Lower(heads, max_distance);
}

}  // namespace ropewalk::internal
