// Byte-pair encoding as Hugging Face's tokenizers run it: added tokens, normalisation, words,
// merges. Filled from tokenizer.json or from GGUF metadata.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ropewalk/tokenizer/tokenizer.h"
#include "src/tokenizer/added.h"
#include "src/tokenizer/bpe.h"
#include "src/tokenizer/decoding.h"
#include "src/tokenizer/pipeline.h"

namespace ropewalk::internal {

struct BpeParts {
  std::string file;  // for errors
  Bpe bpe;
  std::vector<NormalizerStep> normalizer;
  std::vector<WordStep> words;
  std::vector<AddedToken> added;
  BpeDecoding decoding;
};

// Pieces by id, with gaps allowed; memory is in proportion to the pieces, never to the ids.
class PieceTable {
 public:
  // Throws Error for a negative id, an id far above the number of pieces and a second piece for an
  // id. Call for the pieces of the model, then of the added tokens.
  void Add(int64_t id, std::string_view piece, const std::string& where);
  const std::string* Find(int32_t id) const;
  int64_t end_id() const { return static_cast<int64_t>(index_.size()); }
  void Expect(std::size_t pieces) { expected_ = pieces; }

 private:
  std::size_t expected_ = 0;
  std::vector<int32_t> index_;  // id -> place in pieces_, -1 for a gap
  std::vector<std::string> pieces_;
};

class BpeTokenizer : public Tokenizer {
 public:
  BpeTokenizer(BpeParts parts, std::string kind, std::string hash);

  using Tokenizer::Encode;
  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions& options) const override;
  std::string Decode(std::span<const int32_t> ids) const override;
  std::string Piece(int32_t id) const override;
  int64_t vocab_size() const override { return pieces_.end_id(); }

  // The id that a token's text has, added tokens first.
  std::optional<int32_t> IdOf(std::string_view token) const;
  void SetSpecial(std::optional<int32_t> bos, std::optional<int32_t> eos, bool adds_bos);
  void SetFrame(std::vector<int32_t> front, std::vector<int32_t> back);
  void AddNote(std::string note) { notes_.push_back(std::move(note)); }

 private:
  const std::string& PieceOrThrow(int32_t id) const;

  BpeParts parts_;
  PieceTable pieces_;
  AddedMatcher raw_, normalized_;
  std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>> added_ids_;
  std::vector<bool> is_added_;
};

}  // namespace ropewalk::internal
