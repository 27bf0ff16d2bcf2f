// Prefill of a whole model: tokens per second, and the share of this machine's GEMM rate.
//
//   prefill_bench MODEL [--tokens 512,2048] [--rounds 5] [--threads 2] [--compute float32|bf16]
//     [--weights both]
//
// One round times a plain oneDNN GEMM of the model's own shapes (the ceiling) and the prefill with
// the logits of every token, in turn, so that both see the same machine; in float32 and, where the
// CPU has instructions for it, in bf16. --weights both: with weights as they are in the file, too.
// Prints a JSON line per length, arithmetic and storage of weights.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ropewalk/base/threads.h"
#include "ropewalk/linear/linear.h"
#include "ropewalk/model/model.h"

namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double Median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

// Floating-point operations of a prefill of n tokens: every linear layer and the head, and the
// causal half of attention's two products.
double Flops(const ropewalk::ModelConfig& c, double n) {
  const double qkv = 2.0 * c.hidden * (c.heads + 2 * c.kv_heads) * c.head_dim;
  const double out = 2.0 * c.heads * c.head_dim * c.hidden;
  const double mlp = 6.0 * c.hidden * c.feed_forward;
  const double attention = 4.0 * c.heads * c.head_dim * (n + 1) / 2;
  return n * (c.layers * (qkv + out + mlp + attention) + 2.0 * c.hidden * c.vocab);
}

// Best case for the linear layers: the feed-forward shape over 512 rows, weights packed.
class Ceiling {
 public:
  Ceiling(const ropewalk::ModelConfig& c, ropewalk::ComputeType compute)
      : in_(c.hidden), out_(c.feed_forward), x_(kRows * in_, 0.5f), y_(kRows * out_) {
    linear_ = ropewalk::Linear(
        out_, in_, [this](int64_t, int64_t rows, float* w) { std::fill(w, w + rows * in_, 0.25f); },
        nullptr, compute);
  }
  double GflopsPerSecond() {
    const int repeats = 30;
    linear_.Apply(x_.data(), kRows, in_, y_.data(), out_);
    const auto start = Clock::now();
    for (int i = 0; i < repeats; ++i) linear_.Apply(x_.data(), kRows, in_, y_.data(), out_);
    return repeats * 2.0 * kRows * in_ * out_ / Seconds(start) * 1e-9;
  }

 private:
  static constexpr int64_t kRows = 512;
  int64_t in_, out_;
  std::vector<float> x_, y_;
  ropewalk::Linear linear_;
};

double PrefillSeconds(const ropewalk::Decoder& decoder, const std::vector<int32_t>& ids,
                      std::vector<float>& logits) {
  const auto& c = decoder.config();
  const int64_t n = static_cast<int64_t>(ids.size());
  ropewalk::Sequence sequence(decoder, c.plan, n, ropewalk::AnglePrecision::kExact);
  std::vector<float> hidden(n * c.hidden);
  const auto start = Clock::now();
  decoder.Forward(sequence, ids, hidden.data(), n);
  const int64_t chunk = static_cast<int64_t>(logits.size()) / c.vocab;
  for (int64_t row = 0; row < n; row += chunk) {
    decoder.Logits(hidden.data() + row * c.hidden, std::min(chunk, n - row), logits.data());
  }
  return Seconds(start);
}

// One arithmetic and storage of weights: its model, its ceiling, what was measured.
struct Lane {
  Lane(const ropewalk::ModelFiles& files, ropewalk::ComputeType compute,
       ropewalk::WeightStorage weights)
      : compute(compute),
        weights(weights),
        decoder(ropewalk::Decoder::Load(files, {.compute = compute, .weights = weights})),
        ceiling(decoder->config(), compute) {}
  void Measure(const std::vector<int32_t>& ids, std::vector<float>& logits) {
    gemm.push_back(ceiling.GflopsPerSecond());
    seconds.push_back(PrefillSeconds(*decoder, ids, logits));
  }
  bool packed() const { return weights == ropewalk::WeightStorage::kPacked; }
  // `other`: of packed weights, the unpacked ones in the same arithmetic; else the first.
  void Print(int64_t n, int threads, const Lane& other) const {
    const std::string ratio =
        packed() ? "over_unpacked" : "times_" + std::string(Name(other.compute));
    std::vector<double> share, speedup;
    const double flops = Flops(decoder->config(), static_cast<double>(n)) * 1e-9;
    for (std::size_t r = 0; r < seconds.size(); ++r) {
      share.push_back(flops / seconds[r] / gemm[r]);
      speedup.push_back(other.seconds[r] / seconds[r]);
    }
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    std::printf(
        "{\"bench\": \"prefill\", \"compute\": \"%s\", \"weights\": \"%s\", \"tokens\": %lld, "
        "\"threads\": %d, "
        "\"rounds\": %zu, \"tokens_per_s\": %.1f, \"gflops_per_s\": %.1f, "
        "\"gemm_gflops_per_s\": %.1f, \"share_of_gemm\": %.3f, \"%s\": %.3f, "
        "\"weights_mib\": %.0f, \"peak_mib\": %.0f}\n",
        Name(compute), packed() ? "packed" : "unpacked", static_cast<long long>(n), threads,
        seconds.size(), static_cast<double>(n) / Median(seconds), flops / Median(seconds),
        Median(gemm), Median(share), ratio.c_str(), Median(speedup),
        static_cast<double>(decoder->weight_bytes()) / (1 << 20),
        static_cast<double>(usage.ru_maxrss) / 1024);
    std::fflush(stdout);
  }

