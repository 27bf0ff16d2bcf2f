#include "ropewalk/engines/versions.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <iterator>
#include <string_view>

#include "ropewalk/base/error.h"

namespace ropewalk {
namespace {

constexpr const char* kNames[] = {"transformers", "vllm", "llama.cpp"};

// Numbers at the beginning of `text` with `separator` between them, taken off it; at most `most`.
std::vector<int> TakeNumbers(std::string_view& text, char separator, std::size_t most) {
  std::vector<int> numbers;
  while (numbers.size() < most) {
    std::string_view rest = text;
    if (!numbers.empty()) {
      if (!rest.starts_with(separator)) break;
      rest.remove_prefix(1);
    }
    int value = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (error != std::errc() || value < 0) break;
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    numbers.push_back(value);
    text = rest;
  }
  return numbers;
}

std::optional<EngineVersion> ParseDate(std::string_view text) {
  if (text.size() != 10 || text[4] != '-' || text[7] != '-') return std::nullopt;
  const std::vector<int> n = TakeNumbers(text, '-', 3);
  if (!text.empty() || n.size() != 3) return std::nullopt;
  const std::chrono::year_month_day date(std::chrono::year(n[0]),
                                         std::chrono::month(static_cast<unsigned>(n[1])),
                                         std::chrono::day(static_cast<unsigned>(n[2])));
  if (!date.ok()) return std::nullopt;
  return EngineVersion{{n[0], n[1], n[2]}};
}

std::optional<EngineVersion> ParseRelease(std::string_view text) {
  if (text.starts_with('v')) text.remove_prefix(1);
  const std::vector<int> n = TakeNumbers(text, '.', 4);
  constexpr std::string_view kSuffixes[] = {"rc", ".post", ".dev", "+"};
  const bool suffix = std::any_of(std::begin(kSuffixes), std::end(kSuffixes),
                                  [&](std::string_view s) { return text.starts_with(s); });
  if (n.empty() || (!text.empty() && !suffix)) return std::nullopt;
  EngineVersion version;
  std::copy(n.begin(), n.end(), version.parts.begin());
  return version;
}

}  // namespace

const char* Name(EngineKind engine) { return kNames[static_cast<std::size_t>(engine)]; }

EngineChoice ParseEngineChoice(const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  const auto* const found = std::find(std::begin(kNames), std::end(kNames), name);
  if (found == std::end(kNames)) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("engine '{}' is not known; transformers, vllm and llama.cpp are", name));
  }
  EngineChoice choice{static_cast<EngineKind>(found - std::begin(kNames))};
  if (equals == std::string::npos) return choice;
  const std::string version = text.substr(equals + 1);
  const bool dated = choice.engine == EngineKind::kLlamaCpp;
  choice.version = dated ? ParseDate(version) : ParseRelease(version);
  if (!choice.version) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: expected {}; got '{}'", name,
                            dated ? "the date of its build, such as 2026-08-30"
                                  : "a release, such as 0.11.0",
                            version));
  }
  return choice;
}

std::string Text(EngineKind engine, const EngineVersion& version) {
  const auto& p = version.parts;
  if (engine == EngineKind::kLlamaCpp) return fmt::format("{:04}-{:02}-{:02}", p[0], p[1], p[2]);
  std::string text = fmt::format("{}.{}.{}", p[0], p[1], p[2]);
  return p[3] == 0 ? text : text + fmt::format(".{}", p[3]);
}

std::string Text(EngineKind engine, const VersionRange& versions) {
  const auto& [since, before] = versions;
  if (since && before) {
    EngineVersion next = *since;
    ++next.parts[2];
    if (next == *before && engine != EngineKind::kLlamaCpp) return Text(engine, *since);
    return fmt::format("since {}, before {}", Text(engine, *since), Text(engine, *before));
  }
  if (since) return "since " + Text(engine, *since);
  return before ? "before " + Text(engine, *before) : "";
}

bool AnyMeets(const std::vector<EngineChoice>& choices, EngineKind engine,
              const VersionRange& versions) {
  return choices.empty() || std::any_of(choices.begin(), choices.end(), [&](const EngineChoice& c) {
           return c.Meets(engine, versions);
         });
}

}  // namespace ropewalk
