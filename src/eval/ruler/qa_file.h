// Questions and documents of SQuAD v2 (Rajpurkar et al. 2018) and HotpotQA (Yang et al. 2018).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ropewalk/eval/ruler.h"

namespace ropewalk::internal {

struct QaQuestion {
  std::string text;
  std::vector<std::string> answers;
  std::vector<int64_t> documents;  // that hold the answer
  std::vector<int64_t> related;    // of the same article, taken before others
};

struct QaData {
  std::vector<std::string> documents;  // each once, sorted
  std::vector<QaQuestion> questions;   // that have an answer, in the order of the file
};

// Error(kInvalidFile) with the key for what does not follow the format.
QaData ReadSquad(const RulerFile& file);
QaData ReadHotpot(const RulerFile& file);

}  // namespace ropewalk::internal
