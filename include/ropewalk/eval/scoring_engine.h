// What a measurement asks of a language model: log-probabilities of tokens of given sequences, and
// greedy continuations. Perplexity, tasks, sweep and search know this interface alone, so they
// measure ropewalk's own decoder (decoder_engine.h) and a model behind Python or on a GPU alike.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "ropewalk/attention/attention.h"
#include "ropewalk/plan/plan.h"
#include "ropewalk/rotary/spec.h"

namespace ropewalk {

// Properties of an engine and its model that are known without running it.
struct EngineFacts {
  std::string name = {};     // in error messages: "ropewalk decoder"
  int64_t vocab = 0;         // token ids are 0 .. vocab - 1
  std::string compute = {};  // type of matrix products, "float32"; recorded with every result
  int threads = 1;           // of the CPU; recorded with every result
  int lanes = 1;             // sequences of a call that run side by side, where memory allows
  // Floating-point operations, for estimates of time; 0: unknown. A multiplication with an addition
  // counts as 2.
  double token_flops = 0;  // one token through all layers, without pair_flops and head_flops
  double pair_flops = 0;   // one query and one key that it sees, in one layer
  double head_flops = 0;   // the logits of one position
  // How it computes angles, recorded with every result; empty: as a call asks.
  std::string angles = {};
  // Of model files that are read where they are in every pass; no part of MemoryBytes, since the
  // system may drop and read them again.
  int64_t mapped_bytes = 0;
};

// How much of a prefix shared by requests is computed only once.
//   kSameBits  as much as keeps every result bit-identical to that of a separate call (the decoder:
//              whole chunks of 512 tokens). An engine whose kernels promise no bits takes it for
//              kWhole
//   kWhole     all of it; results may differ by rounding from those of separate calls, as they do
//              with any other chunk size
enum class PrefixReuse : uint8_t { kSameBits, kWhole };

// What the sequences of one call have in common.
struct EngineCall {
  const PositionPlan* plan = nullptr;  // a LayerPlan for each layer of the model
  // The largest number of tokens of a sequence. Length-dependent methods (dynamic NTK, LongRoPE)
  // are resolved at it, also for shorter sequences.
  int64_t final_length = 0;
  AnglePrecision angles = AnglePrecision::kExact;
  KvType kv = KvType::kF32;  // of the KV cache; engines that choose their own take f32 for that
  PrefixReuse reuse = PrefixReuse::kSameBits;
  // Called now and then with the number of tokens done since the last call, including those of
  // shared prefixes. It may throw to end the call; engines do not catch this.
  std::function<void(int64_t tokens)> tick = {};
};

// One sequence, `prefix` followed by `ids`, and the tokens to score. Token i of a sequence has
// position i. The spans must outlive the call.
struct ScoreRequest {
  // Computed once for neighbours in a call that share it. A context that is scored itself and has
  // questions behind it is the prefix of all of these requests, its own included.
  std::span<const int32_t> prefix = {};
  std::span<const int32_t> ids = {};
  // The tokens to score: ascending indices above 0, also in the prefix. Tokens after the last one
  // are not needed.
  std::vector<int64_t> positions = {};
  // The queries whose entropy of attention to measure: ascending indices from positions.front() - 1
  // to positions.back() - 1. Engines without access to attention ignore them.
  std::vector<int64_t> entropy_queries = {};
  // Above 0: `prefix` and `ids`, all of them, are also continued greedily (the most probable token
  // each time) by at most as many tokens, up to one of `stop`. Here and not in a call of Generate,
  // so that it shares its prefix with what is scored.
  int64_t continue_tokens = 0;
  std::span<const int32_t> stop = {};  // ids that end a continuation, such as EOS
};

struct TokenScore {
  float log_prob = 0;  // ln of the probability of the token given all tokens before it
  int32_t top = 0;     // the most probable token there; of equal ones the lowest id
};

struct Continuation {
  std::vector<int32_t> ids = {};  // without the id of `stop` that ended it
  bool stopped = false;           // by an id of `stop`
};

// Of attention: the mean over the entropy_queries of a request, all layers and heads, in nats, and
// relative to ln(unmasked keys). NaN without entropy_queries.
struct MeanEntropy {
  double nats = std::numeric_limits<double>::quiet_NaN();
  double share = std::numeric_limits<double>::quiet_NaN();
};

struct Scores {
  std::vector<std::vector<TokenScore>> tokens = {};  // [requests][positions of the request]
  // [requests], where any asks for one; else empty.
  std::vector<Continuation> continuations = {};
  // Tokens that went through the model in this call, those of continuations included: what is kept
  // of a shared prefix counts once. 0: the engine does not count.
  int64_t fed_tokens = 0;
  // [requests]; empty for engines without access to attention.
  std::vector<MeanEntropy> entropy = {};
};

// A prompt, `prefix` followed by `ids`, to be continued greedily.
struct GenerateRequest {
  std::span<const int32_t> prefix = {};  // computed once for neighbours in a call that share it
  std::span<const int32_t> ids = {};
  int64_t max_tokens = 0;
  std::span<const int32_t> stop = {};  // ids that end a continuation, such as EOS
};

// A pass over `tokens` tokens behind `behind` others of the same sequence.
struct EnginePass {
  int64_t behind = 0, tokens = 0;
  bool scored = false;  // with the logits of each, else of none
};

// An implementation overrides the private functions; the requests passed to them are valid, and
// what they return is checked. Results must depend on the arguments of a call alone, not on earlier
// calls.
class ScoringEngine {
 public:
  virtual ~ScoringEngine() = default;

