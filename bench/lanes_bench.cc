// Sequences side by side: what lanes gain on a model that is too small for its cores.
//
//   lanes_bench MODEL [--length 1024] [--windows 8] [--rounds 7] [--threads 1,2]
//
// One round times, for each number of threads in turn, one call of the engine with all windows (as
// many lanes as the engine takes), a call for each (one lane, which has all threads), the decoder
// alone with all threads in every product, and a passkey cell of 25 questions behind 3 prompts.
// Prints a JSON line per number of threads: medians in seconds. Run it on a machine that is quiet.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ropewalk/base/threads.h"
#include "ropewalk/eval/decoder_engine.h"
#include "ropewalk/eval/eval.h"
#include "ropewalk/eval/tasks.h"

namespace {

using namespace ropewalk;

double Median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

template <class Work>
double Seconds(Work&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Times {
  std::vector<double> lanes, one_lane, decoder, passkey;
};

class Bench {
 public:
  Bench(const std::string& path, int64_t length, int64_t windows)
      : files_(OpenModel(path)), decoder_(Decoder::Load(files_)), engine_(*decoder_) {
    std::mt19937 random(1);
    for (int64_t i = 0; i < windows; ++i) {
      std::vector<int32_t>& ids = ids_.emplace_back(length);
      for (int32_t& id : ids) id = static_cast<int32_t>(random() % decoder_->config().vocab);
    }
    for (const auto& ids : ids_) requests_.push_back({.ids = ids, .positions = {length - 1}});
    call_ = {.plan = &decoder_->config().plan, .final_length = length};
  }
  void Measure(Times& times) const {
    times.lanes.push_back(Seconds([&] { engine_.Score(call_, requests_); }));
    times.one_lane.push_back(Seconds([&] {
      for (const ScoreRequest& r : requests_) engine_.Score(call_, std::span(&r, 1));
    }));
    times.decoder.push_back(Seconds([&] {
      std::vector<float> state(static_cast<std::size_t>(decoder_->config().hidden));
      for (const auto& ids : ids_) {
        Sequence sequence(*decoder_, *call_.plan, call_.final_length, AnglePrecision::kExact);
        decoder_->Forward(sequence, std::span(ids).first(ids.size() - 1), state.data(), 1);
      }
    }));
    if (files_.tokenizer == nullptr) return;
    const auto passkey = MakePasskeyTask({}, *files_.tokenizer);
    const std::vector<TaskPrompt> prompts = passkey->Prompts(call_.final_length, 25);
    times.passkey.push_back(Seconds(
        [&] { MeasureTask(engine_, *call_.plan, *passkey, prompts, call_.final_length, {}, {}); }));
  }
  void Print(int threads, const Times& times) const {
    SetNumThreads(threads);
    std::printf(
        "{\"bench\": \"lanes\", \"threads\": %d, \"lanes\": %d, \"length\": %lld, "
        "\"windows\": %zu, \"rounds\": %zu, \"windows_s\": %.4f, \"windows_one_lane_s\": %.4f, "
        "\"windows_decoder_s\": %.4f, \"passkey_s\": %.4f}\n",
        threads, engine_.Lanes(*call_.plan, call_.final_length),
        static_cast<long long>(call_.final_length), ids_.size(), times.lanes.size(),
        Median(times.lanes), Median(times.one_lane), Median(times.decoder),
        times.passkey.empty() ? 0.0 : Median(times.passkey));
  }

 private:
  ModelFiles files_;
  std::unique_ptr<Decoder> decoder_;
  DecoderEngine engine_;
  std::vector<std::vector<int32_t>> ids_;
  std::vector<ScoreRequest> requests_;
  EngineCall call_;
};

}  // namespace

int main(int argc, char** argv) {
  int64_t length = 1024, windows = 8, rounds = 7;
  std::vector<int> threads = {1, 2};
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--length") length = std::atoll(argv[i + 1]);
    if (option == "--windows") windows = std::atoll(argv[i + 1]);
    if (option == "--rounds") rounds = std::atoll(argv[i + 1]);
    if (option != "--threads") continue;
    threads.clear();
    for (const char* p = argv[i + 1]; *p != 0; p += *p == ',' ? 1 : 0) {
      threads.push_back(static_cast<int>(std::strtol(p, const_cast<char**>(&p), 10)));
      if (threads.back() < 1) break;
    }
  }
  if (argc < 2 || length < 64 || windows < 1 || rounds < 1 || threads.empty() ||
      *std::min_element(threads.begin(), threads.end()) < 1) {
    std::fprintf(stderr,
                 "usage: %s MODEL [--length 64..] [--windows N] [--rounds N] [--threads N,N]\n",
                 argv[0]);
    return 2;
  }
  try {
    const Bench bench(argv[1], length, windows);
    std::map<int, Times> times;
    for (int64_t r = 0; r <= rounds; ++r) {
      for (const int t : threads) {
        SetNumThreads(t);
        bench.Measure(times[t]);
        if (r == 0) times[t] = {};  // warm now
      }
    }
    for (const auto& [t, of] : times) bench.Print(t, of);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "lanes_bench: %s\n", e.what());
    return 1;
  }
}
