// ropewalk's own decoder as an engine for measurements.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ropewalk/eval/scoring_engine.h"
#include "ropewalk/model/model.h"

namespace ropewalk {

// Runs sequences one after the other with one KV cache, of which the next sequence reuses the tokens
// that both begin with. Where the model is too small for its cores, several such lanes run side by
// side, each with neighbours of the call: a model whose layers' matrix products have fewer than
// kLaneWeights weights on the mean runs each product on one thread, in any case, and has a lane for
// each of NumThreads(), as far as requests go and lanes beyond the first take at most kLaneBytes.
// Larger models have one lane with all threads. Results do not depend on which requests a call
// holds, nor on their order, nor on lanes.
class DecoderEngine final : public ScoringEngine {
 public:
  explicit DecoderEngine(const Decoder& decoder) : decoder_(decoder) {}  // which must outlive it

  static constexpr int64_t kLaneWeights = int64_t{1} << 18;
  static constexpr int64_t kLaneBytes = int64_t{1} << 30;

  EngineFacts Facts() const override;
  void CheckKv(KvType kv) const override;  // as CheckKvType does
  // How many lanes a call with sequences of up to `length` tokens has at most.
  int Lanes(const PositionPlan& plan, int64_t length, KvType kv = KvType::kF32) const;
  int64_t MemoryBytes(const PositionPlan& plan, int64_t length) const override;
  int64_t MemoryBytesWith(KvType kv, const PositionPlan& plan, int64_t length) const override;
  double PassSeconds(const PositionPlan& plan, const EnginePass& pass) const override;

 private:
  Scores DoScore(const EngineCall& call, std::span<const ScoreRequest> requests) const override;
  std::vector<Continuation> DoGenerate(const EngineCall& call,
                                       std::span<const GenerateRequest> requests) const override;

  const Decoder& decoder_;
};

}  // namespace ropewalk
