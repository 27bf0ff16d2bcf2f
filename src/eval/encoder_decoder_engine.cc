#include "ropewalk/eval/encoder_decoder_engine.h"

#include <string>

#include "ropewalk/base/error.h"
#include "ropewalk/base/threads.h"
#include "src/base/parallel.h"
#include "src/eval/asker.h"
#include "src/eval/deal.h"
#include "src/eval/lanes.h"

namespace ropewalk {
namespace {

// A request as the decoder sees it: its start token in the place of the prefix.
struct Behind {
  std::vector<int32_t> source, ids;
  ScoreRequest request;
};

Behind BehindPrefix(const ScoreRequest& asked, int64_t prefix, int32_t start) {
  std::vector<int32_t> all(asked.prefix.begin(), asked.prefix.end());
  all.insert(all.end(), asked.ids.begin(), asked.ids.end());
  const auto tokens = static_cast<int64_t>(all.size());
  const int64_t first = asked.positions.empty() ? prefix : asked.positions.front();
  if (tokens < prefix || first < prefix) {
    throw Error(ErrorCode::kInvalidArgument,
                "the encoder reads the first " + std::to_string(prefix) +
                    " tokens of a sequence, and the decoder scores those behind: " +
                    (tokens < prefix ? "the sequence has " + std::to_string(tokens)
                                     : "position " + std::to_string(first) + " was asked for"));
  }
  Behind out;
  out.source.assign(all.begin(), all.begin() + prefix);
  out.ids.assign(all.begin() + prefix, all.end());
  out.ids.insert(out.ids.begin(), start);
  out.request = asked;
  out.request.prefix = {};
  out.request.ids = out.ids;  // the heap's memory, which moving this keeps
  for (int64_t& position : out.request.positions) position -= prefix - 1;
  for (int64_t& query : out.request.entropy_queries) query -= prefix - 1;
  return out;
}

}  // namespace

EncoderDecoderEngine::EncoderDecoderEngine(const EncoderDecoder& model, int64_t prefix)
    : model_(model), engine_(model.decoder()), prefix_(prefix) {
  if (prefix < 1) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "EncoderDecoderEngine: prefix: expected 1 token or more, got " + std::to_string(prefix));
  }
}

EngineFacts EncoderDecoderEngine::Facts() const {
  EngineFacts facts = engine_.Facts();
  facts.name = "ropewalk encoder-decoder";
  return facts;
}

int64_t EncoderDecoderEngine::MemoryBytes(const PositionPlan& plan, int64_t length) const {
  return 2 * engine_.MemoryBytes(plan, length);
}

Scores EncoderDecoderEngine::DoScore(const EngineCall& call,
                                     std::span<const ScoreRequest> requests) const {
  std::vector<Behind> behind;
  behind.reserve(requests.size());
  for (const ScoreRequest& request : requests) {
    behind.push_back(BehindPrefix(request, prefix_, model_.start_id()));
  }
  const std::vector<internal::RequestRun> runs = internal::DealRequests(
      requests, PrefixReuse::kSameBits, engine_.Lanes(*call.plan, call.final_length, call.kv));
  const int products = engine_.Facts().lanes > 1 ? 1 : NumThreads();
  std::vector<internal::Answer> answers(requests.size());
  std::vector<int64_t> fed(runs.size());
  const internal::TickFn tick = [&](int64_t tokens) {
    if (call.tick) call.tick(tokens);
  };
  const auto lane = [&](int index, const internal::TickFn& lane_tick) {
    const internal::ScopedProductThreads limit(products);
    internal::Asker asker(model_.decoder(), call, lane_tick);
    for (size_t i = runs[index].begin; i < runs[index].end; ++i) {
      model_.Read(behind[i].source, asker.EmptySequence());
      lane_tick(prefix_);
      answers[i] = asker.Ask(behind[i].request);
      fed[index] += prefix_;
    }
    fed[index] += asker.fed_tokens();
  };
  if (!runs.empty()) internal::RunLanes(static_cast<int>(runs.size()), tick, lane);
  return internal::ScoresOf(std::move(answers), fed, requests);
}

}  // namespace ropewalk
