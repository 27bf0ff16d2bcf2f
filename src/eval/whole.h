// Whole numbers in JSON files that anyone may have written.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ropewalk::internal {

// A number that `out` does not hold (2.5, 1e300) or that is none (true) is a Json::exception, not converted.
template <std::integral T>
void ReadWhole(const nlohmann::ordered_json& json, T& out, T low = std::numeric_limits<T>::min(),
               T high = std::numeric_limits<T>::max()) {
  const bool holds = json.is_number_unsigned()  ? std::in_range<T>(json.get<uint64_t>())
                     : json.is_number_integer() ? std::in_range<T>(json.get<int64_t>())
                                                : false;
  if (holds) out = json.get<T>();
  if (!holds || out < low || out > high) {
    throw nlohmann::ordered_json::other_error::create(
        501,
        "expected a whole number from " + std::to_string(low) + " to " + std::to_string(high) +
            ", got " + json.dump().substr(0, 40),
        &json);
  }
}

template <std::integral T>
void ReadWhole(const nlohmann::ordered_json& json, std::vector<T>& out) {
  out.clear();
  for (const auto& item : json.get_ref<const nlohmann::ordered_json::array_t&>()) {
    ReadWhole(item, out.emplace_back());
  }
}

}  // namespace ropewalk::internal
