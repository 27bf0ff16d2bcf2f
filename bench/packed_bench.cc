// Weights that stay in their file against the same weights converted once, for the matrix products
// of one layer of the shape of LLaMA: what chunks of many tokens lose, and how fast single tokens
// read.
//
//   packed_bench [--rounds 5] [--threads 2] [--hidden 2048] [--feed-forward 8192] [--type Q4_K]
//                [--json FILE] [--cpu 1]
//
// A round times both forms for every chunk in turn, so that both see the same machine. Single tokens
// go through as many layers as exceed every cache, beside a plain sum over as much memory: the
// ceiling. --cpu 1 takes the processor's time and not the clock's, for one thread on a machine that
// others use too. Results of the two forms are compared first. Prints a JSON line for each type and size.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ropewalk/base/buffer.h"
#include "ropewalk/base/dtype.h"
#include "ropewalk/base/error.h"
#include "ropewalk/base/threads.h"
#include "ropewalk/linear/linear.h"
#include "src/io/dequantize.h"

namespace {

using ropewalk::WeightType;

bool g_cpu_time = false;  // --cpu

double Now() {
  if (g_cpu_time) return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double Median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

struct Settings {
  int rounds = 5, threads = 2;
  int64_t hidden = 2048, feed_forward = 8192;
  std::FILE* out = stdout;
  std::string only = {};  // one type, by its name
};

// Of the widest product: q, k and v, or gate and up.
int64_t Widest(const Settings& s) { return std::max(3 * s.hidden, 2 * s.feed_forward); }

struct TypeCase {
  WeightType type;
  std::vector<int> halves;  // where a block has half-precision scales
  bool in_chunks = false;   // of many rows too, which takes longer
};
const std::vector<TypeCase> kTypes = {{WeightType::kQ4_K, {0, 2}, true},
                                      {WeightType::kQ6_K, {208}},
                                      {WeightType::kQ8_0, {0}, true},
                                      {WeightType::kQ4_0, {0}},
                                      {WeightType::kQ4_1, {0, 2}},
                                      {WeightType::kQ5_K, {0, 2}},
                                      {WeightType::kQ3_K, {108}},
                                      {WeightType::kIQ4_NL, {0}},
                                      {WeightType::kIQ4_XS, {0}},
                                      {WeightType::kMXFP4, {}},
                                      {WeightType::kQ2_K, {80, 82}},
                                      {WeightType::kIQ2_XXS, {0}, true},
                                      {WeightType::kIQ2_XS, {0}},
                                      {WeightType::kIQ2_S, {0}},
                                      {WeightType::kIQ3_XXS, {0}},
                                      {WeightType::kIQ3_S, {0}, true},
                                      {WeightType::kIQ1_S, {0}},
                                      {WeightType::kTQ1_0, {52}},
                                      {WeightType::kTQ2_0, {64}},
                                      {WeightType::kBF16, {}, true},
                                      {WeightType::kF16, {}}};

// Random blocks whose weights are about 1e-2.
std::shared_ptr<std::vector<std::byte>> RandomBlocks(const TypeCase& type, int64_t elements) {
  const ropewalk::WeightTypeInfo& info = ropewalk::Info(type.type);
  const int64_t bytes = elements / info.block_elements * info.block_bytes;
  auto data = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(bytes));
  std::mt19937_64 random(1);
  for (int64_t i = 0; i + 8 <= bytes; i += 8) {
    const uint64_t bits = random();
    std::memcpy(data->data() + i, &bits, sizeof(bits));
  }
  const bool plain = type.halves.empty();
  const uint16_t scale = ropewalk::ToFloat16(1e-4f).bits;
  for (int64_t at = 0; at < bytes; at += info.block_bytes) {
    for (const int half : type.halves) std::memcpy(data->data() + at + half, &scale, 2);
    if (type.type == WeightType::kMXFP4) {
      (*data)[static_cast<size_t>(at)] = std::byte{121};  // a power of two
      continue;
    }
    if (!plain) continue;  // 0.01 to 0.06 in either format
    auto& high = reinterpret_cast<uint8_t&>((*data)[static_cast<size_t>(at + 1)]);
    high = type.type == WeightType::kF16 ? (high & 0x87) | 0x20 : (high & 0x80) | 0x3c;
  }
  return data;
}

// The products of one layer: q, k and v; out; gate and up; down.
struct Layer {
  Layer(const Settings& s, const TypeCase& type) {
    const int64_t kv = s.hidden / 4;
    for (const auto& [out, in] :
         std::vector<std::pair<int64_t, int64_t>>{{s.hidden + 2 * kv, s.hidden},
                                                  {s.hidden, s.hidden},
                                                  {2 * s.feed_forward, s.hidden},
                                                  {s.hidden, s.feed_forward}}) {
      const auto data = RandomBlocks(type, out * in);
      bytes += static_cast<int64_t>(data->size());
      weights += out * in;
      packed.emplace_back(
          in, std::vector<ropewalk::FileRows>{{type.type, data->data(), out, {}, data, false}},
          nullptr);
      sources.push_back(data);
    }
  }
  void Unpack(WeightType type) {
    const ropewalk::WeightTypeInfo& info = ropewalk::Info(type);
    for (size_t i = 0; i < packed.size(); ++i) {
      const int64_t in = packed[i].in_features();
      const int64_t row_bytes = in / info.block_elements * info.block_bytes;
      unpacked.emplace_back(
          packed[i].out_features(), in,
          [&](int64_t first, int64_t rows, float* to) {
            ropewalk::internal::Dequantize(type, sources[i]->data() + first * row_bytes,
                                           rows * in / info.block_elements, to);
          },
          nullptr);
    }
  }
  static double Run(const std::vector<ropewalk::Linear>& products, const float* x, int64_t rows,
                    std::vector<float>& y) {
    const double start = Now();
    for (const ropewalk::Linear& p : products) {
      p.Apply(x, rows, p.in_features(), y.data(), p.out_features());
    }
    return Now() - start;
  }

