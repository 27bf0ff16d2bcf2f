// T5's buckets: one learned number a head and range of distances; near ones have a bucket each, far
// ones share, logarithmically (Raffel et al. 2019, arXiv 1910.10683, section 2.1; T5's code). T5
// does not scale q.k.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "ropewalk/base/fields.h"
#include "ropewalk/relative/forms.h"

namespace ropewalk {

struct T5Bias {
  int64_t buckets = 32;
  int64_t last_distance = 128;  // from here on all distances share the last bucket
  // true (encoder): half of the buckets for keys behind, half for keys ahead. false (decoder): all
  // for keys behind; keys ahead have that of distance 0.
  bool bidirectional = true;
  std::vector<float> embedding = {};  // [buckets, heads], as in checkpoints

  // Exact: no float32 logarithm. distance = position of query - position of key.
  int64_t Bucket(int64_t distance) const;
  // Attention refuses distances beyond max_distance, unless that reaches the last bucket
  // (last_distance does).
  DistanceForm Lower(int64_t heads, int64_t max_distance) const;
  // d(loss) / d(embedding), [buckets, heads].
  std::vector<double> Backward(const DistanceForm& gradient) const;

  static constexpr auto Fields() {
    return std::tuple{
        Field{"buckets", &T5Bias::buckets}, Field{"last_distance", &T5Bias::last_distance},
        Field{"bidirectional", &T5Bias::bidirectional}, Field{"embedding", &T5Bias::embedding}};
  }

  bool operator==(const T5Bias&) const = default;
};

}  // namespace ropewalk
