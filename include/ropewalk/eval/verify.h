// What positions does a running server compute? Its log-probabilities of tokens at positions beyond
// the trained length are compared with those of an engine here, under the plan that was asked for
// and under the plans that servers are known to run in its place. Nothing here knows of a network:
// functions from (server's answers, engine's answers) to a verdict.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "ropewalk/eval/eval.h"

namespace ropewalk {

// A plan that the server may run.
struct VerifyCandidate {
  std::string name = {};      // "asked", "unscaled", "no-attention-factor", "factor-2"
  std::string sentence = {};  // "runs YaRN with attention factor 1"; the server is its subject
  PositionPlan plan = {};
  // Length-dependent methods are resolved at it, where it is more than the window's length.
  int64_t final_length = 0;
  int64_t last_tokens = 0;     // of a prompt it sees this many only; 0: all
  std::string plan_hash = {};  // resolved at final_length
};

struct VerifySetup {
  PositionPlan model_plan;        // as the files say
  PositionPlan asked;             // the plan that the server should run
  std::string asked_description;  // "yarn(factor 4)"
  int64_t length = 0;             // of the window, tokens
  int64_t served_length = 0;      // the longest that the server takes, by its own word; 0: unknown
  bool truncation = false;        // also candidates that see only the last tokens of a prompt
};
// "asked" first, then mistakes: the model without scaling, or as its files say; the attention
// factor ignored; YaRN's ramp rounded or not, its betas ignored, its trained length taken to be the
// extended one; another factor; another method with the same factor; the default base; a
// length-dependent method resolved elsewhere; the formulas of Hugging Face, vLLM and llama.cpp; a
// sliding window that should not be there, or is not there. Each plan once: what resolves to the
// hash of an earlier candidate is left out. Throws Error as Resolve does of `asked`.
std::vector<VerifyCandidate> VerifyCandidates(const VerifySetup& setup);

// The log-probabilities, in nats, of `ids` as the token behind window[0, position).
struct VerifyQuestion {
  int32_t window = 0;  // index into the windows
  int64_t position = 0;
  std::vector<int32_t> ids = {};
};
// [questions][ids of the question]
using VerifyAnswers = std::vector<std::vector<float>>;

// What an engine answers under a candidate. Throws Error as ScoringEngine does.
VerifyAnswers AskEngine(const ScoringEngine& engine, const VerifyCandidate& candidate,
                        std::span<const std::vector<int32_t>> windows,
                        std::span<const VerifyQuestion> questions, AnglePrecision angles,
                        const std::function<void(int64_t tokens)>& tick = {});

// How far two answers to the same questions lie apart.
struct VerifyDistance {
  double mean = 0;     // of |difference| of log-probabilities over all ids, nats
  double largest = 0;  // nats
  // Mean over questions of KL(a || b), nats, of the ids asked and the rest of the vocabulary as one
  // more; NaN unless every question asks at least two ids.
  double kl = std::numeric_limits<double>::quiet_NaN();
};
// Throws Error(kMismatch) for answers of different shape, and for numbers that are not finite.
VerifyDistance Distance(const VerifyAnswers& a, const VerifyAnswers& b);

// The rule of docs/verify.md.
//   tolerance      the nearest candidate must lie within kVerifyFloor nats, or kVerifyNoiseFactor
//                  times the noise where that is more
//   other model    the noise is above kVerifyMostNoise nats
inline constexpr double kVerifyFloor = 0.02, kVerifyNoiseFactor = 4, kVerifyMostNoise = 0.5;

enum class Verified : uint8_t {
  kAsked,      // the server runs what was asked
  kOther,      // another candidate
  kUndecided,  // what was asked or another one: they cannot be told apart here
  kNone,       // no candidate is near enough
  kOtherModel  // numbers differ where no plan matters: another model, or quantised too coarsely
};
const char* Name(Verified verdict);  // "asked", "other", "undecided", "none", "other-model"

struct VerifyVerdict {
  Verified verdict = Verified::kNone;
  double noise = 0;      // mean |difference| behind a single token, where no plan matters, nats
  double tolerance = 0;  // nats
  int64_t nearest = 0;   // index of a candidate
  // Candidates that these answers do not tell from the nearest.
  std::vector<int64_t> alike = {};
  std::vector<VerifyDistance> distances = {};  // of the server from each candidate
  std::string text = {};                       // one sentence or two
};

// `candidates[0]` is what was asked; `engine[i]` are the answers under candidate i. `noise` is
// Distance of server and engine behind a single token: attention to one key is 1, whatever its
// position. Throws Error(kInvalidArgument) without candidates or questions, and as Distance does.
VerifyVerdict Judge(std::span<const VerifyCandidate> candidates, const VerifyAnswers& server,
                    std::span<const VerifyAnswers> engine, const VerifyDistance& noise);

}  // namespace ropewalk