  std::vector<std::shared_ptr<std::vector<std::byte>>> sources;
  std::vector<ropewalk::Linear> packed, unpacked;
  int64_t bytes = 0, weights = 0;
};

// Largest difference relative to the largest result.
double Difference(const std::vector<float>& a, const std::vector<float>& b, int64_t n) {
  double worst = 0, largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    worst = std::max(worst, std::abs(double{a[i]} - b[i]));
    largest = std::max(largest, std::abs(double{b[i]}));
  }
  return worst / largest;
}

void Chunks(const Settings& s, const TypeCase& type) {
  Layer layer(s, type);
  layer.Unpack(type.type);
  for (const int64_t rows : {512, 2048}) {
    std::vector<float> x(static_cast<size_t>(rows * std::max(s.hidden, s.feed_forward)));
    std::mt19937 random(2);
    for (float& v : x) v = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
    std::vector<float> y(static_cast<size_t>(rows * Widest(s))), other(y.size());
    Layer::Run(layer.packed, x.data(), rows, y);
    Layer::Run(layer.unpacked, x.data(), rows, other);
    const double difference = Difference(y, other, rows * s.hidden);
    if (!(difference < 1e-5)) {
      throw ropewalk::Error(ropewalk::ErrorCode::kMismatch, "packed differs from unpacked");
    }
    std::vector<double> packed, unpacked, ratio;
    for (int r = 0; r < s.rounds; ++r) {
      packed.push_back(Layer::Run(layer.packed, x.data(), rows, y));
      unpacked.push_back(Layer::Run(layer.unpacked, x.data(), rows, y));
      ratio.push_back(unpacked.back() / packed.back());
    }
    const double macs = static_cast<double>(rows * layer.weights) * 1e-9;
    std::fprintf(s.out,
                 "{\"bench\": \"packed\", \"type\": \"%s\", \"rows\": %lld, \"threads\": %d, "
                 "\"rounds\": %d, \"packed_gflops\": %.1f, \"unpacked_gflops\": %.1f, "
                 "\"packed_over_unpacked\": %.3f, \"difference\": %.1e}\n",
                 ropewalk::Info(type.type).name, static_cast<long long>(rows), s.threads, s.rounds,
                 2 * macs / Median(packed), 2 * macs / Median(unpacked), Median(ratio), difference);
    std::fflush(s.out);
  }
}

