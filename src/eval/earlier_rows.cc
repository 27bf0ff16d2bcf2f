#include "src/eval/earlier_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ropewalk/eval/task.h"
#include "src/eval/whole.h"

namespace ropewalk::internal {
namespace {

// Shares by depth are all there is. Which prompts of a depth were answered is not known, so the
// first ones count as exact, and no loss is.
TaskResult EarlierPasskey(const nlohmann::ordered_json& json, const std::string& protocol) {
  const auto depths = json.at("passkey_depths").get<std::vector<double>>();
  const auto shares = json.at("passkey_by_depth").get<std::vector<double>>();
  TaskResult result;
  result.task = "passkey";
  result.protocol = protocol;
  constexpr int64_t kMostPrompts = 1 << 20;
  ReadWhole(json.at("passkey_trials"), result.prompts, int64_t{0}, kMostPrompts);
  const int64_t each = result.prompts / std::max<int64_t>(1, static_cast<int64_t>(depths.size()));
  for (size_t d = 0; d < depths.size(); ++d) {
    const int64_t exact = std::llround(shares.at(d) * static_cast<double>(each));
    for (int64_t i = 0; i < each; ++i) {
      result.answers.push_back({.prompt = static_cast<int32_t>(result.answers.size()),
                                .depth = depths[d],
                                .nll = std::numeric_limits<double>::quiet_NaN(),
                                .exact = i < exact});
    }
  }
  Summarise(result);
  return result;
}

}  // namespace

void AddEarlierPasskey(const nlohmann::ordered_json& json, Cell& cell) {
  const auto protocol = json.value("passkey_protocol", std::string("none"));
  if (protocol == "none") return;
  cell.tasks_protocol =
      "passkey = " + protocol + (cell.tasks_protocol.empty() ? "" : "; ") + cell.tasks_protocol;
  if (!json.value("has_passkey", false)) return;
  cell.tasks.insert(cell.tasks.begin(), EarlierPasskey(json, protocol));
}

}  // namespace ropewalk::internal
