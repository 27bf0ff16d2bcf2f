// A SentencePiece model as data: read from tokenizer.model (a protocol buffer), or filled from
// GGUF, checked here, and handed to the library as a fresh protocol buffer. So the library only
// ever sees models that hold together; it does not check what it indexes with.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ropewalk::internal {

// The numbers of sentencepiece_model.proto, which GGUF's tokenizer.ggml.token_type uses too.
enum class SpmType : int {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

struct SpmPiece {
  std::string piece;
  float score = 0;
  SpmType type = SpmType::kNormal;
};

struct SpmModel {
  static constexpr int kUnigram = 1, kBpe = 2;
  int model_type = kUnigram;  // the default of the format
  bool byte_fallback = false;
  bool whitespace_suffix = false;
  std::string bos_piece = "<s>", eos_piece = "</s>";
  std::string unk_surface = " \xE2\x81\x87 ";
  std::string charsmap;  // compiled normalisation rules; empty: none
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
  std::vector<SpmPiece> pieces;
};

// Both throw Error naming `file`. Parse reads what is above and skips the rest (how it was
// trained).
SpmModel ParseSpmModel(std::string_view proto, const std::string& file);
void CheckSpmModel(const SpmModel& model, const std::string& file);
std::string SerializeSpmModel(const SpmModel& model);

}  // namespace ropewalk::internal
