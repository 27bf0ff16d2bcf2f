// T5's bias: one learned value per head and bucket of distances. Small distances have a bucket
// each, larger ones share buckets of logarithmic width (Raffel et al. 2019, arXiv 1910.10683,
// section 2.1; T5's code). T5 does not scale q . k.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "ropewalk/base/fields.h"
#include "ropewalk/relative/forms.h"

namespace ropewalk {

struct T5Bias {
  int64_t buckets = 32;
  int64_t last_distance = 128;  // all distances from here on share the last bucket
  // true (encoder): half of the buckets for keys before the query, half for keys after it. false
  // (decoder): all for keys before it; keys after it have the bucket of distance 0.
  bool bidirectional = true;
  std::vector<float> embedding = {};  // [buckets, heads], as in checkpoints

  // Computed exactly, not by a float32 logarithm. distance = position of query - position of key.
  int64_t Bucket(int64_t distance) const;
  // Attention refuses distances beyond max_distance, unless max_distance is in the last bucket (any
  // from last_distance on is).
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
