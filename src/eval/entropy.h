// Entropy of attention: over how many keys a query spreads its weight (Su 2021,
// kexue.fm/archives/8823: it grows with the length, unless scores grow with the logarithm of it).
#pragma once

#include <cstdint>
#include <vector>

#include "ropewalk/model/model.h"

namespace ropewalk::internal {

// Watches a few queries of a sequence, in every layer and head.
class EntropyMeter {
 public:
  explicit EntropyMeter(Sequence& sequence);
  EntropyMeter(const EntropyMeter&) = delete;
  EntropyMeter& operator=(const EntropyMeter&) = delete;
  ~EntropyMeter();

  // The queries of the next sequence to watch.
  void Choose(std::vector<int64_t> positions) { positions_ = std::move(positions); }

  double Nats() const;   // mean of H = -sum w ln w over queries, heads, layers; NaN without any
  double Share() const;  // mean of H / ln(keys seen): 1 is uniform
  int64_t rows() const { return rows_; }

 private:
  void Add(const AttentionArgs& args);

  Sequence& sequence_;
  std::vector<int64_t> positions_;
  double nats_ = 0, share_ = 0;
  int64_t rows_ = 0;
};

}  // namespace ropewalk::internal
