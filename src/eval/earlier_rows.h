// Rows of schema 1, in which the passkey had fields of its own.
#pragma once

#include <nlohmann/json.hpp>

#include "ropewalk/eval/eval.h"

namespace ropewalk::internal {

// What `json`, a row or header of schema 1, says of the passkey, as the task that it is now; of
// later schemas nothing. Form 1 hid one number in each prompt. It keeps its name, so that its rows
// and those of later forms are never taken for each other.
void AddEarlierPasskey(const nlohmann::ordered_json& json, Cell& cell);

}  // namespace ropewalk::internal
