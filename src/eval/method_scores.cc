// Scores of methods over lengths, and up to where they hold.
#include <algorithm>
#include <set>

#include "src/eval/recommend.h"

namespace ropewalk {
namespace {

using internal::Yardstick;

// Up to the trained length no scaling, or where it was not measured the method itself; beyond, its
// best cell.
std::map<int64_t, const Cell*> SeriesOf(const std::vector<Cell>& cells, const std::string& method,
                                        const Yardstick& y) {
  std::map<int64_t, const Cell*> series = internal::BestByLength(cells, method, y);
  const int64_t trained = y.baseline->trained_length;
  for (const Cell& c : cells) {
    if (c.length > trained) continue;
    const bool own = c.method == method && !TakesFactor(method);
    if (c.unscaled() || own) {
      const Cell*& slot = series[c.length];
      if (slot == nullptr || own || TakesFactor(method)) slot = &c;
    }
  }
  return series;
}

// Absent where answers of a task are missing. What left a race has those of its first windows alone,
// which are not those of the others.
std::optional<LengthScore> MeanScore(const Cell& cell, const std::vector<std::string>& tasks) {
  if (cell.race_exit) return std::nullopt;
  LengthScore mean{.length = cell.length};
  int64_t fewest = 0;
  for (const std::string& task : tasks) {
    const TaskResult* r = internal::FindTask(cell, task);
    if (r == nullptr) return std::nullopt;
    const auto answers = static_cast<int64_t>(r->answers.size());
    fewest = fewest == 0 ? answers : std::min(fewest, answers);
    mean.score += ScoreOf(*r) / static_cast<double>(tasks.size());
  }
  mean.score = std::min(mean.score, 1.0);  // of sums of rounded shares
  mean.trials = fewest * static_cast<int64_t>(tasks.size());
  return mean;
}

}  // namespace

std::vector<MethodScores> ScoresByLength(const std::vector<Cell>& all) {
  const internal::JudgedCells judged(all);
  const std::vector<Cell>& cells = judged.get();
  const Yardstick y = internal::FindYardstick(cells);
  std::vector<std::string> tasks, methods;
  for (const TaskUse& use : y.tasks) {
    if (use.counts) tasks.push_back(use.task);
  }
  std::vector<MethodScores> out;
  if (tasks.empty()) return out;
  std::set<int64_t> lengths;
  std::set<std::string> left;  // a race
  for (const Cell& first : cells) {
    if (std::ranges::find(methods, first.method) != methods.end()) continue;
    methods.push_back(first.method);
    MethodScores m{.method = first.method, .tasks = tasks};
    bool raced = false;
    std::vector<LengthScore> held;  // up to the first length beyond the trained one that it left
    for (const auto& [length, cell] : SeriesOf(cells, first.method, y)) {
      raced = raced || (cell->race_exit && length > y.baseline->trained_length);
      const std::optional<LengthScore> score = MeanScore(*cell, tasks);
      if (!score) continue;
      m.scores.push_back(*score);
      if (!raced) held.push_back(*score);
      lengths.insert(length);
    }
    if (raced) left.insert(first.method);
    if (std::ranges::find(m.scores, y.baseline->trained_length, &LengthScore::length) ==
        m.scores.end()) {
      continue;
    }
    m.ruler = RulerEffectiveLength(held);
    m.own = OwnEffectiveLength(held, y.baseline->trained_length);
    out.push_back(m);
  }
  for (MethodScores& m : out) {
    const bool all = m.scores.size() == lengths.size() && !left.contains(m.method);
    m.averages = all ? WeightedAveragesOf(m.scores)
                     : WeightedAverages{.increasing = internal::kNaN, .decreasing = internal::kNaN};
  }
  return out;
}

}  // namespace ropewalk
