#include "ropewalk/relative/fire.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/relative/check.h"

namespace ropewalk {
namespace {

// bias = slope x + intercept for x below `end`, from the segment before on.
struct Segment {
  float end, slope, intercept;
};

struct Sizes {
  int64_t width, heads;
  // Where each learned number stands in the gradient of the function.
  int64_t b1() const { return width; }
  int64_t w2() const { return 2 * width; }
  int64_t b2() const { return w2() + heads * width; }
  int64_t c() const { return b2() + heads; }
  int64_t threshold() const { return c() + 1; }
  int64_t count() const { return c() + 2; }
};

class Fire final : public PairFunction {
 public:
  Fire(const FireBias& fire, int64_t heads, int64_t max_distance)
      : fire_(fire), sizes_{static_cast<int64_t>(fire.w1.size()), heads} {
    logs_.resize(max_distance + 1);
    for (int64_t d = 0; d <= max_distance; ++d) {
      logs_[d] = static_cast<float>(std::log1p(fire.c * static_cast<double>(d)));
    }
    // Where units switch, beyond 0: x is never negative.
    for (int64_t k = 0; k < sizes_.width; ++k) {
      const double switches = -static_cast<double>(fire.b1[k]) / fire.w1[k];
      if (fire.w1[k] != 0 && switches > 0) ends_.push_back(switches);
    }
    std::sort(ends_.begin(), ends_.end());
    ends_.push_back(std::numeric_limits<double>::infinity());
    for (int64_t h = 0; h < heads; ++h) AddSegments(h);
  }

  int64_t heads() const override { return sizes_.heads; }
  int64_t parameters() const override { return sizes_.count(); }

  void Evaluate(int64_t head, std::span<const int64_t> queries, std::span<const int64_t> keys,
                float* out, int64_t stride) const override {
    if (queries.empty() || keys.empty()) return;
    const Segment* segments = segments_.data() + head * SegmentCount();
    const bool run = keys.back() - keys.front() + 1 == static_cast<int64_t>(keys.size());
    for (std::size_t r = 0; r < queries.size(); ++r) {
      const int64_t query = queries[r];
      const auto scale = static_cast<float>(1 / Psi(std::max<double>(fire_.threshold, query)));
      float* row = out + static_cast<int64_t>(r) * stride;
      int64_t done = 0;
      // Keys behind whose logarithms stand side by side in the table.
      if (run && query >= keys.front() &&
          query - keys.front() < static_cast<int64_t>(logs_.size())) {
        done = std::min<int64_t>(static_cast<int64_t>(keys.size()), query - keys.front() + 1);
        EvaluateRun(segments, query - keys.front(), done, scale, row);
      }
      int64_t s = 0;
      for (auto c = static_cast<std::size_t>(done); c < keys.size(); ++c) {
        const float x = Log(std::abs(query - keys[c])) * scale;
        s = Find(segments, x, s);
        row[c] = segments[s].slope * x + segments[s].intercept;
      }
    }
  }

  void Backward(int64_t head, std::span<const int64_t> queries, std::span<const int64_t> keys,
                const float* d_bias, int64_t stride, std::span<double> gradient) const override {
    if (queries.empty() || keys.empty()) return;
    const Segment* segments = segments_.data() + head * SegmentCount();
    // d(loss) / d(line): sums over the pairs of each segment of d and of d x.
    std::vector<double> sum(SegmentCount());
    std::vector<double> sum_x(SegmentCount());
    for (std::size_t r = 0; r < queries.size(); ++r) {
      const int64_t query = queries[r];
      const double whole = std::max<double>(fire_.threshold, query);
      const double psi = Psi(whole);
      double d_psi = 0;  // of the denominator
      int64_t s = 0;
      for (std::size_t c = 0; c < keys.size(); ++c) {
        const auto distance = static_cast<double>(std::abs(query - keys[c]));
        const double d = d_bias[static_cast<int64_t>(r) * stride + static_cast<int64_t>(c)];
        const double x = Log(std::abs(query - keys[c])) / psi;
        s = Find(segments, static_cast<float>(x), s);
        sum[s] += d;
        sum_x[s] += d * x;
        const double d_x = d * segments[s].slope;
        d_psi -= d_x * x / psi;
        gradient[sizes_.c()] += d_x * distance / (fire_.c * distance + 1) / psi;
      }
      gradient[sizes_.c()] += d_psi * whole / (fire_.c * whole + 1);
      if (fire_.threshold > static_cast<double>(query)) {
        gradient[sizes_.threshold()] += d_psi * fire_.c / (fire_.c * whole + 1);
      }
    }
    for (int64_t s = 0; s < SegmentCount(); ++s) Spread(head, s, sum[s], sum_x[s], gradient);
  }

 private:
  int64_t SegmentCount() const { return static_cast<int64_t>(ends_.size()); }
  double Psi(double x) const { return std::log1p(fire_.c * x); }
  float Log(int64_t distance) const {
    return distance < static_cast<int64_t>(logs_.size())
               ? logs_[distance]
               : static_cast<float>(std::log1p(fire_.c * static_cast<double>(distance)));
  }

