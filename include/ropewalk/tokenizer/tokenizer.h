// Text to token ids and back, equal to the original tokenizers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ropewalk/io/weights.h"

namespace ropewalk {

struct EncodeOptions {
  bool special = false;  // recognise special tokens written out in the text ("<|im_end|>")
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Ids of the text alone: never adds BOS or EOS. Invalid UTF-8 becomes U+FFFD first.
  virtual std::vector<int32_t> Encode(std::string_view text,
                                      const EncodeOptions& options) const = 0;
  std::vector<int32_t> Encode(std::string_view text) const { return Encode(text, {}); }
  // Bytes of the ids; throws Error for an id outside the vocabulary.
  virtual std::string Decode(std::span<const int32_t> ids) const = 0;
  // The token as the tokenizer spells it ("Ġthe", "▁the").
  virtual std::string Piece(int32_t id) const = 0;
  virtual int64_t vocab_size() const = 0;

  const std::string& kind() const { return kind_; }  // "byte-level BPE (tokenizer.json)", ...
  std::optional<int32_t> bos_id() const { return bos_id_; }
  std::optional<int32_t> eos_id() const { return eos_id_; }
  bool adds_bos() const { return adds_bos_; }  // according to the files
  // Ids that a text encoder expects before and after a text ([CLS], [SEP]), from the post-processor
  // of tokenizer.json, or a T5's end of text from GGUF; empty for other files.
  const std::vector<int32_t>& front() const { return front_; }
  const std::vector<int32_t>& back() const { return back_; }
  const std::string& hash() const { return hash_; }                 // of the tokenizer's files
  const std::vector<std::string>& notes() const { return notes_; }  // choices made

 protected:
  std::string kind_, hash_;
  std::optional<int32_t> bos_id_, eos_id_;
  std::vector<int32_t> front_, back_;
  std::vector<std::string> notes_;
  bool adds_bos_ = false;
};

// Data of a tokenizer that does not affect Encode: special tokens by role, and chat templates.
struct TokenizerExtras {
  // By Hugging Face's name of the role ("pad", "unk"), without "bos" and "eos", which are in
  // Tokenizer.
  std::map<std::string, int32_t> ids;
  std::map<std::string, std::string> chat_templates;  // by name; "default" unless named
  bool adds_eos = false;                              // after a text
  bool operator==(const TokenizerExtras&) const = default;
};

// A Hugging Face folder: tokenizer.json, or else tokenizer.model; BOS and EOS also from
// tokenizer_config.json, special_tokens_map.json and config.json.
std::unique_ptr<Tokenizer> LoadTokenizerFolder(const std::string& folder);
std::unique_ptr<Tokenizer> LoadTokenizerGguf(const GgufFile& gguf);
// tokenizer.bin of llama2.c; `vocab_size` is that of the checkpoint.
std::unique_ptr<Tokenizer> LoadTokenizerLlama2c(const std::string& path, int64_t vocab_size);

// Replaces every maximal invalid sequence by U+FFFD (Unicode 15, section 3.9, as Python does).
std::string ValidUtf8(std::string_view text);

}  // namespace ropewalk
