#include "ropewalk/eval/ranked_engine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ropewalk/base/error.h"
#include "ropewalk/eval/decoder_engine.h"
#include "src/eval/asker.h"
#include "src/eval/pack.h"

namespace ropewalk {
namespace {

// What rank 0 sends: a call as its ranks compute it.
struct RankedRequest {
  std::vector<int32_t> ids;  // prefix and all
  std::vector<int64_t> positions, entropy_queries;
};
struct RankedCall {
  PositionPlan plan;
  std::string plan_hash;
  int64_t final_length = 0;
  AnglePrecision angles = AnglePrecision::kExact;
  KvType kv = KvType::kF32;
  std::vector<RankedRequest> requests;
};

// What a rank has of a request: scores of some of its positions, by their index.
struct RankedAnswer {
  std::vector<int64_t> indices;
  std::vector<TokenScore> scores;
  double nats = 0, share = 0;  // of internal::EntropySums
  int64_t rows = 0;
};

RankedRequest RequestOf(const ScoreRequest& request) {
  RankedRequest out{
      {request.prefix.begin(), request.prefix.end()}, request.positions, request.entropy_queries};
  out.ids.insert(out.ids.end(), request.ids.begin(), request.ids.end());
  return out;
}

// The positions whose states this rank computes, and their indices among all.
std::vector<int64_t> OwnPositions(const RankedRequest& request, int64_t needed,
                                  const RankGroup& group, std::vector<int64_t>& indices) {
  const Deal deal(needed, group.size());
  std::vector<int64_t> own;
  for (const int index : deal.RunsOf(group.rank())) {
    const TokenRun run = deal.Run(index);
    const auto& all = request.positions;
    for (auto at = std::lower_bound(all.begin(), all.end(), run.first + 1);
         at != all.end() && *at - 1 < run.end; ++at) {
      own.push_back(*at);
      indices.push_back(at - all.begin());
    }
  }
  return own;
}

class Computer {
 public:
  Computer(const Decoder& decoder, RankGroup& group, internal::TickFn tick)
      : decoder_(decoder), group_(group), tick_(std::move(tick)), head_(decoder) {}

  std::vector<RankedAnswer> Compute(const RankedCall& call) {
    RankedSequence sequence(decoder_, call.plan, call.final_length, call.angles, call.kv, group_);
    std::vector<RankedAnswer> answers;
    for (const RankedRequest& request : call.requests) {
      answers.push_back(request.positions.empty() ? RankedAnswer() : Answer(sequence, request));
    }
    return answers;
  }

 private:
  RankedAnswer Answer(RankedSequence& sequence, const RankedRequest& request) {
    RankedAnswer answer;
    // The state of a token predicts the next, so the last one that is scored is not fed.
    const int64_t needed = request.positions.back(), first = request.positions.front() - 1;
    ScoreRequest own;
    own.positions = OwnPositions(request, needed, group_, answer.indices);
    const auto entropy = [&](int64_t, int64_t seen, std::span<const float> heads) {
      if (seen < 2) return;
      for (const double nats : heads) {
        answer.nats += nats;
        answer.share += nats / std::log(static_cast<double>(seen));
        ++answer.rows;
      }
    };
    sequence.Forward(std::span(request.ids).first(static_cast<size_t>(needed)), first,
                     {.states =
                          [&](int64_t at, float* states, int64_t rows) {
                            head_.Score(own, request.ids, at, states, rows, answer.scores);
                          },
                      .tick = tick_,
                      .entropy_queries = request.entropy_queries,
                      .entropy = entropy});
    return answer;
  }

