// ropewalk curves: how scores of plain RoPE decay with distance, without a model: from the number of
// dimensions and the base alone.
#include "cli/curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "cli/json_text.h"
#include "cli/output.h"
#include "cli/report_html.h"
#include "ropewalk/base/error.h"

namespace ropewalk::cli {

// Made by cmake/EmbedText.cmake from cli/report_template/.
extern const char kCurvesJs[], kExplorerJs[];

namespace {

constexpr int64_t kMostDim = 1024;                   // whose bounds take seconds
constexpr int64_t kLongestBound = int64_t{1} << 18;  // as inspect
constexpr int64_t kDefaultLength = int64_t{1} << 17;
constexpr int64_t kSmoothDistances = 1024;
constexpr std::size_t kMostBases = 10;  // as many lines are told apart
constexpr int64_t kHeatPairs = 16;
constexpr double kDefaultBases[] = {10, 10000, 500000};

std::vector<double> BasesOf(const Options& options) {
  std::vector<double> bases = options.bases;
  if (bases.empty()) bases.assign(std::begin(kDefaultBases), std::end(kDefaultBases));
  if (bases.size() > kMostBases) {
    throw UsageError(fmt::format("--bases takes at most {}, got {}", kMostBases, bases.size()));
  }
  std::set<double> seen;
  for (const double base : bases) {
    if (!(base >= 1 && base <= kMostBase)) {
      throw UsageError(
          fmt::format("--bases: a base is a number from 1 to {:g}, got {}", kMostBase, base));
    }
    if (!seen.insert(base).second) {
      throw UsageError(fmt::format("--bases names {} twice", base));
    }
  }
  return bases;
}

// The pairs of the heat map's table: evenly spaced, the first and the last among them.
std::vector<int64_t> HeatPairs(int64_t pairs) {
  const int64_t count = std::min(pairs, kHeatPairs);
  std::vector<int64_t> chosen = {0};
  for (int64_t i = 1; i < count; ++i) chosen.push_back(i * (pairs - 1) / (count - 1));
  return chosen;
}

BaseCurves CurvesOf(const CurvesPage& page, double base) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = page.dim;
  spec.base = base;
  const Frequencies f = Resolve(spec, 1);
  BaseCurves out = {
      .base = base, .points = Decay(f, page.distances), .longest_context = LongestContext(f)};
  for (const int64_t m : page.distances) out.integral.push_back(DecayIntegral(base, m));
  for (const int64_t dim : page.dims) {
    out.smoothness.push_back(SmoothnessOf(base, dim, page.smooth_distances));
  }
  for (const int64_t pair : page.heat_pairs) {
    out.frequencies.push_back(f.inv_freq[static_cast<std::size_t>(pair)].hi);
  }
  for (const int64_t m : page.distances) {
    std::vector<double> row;
    row.reserve(page.heat_pairs.size());
    for (const int64_t pair : page.heat_pairs) {
      row.push_back(std::cos(ExactAngle(f.inv_freq[static_cast<std::size_t>(pair)], m)));
    }
    out.heat.push_back(row);
  }
  return out;
}

CurvesPage MakeCurves(const Options& options) {
  CurvesPage page;
  page.dim = options.dim;
  if (page.dim < 2 || page.dim > kMostDim || page.dim % 2 != 0) {
    throw UsageError(fmt::format("--dim: an even number from 2 to {} is rotated in pairs, got {}",
                                 kMostDim, page.dim));
  }
  if (options.lengths.size() > 1) throw UsageError("curves takes one --length");
  const std::vector<double> bases = BasesOf(options);
  page.length = options.lengths.empty() ? kDefaultLength : ParseLength(options.lengths[0]);
  page.distances = LogDistances(page.length);
  page.smooth_distances = std::min(page.length, kSmoothDistances);
  std::set<int64_t> dims = {page.dim};
  for (int64_t dim = 8; dim <= kMostDim; dim *= 2) dims.insert(dim);
  page.dims.assign(dims.begin(), dims.end());
  page.heat_pairs = HeatPairs(page.dim / 2);
  page.bounds = BaseBounds(page.dim, std::min(page.length, kLongestBound));
  for (const double base : bases) page.bases.push_back(CurvesOf(page, base));
  return page;
}

nlohmann::ordered_json CurvesJson(const CurvesPage& page) {
  using Json = nlohmann::ordered_json;
  Json json = {{"dim", page.dim},
               {"length", page.length},
               {"smooth_distances", page.smooth_distances},
               {"heat_pairs", page.heat_pairs},
               {"bases", Json::array()},
               {"base_bounds", Json::array()}};
  for (const BaseCurves& b : page.bases) {
    Json curve = Json::array(), smoothness = Json::array();
    for (std::size_t i = 0; i < b.points.size(); ++i) {
      const DecayPoint& p = b.points[i];
      curve.push_back({{"distance", p.distance},
                       {"mean", p.expected},
                       {"integral", b.integral[i]},
                       {"bound", p.bound},
                       {"cos", b.heat[i]}});
    }
    for (const Smoothness& s : b.smoothness) {
      smoothness.push_back({{"dim", s.rotary_dim},
                            {"roughness", s.roughness},
                            {"deviation", s.deviation},
                            {"largest_deviation", s.largest_deviation}});
    }
    json["bases"].push_back({{"base", b.base},
                             {"longest_context", b.longest_context},
                             {"heat_frequencies", b.frequencies},
                             {"curve", curve},
                             {"smoothness", smoothness}});
  }
  for (const BaseBound& b : page.bounds) {
    json["base_bounds"].push_back(
        {{"context", b.context}, {"base", b.base}, {"rounded", b.rounded}});
  }
  return json;
}

}  // namespace

void RunCurves(const Options& options) {
  const CurvesPage page = MakeCurves(options);
  const std::string text = CurvesText(page);
  if (!options.json && !options.html) return WriteResult(options, text);
  const std::string json = JsonLine(CurvesJson(page));
  if (options.json) return WriteResult(options, json + "\n");
  WriteResult(options, HtmlPage("Decay curves - Ropewalk", text, json,
                                std::string(kExplorerJs) + kCurvesJs));
}

}  // namespace ropewalk::cli
