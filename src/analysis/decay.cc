// The expected score against distance: RoFormer's bound and the exact mean.
#include <cmath>

#include "ropewalk/analysis/analysis.h"

namespace ropewalk {

double CosineSum(const Frequencies& frequencies, int64_t distance) {
  double sum = 0;
  for (const DoubleDouble& f : frequencies.inv_freq) sum += std::cos(ExactAngle(f, distance));
  return sum;
}

std::vector<DecayPoint> Decay(const Frequencies& frequencies,
                              const std::vector<int64_t>& distances) {
  const double pairs = static_cast<double>(frequencies.inv_freq.size());
  std::vector<DecayPoint> points;
  points.reserve(distances.size());
  for (const int64_t distance : distances) {
    double re = 0, im = 0, sum = 0;  // S_j, and the sum of |S_j|
    for (const DoubleDouble& f : frequencies.inv_freq) {
      const double angle = ExactAngle(f, distance);
      re += std::cos(angle);
      im += std::sin(angle);
      sum += std::hypot(re, im);
    }
    points.push_back({distance, sum / pairs, re / pairs});
  }
  return points;
}

std::vector<int64_t> LogDistances(int64_t longest) {
  std::vector<int64_t> distances = {0};
  for (int64_t octave = 1; octave <= longest; octave *= 2) {
    distances.push_back(octave);
    if (octave >= 2 && octave + octave / 2 <= longest) distances.push_back(octave + octave / 2);
    if (octave > longest / 2) break;
  }
  if (distances.back() < longest) distances.push_back(longest);
  return distances;
}

}  // namespace ropewalk
