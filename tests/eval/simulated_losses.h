// Losses of simulated sweeps, of which the truly best arm is known.
#pragma once

#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "ropewalk/eval/race.h"
#include "src/eval/rng.h"

namespace ropewalk::test {

using Losses = std::vector<std::vector<double>>;
constexpr int kSweeps = 10'000;

// Standard normal by Box and Muller.
class Normal {
 public:
  explicit Normal(uint64_t seed) : rng_(seed) {}
  double operator()() {
    const double radius = std::sqrt(-2 * std::log(1 - rng_.Uniform()));
    return radius * std::cos(2 * std::numbers::pi * rng_.Uniform());
  }

 private:
  internal::SplitMix64 rng_;
};

// What an arm's loss of a unit has beyond its mean and what the unit gives every arm.
enum class Noise {
  kGaussian,
  kStudent3,      // t with 3 degrees of freedom: no fourth moment
  kLognormal,     // exp(N(0, 1)), centred: rare large losses
  kUnequalUnits,  // Gaussian, scaled per unit by exp(N(0, 1))
};
inline std::string NameOf(Noise noise) {
  const char* const names[] = {"Gaussian", "Student3", "Lognormal", "UnequalUnits"};
  return names[static_cast<int>(noise)];
}

struct Arm {
  double mean = 0;
  double deviation = 0;  // standard deviation of the noise
};
struct Sweep {
  std::vector<Arm> arms;
  Noise noise = Noise::kGaussian;
};

// SmolLM2-135M at 16384 tokens, as docs/results has it: paired differences to the best method and
// their standard deviations. Best, by-parts, ReRoPE, llama3, a weaker ntk, ntk, linear, none.
inline Sweep EightMethods() {
  return {.arms = {{0, 0.006},
                   {0.004, 0.019},
                   {0.008, 0.008},
                   {0.025, 0.016},
                   {0.1, 0.04},
                   {0.139, 0.038},
                   {0.874, 0.122},
                   {3.795, 0.372}}};
}

// Mean 0 and variance 1.
inline double Draw(Noise noise, Normal& normal) {
  const double z = normal();
  switch (noise) {
    case Noise::kGaussian:
    case Noise::kUnequalUnits:
      return z;
    case Noise::kStudent3: {
      double squares = 0;
      for (int i = 0; i < 3; ++i) squares += std::pow(normal(), 2);
      return z / std::sqrt(squares / 3) / std::sqrt(3.0);
    }
    case Noise::kLognormal: {
      const double e = std::numbers::e;
      return (std::exp(z) - std::sqrt(e)) / std::sqrt(e * (e - 1));
    }
  }
  return 0;
}

// [arms][units]. A unit is hard or easy for all arms alike, which pairing removes.
inline Losses SimulatedSweep(const Sweep& sweep, int64_t units, Normal& normal) {
  Losses losses(sweep.arms.size());
  for (int64_t unit = 0; unit < units; ++unit) {
    const double shared = 3 + 0.5 * normal();
    const double scale = sweep.noise == Noise::kUnequalUnits ? std::exp(normal()) : 1;
    for (size_t a = 0; a < sweep.arms.size(); ++a) {
      const Arm& arm = sweep.arms[a];
      const double own = arm.deviation * scale * Draw(sweep.noise, normal);
      losses[a].push_back(shared + arm.mean + own);
    }
  }
  return losses;
}

inline size_t LowestMean(const Losses& losses) {
  size_t best = 0;
  double lowest = 1e300;
  for (size_t arm = 0; arm < losses.size(); ++arm) {
    double sum = 0;
    for (const double loss : losses[arm]) sum += loss;
    if (sum < lowest) best = arm;
    lowest = std::min(lowest, sum);
  }
  return best;
}

// Units that a finished race measured, over all arms.
inline int64_t UnitsMeasured(const RaceState& state, const std::vector<int64_t>& rounds) {
  int64_t sum = std::ssize(state.alive) * rounds.back();
  for (const RaceDrop& drop : state.drops) sum -= rounds.back() - drop.units;
  return sum;
}

}  // namespace ropewalk::test
