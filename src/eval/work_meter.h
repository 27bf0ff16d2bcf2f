// An engine that computes nothing and counts what another would have to compute: measured with it, a
// cell costs what it costs.
#pragma once

#include "ropewalk/eval/cost.h"
#include "ropewalk/eval/scoring_engine.h"

namespace ropewalk::internal {

// Keys that a query sees among `behind` in front of it, summed over the layers.
double KeysInFront(const PositionPlan& plan, double behind);

class WorkMeter final : public ScoringEngine {
 public:
  // Counts as DecoderEngine computes: in chunks, with what neighbours share kept, dealt to lanes.
  explicit WorkMeter(const ScoringEngine& engine) : facts_(engine.Facts()) {}

  EngineFacts Facts() const override { return facts_; }
  void CheckKv(KvType) const override {}
  int64_t MemoryBytes(const PositionPlan&, int64_t) const override { return 0; }
  // What was asked since the last time.
  CellCost Take() const { return std::exchange(cost_, {}); }

 private:
  Scores DoScore(const EngineCall& call, std::span<const ScoreRequest> requests) const override;

  EngineFacts facts_;
  mutable CellCost cost_;
};

}  // namespace ropewalk::internal
