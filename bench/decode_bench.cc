// Decoding of single tokens with the weights in their file, as decode_peers.py drives it:
//
//   decode_bench MODEL [--tokens 16] [--threads 2]
//
// For each line of standard input decodes that many tokens behind 16 others, each with its logits,
// and prints {"seconds", "cpu_seconds"} of them as one JSON line.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "ropewalk/base/error.h"
#include "ropewalk/base/threads.h"
#include "ropewalk/model/model.h"

namespace {

constexpr int64_t kBehind = 16;

void Decode(const ropewalk::Decoder& decoder, int64_t tokens) {
  const ropewalk::ModelConfig& c = decoder.config();
  ropewalk::Sequence sequence(decoder, c.plan, kBehind + tokens, ropewalk::AnglePrecision::kExact);
  std::vector<float> hidden(static_cast<size_t>(c.hidden)), logits(static_cast<size_t>(c.vocab));
  const std::vector<int32_t> first(kBehind, 7);
  decoder.Forward(sequence, first, hidden.data(), 1);
  const auto start = std::chrono::steady_clock::now();
  const std::clock_t cpu = std::clock();
  for (int64_t i = 0; i < tokens; ++i) {
    const std::vector<int32_t> id = {static_cast<int32_t>(300 + i)};
    decoder.Forward(sequence, id, hidden.data(), 1);
    decoder.Logits(hidden.data(), 1, logits.data());
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const double cpu_seconds = static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC;
  for (const float x : logits) {
    if (std::isfinite(x)) continue;
    throw ropewalk::Error(ropewalk::ErrorCode::kMismatch, "logits: not finite");
  }
  std::printf("{\"seconds\": %.5f, \"cpu_seconds\": %.5f}\n", seconds.count(), cpu_seconds);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  int64_t tokens = 16;
  int threads = 2;
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--tokens") tokens = std::atoll(argv[i + 1]);
    if (option == "--threads") threads = std::atoi(argv[i + 1]);
  }
  if (argc < 2 || tokens < 1 || threads < 1) {
    std::fprintf(stderr, "usage: %s MODEL [--tokens N] [--threads N]\n", argv[0]);
    return 2;
  }
  try {
    ropewalk::SetNumThreads(threads);
    const ropewalk::ModelFiles files = ropewalk::OpenModel(argv[1]);
    const auto decoder =
        ropewalk::Decoder::Load(files, {.weights = ropewalk::WeightStorage::kPacked});
    for (std::string line; std::getline(std::cin, line);) Decode(*decoder, tokens);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "decode_bench: %s\n", e.what());
    return 1;
  }
}