  virtual EngineFacts Facts() const = 0;
  // Throws Error with the reason unless a call may name this type of KV cache. An engine takes f32
  // alone unless it overrides this.
  virtual void CheckKv(KvType kv) const;
  // Estimate for weights, KV caches and scratch memory of a call with sequences of `length` tokens:
  // of as many as run side by side.
  virtual int64_t MemoryBytes(const PositionPlan& plan, int64_t length) const = 0;
  // The same with KV caches of a type that CheckKv takes; MemoryBytes unless overridden.
  virtual int64_t MemoryBytesWith(KvType kv, const PositionPlan& plan, int64_t length) const {
    (void)kv;
    return MemoryBytes(plan, length);
  }
  // Wall time of a pass, as measured now: with as many sequences side by side as run so, for one of
  // them. What the tokens are is the engine's choice. NaN: it cannot say; estimates then take its
  // floating-point operations.
  virtual double PassSeconds(const PositionPlan& plan, const EnginePass& pass) const;

  // Throws Error for ids outside the vocabulary, positions that ScoreRequest does not allow, a
  // sequence with its continuation longer than final_length, a plan that does not fit the model, a
  // KV cache that CheckKv refuses, and for a log-probability that is not finite.
  Scores Score(const EngineCall& call, std::span<const ScoreRequest> requests) const;
  // One continuation for each request. Throws Error as Score does, for an empty prompt, and where
  // prompt and max_tokens together exceed final_length.
  std::vector<Continuation> Generate(const EngineCall& call,
                                     std::span<const GenerateRequest> requests) const;

 private:
  // Where it leaves `continuations` empty although some are asked for, DoGenerate makes them.
  virtual Scores DoScore(const EngineCall& call, std::span<const ScoreRequest> requests) const = 0;
  // Throws Error(kUnsupported) unless overridden.
  virtual std::vector<Continuation> DoGenerate(const EngineCall& call,
                                               std::span<const GenerateRequest> requests) const;
  // Asks DoGenerate for what DoScore left out.
  void Continue(const EngineCall& call, std::span<const ScoreRequest> requests,
                Scores& scores) const;
};

}  // namespace ropewalk
