// In the place of the large tensors, where the host is the GPU: what rotate_cuda_bench calls and
// what it compares, with fewer tokens.
#include "bench/cuda/rotate_case.h"
#include "ropewalk/base/cuda.h"
#include "tests/cuda/check.h"

namespace ropewalk::gpu {
namespace {

std::string BenchCases(const Options&) {
  int cases = 0;
  double worst = 0;
  for (bench::Case c : bench::Cases(false)) {
    c.tokens = 1040;  // of two images, of two sequences
    const bench::Setup setup(c);
    const bench::Set set = setup.MakeSet();
    bool wrong = false;
    try {
      setup.WorstError(set);
    } catch (const Failure&) {
      wrong = true;
    }
    Expect(wrong, std::string(c.name) + ": right before the call");
    Rotate(setup.Args(set, nullptr));
    CudaSynchronize();
    const double error = setup.WorstError(set);
    if (c.dtype == DType::kF32) worst = std::max(worst, error);
    ++cases;
  }
  return std::to_string(cases) + " cases of the benchmark, worst error in f32 " +
         std::to_string(worst) + " x 2^-23 hypot";
}

}  // namespace

std::vector<Check> LargeChecks() { return {{"cases of the benchmark", BenchCases}}; }

}  // namespace ropewalk::gpu
