// Families that convert writes as GGUF, in a tiny size.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ropewalk/convert/convert.h"

namespace ropewalk::families_test {

inline constexpr ConvertOptions kWeightsAlone{{}, false};

struct Case {
  const char* name;
  nlohmann::json keys;         // of config.json, beside those of test::Tiny
  const char* gguf;            // general.architecture
  const char* back = nullptr;  // model_type of the folder that comes back, where it is another
  nlohmann::json settings = nullptr;  // a rope setting that GGUF can hold
};

// Families with experts or latent attention, and of vendors' own code.
std::vector<Case> MixtureCases();

// 4 layers, so that there is a full one among sliding ones. Heads are hidden / heads wide.
nlohmann::json ConfigOf(const Case& c);
// Random tensors of what the configuration calls for.
void WriteModel(const std::string& folder, const nlohmann::json& config);

}  // namespace ropewalk::families_test
