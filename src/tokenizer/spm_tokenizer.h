// SentencePiece: the library does the work, from a model that has been checked.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ropewalk/tokenizer/tokenizer.h"
#include "src/tokenizer/added.h"
#include "src/tokenizer/json.h"
#include "src/tokenizer/spm_model.h"

namespace ropewalk::internal {

struct SpmParts {
  SpmModel model;
  std::string file;               // for errors
  std::vector<AddedToken> added;  // past the model's pieces (added_tokens.json)
  std::string kind, hash;
  std::optional<int32_t> bos, eos;
  bool adds_bos = false;
  std::vector<int32_t> back = {};  // as Tokenizer::back()
};

std::unique_ptr<Tokenizer> MakeSpmTokenizer(SpmParts parts);

// tokenizer.model; `special` from the files beside it.
std::unique_ptr<Tokenizer> ReadTokenizerModel(std::string_view proto, const std::string& file,
                                              const SpecialTokens& special,
                                              std::vector<AddedToken> added);

}  // namespace ropewalk::internal
