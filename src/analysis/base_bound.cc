// Men et al. 2024: the bases for which sum_i cos(m f_i) >= 0, and up to which distance m.
#include <algorithm>
#include <cmath>
#include <string>

#include "ropewalk/analysis/analysis.h"
#include "ropewalk/base/error.h"

namespace ropewalk {
namespace {

// Walks m = first, first + 1, ... with sum_i cos(m f_i) by Chebyshev's recurrence
// cos((m+1) f) = 2 cos f cos(m f) - cos((m-1) f), whose error grows with the square of the steps:
// restarted every kRestart steps it stays below 1e-10 per pair.
class CosineWalk {
 public:
  explicit CosineWalk(const std::vector<double>& frequencies)
      : f_(frequencies), twice_(f_.size()), now_(f_.size()), before_(f_.size()) {
    for (std::size_t i = 0; i < f_.size(); ++i) twice_[i] = 2 * std::cos(f_[i]);
  }

  // Calls visit(m, sum) for m = first .. last until it returns false; says whether it never did.
  template <class Visit>
  bool Run(int64_t first, int64_t last, Visit&& visit) {
    for (int64_t start = first; start <= last; start += kRestart) {
      Restart(start);
      const int64_t end = std::min(last, start + kRestart - 1);
      for (int64_t m = start; m <= end; ++m) {
        if (!visit(m, Step())) return false;
      }
    }
    return true;
  }

 private:
  static constexpr int64_t kRestart = 256;

  void Restart(int64_t m) {
    for (std::size_t i = 0; i < f_.size(); ++i) {
      now_[i] = std::cos(static_cast<double>(m) * f_[i]);
      before_[i] = std::cos(static_cast<double>(m - 1) * f_[i]);
    }
  }
  // The sum at m; moves on to m + 1.
  double Step() {
    double lanes[4] = {0, 0, 0, 0};  // so that the compiler may add in vectors
    const std::size_t n = f_.size();
    const double* twice = twice_.data();
    double* now = now_.data();
    double* before = before_.data();
    std::size_t i = 0;
    for (; i + 4 <= n; i += 4) {
      for (std::size_t l = 0; l < 4; ++l) {
        const double c = now[i + l];
        lanes[l] += c;
        now[i + l] = twice[i + l] * c - before[i + l];
        before[i + l] = c;
      }
    }
    for (; i < n; ++i) {
      const double c = now[i];
      lanes[0] += c;
      now[i] = twice[i] * c - before[i];
      before[i] = c;
    }
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
  }

  const std::vector<double>& f_;
  std::vector<double> twice_, now_, before_;
};

std::vector<double> PlainFrequencies(double base, int64_t pairs) {
  std::vector<double> f(static_cast<std::size_t>(pairs));
  const double step = -std::log(base) / static_cast<double>(pairs);
  for (std::size_t i = 0; i < f.size(); ++i) f[i] = std::exp(step * static_cast<double>(i));
  return f;
}

double SumAt(const std::vector<double>& frequencies, int64_t m) {
  double sum = 0;
  for (const double f : frequencies) sum += std::cos(static_cast<double>(m) * f);
  return sum;
}

// The distances first .. last at which the sum is negative: the lowest of each of kBins ranges,
// lowest first.
std::vector<int64_t> WorstDistances(const std::vector<double>& frequencies, int64_t first,
                                    int64_t last) {
  constexpr int64_t kBins = 64;
  struct Worst {
    double sum = 0;
    int64_t m = 0;
  };
  std::vector<Worst> worst(kBins);
  CosineWalk(frequencies).Run(first, last, [&](int64_t m, double sum) {
    Worst& w = worst[static_cast<std::size_t>((m - first) * kBins / (last - first + 1))];
    if (sum < w.sum) w = {sum, m};
    return true;
  });
  std::sort(worst.begin(), worst.end(),
            [](const Worst& a, const Worst& b) { return a.sum < b.sum; });
  std::vector<int64_t> distances;
  for (const Worst& w : worst) {
    if (w.m > 0) distances.push_back(w.m);
  }
  return distances;
}

// The first base from `base` on, in steps, that supports the context. A base that fails at some
// distance is mostly followed by bases that fail there or close by, so most bases are refused by
// one sum, some by a short walk, and few need the whole one.
double FirstBase(double base, int64_t pairs, int64_t context) {
  std::vector<int64_t> suspects;
  int64_t last_failure = 0;
  for (;; base *= kBaseStep) {
    const std::vector<double> f = PlainFrequencies(base, pairs);
    const auto failure =
        std::find_if(suspects.begin(), suspects.end(), [&](int64_t m) { return SumAt(f, m) < 0; });
    if (failure != suspects.end()) {
      last_failure = *failure;
      continue;
    }
    if (last_failure > 0) {
      const int64_t reach = std::max<int64_t>(64, last_failure / 32);
      suspects = WorstDistances(f, std::max<int64_t>(1, last_failure - reach),
                                std::min(context, last_failure + reach));
    }
    if (last_failure == 0 || suspects.empty()) suspects = WorstDistances(f, 1, context);
    if (suspects.empty()) return base;
    last_failure = suspects.front();
  }
}

// The base rounded up to four digits where that supports the context, else to the fewest digits
// that do: bases that pass are no interval, so a rounded one has to be tried.
double RoundedUp(double base, int64_t rotary_dim, int64_t context) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = rotary_dim;
  const int magnitude = static_cast<int>(std::floor(std::log10(base)));
  for (int digits = 4; digits < 15; ++digits) {
    const double scale = std::pow(10.0, digits - 1 - magnitude);
    spec.base = std::ceil(base * scale) / scale;
    if (LongestContext(Resolve(spec, 1), context) >= context) return spec.base;
  }
  return base;
}

}  // namespace

int64_t LongestContext(const Frequencies& frequencies, int64_t limit) {
  std::vector<double> f;
  f.reserve(frequencies.inv_freq.size());
  for (const DoubleDouble& x : frequencies.inv_freq) f.push_back(x.hi);
  int64_t longest = limit;
  CosineWalk(f).Run(1, limit, [&](int64_t m, double sum) {
    // The recurrence decides unless the sum is within its error of 0.
    if (sum >= 1e-6 || (sum > -1e-6 && CosineSum(frequencies, m) >= 0)) return true;
    longest = m - 1;
    return false;
  });
  return longest;
}

std::vector<BaseBound> BaseBounds(int64_t rotary_dim, int64_t context) {
  if (rotary_dim < 2 || rotary_dim % 2 != 0) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "analysis: rotary_dim must be even and at least 2, got " + std::to_string(rotary_dim));
  }
  if (context < 1 || context > int64_t{1} << 22) {
    throw Error(ErrorCode::kInvalidArgument,
                "analysis: context must be 1 to 4194304 tokens, got " + std::to_string(context));
  }
  // A base that supports a context supports every shorter one, so each bound is at least the bound
  // of half the context, where its search begins.
  std::vector<BaseBound> bounds;
  double base = kBaseStep;
  for (int64_t c = 1;; c = std::min(2 * c, context)) {
    if (rotary_dim == 2 && c > 1) return bounds;  // cos 2 is negative
    base = FirstBase(base, rotary_dim / 2, c);
    if (c >= 1024 || c == context) bounds.push_back({c, base, RoundedUp(base, rotary_dim, c)});
    if (c == context) return bounds;
  }
}

}  // namespace ropewalk
