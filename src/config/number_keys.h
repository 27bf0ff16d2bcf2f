// Keys that change what a model computes, beside its positions, and that no decoder here reads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ropewalk/config/config.h"

namespace ropewalk::internal {

// The value at which such a key changes nothing.
enum class Neutral : uint8_t {
  kOff,      // false, 0
  kOn,       // true
  kOne,      // 1
  kScale,    // 1 / sqrt(head_dim), what scores are multiplied by anyway
  kHeadDim,  // that
  kHidden    // the width
};

struct NumberKey {
  const char* hf;    // in config.json; null: in GGUF alone
  const char* gguf;  // behind the architecture's name; null: in config.json alone
  Neutral neutral;
};
std::span<const NumberKey> NumberKeys();

// Whether a number (or a boolean as 0 or 1) changes nothing.
bool IsNeutral(const NumberKey& key, double value, const ModelConfig& c);

// The shortest decimal that is the same float: 1e-05 for what a file stores as 9.9999997e-06. A
// number that is no float stays as it is.
double ShortestDecimal(double value);

// What a file says that changes numbers ("key = value"): a reason not to run the model, or, with
// `allow_unknown`, not honoured.
void RefuseNumbers(const std::string& file, const std::vector<std::string>& said,
                   bool allow_unknown, ModelConfig& c);

}  // namespace ropewalk::internal
