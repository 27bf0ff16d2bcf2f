#include "ropewalk/relative/fire.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/relative/check.h"
#include "src/relative/fire_cpu.h"

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
    for (int64_t d = max_distance; d >= 0; --d) {
      logs_.push_back(static_cast<float>(Psi(static_cast<double>(d))));
      rates_.push_back(static_cast<float>(Rate(static_cast<double>(d))));
    }
    for (int64_t i = 0; i <= max_distance; ++i) scales_.push_back(1 / Psi(Whole(i)));
    // Where units switch, beyond 0: x is never negative.
    for (int64_t k = 0; k < sizes_.width; ++k) {
      if (fire.w1[k] == 0) continue;
      const double switches = -static_cast<double>(fire.b1[k]) / fire.w1[k];
      if (switches > 0) ends_.push_back(switches);
    }
    std::sort(ends_.begin(), ends_.end());
    ends_.push_back(std::numeric_limits<double>::infinity());
    for (int64_t h = 0; h < heads; ++h) AddSegments(h);
  }

  int64_t heads() const override { return sizes_.heads; }
  int64_t parameters() const override { return sizes_.count(); }

  void Evaluate(int64_t head, std::span<const int64_t> queries, std::span<const int64_t> keys,
                float* out, int64_t stride) const override {
    VisitRuns(head, queries, keys, [&](const Run& run) {
      const Segment& line = Segments(head)[run.segment];
      const auto slope = static_cast<float>(line.slope * run.scale);
      internal::FillFireLine(run.logs, run.count, slope, line.intercept,
                             out + run.row * stride + run.first);
    });
  }

  void Backward(int64_t head, std::span<const int64_t> queries, std::span<const int64_t> keys,
                const float* d_bias, int64_t stride, std::span<double> gradient) const override {
    // d(loss) / d(line): sums over the pairs of each segment of d and of d x.
    std::vector<double> sum(SegmentCount());
    std::vector<double> sum_x(SegmentCount());
    VisitRuns(head, queries, keys, [&](const Run& run) {
      const internal::FireSums sums = internal::SumFireLine(d_bias + run.row * stride + run.first,
                                                            run.logs, run.rates, run.count);
      const double slope = Segments(head)[run.segment].slope;
      const double x = sums.logs * run.scale;
      sum[run.segment] += sums.d;
      sum_x[run.segment] += x;
      // x = psi(distance) / psi(whole), each of which depends on c.
      const double d_whole = -slope * x * run.scale;
      const double whole = Whole(queries[run.row]);
      gradient[sizes_.c()] += slope * run.scale * sums.rates + d_whole * Rate(whole);
      if (fire_.threshold > static_cast<double>(queries[run.row])) {
        gradient[sizes_.threshold()] += d_whole * fire_.c / (fire_.c * whole + 1);
      }
    });
    for (int64_t s = 0; s < SegmentCount(); ++s) Spread(head, s, sum[s], sum_x[s], gradient);
  }

 private:
  // Columns first .. first + count - 1 of a row of a tile that share a segment.
  struct Run {
    int64_t row, first, count, segment;
    double scale;               // 1 / psi(max(L, i))
    const float *logs, *rates;  // of each column's distance
  };

  int64_t SegmentCount() const { return static_cast<int64_t>(ends_.size()); }
  const Segment* Segments(int64_t head) const { return segments_.data() + head * SegmentCount(); }
  double Psi(double x) const { return std::log1p(fire_.c * x); }
  double Rate(double x) const { return x / (fire_.c * x + 1); }  // d psi(x) / d c
  double Whole(int64_t query) const {
    return std::max(fire_.threshold, static_cast<double>(query));
  }

  // Calls body(run) for all columns of all rows. Keys behind the query whose distances the table
  // has stand in it side by side; others are runs of one.
  template <class Body>
  void VisitRuns(int64_t head, std::span<const int64_t> queries, std::span<const int64_t> keys,
                 const Body& body) const {
    if (queries.empty() || keys.empty()) return;
    const auto table = static_cast<int64_t>(logs_.size());
    const bool consecutive = internal::IsRun(keys);
    int64_t segment = 0;  // near rows begin in near segments
    std::vector<int64_t> ends(SegmentCount());
    for (std::size_t r = 0; r < queries.size(); ++r) {
      const int64_t query = queries[r];
      Run run{static_cast<int64_t>(r), 0, 0, segment, 0, nullptr, nullptr};
      run.scale = query >= 0 && query < table ? scales_[query] : 1 / Psi(Whole(query));
      const int64_t farthest = query - keys.front();
      if (consecutive && farthest >= 0 && farthest < table) {
        const auto behind = std::min<int64_t>(static_cast<int64_t>(keys.size()), farthest + 1);
        segment = VisitBehind(head, table - 1 - farthest, behind, run, ends, body);
      }
      VisitEach(head, query, keys, run, body);
    }
  }

  // `count` columns from entry `at` of the table on, whose x fall. Returns the first segment.
  template <class Body>
  int64_t VisitBehind(int64_t head, int64_t at, int64_t count, Run& run, std::vector<int64_t>& ends,
                      const Body& body) const {
    const Segment* segments = Segments(head);
    const auto x = [&](int64_t c) { return static_cast<float>(logs_[at + c] * run.scale); };
    const int64_t first = run.segment = Find(segments, x(0), run.segment);
    while (run.first < count) {
      run.segment = Find(segments, x(run.first), run.segment);
      int64_t end = count;
      if (run.segment > 0 && x(count - 1) < segments[run.segment - 1].end) {
        // Entries of the table where a segment ends move little from row to row.
        const float bound = segments[run.segment - 1].end;
        int64_t& known = ends[run.segment];
        end = std::clamp(known - at, run.first + 1, count - 1);
        while (end > run.first + 1 && x(end - 1) < bound) --end;
        while (x(end) >= bound) ++end;
        known = at + end;
      }
      run.count = end - run.first;
      run.logs = logs_.data() + at + run.first;
      run.rates = rates_.data() + at + run.first;
      body(run);
      run.first = end;
    }
    return first;
  }

  // The columns from run.first on, one by one.
  template <class Body>
  void VisitEach(int64_t head, int64_t query, std::span<const int64_t> keys, Run& run,
                 const Body& body) const {
    const auto table = static_cast<int64_t>(logs_.size());
    run.count = 1;
    for (; run.first < static_cast<int64_t>(keys.size()); ++run.first) {
      const int64_t distance = std::abs(query - keys[run.first]);
      float far_log = 0;
      float far_rate = 0;
      if (distance < table) {
        run.logs = &logs_[table - 1 - distance];
        run.rates = &rates_[table - 1 - distance];
      } else {
        far_log = static_cast<float>(Psi(static_cast<double>(distance)));
        far_rate = static_cast<float>(Rate(static_cast<double>(distance)));
        run.logs = &far_log;
        run.rates = &far_rate;
      }
      run.segment = Find(Segments(head), static_cast<float>(*run.logs * run.scale), run.segment);
      body(run);
    }
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
  // Of distance max_distance first and 0 last, as keys ascend.
  std::vector<float> logs_, rates_;  // psi, d psi / d c
  std::vector<double> scales_;       // [queries], 1 / psi(max(L, i))
  std::vector<double> ends_;         // of the segments, ascending, the last infinite
  std::vector<Segment> segments_;    // [heads, ends]
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
