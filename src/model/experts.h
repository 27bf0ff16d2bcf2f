// A mixture of experts, as ExpertsSpec says: tokens are grouped by expert, so that each expert's weights
// are read once for all of its tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "src/model/block.h"

namespace ropewalk::internal {

// Which rows go through which expert, and with which weight.
struct Routes {
  std::vector<int64_t> first;  // [count + 1]: an expert's first entry of the two below
  std::vector<int64_t> rows;
  std::vector<float> weights;
};

// logits [rows, spec.count], of the router; overwritten. choice_bias [count], or null. In float32, as
// all routers are published; of equal scores the lower expert is chosen.
Routes ChooseExperts(const ExpertsSpec& spec, const float* choice_bias, int64_t rows,
                     float* logits);

// Products are made for few different numbers of rows, since the kernels of each are compiled at its
// first use: at least `rows`, the same for 512 and for what is no larger than 4.
int64_t PaddedRows(int64_t rows);

// input [rows, hidden] -> s.added [rows, hidden], the sum of what the experts give.
void RunExperts(const ModelConfig& config, const ExpertWeights& weights, const float* input,
                int64_t rows, LayerScratch& s);

}  // namespace ropewalk::internal
