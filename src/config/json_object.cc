#include "src/config/json_object.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ropewalk/base/error.h"
#include "src/io/json.h"

namespace ropewalk::internal {

using nlohmann::json;

namespace {

// Python's json writes Infinity (Mamba 2's time_step_limit), which JSON has not. It becomes a string
// of the same width: errors keep their place, and no key is read as a number from it.
std::string WithoutInfinity(std::string_view text) {
  constexpr std::string_view kWord = "Infinity";
  std::string out(text);
  bool in_string = false;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i] == '"') in_string = !in_string;
    if (in_string && out[i] == '\\') ++i;
    if (in_string || out.compare(i, kWord.size(), kWord) != 0) continue;
    const bool negative = i > 0 && out[i - 1] == '-';
    out.replace(i, kWord.size(), negative ? "-Inf\"   " : "\"Inf\"   ");
    if (negative) out[i - 1] = '"';
    i += kWord.size() - 1;
  }
  return out;
}

}  // namespace

json ParseJsonObject(std::string_view text, const std::string& file) {
  const bool infinite = text.find("Infinity") != std::string_view::npos;
  json value = infinite ? ParseJson(WithoutInfinity(text), file) : ParseJson(text, file);
  if (!value.is_object()) {
    throw Error(ErrorCode::kInvalidFile,
                fmt::format("{}: expected a JSON object, got {}", file, Shown(value)));
  }
  return value;
}

std::string Shown(const json& value) {
  // Containers are cut before they are printed, so that a huge one costs nothing.
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  if (value.is_object()) return fmt::format("an object with {} keys", value.size());
  std::string s = value.is_string() && value.get_ref<const std::string&>().size() > 60
                      ? json(value.get_ref<const std::string&>().substr(0, 60))
                            .dump(-1, ' ', true, json::error_handler_t::replace)
                      : value.dump(-1, ' ', true, json::error_handler_t::replace);
  return s;
}

JsonObject::JsonObject(const json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  if (!object_.is_object()) {
    throw Error(ErrorCode::kInvalidConfig,
                fmt::format("{}: expected an object, got {}", where_, Shown(object_)));
  }
}

const json* JsonObject::Find(std::string_view key) const {
  asked_.emplace(key);
  const auto it = object_.find(std::string(key));
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

std::optional<int64_t> JsonObject::Int(std::string_view key, int64_t low, int64_t high) const {
  const json* v = Find(key);
  if (v == nullptr) return std::nullopt;
  const std::string expected = fmt::format("an integer from {} to {}", low, high);
  if (!v->is_number()) Fail(key, expected);
  // As a double first: exact up to 2^53, beyond every bound used here.
  const double d = v->get<double>();
  if (!(d >= static_cast<double>(low) && d <= static_cast<double>(high)) || d != std::floor(d)) {
    Fail(key, expected);
  }
  return static_cast<int64_t>(d);
}

std::optional<double> JsonObject::Number(std::string_view key, double low, double high) const {
  const json* v = Find(key);
  if (v == nullptr) return std::nullopt;
  const double d = v->is_number() ? v->get<double>() : NAN;
  if (!(d >= low && d <= high)) Fail(key, fmt::format("a number from {:g} to {:g}", low, high));
  return d;
}

std::optional<bool> JsonObject::Bool(std::string_view key) const {
  const json* v = Find(key);
  if (v == nullptr) return std::nullopt;
  if (!v->is_boolean()) Fail(key, "true or false");
  return v->get<bool>();
}

std::optional<std::string> JsonObject::String(std::string_view key) const {
  const json* v = Find(key);
  if (v == nullptr) return std::nullopt;
  if (!v->is_string()) Fail(key, "a string");
  return v->get<std::string>();
}

std::optional<std::vector<double>> JsonObject::Numbers(std::string_view key, double low,
                                                       double high) const {
  const json* v = Find(key);
  if (v == nullptr) return std::nullopt;
  const std::string expected = fmt::format("an array of numbers from {:g} to {:g}", low, high);
  if (!v->is_array()) Fail(key, expected);
  std::vector<double> out;
  for (const json& item : *v) {
    const double d = item.is_number() ? item.get<double>() : NAN;
    if (!(d >= low && d <= high)) {
      throw Error(ErrorCode::kInvalidConfig,
                  fmt::format("{}: {}: expected {}, item {} is {}", where_, key, expected,
                              out.size(), Shown(item)));
    }
    out.push_back(d);
  }
  return out;
}

void JsonObject::Fail(std::string_view key, std::string_view expected) const {
  const json* v = Find(key);
  throw Error(ErrorCode::kInvalidConfig,
              fmt::format("{}: {}: expected {}, {}", where_, key, expected,
                          v == nullptr ? "but it is missing" : "got " + Shown(*v)));
}

}  // namespace ropewalk::internal
