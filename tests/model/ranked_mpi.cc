// Run by mpirun: logits of a model over ranks of MPI against those of one of them alone, and the same
// bits twice.   mpirun -n N ranked_mpi MODEL TOKENS
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "ropewalk/base/error.h"
#include "ropewalk/model/ranked.h"
#include "ropewalk/plan/method.h"

namespace {

using namespace ropewalk;  // NOLINT(google-build-using-namespace)

std::vector<int32_t> Ids(int64_t tokens, int64_t vocab) {
  std::vector<int32_t> ids;
  uint64_t state = 7;
  for (int64_t t = 0; t < tokens; ++t) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    ids.push_back(static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(vocab)));
  }
  return ids;
}

// [ids, vocab] of all ranks, on every rank.
std::vector<float> Together(RankGroup& group, const Decoder& decoder, const PositionPlan& plan,
                            const std::vector<int32_t>& ids) {
  const int64_t vocab = decoder.config().vocab, n = static_cast<int64_t>(ids.size());
  std::vector<float> own(static_cast<size_t>(n * vocab)), sum(own.size());
  RankedSequence sequence(decoder, plan, n, AnglePrecision::kExact, KvType::kF32, group);
  sequence.Forward(ids, 0, {.states = [&](int64_t first, float* states, int64_t rows) {
                     decoder.Logits(states, rows, own.data() + first * vocab);
                   }});
  for (const auto& part : group.GatherBytes(std::as_bytes(std::span(own)))) {
    const auto* logits = reinterpret_cast<const float*>(part.data());
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += logits[i];  // one of them is not 0
  }
  return sum;
}

std::vector<float> Alone(const Decoder& decoder, const PositionPlan& plan,
                         const std::vector<int32_t>& ids) {
  const int64_t n = static_cast<int64_t>(ids.size());
  Sequence sequence(decoder, plan, n, AnglePrecision::kExact);
  std::vector<float> states(static_cast<size_t>(n * decoder.config().hidden));
  std::vector<float> logits(static_cast<size_t>(n * decoder.config().vocab));
  decoder.Forward(sequence, ids, states.data(), n);
  decoder.Logits(states.data(), n, logits.data());
  return logits;
}

int Run(RankGroup& group, const char* model, int64_t tokens) {
  const ModelFiles files = OpenModel(model);
  const auto decoder = Decoder::Load(files);
  const std::vector<int32_t> ids = Ids(tokens, decoder->config().vocab);
  int wrong = 0;
  for (const char* method : {"none", "yarn", "rerope", "sinks"}) {
    const PositionPlan plan = PositionMethod::Parse(method).Apply(files.config.plan, 4);
    const std::vector<float> logits = Together(group, *decoder, plan, ids);
    const bool same = Together(group, *decoder, plan, ids) == logits;
    if (group.rank() != 0) continue;
    const std::vector<float> alone = Alone(*decoder, plan, ids);
    double difference = 0, largest = 0;
    for (size_t i = 0; i < alone.size(); ++i) {
      difference = std::max(difference, std::abs(double{logits[i]} - double{alone[i]}));
      largest = std::max(largest, std::abs(double{alone[i]}));
    }
    const bool right = difference <= 2e-6 * largest && same;
    std::printf("%s over %s: %.2g of the largest logit, %s from run to run: %s\n", method,
                group.Describe().c_str(), difference / largest,
                same ? "the same bits" : "other bits", right ? "right" : "WRONG");
    wrong += right ? 0 : 1;
  }
  return wrong;
}

}  // namespace

int main(int argc, char** argv) {
  const auto group = ropewalk::MpiRanks();
  int code = 2;
  try {
    if (argc == 3) code = Run(*group, argv[1], std::atoll(argv[2]));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "rank %d: %s\n", group->rank(), e.what());
  }
  std::fflush(stdout);
  if (code != 0) group->Fail(code);
  return code;
}
