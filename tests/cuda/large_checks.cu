// Tensors whose elements, bytes or rows 32 bits cannot count. They are made and checked on the GPU,
// each pair against cos and sin of its angle in double.
#include <cuda_runtime.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ropewalk/base/cuda.h"
#include "ropewalk/rotary/rotate.h"
#include "tests/cuda/check.h"
#include "tests/cuda/device_reference.h"

namespace ropewalk::gpu {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

int64_t Bytes(const Shape& s) { return 2 * NumElements(s); }
TensorView View(const Shape& s, const internal::DeviceBuffer& data) {
  return ViewOf(s, data.data(), DType::kBF16);
}

// What one call needs besides its tensors.
class Turning {
 public:
  Turning(int64_t pairs, int64_t positions) {
    RotarySpec spec(PairLayout::kHalf);
    spec.head_dim = spec.rotary_dim = 2 * pairs;
    spec.base = 500000;
    const Frequencies f = Resolve(spec, positions);
    table_ = CosSinTable(f, 0, positions, AnglePrecision::kExact, Device::kCuda);
    std::vector<double> inv_freq;
    for (const DoubleDouble& x : f.inv_freq) inv_freq.push_back(x.hi);
    inv_freq_ = memory_.Copy(inv_freq);
  }
  RotateArgs Args(bool interleaved) const {
    return {.table = &table_,
            .layout = interleaved ? PairLayout::kInterleaved : PairLayout::kHalf,
            .positions = Positions::From(0),
            .q = {}};
  }
  void ExpectRight(const Shape& s, const internal::DeviceBuffer& data, bool interleaved) const {
    ExpectTensor<BFloat16>(s, data.data(), {.inv_freq = inv_freq_, .interleaved = interleaved},
                           "result");
  }

 private:
  CosSinTable table_;
  Memory memory_;
  double* inv_freq_ = nullptr;
};

void NeedMemory(const Options& options, double bytes) {
  if (options.quick) throw Skipped("not in a quick run");
  std::size_t free = 0, all = 0;
  internal::CheckCuda(cudaMemGetInfo(&free, &all), "cudaMemGetInfo");
  if (static_cast<double>(free) > bytes + 2 * kGiB) return;
  throw Skipped("takes " + std::to_string(static_cast<int>(bytes / kGiB)) + " GiB");
}

std::string InPlace(const Options& options) {
  const int64_t tokens = 600000;
  const Shape q = ContiguousShape(1, tokens, 32, 64), k = ContiguousShape(1, tokens, 8, 64);
  NeedMemory(options, static_cast<double>(Bytes(q) + Bytes(k)));
  Turning turning(64, tokens);
  const internal::DeviceBuffer q_data(Bytes(q)), k_data(Bytes(k));
  FillTensor<BFloat16>(q, q_data.data());
  FillTensor<BFloat16>(k, k_data.data());
  RotateArgs args = turning.Args(false);
  args.q = View(q, q_data);
  args.k = View(k, k_data);
  Rotate(args);
  CudaSynchronize();
  turning.ExpectRight(q, q_data, false);
  turning.ExpectRight(k, k_data, false);
  return std::to_string(static_cast<double>(Bytes(q)) / kGiB) + " GiB of q, 32 heads of 128";
}

std::string OutOfPlace(const Options& options) {
  const Shape q = ContiguousShape(2, 150000, 32, 128);
  NeedMemory(options, 2 * static_cast<double>(Bytes(q)));
  Turning turning(128, 150000);
  const internal::DeviceBuffer in(Bytes(q)), out(Bytes(q));
  FillTensor<BFloat16>(q, in.data());
  internal::CheckCuda(cudaMemset(out.data(), 255, static_cast<std::size_t>(Bytes(q))), "poison");
  RotateArgs args = turning.Args(true);
  args.q = View(q, in);
  args.q_out = View(q, out);
  Rotate(args);
  CudaSynchronize();
  turning.ExpectRight(q, out, true);
  return std::to_string(static_cast<double>(Bytes(q)) / kGiB) + " GiB, interleaved, 256 a head";
}

std::string FarStrides(const Options& options) {
  Shape q = ContiguousShape(1, 3, 4, 64);
  q.strides[1] = (int64_t{1} << 31) + 64;
  NeedMemory(options, static_cast<double>(Bytes(q)));
  Turning turning(64, 3);
  const internal::DeviceBuffer data(Bytes(q));
  FillTensor<BFloat16>(q, data.data());
  RotateArgs args = turning.Args(false);
  args.q = View(q, data);
  Rotate(args);
  CudaSynchronize();
  turning.ExpectRight(q, data, false);
  return "tokens 2^31 + 64 elements apart";
}

std::string ManyRows(const Options& options) {
  const Shape q = ContiguousShape((1 << 15) + 1, 1 << 16, 1, 4);
  NeedMemory(options, static_cast<double>(Bytes(q)));
  Turning turning(4, 1 << 16);
  const internal::DeviceBuffer data(Bytes(q));
  FillTensor<BFloat16>(q, data.data());
  RotateArgs args = turning.Args(true);
  args.q = View(q, data);
  Rotate(args);
  CudaSynchronize();
  turning.ExpectRight(q, data, true);
  return "2^31 + 2^16 rows, 64-bit indices";
}

}  // namespace

std::vector<Check> LargeChecks() {
  return {{"large, in place", InPlace},
          {"large, out of place", OutOfPlace},
          {"large, far strides", FarStrides},
          {"large, many rows", ManyRows}};
}

}  // namespace ropewalk::gpu
