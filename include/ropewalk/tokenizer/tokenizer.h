// Text <-> token ids, as the original tokenizers give them.
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
  bool adds_bos() const { return adds_bos_; }  // what the files say
  // Ids that a text encoder was trained to see before and behind one text ([CLS] .. [SEP]), as the
  // post-processor of tokenizer.json says; empty for other files.
  const std::vector<int32_t>& front() const { return front_; }
  const std::vector<int32_t>& back() const { return back_; }
  const std::string& hash() const { return hash_; }  // of the bytes that define it

 protected:
  std::string kind_, hash_;
  std::optional<int32_t> bos_id_, eos_id_;
  std::vector<int32_t> front_, back_;
  bool adds_bos_ = false;
};

// What goes with a tokenizer and cuts no text: tokens with a role, and templates of chats.
struct TokenizerExtras {
  // By role as Hugging Face calls it ("pad", "unk"), besides "bos" and "eos", which are
  // Tokenizer's.
  std::map<std::string, int32_t> ids;
  std::map<std::string, std::string> chat_templates;  // by name, the usual one "default"
  bool adds_eos = false;                              // behind a text
  bool operator==(const TokenizerExtras&) const = default;
};

// A Hugging Face folder: tokenizer.json wins over tokenizer.model; tokenizer_config.json,
// special_tokens_map.json and config.json are read for BOS and EOS.
std::unique_ptr<Tokenizer> LoadTokenizerFolder(const std::string& folder);
std::unique_ptr<Tokenizer> LoadTokenizerGguf(const GgufFile& gguf);
// llama2.c tokenizer.bin; `vocab_size` from the checkpoint.
std::unique_ptr<Tokenizer> LoadTokenizerLlama2c(const std::string& path, int64_t vocab_size);

// Replaces every maximal invalid sequence by U+FFFD (Unicode 15, section 3.9, as Python does).
std::string ValidUtf8(std::string_view text);

}  // namespace ropewalk
