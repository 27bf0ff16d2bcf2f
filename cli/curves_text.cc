// The tables of `ropewalk curves` in a terminal.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "cli/curves.h"

namespace ropewalk::cli {
namespace {

constexpr int64_t kMostContext = int64_t{1} << 22;  // LongestContext looks no further

bool IsShownDistance(const CurvesPage& page, int64_t m) {
  const bool power_of_four = m > 0 && (m & (m - 1)) == 0 && (m & 0x5555555555555555) != 0;
  return power_of_four || m == page.length;
}

std::string HeadOfBases(const CurvesPage& page, const char* first) {
  std::string out = fmt::format("  {:>10}", first);
  for (const BaseCurves& b : page.bases) {
    out += fmt::format("  {:>12}", fmt::format("base {:.6g}", b.base));
  }
  return out + '\n';
}

using Value = std::function<double(const BaseCurves&, std::size_t)>;

// A row for each shown distance, a column for each base.
std::string ByDistance(const CurvesPage& page, int digits, const Value& value) {
  std::string out = HeadOfBases(page, "distance");
  for (std::size_t i = 0; i < page.distances.size(); ++i) {
    if (!IsShownDistance(page, page.distances[i])) continue;
    out += fmt::format("  {:>10}", page.distances[i]);
    for (const BaseCurves& b : page.bases) out += fmt::format("  {:>12.{}f}", value(b, i), digits);
    out += '\n';
  }
  return out;
}

// Less than 1e-12 is rounding: where the base is 1, C is its integral.
std::string ByDimension(const CurvesPage& page, const Value& value) {
  std::string out = HeadOfBases(page, "dimensions");
  for (std::size_t i = 0; i < page.dims.size(); ++i) {
    out += fmt::format("  {:>10}", page.dims[i]);
    for (const BaseCurves& b : page.bases) {
      const double v = value(b, i);
      out += fmt::format("  {:>12.4g}", v < 1e-12 ? 0 : v);
    }
    out += '\n';
  }
  return out;
}

std::string BoundsText(const CurvesPage& page) {
  std::string out =
      "\nBase against length (a base supports a length if C(m) >= 0 at every distance up to it)\n";
  for (const BaseCurves& b : page.bases) {
    const std::string longest = b.longest_context >= kMostContext
                                    ? fmt::format("over {}", kMostContext)
                                    : std::to_string(b.longest_context);
    out += fmt::format("  base {:.6g} supports {} tokens\n", b.base, longest);
  }
  if (page.bounds.empty()) return out + "  no base supports the length\n";
  out += fmt::format("  {:>10}  {:>18}\n", "length", "smallest base found");
  for (const BaseBound& b : page.bounds) {
    out += fmt::format("  {:>10}  {:>19.10g}\n", b.context, b.rounded);
  }
  if (page.bounds.back().context < page.length) {
    out += fmt::format("  (bounds end at {} tokens)\n", page.bounds.back().context);
  }
  return out;
}

// At most 8 of the pairs that JSON has, so that a line fits a terminal: the first, the last and
// those between, evenly.
std::vector<std::size_t> ShownPairs(const CurvesPage& page) {
  const std::size_t count = page.heat_pairs.size(), most = std::min<std::size_t>(count, 8);
  std::vector<std::size_t> shown = {0};
  for (std::size_t k = 1; k < most; ++k) shown.push_back(k * (count - 1) / (most - 1));
  return shown;
}

std::string HeatText(const CurvesPage& page, const BaseCurves& b) {
  std::string out = fmt::format("\nHeat map, base {:.6g}: cos(m theta_i) of pair i\n", b.base);
  const std::vector<std::size_t> shown = ShownPairs(page);
  out += fmt::format("  {:>10}", "distance");
  for (const std::size_t p : shown) {
    out += fmt::format("  {:>7}", fmt::format("i={}", page.heat_pairs[p]));
  }
  out += '\n';
  for (std::size_t i = 0; i < page.distances.size(); ++i) {
    if (!IsShownDistance(page, page.distances[i])) continue;
    out += fmt::format("  {:>10}", page.distances[i]);
    for (const std::size_t p : shown) {
      out += fmt::format("  {:>7.2f}", b.heat[i][p]);
    }
    out += '\n';
  }
  return out;
}

}  // namespace

std::string CurvesText(const CurvesPage& page) {
  std::string out =
      fmt::format("Plain RoPE of {} dimensions, theta_i = base^(-2i/{}), i = 0 .. {}\n", page.dim,
                  page.dim, page.dim / 2 - 1);
  out += "\nC(m), mean of cos(m theta_i) over pairs: the expected score relative to distance 0\n";
  out +=
      ByDistance(page, 4, [](const BaseCurves& b, std::size_t i) { return b.points[i].expected; });
  out += "\nIts limit for ever more pairs, the integral of cos(m base^-t) over t = 0 .. 1\n";
  out += ByDistance(page, 4, [](const BaseCurves& b, std::size_t i) { return b.integral[i]; });
  out += "\nBound of RoFormer, mean of |S_j| over pairs\n";
  out += ByDistance(page, 2, [](const BaseCurves& b, std::size_t i) { return b.points[i].bound; });
  out += BoundsText(page);
  out +=
      fmt::format("\nRoughness of C, root mean square of C(m-1) - 2 C(m) + C(m+1), m = 1 .. {}\n",
                  page.smooth_distances);
  out += ByDimension(page,
                     [](const BaseCurves& b, std::size_t i) { return b.smoothness[i].roughness; });
  out +=
      fmt::format("\nC less its integral, root mean square, m = 1 .. {}\n", page.smooth_distances);
  out += ByDimension(page,
                     [](const BaseCurves& b, std::size_t i) { return b.smoothness[i].deviation; });
  for (const BaseCurves& b : page.bases) out += HeatText(page, b);
  return out;
}

}  // namespace ropewalk::cli
