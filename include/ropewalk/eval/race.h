// Racing: methods ("arms") are measured on the same units (windows, prompts) in rounds, and an arm
// leaves as soon as its paired loss is above another's by more than chance explains, at whatever
// round that is seen. docs/tasks/statistics.md has the proof, the assumption and simulated error
// rates.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ropewalk {

// ln of the scale-invariant Bayes factor of n paired differences with one-sample t statistic t,
// mean zero against an effect size (mean / standard deviation) of prior N(0, kRaceEffectVariance),
// with the right Haar measure on the standard deviation. With g that variance and v = n - 1:
//   E = (1 + n g)^(-1/2) * ((1 + t^2 / v) / (1 + t^2 / (v (1 + n g))))^(n/2)
// It is a martingale that begins at 1, so the chance that it ever reaches x is at most 1 / x
// (Hendriksen, de Heide, Gruenwald 2021, arXiv 1807.09077; Wang, Ramdas, arXiv 2310.03722, the
// Gaussian mixture). 0 for n < 2; for infinite t the limit.
double AnytimeLogE(double t, int64_t n);

// 4^2: chosen by simulation. Methods that fail differ from good ones by 3 to 10 standard deviations
// of a unit, and leave at the fourth unit; where they differ by 1 they take 7 % more units than
// with the constant that is best there.
inline constexpr double kRaceEffectVariance = 16;
// nats: standard deviations of paired losses below this are float32 rounding, and count as this.
inline constexpr double kLossRounding = 1e-6;

// The mean of paired differences with an interval that holds at every n at once, so that one may
// stop when one likes: with a probability of `confidence` every such interval has the true mean.
struct AnytimeInterval {
  double mean = 0;
  double standard_error = 0;  // NaN for fewer than 2
  double low = 0, high = 0;   // infinite where n is too small for `confidence`
};
// Throws Error for a confidence that is not between 0 and 1.
AnytimeInterval AnytimeMean(std::span<const double> differences, double confidence);

struct RaceRule {
  // At most the probability with which the truly best arm is ever dropped. Of several races of one
  // length (one per task) give each its share.
  double alpha = 0.05;
  // Nats: an arm leaves when its loss is above another's by more than this. Sweeps of perplexity
  // have kRaceMargin.
  double margin = 0;
};
// 5 % of perplexity: methods that are nearer are told apart by what else is measured.
inline constexpr double kRaceMargin = 0.05;

struct RaceDrop {
  int64_t arm = 0;
  int64_t against = 0;    // the arm that shows it most clearly; -1: a loss was not a finite number
  int64_t round = 0;      // index of the round behind which it left
  int64_t units = 0;      // of each arm, up to then
  double difference = 0;  // mean loss minus that of `against`, nats; NaN with against -1
  double standard_error = 0;  // of `difference`
  // Lower end of the AnytimeMean of the difference, at confidence 1 - 2 alpha / (arms - 1).
  double at_least = 0;
  double log_e = 0;  // AnytimeLogE of the difference less the margin
};

struct RaceState {
  std::vector<bool> alive;      // [arms]
  std::vector<RaceDrop> drops;  // by round, then arm
  int64_t rounds = 0;           // that all arms alive have finished
};

// The state of a race, a function of stored losses and rounds alone: what is interrupted goes on
// where it was. `losses`: [arms][units], in one order of units, NaN for a unit that failed.
// `round_ends`: units in all at the end of each round, increasing. A round counts when every arm
// that is alive has its units; more units of an arm, alive or dropped, change nothing. Arms with
// equal plans have equal losses and never drop each other; give them once, since the bound pays for
// every arm. Throws Error for rounds that do not increase and for an alpha not between 0 and 1.
RaceState RunRace(std::span<const std::vector<double>> losses, std::span<const int64_t> round_ends,
                  const RaceRule& rule = {});

// Units in all at the end of each round: 4, 6, 8, 10, 12, 15, 18, 22, .. (a quarter more)
// and at last `units`. Behind the rounds already `done`, which a longer race keeps.
std::vector<int64_t> RoundsOf(int64_t units, std::span<const int64_t> done = {});

}  // namespace ropewalk
