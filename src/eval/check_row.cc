// Which numbers a row may have.
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "src/eval/cell_json.h"

namespace ropewalk::internal {

void CheckRow(const Cell& row) {
  using Json = nlohmann::ordered_json;
  constexpr int64_t kMost = int64_t{1} << 40;  // no count of a row is larger
  const auto check = [](const char* key, int64_t value, int64_t low, int64_t high) {
    if (value >= low && value <= high) return;
    throw BadValue("\"" + std::string(key) + "\": expected a whole number from " +
                   std::to_string(low) + " to " + std::to_string(high) + ", got " +
                   std::to_string(value));
  };
  check("length", row.length, 1, kMost);
  for (const auto& [key, value] : {std::pair{"trained_length", row.trained_length},
                                   {"longest_length", row.longest_length},
                                   {"windows", row.windows},
                                   {"scored_tokens", row.scored_tokens},
                                   {"anchors", row.anchors}}) {
    check(key, value, 0, kMost);
  }
  if (!(row.factor > 0 && std::isfinite(row.factor))) {
    throw BadValue("\"factor\": expected a number above 0, got " + Json(row.factor).dump());
  }
  const auto check_share = [](const char* key, double value) {
    if (std::isnan(value) || (value >= 0 && value <= 1)) return;
    throw BadValue("\"" + std::string(key) + "\": expected a number from 0 to 1 or null, got " +
                   Json(value).dump());
  };
  for (const TaskResult& task : row.tasks) {
    check("prompts", task.prompts, 0, kMost);
    check_share("exact", task.exact);
    check_share("recall", task.recall);
    for (const TaskAnswer& answer : task.answers) {
      check_share("recall", answer.recall);
      check("prompt", answer.prompt, 0, kMost);
      check("tokens", answer.tokens, 0, kMost);
    }
  }
}

}  // namespace ropewalk::internal
