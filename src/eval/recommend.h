// The statistics behind Recommend, and what a report says beside it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ropewalk/eval/eval.h"

namespace ropewalk::internal {

constexpr double kSignificance = 0.05;      // of every test here
constexpr double kUsablePerplexity = 1.25;  // times that of no scaling at the trained length
constexpr double kUsablePasskey = 0.5;      // accuracy

// P(X <= k) for k successes in n trials of probability p.
double BinomialAtMost(int64_t k, int64_t n, double p);
// One-sided Fisher exact test: P of at most k1 successes in n1 given the pooled successes, under
// equal rates. Small: k1 / n1 is significantly below k2 / n2.
double FisherBelow(int64_t k1, int64_t n1, int64_t k2, int64_t n2);
// 97.5 % quantile of Student's t (1.96 + 2.4 / dof past 30, within 0.003).
double StudentT975(int64_t dof);

// Mean over windows of a's loss minus b's, nats a token; windows are the clusters. With one window,
// or windows that do not pair, `standard_error` is NaN.
struct PairedDifference {
  double mean = 0;
  double standard_error = 0;
  int64_t windows = 0;
  bool outside_noise = false;  // |mean| > t * standard_error, two-sided 5 %
};
PairedDifference Compare(const Cell& a, const Cell& b);

int64_t PasskeyHits(const Cell& cell);

// What a sweep is judged by; pointers into its cells.
struct Yardstick {
  // No scaling at the trained length; null: not measured, so nothing can be judged.
  const Cell* baseline = nullptr;
  bool passkey_measured = false;
  // No scaling at the shortest length or at the trained one, where the model fails the passkey task
  // already: then passkey decides nothing. Null: it counts.
  const Cell* passkey_fails = nullptr;
};
Yardstick FindYardstick(const std::vector<Cell>& cells);
// Why passkey decides nothing; empty where it counts or was not measured.
std::string PasskeyNote(const Yardstick& yardstick);
// False without a baseline.
bool IsUsable(const Cell& cell, const Yardstick& yardstick);
// The rule that IsUsable applies, in words, with the numbers of this sweep.
std::string UsabilityRule(const std::vector<Cell>& cells);

// The longest measured length up to which a method (at its best factor for each length) is usable
// at every measured length from the trained one on. 0: not even there.
struct Reach {
  std::string method;
  int64_t longest_usable = 0;
  double factor = 1;  // at that length
  // What that factor costs at the trained length against no scaling; absent when not measured, and
  // for no scaling itself.
  std::optional<PairedDifference> cost;
};
// In order of first appearance; empty without a baseline.
std::vector<Reach> Reaches(const std::vector<Cell>& cells);

// What there is to say about one length, for the paragraph of it. Pointers into the cells.
struct Verdict {
  int64_t length = 0, trained = 0;
  size_t measured = 0;  // cells at this length
  Yardstick yardstick;
  const Cell* unscaled = nullptr;      // no scaling at this length
  const Cell* chosen = nullptr;        // null: none good enough
  const Cell* nearest = nullptr;       // the best by the rule, usable or not
  const Cell* best_passkey = nullptr;  // highest accuracy at this length
  const Cell* runner_up = nullptr;
  std::vector<const Cell*> vetoed;  // lower perplexity than `nearest`, but retrieval too bad
  std::vector<const Cell*> same;    // compute the same frequencies as `chosen`
  // Of `chosen` at the trained length against no scaling; absent as in Reach.
  std::optional<PairedDifference> cost;
};
Verdict Judge(const std::vector<Cell>& cells, int64_t length);
// The paragraph. `reaches` are those of all cells.
std::string VerdictText(const Verdict& verdict, const std::vector<Reach>& reaches);

const Cell* FindCell(const std::vector<Cell>& cells, const std::string& method, double factor,
                     int64_t length);
// A named method that scales; not "none", "as-shipped" or a dictionary, which carries its own.
bool TakesFactor(const std::string& method);
std::string MethodLabel(const std::string& method, double factor);  // "yarn with factor 4"
std::string PerplexityText(double perplexity);                      // "26.7", "9.81", "1204"

}  // namespace ropewalk::internal
