// What the documents of the conformance suite share.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ropewalk/base/fields.h"
#include "ropewalk/relative/forms.h"

namespace ropewalk::conformance {

using Json = nlohmann::ordered_json;

// Near, where a low-precision position breaks, around a trained length of 4096, and far.
inline const std::vector<int64_t> kGoldenPositions = {0,    1,    255,   256,    257,    4095,
                                                      4096, 4097, 16384, 131071, 1048575};

// A number of float32 with the nine digits that give it back.
double Digits(float x);
Json Numbers(std::span<const float> values);
Json Numbers(std::span<const double> values);

// A struct of settings by the names of its fields: those that every one has first, then optionals
// that are set. Numbers of one name ("beta 1.25 0.75") are a list.
template <class S>
Json ParametersOf(const S& settings) {
  Json always = Json::object(), given = Json::object();
  const char *last = nullptr, *name_of_two = nullptr;
  VisitFields<S>([&](const auto& field) {
    const auto& value = settings.*field.member;
    if constexpr (requires { value.has_value(); }) {
      if (value) given[field.name] = *value;
    } else if (field.written == Written::kWithPrevious) {
      const Json first = always.at(last);
      always.erase(last);
      always[name_of_two] = {first, value};
    } else {
      always[last = field.name] = value;
      name_of_two = field.words;
    }
  });
  always.update(given);
  return always;
}

// A tensor that a reader of the document makes for itself: element k, row-major, is
// scale ((7 k^2 + 13 k + 17 seed) mod 61 - 30) / 32, exact in float16 for these scales.
struct MadeTensor {
  Json json;  // {"shape", "seed", "scale"}
  std::vector<float> values;
};
MadeTensor Make(const std::vector<int64_t>& shape, int seed, float scale = 1);

// Attention with a form: keys at positions 0, 1 .., queries at the positions given. `form` is
// asked with the number of keys, which for a running form is that of the keys up to the query.
struct GoldenAttention {
  int64_t heads = 2, head_dim = 4, keys = 7;
  std::vector<int64_t> queries = {0, 1, 2, 3, 4, 5, 6};
  bool causal = true;
  float scale = 0.5f;
};
Json AttentionJson(const GoldenAttention& a, const std::function<ScoreForm(int64_t)>& form);

Json RotaryInput();  // the head that every case of the document "rotary" rotates
void AddRotaryCases(std::vector<Json>& cases);

// The cases of the document "positions", a list per folder.
void AddRelativeCases(std::vector<Json>& cases);
void AddMapCases(std::vector<Json>& cases);
void AddAbsoluteCases(std::vector<Json>& cases);
void AddComputedCases(std::vector<Json>& cases);  // absolute: those that a layer computes

}  // namespace ropewalk::conformance