  const Decoder& decoder_;
  RankGroup& group_;
  internal::TickFn tick_;
  internal::StateScorer head_;
};

// The answers of all ranks as one.
Scores Merge(const RankedCall& call, const std::vector<std::vector<std::byte>>& parts) {
  Scores scores;
  std::vector<internal::EntropySums> entropy(call.requests.size());
  for (const RankedRequest& request : call.requests) {
    scores.tokens.emplace_back(request.positions.size());
    scores.fed_tokens += request.positions.empty() ? 0 : request.positions.back();
  }
  for (const std::vector<std::byte>& part : parts) {
    const auto answers = internal::Unpack<std::vector<RankedAnswer>>(part);
    for (size_t r = 0; r < answers.size(); ++r) {
      const RankedAnswer& answer = answers[r];
      for (size_t i = 0; i < answer.indices.size(); ++i) {
        scores.tokens[r][static_cast<size_t>(answer.indices[i])] = answer.scores.at(i);
      }
      entropy[r] += {answer.nats, answer.share, answer.rows};
    }
  }
  for (const internal::EntropySums& sums : entropy) {
    scores.entropy.push_back({.nats = sums.Nats(), .share = sums.Share()});
  }
  return scores;
}

}  // namespace

RankedEngine::RankedEngine(const Decoder& decoder, RankGroup& group)
    : decoder_(decoder), group_(group) {
  if (group.rank() != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "RankedEngine: expected rank 0; the others call ServeRankedEngine");
  }
}

RankedEngine::~RankedEngine() {
  if (broken_) return;
  try {
    group_.BroadcastBytes({}, 0);
  } catch (...) {  // NOLINT(bugprone-empty-catch): another has failed, which its thread says
  }
}

EngineFacts RankedEngine::Facts() const {
  EngineFacts facts = DecoderEngine(decoder_).Facts();
  facts.name = "ropewalk decoder over " + std::to_string(group_.size()) + " ranks";
  facts.threads *= group_.size();
  facts.lanes = 1;
  return facts;
}

void RankedEngine::CheckKv(KvType kv) const { DecoderEngine(decoder_).CheckKv(kv); }

int64_t RankedEngine::MemoryBytes(const PositionPlan& plan, int64_t length) const {
  return MemoryBytesWith(KvType::kF32, plan, length);
}

int64_t RankedEngine::MemoryBytesWith(KvType kv, const PositionPlan& /*plan*/,
                                      int64_t length) const {
  const int64_t scratch = int64_t{128} << 20;  // of a chunk, and pages of the file
  return decoder_.weight_bytes() + scratch +
         RankedSequence::BytesFor(decoder_.config(), group_.size(), length, kv);
}

Scores RankedEngine::DoScore(const EngineCall& call, std::span<const ScoreRequest> requests) const {
  RankedCall sent{.plan = *call.plan,
                  .plan_hash = Resolve(*call.plan, call.final_length).hash,
                  .final_length = call.final_length,
                  .angles = call.angles,
                  .kv = call.kv,
                  .requests = {}};
  for (const ScoreRequest& request : requests) {
    if (request.continue_tokens > 0) DoGenerate(call, {});
    sent.requests.push_back(RequestOf(request));
  }
  broken_ = true;
  group_.BroadcastBytes(internal::Pack(sent), 0);
  const auto answers = Computer(decoder_, group_, call.tick).Compute(sent);
  const auto parts = group_.GatherBytes(internal::Pack(answers));
  broken_ = false;
  return Merge(sent, parts);
}

std::vector<Continuation> RankedEngine::DoGenerate(const EngineCall& /*call*/,
                                                   std::span<const GenerateRequest>) const {
  throw Error(ErrorCode::kUnsupported,
              "text is not generated over ranks, which keep no keys of a sequence behind its last "
              "token; score answers (without --generate), or run on one rank");
}

void ServeRankedEngine(const Decoder& decoder, RankGroup& group) {
  for (;;) {
    std::vector<std::byte> bytes = group.BroadcastBytes({}, 0);
    if (bytes.empty()) return;
    const auto call = internal::Unpack<RankedCall>(std::move(bytes));
    if (Resolve(call.plan, call.final_length).hash != call.plan_hash) {
      throw Error(ErrorCode::kMismatch,
                  "ranks: the plan of positions that came is not the one that was sent");
    }
    const auto answers = Computer(decoder, group, {}).Compute(call);
    group.GatherBytes(internal::Pack(answers));
  }
}

}  // namespace ropewalk
