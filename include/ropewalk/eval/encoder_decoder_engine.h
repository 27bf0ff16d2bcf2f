// Encoder-decoder models as an engine for measurements: a prefix goes through the encoder, what
// follows it is scored by the decoder.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ropewalk/eval/decoder_engine.h"
#include "ropewalk/model/encoder_decoder.h"

namespace ropewalk {

// Of every sequence t_0 .. t_(n-1) the encoder reads t_0 .. t_(N-1) and the end token (eos) behind
// them; the decoder reads its start token, then t_N .. t_(n-2) as they are given (teacher forcing),
// so that the log-probability of t_N is that of the first token behind the start. T5 1.1 was trained
// further so as a language model (Lester et al. 2021, arXiv 2104.08691). Positions below
// N have no score: asking for one is an error. Of attention, the entropy is that of the decoder's
// self-attention. The plan of a call is the decoder's. Lanes are as DecoderEngine has them.
class EncoderDecoderEngine final : public ScoringEngine {
 public:
  // prefix: N, 1 or more. The model must outlive this.
  EncoderDecoderEngine(const EncoderDecoder& model, int64_t prefix);

  EngineFacts Facts() const override;
  void CheckKv(KvType kv) const override { engine_.CheckKv(kv); }
  // The encoder counts as much as the decoder.
  int64_t MemoryBytes(const PositionPlan& plan, int64_t length) const override;

 private:
  Scores DoScore(const EngineCall& call, std::span<const ScoreRequest> requests) const override;

  const EncoderDecoder& model_;
  DecoderEngine engine_;
  int64_t prefix_;
};

}  // namespace ropewalk
