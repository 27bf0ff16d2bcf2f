#include "ropewalk/relative/t5.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "src/relative/bias_row.h"
#include "src/relative/distance_table.h"

namespace ropewalk {
namespace {

// Buckets of one side, and how many of them hold one distance alone.
struct Side {
  int64_t buckets, exact;
};

Side SideOf(const T5Bias& t5) {
  const int64_t least = t5.bidirectional ? 4 : 2;
  internal::CheckAtLeast("T5Bias.buckets", t5.buckets, least);
  const int64_t side = t5.bidirectional ? t5.buckets / 2 : t5.buckets;
  if (t5.last_distance <= side / 2) {
    internal::Refuse("T5Bias.last_distance: expected more than the " + std::to_string(side / 2) +
                     " distances that have a bucket each, got " + std::to_string(t5.last_distance));
  }
  return {side, side / 2};
}

int64_t BucketOf(const T5Bias& t5, const Side& side, int64_t distance) {
  const int64_t offset = t5.bidirectional && distance < 0 ? side.buckets : 0;
  const int64_t either = std::abs(std::max(distance, -std::numeric_limits<int64_t>::max()));
  const int64_t n = t5.bidirectional ? either : std::max<int64_t>(distance, 0);
  if (n < side.exact) return offset + n;
  const double log_range = std::log(static_cast<double>(t5.last_distance) / side.exact);
  const double place = std::log(static_cast<double>(n) / side.exact) / log_range *
                       static_cast<double>(side.buckets - side.exact);
  // A distance on the boundary itself (16, 32, 64 of 8 to 128) gives a whole number, of which the
  // logarithms may miss the last bits; a distance beside it misses by more than 1e-9.
  const auto far = static_cast<int64_t>(std::min(place + 1e-11, 1e9));
  return offset + std::min(side.exact + far, side.buckets - 1);
}

int64_t HeadsOf(const T5Bias& t5) { return static_cast<int64_t>(t5.embedding.size()) / t5.buckets; }

std::vector<int64_t> Learned(const T5Bias& t5, int64_t heads) { return {t5.buckets * heads}; }

std::vector<double> BackwardT5(const T5Bias& t5, const ScoreForm& gradient) {
  return t5.Backward(std::get<DistanceForm>(gradient));
}

}  // namespace

int64_t T5Bias::Bucket(int64_t distance) const { return BucketOf(*this, SideOf(*this), distance); }

DistanceForm T5Bias::Lower(int64_t heads, int64_t max_distance) const {
  internal::CheckLowering("T5Bias", heads, max_distance);
  const Side side = SideOf(*this);
  internal::CheckNumbers("T5Bias.embedding", embedding, buckets * heads);
  const int64_t last = std::min(max_distance, last_distance);
  DistanceForm form = internal::MakeDistanceForm(
      heads, bidirectional ? -last : 0, last, [&](int64_t h, int64_t distance) {
        return embedding[BucketOf(*this, side, distance) * heads + h];
      });
  // A table that reaches the last bucket has all that is beyond it.
  const auto is_last = [&](int64_t distance, int64_t far) {
    return BucketOf(*this, side, distance) == BucketOf(*this, side, far);
  };
  form.repeats_ahead = is_last(form.first, -last_distance);
  form.repeats_behind = is_last(last, last_distance);
  return form;
}

std::vector<double> T5Bias::Backward(const DistanceForm& gradient) const {
  const Side side = SideOf(*this);
  const int64_t heads = HeadsOf(*this);
  std::vector<double> d(embedding.size());
  internal::VisitDistanceForm("T5Bias.Backward", gradient, heads,
                              [&](int64_t h, int64_t distance, float number) {
                                d[BucketOf(*this, side, distance) * heads + h] += number;
                              });
  return d;
}

template <>
internal::BiasRow<T5Bias> internal::BiasRowOf() {
  return {.name = "t5",
          .title = "T5 buckets",
          .source = "arXiv 1910.10683",
          .learned_optional = false,
          .learned = Learned,
          .lower = LowerOf,
          .backward = BackwardT5};
}

}  // namespace ropewalk
