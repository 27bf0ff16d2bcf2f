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

// No scaling at the trained length; without such a cell the lowest perplexity there; else null.
const Cell* Baseline(const std::vector<Cell>& cells);
// Whether retrieval can tell methods apart: false when the model fails at its trained length
// already.
bool PasskeyCounts(const Cell* baseline);
bool IsUsable(const Cell& cell, const Cell* baseline);
// The rule that IsUsable applies, in words, with the numbers of this sweep.
std::string UsabilityRule(const std::vector<Cell>& cells);

// The longest measured length up to which a method (at its best factor for each length) is usable
// at every measured length from the trained one on. 0: not even there.
struct Reach {
  std::string method;
  int64_t longest_usable = 0;
  double factor = 1;  // at that length
  // What that factor costs at the trained length; absent when not measured.
  std::optional<PairedDifference> cost;
};
std::vector<Reach> Reaches(const std::vector<Cell>& cells);  // in order of first appearance

const Cell* FindCell(const std::vector<Cell>& cells, const std::string& method, double factor,
                     int64_t length);
// A named method that scales; not "none", "as-shipped" or a dictionary, which carries its own.
bool TakesFactor(const std::string& method);
std::string MethodLabel(const std::string& method, double factor);  // "yarn with factor 4"
std::string PerplexityText(double perplexity);                      // "26.7", "9.81", "1204"

}  // namespace ropewalk::internal
