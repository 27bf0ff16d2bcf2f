// Entropy of attention: over how many keys a query spreads its weight (Su 2021,
// kexue.fm/archives/8823: it grows with the length, unless scores grow with the logarithm of it).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ropewalk/model/model.h"

namespace ropewalk::internal {

// Looks over the shoulder of a sequence at a few queries, every layer and head of them, and
// computes their weights again in double.
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
  // cos and sin at some positions: [pairs, tokens].
  struct Turns {
    int64_t tokens = 0;
    std::vector<float> cos, sin;
  };
  struct Layer;
  void Look(int64_t layer, const AttentionArgs& args);
  static Turns MakeTurns(const ResolvedRotation& rotation, const std::vector<int64_t>& positions,
                         int64_t divisor);
  // Of the keys, for each view of the layer's map.
  const std::vector<Turns>& TurnsOf(const ResolvedLayer& layer, int64_t tokens);

  Sequence& sequence_;
  std::vector<int64_t> positions_;
  std::map<std::pair<int, std::string>, std::vector<Turns>> turns_;  // by rotation and map
  double nats_ = 0, share_ = 0;
  int64_t rows_ = 0;
};

}  // namespace ropewalk::internal
