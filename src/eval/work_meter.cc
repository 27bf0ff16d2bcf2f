#include "src/eval/work_meter.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "src/eval/deal.h"
#include "src/eval/sequence_feeder.h"

namespace ropewalk {

CellCost& CellCost::operator+=(const CellCost& other) {
  tokens += other.tokens;
  flops += other.flops;
  ticks += other.ticks;
  for (std::size_t i = 0; i < passes.size(); ++i) {
    passes[i] += other.passes[i];
    pairs[i] += other.pairs[i];
  }
  scored += other.scored;
  return *this;
}

CellCost CellCost::operator*(double count) const {
  CellCost out = *this;
  out.tokens = std::llround(static_cast<double>(tokens) * count);
  out.ticks = std::llround(static_cast<double>(ticks) * count);
  for (double* value : {&out.flops, &out.scored}) *value *= count;
  for (double& passes_of_size : out.passes) passes_of_size *= count;
  for (double& pairs_of_size : out.pairs) pairs_of_size *= count;
  return out;
}

namespace internal {
namespace {

// `amount` of a pass of `tokens` tokens, as shares of the two sizes next to it.
void Spread(double tokens, double amount, ByPass& sizes) {
  std::size_t above = 1;
  while (above + 1 < kPassTokens.size() && tokens > static_cast<double>(kPassTokens[above]))
    ++above;
  const auto low = static_cast<double>(kPassTokens[above - 1]);
  const auto high = static_cast<double>(kPassTokens[above]);
  const double share = std::clamp((tokens - low) / (high - low), 0.0, 1.0);
  sizes[above - 1] += (1 - share) * amount;
  sizes[above] += share * amount;
}

class RunCost {
 public:
  RunCost(const EngineFacts& facts, const PositionPlan& plan) : facts_(facts), plan_(plan) {}

  void Add(const ScoreRequest& request, const Feed& feed) {
    cost_.ticks += ExtentOf(request).needed + feed.made;
    int64_t begin = feed.kept;
    for (const int64_t end : feed.ends) {
      if (end <= begin) continue;
      Pass(begin, end - begin);
      begin = end;
    }
    for (int64_t i = 0; i < feed.made; ++i) Pass(begin + i, 1);
    const auto scored = static_cast<double>(request.positions.size()) +
                        static_cast<double>(request.continue_tokens);
    cost_.scored += scored;
    cost_.flops += scored * facts_.head_flops;
  }
  const CellCost& cost() const { return cost_; }

 private:
  void Pass(int64_t behind, int64_t tokens) {
    const auto n = static_cast<double>(tokens), front = static_cast<double>(behind);
    cost_.tokens += tokens;
    cost_.flops += n * (facts_.token_flops + facts_.pair_flops * KeysInFront(plan_, front + n / 2));
    Spread(n, 1, cost_.passes);
    Spread(n, n * KeysInFront(plan_, front), cost_.pairs);
  }

  const EngineFacts& facts_;
  const PositionPlan& plan_;
  CellCost cost_;
};

}  // namespace

double KeysInFront(const PositionPlan& plan, double behind) {
  double keys = 0;
  for (const LayerPlan& layer : plan.layers) {
    double seen = behind;
    if (layer.window_tokens > 0) seen = std::min(seen, static_cast<double>(layer.window_tokens));
    if (const auto* sinks = layer.map ? std::get_if<AttentionSinks>(&*layer.map) : nullptr) {
      seen = std::min(seen, static_cast<double>(sinks->sinks + sinks->window));
    }
    keys += seen;
  }
  return keys;
}

Scores WorkMeter::DoScore(const EngineCall& call, std::span<const ScoreRequest> requests) const {
  CellCost all, busiest;
  for (const RequestRun& run : DealRequests(requests, call.reuse, facts_.lanes)) {
    const std::span<const ScoreRequest> asked = requests.subspan(run.begin, run.end - run.begin);
    const std::vector<Feed> feeds = FeedsOf(asked, call.reuse);
    RunCost cost(facts_, *call.plan);
    for (std::size_t i = 0; i < asked.size(); ++i) cost.Add(asked[i], feeds[i]);
    all += cost.cost();
    if (cost.cost().flops >= busiest.flops) busiest = cost.cost();
  }
  busiest.tokens = all.tokens;
  busiest.flops = all.flops;
  busiest.ticks = all.ticks;
  cost_ += busiest;
  Scores scores;
  bool continued = false;
  for (const ScoreRequest& request : requests) {
    scores.tokens.emplace_back(request.positions.size());
    continued = continued || request.continue_tokens > 0;
  }
  if (continued) scores.continuations.resize(requests.size());
  scores.fed_tokens = all.tokens;
  return scores;
}

}  // namespace internal
}  // namespace ropewalk
