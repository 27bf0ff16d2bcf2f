// How a call is divided among threads: counted, since no test can time 16 cores.
#include "src/attention/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <queue>
#include <vector>

namespace ropewalk::internal {
namespace schedule_test {

// Share of `threads` that work, on average, while a causal chunk of `tokens` after keys - tokens
// earlier ones runs: each job takes as long as it scores pairs, and goes to whoever is free first.
double Busy(int64_t tokens, int64_t group, int64_t kv_heads, int64_t keys, int64_t threads) {
  const Schedule s = PlanSchedule(tokens, group, kv_heads, keys, threads, /*one_span=*/false);
  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> free_at;
  for (int64_t i = 0; i < threads; ++i) free_at.push(0);
  int64_t all = 0, end = 0;
  for (int64_t job = 0; job < s.jobs; ++job) {
    const auto [tile, kv_head, span] = s.At(job);
    int64_t pairs = 0;
    for (int64_t t = tile * s.tile_tokens; t < std::min(tokens, (tile + 1) * s.tile_tokens); ++t) {
      const int64_t seen = keys - tokens + t + 1;
      pairs += group * std::clamp<int64_t>(seen - span * s.span_keys, 0, s.span_keys);
    }
    const int64_t begin = free_at.top();
    free_at.pop();
    free_at.push(begin + pairs);
    all += pairs;
    end = std::max(end, begin + pairs);
  }
  return static_cast<double>(all) / static_cast<double>(end * threads);
}

struct Model {
  const char* name;
  int64_t heads, kv_heads;
};
constexpr Model kModels[] = {{"Gemma 3 270M", 4, 1},   {"Gemma 1 2B", 8, 1},
                             {"SmolLM2 135M", 9, 3},   {"Qwen 2.5 0.5B", 14, 2},
                             {"Qwen 2.5 7B", 28, 4},   {"Llama 3.2 1B", 32, 8},
                             {"Llama 3.1 70B", 64, 8}, {"Phi-3 mini", 32, 32},
                             {"Falcon 7B", 71, 1},     {"DeepSeek V3", 128, 128}};

TEST(Schedule, SixteenThreadsHaveWorkInChunksOf512) {
  for (const Model& m : kModels) {
    for (const int64_t keys : {512, 1024, 4096, 16384, 131072}) {
      for (const int64_t threads : {1, 2, 4, 8, 16}) {
        EXPECT_GE(Busy(512, m.heads / m.kv_heads, m.kv_heads, keys, threads), 0.85)
            << m.name << ", " << keys << " keys, " << threads << " threads";
      }
    }
  }
}

// One token against a long cache: the keys are divided, into 32 jobs or a few more, so that three
// key heads (33 jobs) leave a third of the threads idle in the last round.
TEST(Schedule, SixteenThreadsHaveWorkInDecoding) {
  for (const Model& m : kModels) {
    for (const int64_t keys : {16384, 131072}) {
      EXPECT_GE(Busy(1, m.heads / m.kv_heads, m.kv_heads, keys, 16), 0.7)
          << m.name << ", " << keys << " keys";
    }
  }
}

TEST(Schedule, EveryKeyAndQueryIsInOneJob) {
  for (const Model& m : kModels) {
    for (const int64_t tokens : {1, 2, 63, 64, 65, 512}) {
      for (const int64_t keys : {512, 513, 4095, 131071, 1048575}) {
        for (const bool one_span : {false, true}) {
          const Schedule s =
              PlanSchedule(tokens, m.heads / m.kv_heads, m.kv_heads, keys, 16, one_span);
          EXPECT_EQ(s.jobs, s.tiles * s.spans * m.kv_heads);
          EXPECT_TRUE(s.tiles * s.tile_tokens >= tokens && (s.tiles - 1) * s.tile_tokens < tokens);
          EXPECT_TRUE(s.spans * s.span_keys >= keys && (s.spans - 1) * s.span_keys < keys);
          EXPECT_TRUE(!one_span || s.spans == 1);
        }
      }
    }
  }
}

// Bits may not depend on threads: where keys are divided does not.
TEST(Schedule, SpansDoNotDependOnThreads) {
  for (const Model& m : kModels) {
    for (const int64_t tokens : {1, 8, 512}) {
      const auto spans = [&](int64_t threads) {
        const Schedule s =
            PlanSchedule(tokens, m.heads / m.kv_heads, m.kv_heads, 131071, threads, false);
        return std::pair(s.spans, s.span_keys);
      };
      for (const int64_t threads : {2, 5, 16, 64}) EXPECT_EQ(spans(1), spans(threads)) << m.name;
    }
  }
}

}  // namespace schedule_test
}  // namespace ropewalk::internal
