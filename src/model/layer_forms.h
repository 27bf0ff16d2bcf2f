// The biases of a model of the family ropewalk, out of its tensors: a form for each layer.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "ropewalk/attention/attention.h"
#include "ropewalk/relative/running.h"
#include "src/model/tensor_loader.h"

namespace ropewalk::internal {

struct LayerForm {
  // For sequences of up to `length` tokens; empty: the bias is a gate. Forms that do not depend on
  // the length are the same, prepared once. Throws Error for a length that the bias does not reach.
  std::function<PreparedForm(int64_t length)> lower;
  std::optional<ForgetGateBias> gate = {};
  bool from_first = false;   // it depends on the positions themselves, which begin at 0
  bool reads_query = false;  // it multiplies queries or keys itself
};

// One per layer; none where no values are learned: then the form follows from the plan.
std::vector<LayerForm> LayerForms(const ModelConfig& config, const TensorLoader& tensors);

}  // namespace ropewalk::internal
