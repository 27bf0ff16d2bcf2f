#include "ropewalk/base/did_you_mean.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace ropewalk {

std::string DidYouMean(std::string_view name, const std::vector<std::string_view>& known) {
  std::string_view best;
  std::size_t best_distance = std::max<std::size_t>(2, name.size() / 3) + 1;
  if (name.size() > 64) return "";
  for (const std::string_view k : known) {
    std::vector<std::size_t> row(k.size() + 1);
    std::iota(row.begin(), row.end(), 0);
    for (std::size_t i = 1; i <= name.size(); ++i) {
      std::size_t diagonal = row[0];
      row[0] = i;
      for (std::size_t j = 1; j <= k.size(); ++j) {
        const std::size_t replace = diagonal + (name[i - 1] != k[j - 1]);
        diagonal = row[j];
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, replace});
      }
    }
    if (row.back() < best_distance) best_distance = row.back(), best = k;
  }
  return best.empty() ? "" : " (did you mean \"" + std::string(best) + "\"?)";
}

}  // namespace ropewalk
