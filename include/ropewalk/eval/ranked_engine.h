// ropewalk's own decoder over the ranks of a group, as an engine for measurements. Rank 0 measures;
// the others serve it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ropewalk/eval/scoring_engine.h"
#include "ropewalk/model/ranked.h"

namespace ropewalk {

// Each request is one sequence over all ranks (RankedSequence), the next behind it; a shared prefix is
// computed as often as it is asked behind. It does not generate: that needs keys which are kept.
// Results are those of DecoderEngine up to rounding, and the same bits with as many ranks and threads.
class RankedEngine final : public ScoringEngine {
 public:
  // On rank 0 alone. Decoder and group outlive it.
  RankedEngine(const Decoder& decoder, RankGroup& group);
  RankedEngine(const RankedEngine&) = delete;
  RankedEngine& operator=(const RankedEngine&) = delete;
  // Lets the others go, unless a call ended in the middle.
  ~RankedEngine() override;

  EngineFacts Facts() const override;
  void CheckKv(KvType kv) const override;
  int64_t MemoryBytes(const PositionPlan& plan, int64_t length) const override;  // of one rank
  int64_t MemoryBytesWith(KvType kv, const PositionPlan& plan, int64_t length) const override;
  // Whether a call ended in the middle: the others wait for what will not come, and the group has to
  // Fail.
  bool broken() const { return broken_; }

 private:
  Scores DoScore(const EngineCall& call, std::span<const ScoreRequest> requests) const override;
  std::vector<Continuation> DoGenerate(const EngineCall& call,
                                       std::span<const GenerateRequest> requests) const override;

  const Decoder& decoder_;
  RankGroup& group_;
  mutable bool broken_ = false;
};

// On every other rank: computes its part of each call until rank 0's engine goes. Throws what the
// computation throws; the group has to Fail then.
void ServeRankedEngine(const Decoder& decoder, RankGroup& group);

// A plan or a rotation as bytes and back, for the same version of the program. Error(kMismatch) for
// bytes that end early.
std::vector<std::byte> PackPlan(const PositionPlan& plan);
PositionPlan UnpackPlan(std::vector<std::byte> bytes);
std::vector<std::byte> PackRotation(const ResolvedRotation& rotation);
ResolvedRotation UnpackRotation(std::vector<std::byte> bytes);

}  // namespace ropewalk