// Reads all of `data` once, with s.threads threads.
double StreamSeconds(const Settings& s, const std::vector<uint64_t>& data) {
  uint64_t sum = 0;
  const double start = Now();
  const auto n = static_cast<int64_t>(data.size());
#pragma omp parallel for num_threads(s.threads) schedule(static) reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += data[static_cast<size_t>(i)];
  const double seconds = Now() - start;
  if (sum == 1) std::printf(" ");  // so that the sum is needed
  return seconds;
}

void SingleTokens(const Settings& s, const TypeCase& type, const std::vector<uint64_t>& memory) {
  const auto stream_bytes = static_cast<int64_t>(memory.size() * sizeof(uint64_t));
  std::vector<Layer> layers;
  int64_t bytes = 0;
  while (bytes < stream_bytes) {
    layers.emplace_back(s, type);
    bytes += layers.back().bytes;
  }
  ropewalk::AlignedBuffer<float> x(static_cast<size_t>(std::max(s.hidden, s.feed_forward)), 0.5f);
  std::vector<float> y(static_cast<size_t>(Widest(s)));
  std::vector<double> rate, share;
  for (int r = 0; r < s.rounds + 1; ++r) {
    double seconds = 0;
    for (const Layer& layer : layers) seconds += Layer::Run(layer.packed, x.data(), 1, y);
    const double stream = static_cast<double>(stream_bytes) / StreamSeconds(s, memory) * 1e-9;
    if (r == 0) continue;  // memory that was never touched
    rate.push_back(static_cast<double>(bytes) / seconds * 1e-9);
    share.push_back(rate.back() / stream);
  }
  std::fprintf(s.out,
               "{\"bench\": \"packed\", \"type\": \"%s\", \"rows\": 1, \"threads\": %d, "
               "\"rounds\": %d, \"gb_per_s\": %.2f, \"share_of_stream\": %.3f}\n",
               ropewalk::Info(type.type).name, s.threads, s.rounds, Median(rate), Median(share));
  std::fflush(s.out);
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    const long long number = std::atoll(argv[i + 1]);
    if (option == "--rounds") s.rounds = static_cast<int>(number);
    if (option == "--threads") s.threads = static_cast<int>(number);
    if (option == "--hidden") s.hidden = number;
    if (option == "--feed-forward") s.feed_forward = number;
    if (option == "--type") s.only = argv[i + 1];
    if (option == "--cpu") g_cpu_time = number != 0;
    if (option == "--json") s.out = std::fopen(argv[i + 1], "a");
  }
  if (s.rounds < 1 || s.threads < 1 || s.hidden % 1024 != 0 || s.feed_forward % 256 != 0 ||
      s.out == nullptr) {
    std::fprintf(
        stderr,
        "usage: %s [--rounds N] [--threads N] [--hidden N] [--feed-forward N] "
        "[--type NAME] [--json FILE] [--cpu 1]\nhidden in 1024s, feed-forward in 256s: rows are "
        "whole blocks\n",
        argv[0]);
    return 2;
  }
  try {
    ropewalk::SetNumThreads(s.threads);
    const std::vector<uint64_t> memory(static_cast<size_t>(16) << 20, 1);  // 128 MiB
    const auto wanted = [&](const TypeCase& type) {
      return s.only.empty() || s.only == ropewalk::Info(type.type).name;
    };
    for (const TypeCase& type : kTypes) {
      if (wanted(type)) SingleTokens(s, type, memory);
    }
    for (const TypeCase& type : kTypes) {
      if (wanted(type) && type.in_chunks) Chunks(s, type);
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "packed_bench: %s\n", e.what());
    return 1;
  }
}
