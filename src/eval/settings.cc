#include "ropewalk/engines/settings.h"

#include <cmath>

#include "ropewalk/eval/eval.h"
#include "ropewalk/plan/method.h"

namespace ropewalk {

std::vector<EngineSetting> SettingsFor(const Cell& cell, int64_t target_length) {
  SettingsTarget target{cell.trained_length, target_length, cell.rope_base, cell.rotary_dim};
  if (!std::isnan(cell.local_base)) target.local_base = cell.local_base;
  if (cell.as_shipped()) return SettingsAsShipped(target_length);
  if (const auto method = cell.named()) {
    return SettingsFor(*method, cell.factor, target);
  }
  return SettingsForDictionary(cell.scaling, cell.factor, target);
}

}  // namespace ropewalk
