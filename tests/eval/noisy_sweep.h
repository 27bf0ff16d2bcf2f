// A sweep over made-up losses, on a machine with a clock of its own.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ropewalk/eval/results.h"
#include "ropewalk/eval/tasks.h"
#include "src/eval/work_meter.h"
#include "tests/eval/tiny_model.h"

namespace ropewalk::test {

inline constexpr int64_t kRaceTrained = 128, kLength = 512, kWindows = 12;

// Nats per token that a method loses beyond the trained length.
inline double Penalty(const PositionPlan& plan) {
  const Scaling& scaling = plan.layers[0].rotation->scaling;
  if (std::holds_alternative<YarnScaling>(scaling)) return 0;
  if (std::holds_alternative<ByPartsScaling>(scaling)) return 0.01;  // as good as the best
  if (std::holds_alternative<LinearScaling>(scaling)) return 0.6;
  return 2;
}

// Made-up losses with noise per window, the same for every method up to a tenth. Counts what it is
// asked, and stops after a number of calls.
class NoisyEngine : public ScoringEngine {
 public:
  mutable std::map<std::pair<std::string, std::vector<int32_t>>, int> asked;  // plan, ids
  mutable int calls = 0;
  int last_call = -1;                       // then it is interrupted
  int killed_at = -1;                       // in this call by SIGKILL
  std::chrono::microseconds pause{0};       // that each call takes
  const std::atomic<bool>* held = nullptr;  // while it is true, no call ends
  mutable double now = 0;                   // seconds
  double slowness = 1;                      // seconds for each token

  EngineFacts Facts() const override {
    return {.name = "noisy", .vocab = 257, .compute = "none", .token_flops = 1};
  }
  int64_t MemoryBytes(const PositionPlan&, int64_t) const override { return 0; }

 private:
  Scores DoScore(const EngineCall& call, std::span<const ScoreRequest> requests) const override {
    if (calls == killed_at) ::raise(SIGKILL);
    if (calls++ == last_call) throw Interrupted();
    if (pause.count() > 0) std::this_thread::sleep_for(pause);
    while (held != nullptr && *held) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const internal::WorkMeter meter(*this);
    meter.Score(call, requests);
    now += slowness * meter.Take().flops;
    const std::string hash = Resolve(*call.plan, call.final_length).hash;
    Scores scores;
    for (const ScoreRequest& request : requests) {
      std::vector<int32_t> ids(request.prefix.begin(), request.prefix.end());
      ids.insert(ids.end(), request.ids.begin(), request.ids.end());
      ++asked[{hash, ids}];
      const double shared = std::sin(static_cast<double>(ids[5] + 7 * ids[9]));
      const double own = 0.05 * std::sin(static_cast<double>(ids[7] * 31 + hash[3] + ids[2]));
      const bool beyond = call.final_length > kRaceTrained;
      const double loss = 4 + shared + own + (beyond ? Penalty(*call.plan) : 0);
      std::vector<TokenScore>& tokens = scores.tokens.emplace_back();
      for (const int64_t p : request.positions)
        tokens.push_back({static_cast<float>(-loss), ids[p]});
    }
    return scores;
  }
};

struct Made {
  PositionPlan plan = test::MadeUpPlan(kRaceTrained);
  ByteTokenizer tokenizer;
  TokenText text = RandomText(4000, 11);
  NoisyEngine engine;
  SweepSpec spec;
  SweepInputs inputs;
  SweepHeader header;
  std::vector<SweepTask> tasks;
  std::vector<LeftOut> left_out;  // of the last run with a budget

  explicit Made(bool race = true) {
    for (const char* name : {"none", "linear", "by-parts", "yarn"}) {
      spec.methods.emplace_back(PositionMethod::Parse(name));
    }
    spec.lengths = {kRaceTrained, kLength};
    spec.trained_length = kRaceTrained;
    spec.protocol = Protocol::Parse("aligned:32");
    spec.protocol.anchors = kWindows;
    if (race) spec.race = RaceRule{.margin = kRaceMargin};
    // A passkey behind each window of 512 bytes, kv behind prompts of its own.
    spec.tasks = {std::make_shared<SampledTask>(MakePasskeyTask({}, tokenizer), kWindows, false),
                  std::make_shared<SampledTask>(MakeKvTask({}, tokenizer), 2, false)};
    inputs.engine = &engine;
    inputs.tokenizer = &tokenizer;
    inputs.text = &text;
    inputs.model_hash = "made up";
    tasks = PlanSweep(spec, plan);
    header.common = CommonFields(spec, inputs, kLength);
  }
  std::vector<Cell> Run(const TempFolder& folder, const std::optional<Shard>& shard = {},
                        const SweepEvents& events = {}) {
    return RunSweep(tasks, spec, inputs, header, folder.path(), events, {}, shard);
  }
  // A token is expected to take a second.
  std::vector<Cell> Run(const TempFolder& folder, double seconds,
                        const std::optional<Shard>& shard = {}, bool begins = false) {
    left_out.clear();
    SweepEvents events;
    events.left_out = [this](const LeftOut& out) { left_out.push_back(out); };
    return RunSweep(tasks, spec, inputs, header, folder.path(), events,
                    {.seconds = seconds,
                     .pace = Pace::OfFlops(1),
                     .clock = [this] { return engine.now; },
                     .begins = begins},
                    shard);
  }
};

inline const Cell& Of(const std::vector<Cell>& cells, const std::string& method, int64_t length) {
  for (const Cell& cell : cells) {
    if (cell.method == method && cell.length == length) return cell;
  }
  ADD_FAILURE() << method << " at " << length << " is missing";
  return cells.front();
}

inline std::string WithoutSeconds(const std::vector<Cell>& cells) {
  std::string text;
  for (Cell cell : cells) {
    cell.seconds = 0;
    text += ToJson(cell) + "\n";
  }
  return text;
}

}  // namespace ropewalk::test
