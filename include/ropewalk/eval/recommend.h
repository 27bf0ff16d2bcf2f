// What a report has besides the recommendations (Recommend in ropewalk/eval/eval.h): the longest
// usable length and the cost of each method, and the text about them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ropewalk/eval/eval.h"

namespace ropewalk {

// The mean over windows of a's loss minus b's, nats per token, with the standard error clustered by
// window; of a cell that left a race over the windows that both have. With one window, or windows
// that do not correspond, `standard_error` is NaN.
struct PairedDifference {
  double mean = 0;
  double standard_error = 0;
  int64_t windows = 0;
  bool outside_noise = false;  // |mean| > t * standard_error, two-sided 5 %
};
PairedDifference Compare(const Cell& a, const Cell& b);

// The longest measured length up to which a method (at its best factor for each length) is usable
// at every measured length from the trained one on. 0: not even there.
struct MethodReach {
  std::string method;
  int64_t longest_usable = 0;
  double factor = 1;  // at that length
  // Loss with that factor at the trained length minus that without scaling; absent where it was not
  // measured, and for "none" itself.
  std::optional<PairedDifference> cost;
};
// In order of first appearance; empty where "none" was not measured at the trained length.
std::vector<MethodReach> Reaches(const std::vector<Cell>& cells);

// The rule for "usable" as text, with the numbers of this sweep.
std::string UsabilityRule(const std::vector<Cell>& cells);
// Whether any cell has a result of the passkey task.
bool PasskeyMeasured(const std::vector<Cell>& cells);
// Why passkey results are not considered; empty where they are, or were not measured.
std::string PasskeyNote(const std::vector<Cell>& cells);

// The cell of this method, factor and length; null: there is none.
const Cell* FindCell(const std::vector<Cell>& cells, const std::string& method, double factor,
                     int64_t length);

// Whether it is a named method with a factor: not "none", "as-shipped" or a dictionary.
bool TakesFactor(const std::string& method);
std::string MethodLabel(const std::string& method, double factor);  // "yarn with factor 4"
std::string PerplexityText(double perplexity);                      // "26.7", "9.81", "1204"

}  // namespace ropewalk
