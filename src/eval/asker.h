// Answers the requests of a ScoringEngine with a decoder, one after the other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ropewalk/base/buffer.h"
#include "ropewalk/eval/scoring_engine.h"
#include "ropewalk/model/model.h"
#include "src/eval/entropy.h"
#include "src/eval/sequence_feeder.h"

namespace ropewalk::internal {

// 32 MiB of logits: 170 rows of a 49152-token vocabulary, enough for the GEMM to run at full rate.
inline constexpr int64_t kLogitsChunk = int64_t{8} << 20;

// From states to scores. The head runs over the rows that are asked for alone, some at a time:
// memory is O(rows x vocabulary).
class StateScorer {
 public:
  explicit StateScorer(const Decoder& decoder);

  // Scores of the tokens behind rows first .. first + rows - 1, where they are among the positions
  // from positions[scores.size()] on. Moves wanted states to the front of `states`.
  void Score(const ScoreRequest& request, const std::vector<int32_t>& ids, int64_t first,
             float* states, int64_t rows, std::vector<TokenScore>& scores);
  int32_t MostProbable(const float* state);

 private:
  const Decoder& decoder_;
  int64_t vocab_, rows_at_once_;
  AlignedBuffer<float> logits_;  // [rows_at_once, vocab]
};

struct Answer {
  std::vector<TokenScore> tokens;
  Continuation continuation;
  EntropySums entropy;
};

class Asker {
 public:
  Asker(const Decoder& decoder, const EngineCall& call, TickFn tick)
      : feeder_(decoder, call, std::move(tick)), head_(decoder), hidden_(decoder.config().hidden) {}

  int64_t fed_tokens() const { return feeder_.fed_tokens(); }
  // Empty, for what a decoder with cross-attention is to read next; nothing is kept of the last
  // sequence.
  Sequence& EmptySequence() { return feeder_.Restart(); }

  Answer Ask(const ScoreRequest& request);

 private:
  // Behind the prompt, whose last state is `state`.
  Continuation Continue(const ScoreRequest& request, const float* state);

  SequenceFeeder feeder_;
  StateScorer head_;
  int64_t hidden_;
};

// The answers of a call whose lanes fed `fed` tokens each.
Scores ScoresOf(std::vector<Answer> answers, std::span<const int64_t> fed,
                std::span<const ScoreRequest> requests);

}  // namespace ropewalk::internal
