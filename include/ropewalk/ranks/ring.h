// Ring attention (Liu et al. 2023, arXiv 2310.01889) with the zig-zag deal of causal work (Brandon et
// al. 2023, arXiv 2311.09431, and zhuzilin/ring-flash-attention): every rank keeps the queries of its
// tokens, and keys and values travel from rank to rank while the block before is scored.
//
//   rank r of N has runs r and 2 N - 1 - r of 2 N equal runs of the sequence,
//   so that every rank scores as many pairs as any other.
//
// Positions are data: a visiting run of keys says where it begins, and every bias, window and distance
// map reads positions alone.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "ropewalk/attention/attention.h"
#include "ropewalk/ranks/rank_group.h"

namespace ropewalk {

struct TokenRun {
  int64_t first = 0, end = 0;  // positions
  int64_t tokens() const { return end - first; }

  bool operator==(const TokenRun&) const = default;
};

// How a sequence is dealt. Runs are multiples of kRotatedBlock tokens long but for the last one that
// has any; those behind it are empty.
class Deal {
 public:
  // Throws Error for sizes below 1.
  Deal(int64_t tokens, int ranks);
  int ranks() const { return ranks_; }
  int64_t tokens() const { return tokens_; }
  int64_t run_tokens() const { return run_tokens_; }  // of the longest run
  int runs() const { return 2 * ranks_; }
  TokenRun Run(int index) const;
  std::array<int, 2> RunsOf(int rank) const { return {rank, runs() - 1 - rank}; }

 private:
  int64_t tokens_, run_tokens_;
  int ranks_;
};

// The keys and values of one rank's runs in one layer, which travel.
struct RingBlock {
  int owner = 0;                 // rank
  std::array<KvCache, 2> cache;  // of Deal::RunsOf(owner)
  // Of a forgetting gate: its running sums from the first token of the sequence on, [tokens, heads].
  std::array<std::vector<double>, 2> gate_sums;
};

// Sizes of the caches of a layer.
struct RingSizes {
  int64_t kv_heads = 0, key_dim = 0, value_dim = 0;
  KvType kv = KvType::kF32;
  int64_t gate_heads = 0;  // 0: no gates travel
};

// The queries of a run, and the rows of AttentionSums that they are: [tokens, heads, key_dim] of
// consecutive positions.
struct RingQueries {
  TensorView q;
  int64_t first_position = 0;
  std::span<const float> temperatures = {};  // [tokens] or empty
  std::span<const double> gate_sums = {};    // [tokens, heads] or empty
  // Rising positions: the sums of these queries, at least, are to know their entropy.
  std::span<const int64_t> entropy = {};
};

class Ring {
 public:
  // The group outlives it.
  Ring(RankGroup& group, const Deal& deal, const RingSizes& sizes);

  RankGroup& group() { return group_; }
  const Deal& deal() const { return deal_; }
  int64_t bytes() const;
  // Empties this rank's block and gives it to be filled, for a layer.
  RingBlock& Begin();
  // Log-gates [tokens, heads] of this rank's two runs to sums in Begin's block, from the first token of
  // the sequence on: what other ranks have in front is exchanged.
  void SumGates(const std::array<std::vector<float>, 2>& log_gates);

  // Adds to `sums`, of the two runs, what their queries find in the keys of all ranks: own keys first,
  // then those of the ranks before, as they come round; the order follows from the ranks alone. `args`
  // says scale, window, bias, rotation and soft cap, as for Attention; chunk_tokens above 0: queries
  // see their own chunk alone.
  void Attend(const AttentionArgs& args, int64_t chunk_tokens,
              const std::array<RingQueries, 2>& queries, std::array<AttentionSums, 2>& sums);

 private:
  struct Part;
  template <class Visit>
  void GoRound(bool home, const Visit& visit);
  template <class Use>
  void ForParts(const AttentionArgs& args, int64_t chunk_tokens, const RingBlock& block, int run,
                const RingQueries& queries, const Use& use);
  void AttendContextual(const AttentionArgs& args, int64_t chunk_tokens,
                        const std::array<RingQueries, 2>& queries,
                        std::array<AttentionSums, 2>& sums);

  RankGroup& group_;
  const Deal deal_;
  const RingSizes sizes_;
  RingBlock here_, coming_;
};

}  // namespace ropewalk
