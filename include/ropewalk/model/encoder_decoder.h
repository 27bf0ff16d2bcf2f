// Encoder-decoder language models: T5 (Raffel et al. 2019, arXiv 1910.10683), mT5 (Xue et al. 2020,
// arXiv 2010.11934) and UMT5 (Chung et al. 2023, arXiv 2304.09151). The encoder reads a prefix; the
// decoder predicts what follows it, token by token, and every layer of it reads the encoder's final
// states (cross-attention).
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "ropewalk/model/encoder.h"
#include "ropewalk/model/model.h"

namespace ropewalk {

// Immutable after Load; several threads may call Read with sequences of their own.
class EncoderDecoder {
 public:
  // Throws Error(kUnsupported) with the reason for a model that is none, and for files that hold an
  // encoder alone. Every tensor of both halves is checked.
  static std::unique_ptr<EncoderDecoder> Load(const ModelFiles& files,
                                              const DecoderOptions& options = {});
  ~EncoderDecoder();

  const Encoder& encoder() const;
  const Decoder& decoder() const;  // sequences are made with it, and Forward and Logits are its
  int32_t start_id() const;        // decoder_start_token_id, the first token of every sequence
  int32_t end_id() const;          // eos_token_id, behind what the encoder reads

  // The encoder reads `ids`, all of them, with end_id() behind; `sequence`, which must be empty,
  // then reads its states.
  void Read(std::span<const int32_t> ids, Sequence& sequence) const;

 private:
  struct Impl;
  explicit EncoderDecoder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ropewalk
