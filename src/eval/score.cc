#include "src/eval/score.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ropewalk/base/buffer.h"
#include "ropewalk/base/error.h"
#include "src/base/parallel.h"

namespace ropewalk::internal {
namespace {

// 32 MiB of logits: 170 rows of a 49152-token vocabulary, enough for the GEMM to run at full rate.
constexpr int64_t kLogitsChunk = int64_t{8} << 20;

Score ScoreRow(const float* logits, int64_t vocab, int64_t position, int32_t id) {
  const float* best = std::max_element(logits, logits + vocab);
  const float top = *best;
  double sum = 0;
  for (int64_t v = 0; v < vocab; ++v) sum += std::exp(logits[v] - top);
  const double nll = std::log(sum) + (static_cast<double>(top) - logits[id]);
  return {position, id, static_cast<float>(nll), best == logits + id};
}

}  // namespace

void ScoreTokens(const Decoder& decoder, Sequence& sequence, std::span<const int32_t> ids,
                 int64_t score_begin, const std::function<void(const Score&)>& sink,
                 const std::function<void(int64_t)>& tick) {
  const int64_t hidden_size = decoder.config().hidden;
  const int64_t vocab = decoder.config().vocab;
  const int64_t fed = static_cast<int64_t>(ids.size()) - 1;
  const int64_t rows_at_once = std::clamp<int64_t>(kLogitsChunk / vocab, 1, Decoder::kChunkTokens);
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab) {
      throw Error(ErrorCode::kInvalidArgument,
                  "token id " + std::to_string(id) + " is outside the model's vocabulary of " +
                      std::to_string(vocab) + ": text and model do not belong together");
    }
  }
  const int64_t most_rows = std::min<int64_t>(fed - (score_begin - 1), Decoder::kChunkTokens);
  AlignedBuffer<float> hidden(static_cast<size_t>(most_rows * hidden_size));
  AlignedBuffer<float> logits(
      static_cast<size_t>(std::min(rows_at_once, most_rows) * vocab));  // [rows, vocab]
  std::vector<Score> scores(static_cast<size_t>(rows_at_once));
  for (int64_t begin = 0; begin < fed; begin += Decoder::kChunkTokens) {
    const int64_t end = std::min(fed, begin + Decoder::kChunkTokens);
    const int64_t first = std::max(begin, score_begin - 1);  // its state predicts first + 1
    const int64_t rows = std::max<int64_t>(0, end - first);
    decoder.Forward(sequence, ids.subspan(begin, end - begin), rows > 0 ? hidden.data() : nullptr,
                    rows);
    for (int64_t row = 0; row < rows; row += rows_at_once) {
      const int64_t n = std::min(rows_at_once, rows - row);
      decoder.Logits(hidden.data() + row * hidden_size, n, logits.data());
      const int threads = ThreadsFor(n * vocab * 2);  // 2 ns an exponential
#pragma omp parallel for schedule(static) num_threads(threads)
      for (int64_t i = 0; i < n; ++i) {
        const int64_t position = first + row + i + 1;
        scores[i] = ScoreRow(logits.data() + i * vocab, vocab, position, ids[position]);
      }
      for (int64_t i = 0; i < n; ++i) {
        if (!std::isfinite(scores[i].nll)) {
          throw Error(ErrorCode::kInvalidFile,
                      "the model's loss at position " + std::to_string(scores[i].position) +
                          " is not a finite number: its weights or its scaling overflow");
        }
        sink(scores[i]);
      }
    }
    if (tick) tick(end - begin);
  }
}

}  // namespace ropewalk::internal