  ropewalk::ComputeType compute;
  ropewalk::WeightStorage weights;
  std::unique_ptr<ropewalk::Decoder> decoder;
  Ceiling ceiling;
  std::vector<double> seconds, gemm;
};

std::vector<ropewalk::ComputeType> ComputeTypes(const std::string& given) {
  using ropewalk::ComputeType;
  if (given == Name(ComputeType::kFloat32)) return {ComputeType::kFloat32};
  if (given == Name(ComputeType::kBFloat16)) return {ComputeType::kBFloat16};
  const bool native = ropewalk::FindBf16Unit() >= ropewalk::Bf16Unit::kAvx512;
  if (!native) return {ComputeType::kFloat32};
  return {ComputeType::kFloat32, ComputeType::kBFloat16};
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<int64_t> lengths = {512, 2048};
  int rounds = 5, threads = 2;
  std::string compute, weights;
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--rounds") {
      rounds = std::atoi(argv[i + 1]);
    } else if (option == "--threads") {
      threads = std::atoi(argv[i + 1]);
    } else if (option == "--compute") {
      compute = argv[i + 1];
    } else if (option == "--weights") {
      weights = argv[i + 1];
    } else if (option == "--tokens") {
      lengths.clear();
      for (const char* p = argv[i + 1]; p != nullptr && *p != 0;) {
        lengths.push_back(std::strtoll(p, const_cast<char**>(&p), 10));
        if (*p == ',') ++p;
      }
    }
  }
  const bool known = weights.empty() || weights == "both";
  if (argc < 2 || rounds < 1 || lengths.empty() || !known) {
    std::fprintf(stderr,
                 "usage: %s MODEL [--tokens N,N] [--rounds N] [--threads N] "
                 "[--compute float32|bf16] [--weights both]\nwithout --compute both, where the CPU "
                 "has bf16\n",
                 argv[0]);
    return 2;
  }
  try {
    ropewalk::SetNumThreads(threads);
    const ropewalk::ModelFiles files = ropewalk::OpenModel(argv[1]);
    std::vector<Lane> lanes;
    for (const auto type : ComputeTypes(compute)) {
      lanes.emplace_back(files, type, ropewalk::WeightStorage::kUnpacked);
      if (weights == "both") lanes.emplace_back(files, type, ropewalk::WeightStorage::kPacked);
    }
    const int64_t vocab = lanes.front().decoder->config().vocab;
    std::vector<float> logits(512 * vocab);
    std::mt19937 random(1);
    for (const int64_t n : lengths) {
      std::vector<int32_t> ids(n);
      for (auto& id : ids) id = static_cast<int32_t>(random() % vocab);
      for (Lane& lane : lanes) {
        lane.seconds.clear();
        lane.gemm.clear();
        PrefillSeconds(*lane.decoder, ids, logits);  // warm up, and check before timing
        for (const float x : logits) {
          if (!std::isfinite(x))
            throw ropewalk::Error(ropewalk::ErrorCode::kMismatch, "logits: not finite");
        }
      }
      for (int r = 0; r < rounds; ++r) {
        for (Lane& lane : lanes) lane.Measure(ids, logits);
      }
      for (std::size_t i = 0; i < lanes.size(); ++i) {
        lanes[i].Print(n, threads, lanes[i].packed() ? lanes[i - 1] : lanes.front());
      }
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "prefill_bench: %s\n", e.what());
    return 1;
  }
}
