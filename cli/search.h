// sweep --search: searches for a setting by measuring its loss; the sweep then measures it with the
// other methods.
#pragma once

#include <cstdint>
#include <string>

#include "ropewalk/eval/results.h"
#include "ropewalk/model/model.h"

namespace ropewalk::cli {

struct SearchRequest {
  std::string kind;     // "base" or "factors"
  int64_t budget = 12;  // cells
  std::string output;   // folder of the sweep; trials go to <output>/search-<kind>/results.jsonl
};

// How many trials the folder does not hold yet.
int64_t TrialsLeft(const SearchRequest& request);

// Runs the trials that the folder does not hold yet, at the longest length of `header`, and returns
// the best as a method with its Hugging Face dictionary. Says on stderr what it finds.
SweepMethod SearchSetting(const SearchRequest& request, const SweepSpec& sweep,
                          const SweepInputs& inputs, const ModelFiles& files, SweepHeader header);

}  // namespace ropewalk::cli
