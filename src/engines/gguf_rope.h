// The position setting of a model as keys and tensors of a GGUF file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ropewalk/io/writer.h"
#include "ropewalk/plan/plan.h"

namespace ropewalk::internal {

struct StoredRope {
  std::map<std::string, GgufValue> keys;  // with the architecture in front
  std::vector<TensorSource> tensors;      // rope_freqs.weight, rope_factors_long.weight, ...
  std::vector<std::string> notes;         // what these tensors hold
  PositionPlan stored;  // the plan as the file holds it: numbers rounded to float32
};

// Keys and tensors for `plan`, of which every rotating layer has the same rotation, served up to
// `served_length` tokens; they do not determine which layers rotate or slide. Throws
// Error(kUnsupported) with the reason and the formats that have it: for a length-dependent method,
// a ramp of YaRN that is not truncated, an amplitude that llama.cpp overwrites, divisors in an
// architecture for which llama.cpp loads none.
StoredRope GgufRopeOf(const std::string& architecture, const PositionPlan& plan,
                      int64_t served_length);

// True for the keys and tensors that GgufRopeOf may write, so that older ones can be dropped.
bool IsGgufRopeKey(const std::string& architecture, const std::string& key);
bool IsGgufRopeTensor(const std::string& name);

}  // namespace ropewalk::internal
