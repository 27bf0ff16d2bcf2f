// ropewalk's own decoder as an engine for measurements.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ropewalk/eval/scoring_engine.h"
#include "ropewalk/model/model.h"

namespace ropewalk {

// Runs the sequences of a call one after the other with one KV cache, of which the next sequence
// reuses the tokens that both begin with. Results do not depend on which requests a call holds, nor
// on their order.
class DecoderEngine final : public ScoringEngine {
 public:
  explicit DecoderEngine(const Decoder& decoder) : decoder_(decoder) {}  // which must outlive it

  EngineFacts Facts() const override;
  int64_t MemoryBytes(const PositionPlan& plan, int64_t length) const override;

 private:
  Scores DoScore(const EngineCall& call, std::span<const ScoreRequest> requests) const override;
  std::vector<Continuation> DoGenerate(const EngineCall& call,
                                       std::span<const GenerateRequest> requests) const override;

  const Decoder& decoder_;
};

}  // namespace ropewalk
