// A random LLaMA of 64 bytes of width that the tests write themselves, a tokenizer of bytes, and
// losses computed one token at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "ropewalk/eval/decoder_engine.h"
#include "ropewalk/eval/results.h"

namespace ropewalk::test {

// A folder that is removed at the end.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  std::string path() const { return path_.string(); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

// Vocabulary 260, 2 layers, 2 query heads and 1 key head of 16, trained at 64 tokens.
inline constexpr int64_t kTinyVocab = 260;
inline constexpr int64_t kTinyTrained = 64;
struct TinyModel {
  TempFolder folder;
  ModelFiles files;
  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<DecoderEngine> engine;
};
struct TinyShape {
  int64_t width = 32, feed_forward = 48, layers = 2;  // a head has half of the width
};
std::unique_ptr<TinyModel> MakeTiny(const TinyShape& shape);
const TinyModel& Tiny();

// One token a byte, ids 0 .. 255; BOS 256.
class ByteTokenizer : public Tokenizer {
 public:
  ByteTokenizer();
  using Tokenizer::Encode;
  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions&) const override;
  std::string Decode(std::span<const int32_t> ids) const override;
  std::string Piece(int32_t id) const override;
  int64_t vocab_size() const override { return 257; }
};

// Two layers that rotate heads of 16, for engines without a model.
PositionPlan MadeUpPlan(int64_t trained_length);

// Ids below 256 that repeat nowhere soon.
TokenText RandomText(int64_t tokens, uint64_t seed);

// -log softmax(logits)[ids[p]] for p = 1 .. n-1 (entry 0 is 0), by decoding token after token, with
// sums in double.
std::vector<double> ReferenceNll(const Decoder& decoder, const PositionPlan& plan,
                                 const std::vector<int32_t>& ids);
// The token of the highest logit in front of each position.
std::vector<int32_t> ReferenceArgmax(const Decoder& decoder, const PositionPlan& plan,
                                     const std::vector<int32_t>& ids);

}  // namespace ropewalk::test
