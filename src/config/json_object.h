// Typed reading of a JSON object, with errors that name file, key, what was expected and what came.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ropewalk/base/did_you_mean.h"

namespace ropewalk::internal {

inline constexpr double kMaxFactor = 1e6;  // of a position scaling, in any file

// ParseJson, and the value must be an object. Python's Infinity is taken, as the string "Inf".
nlohmann::json ParseJsonObject(std::string_view text, const std::string& file);

class JsonObject {
 public:
  // `where` precedes keys in messages: "config.json" or "config.json: rope_scaling".
  JsonObject(const nlohmann::json& object, std::string where);

  const std::string& where() const { return where_; }
  const nlohmann::json& value() const { return object_; }
  // Null counts as absent, as in Python's None. Every key asked for here or below is remembered.
  const nlohmann::json* Find(std::string_view key) const;
  bool Has(std::string_view key) const { return Find(key) != nullptr; }

  // Absent: nullopt. Present with the wrong type or out of [low, high]: Error(kInvalidConfig).
  std::optional<int64_t> Int(std::string_view key, int64_t low, int64_t high) const;
  std::optional<double> Number(std::string_view key, double low, double high) const;
  std::optional<bool> Bool(std::string_view key) const;
  std::optional<std::string> String(std::string_view key) const;
  std::optional<std::vector<double>> Numbers(std::string_view key, double low, double high) const;

  template <class T>
  T Require(std::optional<T> value, std::string_view key, std::string_view expected) const {
    if (!value) Fail(key, expected);
    return *std::move(value);
  }
  // The keys that were asked for, whether present or not: what this reader knows.
  const std::set<std::string, std::less<>>& asked() const { return asked_; }
  // "config.json: hidden_size: expected ..., got ..." (or "it is missing").
  [[noreturn]] void Fail(std::string_view key, std::string_view expected) const;

 private:
  const nlohmann::json& object_;
  std::string where_;
  mutable std::set<std::string, std::less<>> asked_;
};

// A JSON value for a message: at most 60 characters.
std::string Shown(const nlohmann::json& value);

}  // namespace ropewalk::internal
