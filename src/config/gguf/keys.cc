#include "src/config/gguf/keys.h"

#include <fmt/format.h>

#include <cmath>

#include "ropewalk/base/error.h"
#include "src/io/gguf_file.h"

namespace ropewalk::internal {
const GgufValue* GgufKeys::Find(const std::string& key) const {
  asked_.insert(key);
  const auto it = gguf_.metadata.find(Name(key));
  return it == gguf_.metadata.end() ? nullptr : &it->second;
}

bool GgufKeys::IsArray(const std::string& key) const {
  const GgufValue* v = Find(key);
  return v != nullptr && std::holds_alternative<std::vector<int64_t>>(v->value);
}

std::optional<int64_t> GgufKeys::Int(const std::string& key, int64_t low, int64_t high) const {
  const GgufValue* v = Find(key);
  if (v == nullptr) return std::nullopt;
  const int64_t i = WithFile(File(), [&] { return v->AsInt(Name(key)); });
  if (i < low || i > high) Fail(key, fmt::format("{} to {}, got {}", low, high, i));
  return i;
}

int64_t GgufKeys::RequiredInt(const std::string& key, int64_t low, int64_t high) const {
  const auto i = Int(key, low, high);
  if (!i) Fail(key, fmt::format("{} to {}, but it is missing", low, high));
  return *i;
}

std::optional<double> GgufKeys::Number(const std::string& key, double low, double high) const {
  const GgufValue* v = Find(key);
  if (v == nullptr) return std::nullopt;
  const double d = WithFile(File(), [&] { return v->AsDouble(Name(key)); });
  if (!(d >= low && d <= high)) Fail(key, fmt::format("{:g} to {:g}, got {:g}", low, high, d));
  return d;
}

std::optional<bool> GgufKeys::Bool(const std::string& key) const {
  const GgufValue* v = Find(key);
  if (v == nullptr) return std::nullopt;
  return WithFile(File(), [&] { return v->AsBool(Name(key)); });
}

std::optional<std::string> GgufKeys::String(const std::string& key) const {
  const GgufValue* v = Find(key);
  if (v == nullptr) return std::nullopt;
  return WithFile(File(), [&] { return v->AsString(Name(key)); });
}

std::optional<std::vector<int64_t>> GgufKeys::Ints(const std::string& key, int64_t low,
                                                   int64_t high) const {
  const GgufValue* v = Find(key);
  if (v == nullptr) return std::nullopt;
  const auto* list = std::get_if<std::vector<int64_t>>(&v->value);
  if (list == nullptr) return std::vector<int64_t>{*Int(key, low, high)};
  for (const int64_t i : *list) {
    if (i < low || i > high) {
      Fail(key, fmt::format("an array of integers from {} to {}, got {}", low, high, i));
    }
  }
  return *list;
}

void GgufKeys::Fail(const std::string& key, const std::string& expected) const {
  throw Error(ErrorCode::kInvalidConfig,
              fmt::format("{}: {}: expected {}", File(), Name(key), expected));
}

bool LlamaCppReadsBetas(std::string_view architecture) {
  return architecture == "mistral3" || architecture == "grok";
}

bool IsDeepseekGguf(std::string_view architecture) {
  return architecture == "deepseek2" || architecture == "mistral4";
}

double LatentMscale(double log_multiplier) { return std::round(log_multiplier * 1e7) / 1e6; }

std::optional<bool> BaichuanRotates(int64_t layers) {
  if (layers == 32) return true;
  if (layers == 40) return false;
  return std::nullopt;
}

}  // namespace ropewalk::internal
