// What a measurement asks of a language model: log-probabilities of tokens of given sequences, and
// greedy continuations. Perplexity, passkey, sweep and search know this interface alone, so they
// measure ropewalk's own decoder (decoder_engine.h) and a model behind Python or on a GPU alike.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "ropewalk/plan/plan.h"
#include "ropewalk/rotary/spec.h"

namespace ropewalk {

// What is known of an engine and its model without running it.
struct EngineFacts {
  std::string name = {};     // in error messages: "ropewalk decoder"
  int64_t vocab = 0;         // token ids are 0 .. vocab - 1
  std::string compute = {};  // type that weights are multiplied in, "float32"; every result has it
  int threads = 1;           // of the CPU; every result has it
  // Floating-point operations, for estimates of time; 0: unknown. A multiplication with an addition
  // counts as 2.
  double token_flops = 0;  // one token through all layers, without pair_flops and head_flops
  double pair_flops = 0;   // one query and one key that it sees, in one layer
  double head_flops = 0;   // the logits of one position
};

// How much of a prefix that requests share is computed once.
//   kSameBits  as much as leaves every number the bits that it has in a call of its own (the
//              decoder: whole chunks of 512 tokens)
//   kWhole     all of it; numbers then differ by rounding from those of a call of its own, as they
//              do when a prompt is cut into other chunks
enum class PrefixReuse : uint8_t { kSameBits, kWhole };

// What the sequences of one call have in common.
struct EngineCall {
  const PositionPlan* plan = nullptr;  // a LayerPlan for each layer of the model
  // Tokens that a sequence may have in the end. Length-dependent methods (dynamic NTK, LongRoPE)
  // are resolved at it, however short a sequence is.
  int64_t final_length = 0;
  AnglePrecision angles = AnglePrecision::kExact;
  PrefixReuse reuse = PrefixReuse::kSameBits;
  // Called now and then with the tokens that were done since, those of shared prefixes included. It
  // may throw, which ends the call: an engine lets it pass.
  std::function<void(int64_t tokens)> tick = {};
};

// One sequence, `prefix` and then `ids`, and where it is scored. Index i of a sequence is its
// token i, which has position i. Spans must live as long as the call.
struct ScoreRequest {
  std::span<const int32_t> prefix = {};  // computed once for neighbours in a call that share it
  std::span<const int32_t> ids = {};
  // The tokens to score: ascending indices, none of them in the prefix and none 0 (no token stands
  // in front of that one). What comes behind the last one is not computed.
  std::vector<int64_t> positions = {};
  // Tokens of which the entropy of attention is asked for: ascending indices from
  // positions.front() - 1 to positions.back() - 1. An engine that cannot tell ignores them.
  std::vector<int64_t> entropy_queries = {};
};

struct TokenScore {
  float log_prob = 0;  // ln of the probability of the sequence's token, given all in front of it
  int32_t top = 0;     // the token that is most probable there; the lowest id of several
};

struct Scores {
  std::vector<std::vector<TokenScore>> tokens = {};  // [requests][positions of the request]
  // Entropy of attention: the mean over the entropy_queries of all requests, every layer and head,
  // in nats, and as a share of ln(keys seen). NaN where nothing was asked or the engine cannot
  // tell.
  double entropy = std::numeric_limits<double>::quiet_NaN();
  double entropy_share = std::numeric_limits<double>::quiet_NaN();
};

// A prompt, `prefix` and then `ids`, to be continued with the most probable token at each step.
struct GenerateRequest {
  std::span<const int32_t> prefix = {};  // computed once for neighbours in a call that share it
  std::span<const int32_t> ids = {};
  int64_t max_tokens = 0;
  std::span<const int32_t> stop = {};  // ids that end a continuation, such as EOS
};
struct Continuation {
  std::vector<int32_t> ids = {};  // at most max_tokens; without the one that ended it
  bool stopped = false;           // by an id of `stop`
};

// An implementation overrides the private functions; requests that reach them are valid, and their
// answers are checked. A call leaves no state behind that another would see: what it answers
// depends on the call alone.
class ScoringEngine {
 public:
  virtual ~ScoringEngine() = default;

  virtual EngineFacts Facts() const = 0;
  // Estimate for weights, KV cache and scratch memory of one sequence of `length` tokens.
  virtual int64_t MemoryBytes(const PositionPlan& plan, int64_t length) const = 0;

  // Throws Error for ids outside the vocabulary, positions that ScoreRequest does not allow, a
  // sequence beyond final_length, a plan that the model cannot have, and for a log-probability that
  // is no finite number.
  Scores Score(const EngineCall& call, std::span<const ScoreRequest> requests) const;
  // One continuation for each request. A prompt has at least one token, and prompt and max_tokens
  // fit final_length; throws Error otherwise, and as Score does.
  std::vector<Continuation> Generate(const EngineCall& call,
                                     std::span<const GenerateRequest> requests) const;

 private:
  virtual Scores DoScore(const EngineCall& call, std::span<const ScoreRequest> requests) const = 0;
  // Throws Error(kUnsupported) unless overridden.
  virtual std::vector<Continuation> DoGenerate(const EngineCall& call,
                                               std::span<const GenerateRequest> requests) const;
};

}  // namespace ropewalk
