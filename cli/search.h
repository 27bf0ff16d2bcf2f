// sweep --search: searches for a setting by measuring its loss; the sweep then measures it with the
// other methods.
#pragma once

#include <cstdint>
#include <string>

#include "ropewalk/eval/results.h"
#include "ropewalk/model/model.h"

namespace ropewalk::cli {

// What a search lowers: the loss of the answers of passkey and kv, of key tokens, of all tokens.
enum class SearchBy : uint8_t { kNeedles, kKeyTokens, kPerplexity };
// Throws UsageError for another name; empty: needles for the searches whose papers have them.
SearchBy ParseSearchBy(const std::string& name, const std::string& kind);

struct SearchRequest {
  std::string kind;  // "base", "factors", "critical", "groups" or "mapped"
  SearchBy by = SearchBy::kPerplexity;
  int64_t trials = 12;  // cells
  std::string output;   // folder of the sweep; trials go to <output>/search-<kind>/results.jsonl
};

// What the trials measure of what the sweep does. Throws Error where it has nothing of the kind.
SweepSpec SearchSpec(const SweepSpec& sweep, SearchBy by);

// How many trials the folder does not hold yet.
int64_t TrialsLeft(const SearchRequest& request);

// Runs the trials that the folder does not hold yet, at the longest length of `header`, and returns
// the best as a method with its Hugging Face dictionary. Says on stderr what it finds.
SweepMethod SearchSetting(const SearchRequest& request, const SweepSpec& sweep,
                          const SweepInputs& inputs, const ModelFiles& files, SweepHeader header);

}  // namespace ropewalk::cli
