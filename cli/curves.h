// What `ropewalk curves` shows of plain RoPE: numbers from a dimension and a few bases.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/options.h"
#include "ropewalk/analysis/analysis.h"

namespace ropewalk::cli {

inline constexpr double kMostBase = 1e30;

struct BaseCurves {
  double base = 0;
  std::vector<DecayPoint> points;              // one per distance of the page
  int64_t longest_context = 0;                 // see LongestContext
  std::vector<double> integral = {};           // one per distance
  std::vector<Smoothness> smoothness = {};     // one per element of the page's dims
  std::vector<double> frequencies = {};        // of the page's heat_pairs
  std::vector<std::vector<double>> heat = {};  // [distance][heat pair]: cos(m theta)
};

struct CurvesPage {
  int64_t dim = 0;     // rotated dimensions
  int64_t length = 0;  // the largest distance, tokens
  std::vector<int64_t> distances;
  int64_t smooth_distances = 0;     // smoothness is over the distances 1 .. smooth_distances
  std::vector<int64_t> dims;        // of which smoothness is shown
  std::vector<int64_t> heat_pairs;  // whose cosines are shown
  std::vector<BaseBound> bounds;
  std::vector<BaseCurves> bases;
};

std::string CurvesText(const CurvesPage& page);

}  // namespace ropewalk::cli
