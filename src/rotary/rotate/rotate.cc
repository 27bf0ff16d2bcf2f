#include "ropewalk/rotary/rotate.h"

#include <omp.h>

#include "ropewalk/base/buffer.h"
#include "src/rotary/rotate/check.h"
#include "src/rotary/rotate/cpu.h"
#include "src/rotary/rotate/device.h"
#include "src/rotary/rotate/plan.h"

namespace ropewalk {
namespace {

// Tokens are independent, so how they are shared out changes no bit.
void Run(const internal::RotatePlan& plan, int64_t tokens) {
  const auto kernel = plan.plain ? internal::RotatePlain : internal::RotateGeneral;
  AlignedBuffer<double> scratch(static_cast<std::size_t>(plan.scratch * plan.threads));
  double* const all_scratch = scratch.data();
  if (plan.threads == 1) return kernel(plan.params, 0, tokens, all_scratch);
#pragma omp parallel num_threads(plan.threads) firstprivate(tokens, all_scratch)
  {
    // A team can be smaller than asked for.
    const int64_t thread = omp_get_thread_num();
    const int64_t team = omp_get_num_threads();
    kernel(plan.params, tokens * thread / team, tokens * (thread + 1) / team,
           all_scratch + thread * plan.scratch);
  }
}

}  // namespace

void Rotate(const RotateArgs& args) {
  if (args.q.device == Device::kCuda) return internal::RotateOnDevice(args);
  const internal::CheckedCall call = internal::CheckRotate(args);
  if (call.tokens == 0) return;
  const internal::RotatePlan plan = internal::PlanRotate(args, call);
  if (plan.params.num_operands > 0) Run(plan, call.tokens);
}

}  // namespace ropewalk
