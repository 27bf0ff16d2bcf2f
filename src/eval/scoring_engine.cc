#include "ropewalk/eval/scoring_engine.h"

#include <algorithm>
#include <string>

#include "ropewalk/base/error.h"
#include "src/eval/finite.h"

namespace ropewalk {
namespace {

[[noreturn]] void Invalid(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

void CheckCall(const EngineCall& call) {
  if (call.plan == nullptr || call.final_length < 1) {
    Invalid("an engine needs a plan and a final length of at least 1 token, got " +
            (call.plan == nullptr ? std::string("no plan") : std::to_string(call.final_length)));
  }
}

void CheckIds(std::span<const int32_t> ids, int64_t vocab) {
  for (const int32_t id : ids) {
    if (id >= 0 && id < vocab) continue;
    Invalid("token id " + std::to_string(id) + " is outside the model's vocabulary of " +
            std::to_string(vocab) + ": text and model do not belong together");
  }
}

template <class Request>
int64_t Tokens(const Request& request) {
  return static_cast<int64_t>(request.prefix.size() + request.ids.size());
}

template <class Request>
void CheckSequence(const EngineCall& call, const Request& request, int64_t more, int64_t vocab) {
  CheckIds(request.prefix, vocab);
  CheckIds(request.ids, vocab);
  if (more > call.final_length - Tokens(request)) {
    const uint64_t tokens = static_cast<uint64_t>(Tokens(request)) + static_cast<uint64_t>(more);
    Invalid("a sequence of " + std::to_string(tokens) +
            " tokens passes the declared final length of " + std::to_string(call.final_length));
  }
}

// Ascending indices in [begin, end).
void CheckIndices(const char* what, const std::vector<int64_t>& indices, int64_t begin,
                  int64_t end) {
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] >= begin && indices[i] < end && (i == 0 || indices[i] > indices[i - 1])) {
      continue;
    }
    Invalid(std::string(what) + ": expected ascending indices from " + std::to_string(begin) +
            " to " + std::to_string(end - 1) + ", got " + std::to_string(indices[i]) + " at " +
            std::to_string(i));
  }
}

// Prompts of at least one token, at most as many more as are allowed.
void CheckPrompt(const char* what, int64_t tokens, int64_t more) {
  if (more < 0) Invalid(std::string(what) + ": expected at least 0, got " + std::to_string(more));
  if (tokens < 1) Invalid("a prompt needs at least one token");
}

void CheckContinuations(const EngineFacts& facts, std::span<const int64_t> most,
                        std::span<const Continuation> made) {
  const bool all = std::equal(most.begin(), most.end(), made.begin(), made.end(),
                              [](int64_t tokens, const Continuation& continuation) {
                                return static_cast<int64_t>(continuation.ids.size()) <= tokens;
                              });
  if (all) return;
  throw Error(ErrorCode::kMismatch,
              "the engine '" + facts.name +
                  "' did not answer one continuation of at most the tokens asked for each request");
}

void CheckAnswer(const EngineFacts& facts, std::span<const ScoreRequest> requests,
                 const Scores& scores) {
  const bool all = std::equal(requests.begin(), requests.end(), scores.tokens.begin(),
                              scores.tokens.end(), [](const auto& request, const auto& tokens) {
                                return request.positions.size() == tokens.size();
                              });
  if (!all) {
    throw Error(ErrorCode::kMismatch,
                "the engine '" + facts.name + "' did not answer one score for each position asked");
  }
  if (!scores.entropy.empty() && scores.entropy.size() != requests.size()) {
    throw Error(ErrorCode::kMismatch,
                "the engine '" + facts.name + "' did not answer one entropy for each request");
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    for (std::size_t j = 0; j < requests[i].positions.size(); ++j) {
      internal::CheckFinite(scores.tokens[i][j].log_prob, requests[i].positions[j]);
    }
  }
}

}  // namespace

void ScoringEngine::Continue(const EngineCall& call, std::span<const ScoreRequest> requests,
                             Scores& scores) const {
  std::vector<GenerateRequest> asked;
  for (const ScoreRequest& r : requests) {
    if (r.continue_tokens == 0) continue;
    asked.push_back(
        {.prefix = r.prefix, .ids = r.ids, .max_tokens = r.continue_tokens, .stop = r.stop});
  }
  if (asked.empty() || !scores.continuations.empty()) return;
  std::vector<Continuation> made = Generate(call, asked);
  scores.continuations.resize(requests.size());
  for (std::size_t i = 0, next = 0; i < requests.size(); ++i) {
    if (requests[i].continue_tokens > 0) scores.continuations[i] = std::move(made[next++]);
  }
  scores.fed_tokens = 0;  // those of Generate are not known
}

Scores ScoringEngine::Score(const EngineCall& call, std::span<const ScoreRequest> requests) const {
  CheckCall(call);
  CheckKv(call.kv);
  const EngineFacts facts = Facts();
  std::vector<int64_t> continued;
  for (const ScoreRequest& request : requests) {
    continued.push_back(request.continue_tokens);
    if (request.continue_tokens != 0) {
      CheckPrompt("continue_tokens", Tokens(request), request.continue_tokens);
    }
    CheckSequence(call, request, request.continue_tokens, facts.vocab);
    CheckIndices("positions", request.positions, 1, Tokens(request));
    if (request.entropy_queries.empty()) continue;
    if (request.positions.empty()) Invalid("entropy_queries: no position is scored");
    CheckIndices("entropy_queries", request.entropy_queries, request.positions.front() - 1,
                 request.positions.back());
  }
  Scores scores = DoScore(call, requests);
  CheckAnswer(facts, requests, scores);
  Continue(call, requests, scores);
  if (!scores.continuations.empty()) CheckContinuations(facts, continued, scores.continuations);
  return scores;
}

std::vector<Continuation> ScoringEngine::Generate(const EngineCall& call,
                                                  std::span<const GenerateRequest> requests) const {
  CheckCall(call);
  CheckKv(call.kv);
  const EngineFacts facts = Facts();
  std::vector<int64_t> most;
  for (const GenerateRequest& request : requests) {
    most.push_back(request.max_tokens);
    CheckPrompt("max_tokens", Tokens(request), request.max_tokens);
    CheckSequence(call, request, request.max_tokens, facts.vocab);
  }
  std::vector<Continuation> continuations = DoGenerate(call, requests);
  CheckContinuations(facts, most, continuations);
  return continuations;
}

void ScoringEngine::CheckKv(KvType kv) const {
  if (kv == KvType::kF32) return;
  throw Error(ErrorCode::kUnsupported,
              std::string("kv: a KV cache of ") + Name(kv) + " is not possible with the engine '" +
                  Facts().name +
                  "', whose cache has a type of its own; ropewalk's own decoder measures it");
}

double ScoringEngine::PassSeconds(const PositionPlan& /*plan*/, const EnginePass& /*pass*/) const {
  return std::numeric_limits<double>::quiet_NaN();
}

std::vector<Continuation> ScoringEngine::DoGenerate(const EngineCall& /*call*/,
                                                    std::span<const GenerateRequest>) const {
  throw Error(ErrorCode::kUnsupported, "the engine '" + Facts().name + "' does not generate text");
}

}  // namespace ropewalk
