// Versions of serving engines. Their behaviour differs between releases.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ropewalk {

enum class EngineKind : uint8_t { kTransformers, kVllm, kLlamaCpp };
const char* Name(EngineKind engine);  // "transformers", "vllm", "llama.cpp"

// A release, 0.10.2; of llama.cpp, which has a release per commit, the date of its build,
// 2026-08-30.
struct EngineVersion {
  std::array<int, 4> parts = {};
  friend constexpr bool operator==(const EngineVersion&, const EngineVersion&) = default;
  friend constexpr auto operator<=>(const EngineVersion& a, const EngineVersion& b) {
    return a.parts <=> b.parts;
  }
};

// since <= version < before; an absent end is unbounded.
struct VersionRange {
  std::optional<EngineVersion> since = std::nullopt, before = std::nullopt;
  constexpr bool Contains(const EngineVersion& version) const {
    return !(since && version < *since) && !(before && version >= *before);
  }
  friend constexpr bool operator==(const VersionRange&, const VersionRange&) = default;
};

// An engine that the user chose; without a version all its releases.
struct EngineChoice {
  EngineKind engine = EngineKind::kTransformers;
  std::optional<EngineVersion> version = std::nullopt;
  bool Meets(EngineKind other, const VersionRange& versions) const {
    return engine == other && (!version || versions.Contains(*version));
  }
};

// Parses "vllm" or "vllm=0.10.2"; for llama.cpp the version is a date. Suffixes of a release
// ("rc1", ".post1", "+cu128") are ignored. Throws Error(kInvalidArgument) that lists the engines or
// shows the form of a version.
EngineChoice ParseEngineChoice(const std::string& text);

// "0.10.2", "2026-08-30".
std::string Text(EngineKind engine, const EngineVersion& version);
// "since 0.9.0, before 0.11.0"; "0.9.2" for that release alone; empty for all.
std::string Text(EngineKind engine, const VersionRange& versions);

// True if nothing was chosen, or one of the choices is among these versions of `engine`.
bool AnyMeets(const std::vector<EngineChoice>& choices, EngineKind engine,
              const VersionRange& versions);

}  // namespace ropewalk
