// tokenizer.json of Hugging Face's tokenizers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "src/tokenizer/bpe_tokenizer.h"

namespace ropewalk::internal {

// What the files beside a tokenizer say about its first and last token.
struct SpecialTokens {
  std::optional<std::string> bos_token,
      eos_token;                          // tokenizer_config.json, special_tokens_map.json
  std::optional<int64_t> bos_id, eos_id;  // config.json
  std::optional<bool> add_bos;            // tokenizer_config.json: add_bos_token
  // A class for which transformers 4 makes the post-processor anew: what add_bos is where it is not
  // given. Empty: the post-processor of the file decides.
  std::optional<bool> class_adds_bos;
};

// Every component of the file is understood or an Error that names it; truncation and padding are
// not applied. BOS is added as transformers does; where its versions 4 and 5 differ, as the
// post-processor says, if it says anything, and with a note.
std::unique_ptr<BpeTokenizer> ReadTokenizerJson(std::string_view text, const std::string& file,
                                                const SpecialTokens& special);

// An id from a configuration that must lie in [0, vocab_size).
int32_t CheckedId(int64_t id, int64_t vocab_size, const std::string& where);

}  // namespace ropewalk::internal
