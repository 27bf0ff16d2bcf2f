#include "src/engines/divisors.h"

namespace ropewalk::internal {

std::vector<double> DivisorsOf(const RotarySpec& spec, const Frequencies& scaled, double zero) {
  RotarySpec plain = spec;
  plain.scaling = NoScaling{};
  plain.dialect = Dialect::kNative;
  const Frequencies without = Resolve(plain, 1);
  std::vector<double> divisors;
  for (std::size_t i = 0; i < scaled.inv_freq.size(); ++i) {
    const double f = scaled.inv_freq[i].hi;
    divisors.push_back(f == 0 ? zero : without.inv_freq[i].hi / f);
  }
  return divisors;
}

}  // namespace ropewalk::internal
