// Entropy of attention: over how many keys a query spreads its weight (Su 2021,
// kexue.fm/archives/8823: it grows with the length, unless scores grow with the logarithm of it).
#pragma once

#include <cstdint>
#include <vector>

#include "ropewalk/model/model.h"

namespace ropewalk::internal {

// Over rows: queries, heads and layers.
struct EntropySums {
  double nats = 0, share = 0;  // of H = -sum w ln w, and of H / ln(keys seen)
  int64_t rows = 0;

  EntropySums& operator+=(const EntropySums& other);

  double Nats() const { return nats / static_cast<double>(rows); }    // mean; NaN without any row
  double Share() const { return share / static_cast<double>(rows); }  // mean: 1 is uniform
};

// Watches a few queries of a sequence, in every layer and head.
class EntropyMeter {
 public:
  // `positions`: the queries to watch, ascending.
  EntropyMeter(Sequence& sequence, std::vector<int64_t> positions);
  EntropyMeter(const EntropyMeter&) = delete;
  EntropyMeter& operator=(const EntropyMeter&) = delete;
  ~EntropyMeter();

  const EntropySums& sums() const { return sums_; }

 private:
  void Add(const AttentionArgs& args);

  Sequence& sequence_;
  std::vector<int64_t> positions_;
  EntropySums sums_;
};

}  // namespace ropewalk::internal
