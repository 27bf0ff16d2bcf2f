// One sequence over the ranks of a group: each has some of its tokens (Deal), runs its linear layers on
// them, and meets the keys and values of the others in a ring, layer by layer.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "ropewalk/model/model.h"
#include "ropewalk/ranks/ring.h"

namespace ropewalk {

// What a rank does with its part of a sequence.
struct RankedVisitor {
  // Final normalised states of consecutive tokens of this rank from position `first` on, [rows, hidden];
  // called in the order of positions. Valid during the call, and free to be changed.
  std::function<void(int64_t first, float* states, int64_t rows)> states;
  // Called now and then with the number of tokens done since the last call, of all ranks together; it
  // may throw. Empty: not wanted.
  std::function<void(int64_t tokens)> tick = {};
  // The queries, ascending positions, whose entropy of attention to tell: [heads] of each layer and of
  // each query of this rank, with the number of keys (and of the sink) that it sees.
  std::span<const int64_t> entropy_queries = {};
  std::function<void(int64_t position, int64_t seen, std::span<const float> entropy)> entropy = {};
};

// Makes no use of what Sequence keeps: keys of a layer are gone once the ring has been round, so that a
// rank's memory is that of its activations and of two blocks of one layer. Equal up to rounding to what
// Decoder::Forward gives; with equal numbers of ranks and threads the same bits.
class RankedSequence {
 public:
  // All ranks of the group give the same; decoder and group outlive it. Throws Error as Sequence does,
  // and kUnsupported for a decoder with cross-attention.
  RankedSequence(const Decoder& decoder, const PositionPlan& plan, int64_t final_length,
                 AnglePrecision precision, KvType kv, RankGroup& group);
  ~RankedSequence();
  RankedSequence(const RankedSequence&) = delete;
  RankedSequence& operator=(const RankedSequence&) = delete;

  // The tokens of a whole sequence, the same on all ranks, which must call this together. `visitor`
  // sees those from first_row on. Throws Error as Decoder::Forward does.
  void Forward(std::span<const int32_t> ids, int64_t first_row, const RankedVisitor& visitor);

  // What a rank of `ranks` needs for `tokens` tokens: activations, travelling keys, tables.
  static int64_t BytesFor(const ModelConfig& config, int ranks, int64_t tokens, KvType kv);

 private:
  struct Part;
  struct Run;
  void Embed(std::span<const int32_t> ids, Part& part) const;
  void RunLayer(std::size_t layer, int64_t first_row, const RankedVisitor& visitor,
                Part& part) const;
  void FinishRun(std::size_t layer, const RankedVisitor& visitor, std::size_t run,
                 Part& part) const;
  int64_t Seen(std::size_t layer, int64_t position) const;

  const Decoder& decoder_;
  RankGroup& group_;
  KvType kv_;
  AnglePrecision precision_;
  std::unique_ptr<Sequence> shared_;  // resolved plan, biases, fused rotations
};

}  // namespace ropewalk