  // Whether a unit is on within segment s: at its middle, or beyond the last switch.
  bool IsOn(int64_t unit, int64_t s) const {
    const double begin = s == 0 ? 0 : ends_[s - 1];
    const double x = s + 1 == SegmentCount() ? begin + 1 : (begin + ends_[s]) / 2;
    return fire_.w1[unit] * x + fire_.b1[unit] > 0;
  }

  void AddSegments(int64_t head) {
    for (int64_t s = 0; s < SegmentCount(); ++s) {
      double slope = 0;
      double intercept = fire_.b2[head];
      for (int64_t k = 0; k < sizes_.width; ++k) {
        if (!IsOn(k, s)) continue;
        const double w2 = fire_.w2[head * sizes_.width + k];
        slope += w2 * fire_.w1[k];
        intercept += w2 * fire_.b1[k];
      }
      segments_.push_back(
          {static_cast<float>(ends_[s]), static_cast<float>(slope), static_cast<float>(intercept)});
    }
  }

  // The segment of x, from a near one.
  static int64_t Find(const Segment* segments, float x, int64_t s) {
    while (x >= segments[s].end) ++s;
    while (s > 0 && x < segments[s - 1].end) --s;
    return s;
  }

  // Distances first, first - 1, ..: x falls, so that a segment is a run, and each run one loop
  // without a branch.
  void EvaluateRun(const Segment* segments, int64_t first, int64_t count, float scale,
                   float* row) const {
    const float* logs = logs_.data() + first;
    int64_t s = Find(segments, logs[0] * scale, 0);
    for (int64_t c = 0; c < count;) {
      while (s > 0 && logs[-c] * scale < segments[s - 1].end) --s;
      int64_t end = count;
      if (s > 0 && logs[-(count - 1)] * scale < segments[s - 1].end) {
        int64_t inside = c;  // the last column that is known to lie in the segment
        int64_t outside = count - 1;
        while (outside - inside > 1) {
          const int64_t middle = (inside + outside) / 2;
          (logs[-middle] * scale < segments[s - 1].end ? outside : inside) = middle;
        }
        end = outside;
      }
      const float slope = segments[s].slope * scale;
      const float intercept = segments[s].intercept;
      for (; c < end; ++c) row[c] = slope * logs[-c] + intercept;
    }
  }

  // From the line of a segment to the units that are on in it.
  void Spread(int64_t head, int64_t s, double sum, double sum_x, std::span<double> gradient) const {
    if (sum == 0 && sum_x == 0) return;
    gradient[sizes_.b2() + head] += sum;
    for (int64_t k = 0; k < sizes_.width; ++k) {
      if (!IsOn(k, s)) continue;
      const double w2 = fire_.w2[head * sizes_.width + k];
      gradient[k] += w2 * sum_x;
      gradient[sizes_.b1() + k] += w2 * sum;
      gradient[sizes_.w2() + head * sizes_.width + k] += fire_.w1[k] * sum_x + fire_.b1[k] * sum;
    }
  }

  const FireBias fire_;
  const Sizes sizes_;
  std::vector<float> logs_;        // ln(c d + 1)
  std::vector<double> ends_;       // of the segments, ascending, the last infinite
  std::vector<Segment> segments_;  // [heads, ends]
};

void CheckParameters(const FireBias& fire, int64_t heads) {
  const auto width = static_cast<int64_t>(fire.w1.size());
  internal::CheckAtLeast("FireBias.w1: size", width, 1);
  internal::CheckNumbers("FireBias.w1", fire.w1, width);
  internal::CheckNumbers("FireBias.b1", fire.b1, width);
  internal::CheckNumbers("FireBias.w2", fire.w2, heads * width);
  internal::CheckNumbers("FireBias.b2", fire.b2, heads);
  internal::CheckPositive("FireBias.c", fire.c);
  internal::CheckPositive("FireBias.threshold", fire.threshold);
}

}  // namespace

PairForm FireBias::Lower(int64_t heads, int64_t max_distance) const {
  internal::CheckLowering("FireBias", heads, max_distance);
  CheckParameters(*this, heads);
  return {std::make_shared<Fire>(*this, heads, max_distance)};
}

FireBias::Gradient FireBias::Backward(std::span<const double> gradient) const {
  const Sizes sizes{static_cast<int64_t>(w1.size()), static_cast<int64_t>(b2.size())};
  CheckParameters(*this, sizes.heads);
  if (static_cast<int64_t>(gradient.size()) != sizes.count()) {
    internal::Refuse("FireBias.Backward: gradient: expected " + std::to_string(sizes.count()) +
                     " numbers, got " + std::to_string(gradient.size()));
  }
  const auto part = [&](int64_t from, int64_t to) {
    return std::vector<double>(gradient.begin() + from, gradient.begin() + to);
  };
  return {part(0, sizes.b1()),         part(sizes.b1(), sizes.w2()), part(sizes.w2(), sizes.b2()),
          part(sizes.b2(), sizes.c()), gradient[sizes.c()],          gradient[sizes.threshold()]};
}

}  // namespace ropewalk
