// Tokenizers from Hugging Face files to GGUF metadata and back.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "ropewalk/io/weights.h"
#include "src/tokenizer/extras.h"
#include "src/tokenizer/spm_model.h"

namespace ropewalk::internal {

// tokenizer.ggml.* for a folder's tokenizer: byte-level BPE from tokenizer.json whose pattern GGUF
// has a name for, or SentencePiece BPE from tokenizer.model. Ids up to `vocab_size` that no token
// has become unused padding. Error that says what GGUF cannot hold.
std::map<std::string, GgufValue> TokenizerKeysOfFolder(const std::string& folder,
                                                       int64_t vocab_size);

// The other way: files by name (tokenizer.json or tokenizer.model, and tokenizer_config.json).
std::map<std::string, std::string> TokenizerFilesOfGguf(const GgufFile& gguf,
                                                        const TokenizerExtras& extras);

// The SentencePiece model that a GGUF file's metadata describes.
SpmModel SpmModelOfGguf(const GgufFile& gguf);

}  // namespace ropewalk::internal
