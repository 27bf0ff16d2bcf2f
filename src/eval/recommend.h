// The judgement behind Recommend.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ropewalk/eval/recommend.h"
#include "src/eval/statistics.h"

namespace ropewalk::internal {

constexpr double kSignificance = 0.05;      // of every test here
constexpr double kPower = 0.8;              // of minimum detectable differences
constexpr double kUsablePerplexity = 1.25;  // times that of no scaling at the trained length
constexpr double kCanDoTask = 0.5;          // score without scaling, for a task to count

// The cells of RecommendedKv: `all` themselves where there is no other type.
class JudgedCells {
 public:
  explicit JudgedCells(const std::vector<Cell>& all);
  const std::vector<Cell>& get() const { return own_.empty() ? all_ : own_; }

 private:
  const std::vector<Cell>& all_;
  std::vector<Cell> own_;
};
// What the costs of other types say under the recommended setting; empty without any.
std::string KvCostText(const std::vector<KvCost>& costs, KvType base);

// What a sweep is judged by; pointers into its cells.
struct Yardstick {
  // No scaling at the trained length; null: nothing can be judged.
  const Cell* baseline = nullptr;
  // It was measured, but its loss is no finite number: null as well.
  bool broken = false;
  std::vector<TaskUse> tasks = {};
  bool Counts(const std::string& task) const;
  const TaskUse* Find(const std::string& task) const;
};
Yardstick FindYardstick(const std::vector<Cell>& cells);

const TaskResult* FindTask(const Cell& cell, std::string_view task);
// Whether its score is significantly below `share`, its answers taken for independent trials.
double ProbabilityBelow(const TaskResult& result, double share);

// p-values of one family of tests, corrected together. Tests of one key are the same test.
class Family {
 public:
  void Add(const std::string& key, double p_value);
  bool Has(const std::string& key) const { return order_.contains(key); }
  double Adjusted(const std::string& key) const;  // NaN: not tested
  std::size_t size() const { return order_.size(); }

 private:
  std::map<std::string, std::size_t> order_;
  std::vector<double> p_values_;
};

// The scored tokens of each window, or for those with equally many 1 each. Where a row of `sliding`
// does not add up to its own protocol, 1 each too.
std::vector<double> TokensOfWindows(const Cell& cell);
constexpr int64_t kAllWindows = std::numeric_limits<int64_t>::max();
// How many windows two cells have both, the first ones; kAllWindows where that is all that either has.
// At other lengths only aligned windows score the same tokens: all of a cell stand for the text there.
int64_t SharedWindows(const Cell& a, const Cell& b);
// The windows that all have that did not leave the race; kAllWindows for none stored.
int64_t CommonWindows(const std::vector<const Cell*>& here);
// Over the first `windows`, per token.
double LossOver(const Cell& cell, int64_t windows);
double PerplexityOver(const Cell& cell, int64_t windows);
// " over the 4 windows that both have"; empty for kAllWindows.
std::string OverBoth(int64_t windows);
std::string WindowsText(int64_t windows);  // "1 window", "4 windows"

PairedDifference DifferenceOf(const PairedTest& test);
// Compare over the first `windows` at most.
PairedDifference CompareWindows(const Cell& a, const Cell& b, int64_t windows);
std::vector<TaskCost> TaskCosts(const Cell& cell, const Yardstick& yardstick);

struct Contender {
  const Cell* cell = nullptr;
  double loss = 0;  // over the windows that every contender has
  bool usable = false;
  // Usable, with answers of every task that counts where a usable one has them.
  bool candidate = false;
  MethodVerdict verdict = {};
};

// Cells with one plan have the same numbers and are one test.
std::string PlanOf(const Cell& cell);

// The judgement of cells of one length. Pointers into the cells.
struct Verdict {
  int64_t length = 0, trained = 0;
  std::vector<Contender> contenders = {};  // by loss; those that left the race last
  int64_t chosen = -1;                     // index; -1: none good enough
  const Cell* unscaled = nullptr;          // no scaling at this length
  // Every candidate is significantly worse than another at some task: tasks decide nothing.
  bool tasks_disagree = false;

  // The chosen one, else that of the lowest loss.
  const Contender& Nearest() const {
    return contenders[static_cast<std::size_t>(std::max<int64_t>(chosen, 0))];
  }
};
// Of the chosen one and those tied with it, leaves out what is significantly behind another at key
// tokens, and chooses again: the lowest loss of the rest. Returns whether that is another one.
bool BreakTies(Verdict& verdict);
// Of the chosen one and those tied with it chooses the lowest loss among those whose scores are not
// only not significantly below what usable methods have to reach, but reach it, where there is one.
// The others get the reason. Returns whether that is another one.
bool PreferScores(const Yardstick& yardstick, Verdict& verdict);
// `here`: at least one.
Verdict Judge(const std::vector<const Cell*>& here, const Yardstick& yardstick);
std::vector<const Cell*> CellsAt(const std::vector<Cell>& cells, int64_t length);
// By length from the trained one on: the method's usable cell of lowest loss, else its best.
std::map<int64_t, const Cell*> BestByLength(const std::vector<Cell>& cells,
                                            const std::string& method, const Yardstick& yardstick);
// "has no answers of kv", of the tasks that count; empty where it has some of each.
std::string Unanswered(const Cell& cell, const Yardstick& yardstick);
// Whether a cell would be usable alone; why not, in words (empty: it is).
std::string Objection(const Cell& cell, const Yardstick& yardstick);

// What the text of a length is made from.
struct Facts {
  Verdict verdict;
  Yardstick yardstick;
  std::optional<PairedDifference> cost = {};  // of the chosen one at the trained length
  std::vector<TaskCost> task_costs = {};
  int64_t longest_usable = 0;                // of the chosen one
  std::optional<MethodReach> farthest = {};  // of all methods
};
std::string VerdictText(const Facts& facts);
std::string CostText(const Facts& facts);
std::string Percent(double nats);  // of perplexity, that this much loss costs or gains
// "loses 0.25 of kv there, significantly"; empty where no task does.
std::string LostScores(const std::vector<TaskCost>& costs);
std::string Nats(const PairedDifference& d, double sign = 1);
std::string Label(const Cell& cell);
std::string ListOf(const std::vector<std::string>& words);  // "a, b and c"

}  // namespace ropewalk::internal
