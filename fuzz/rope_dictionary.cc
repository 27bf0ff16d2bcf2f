// A rope dictionary, as --rope-scaling takes it, on a model's plan; what is accepted resolves, or is refused with its length.
#include <cstddef>
#include <cstdint>
#include <string>

#include "ropewalk/base/error.h"
#include "ropewalk/config/config.h"
#include "ropewalk/plan/plan.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  static const ropewalk::PositionPlan model = [] {
    ropewalk::RotarySpec spec(ropewalk::PairLayout::kHalf);
    spec.head_dim = spec.rotary_dim = 64;
    spec.base = 10000;
    spec.trained_length = 4096;
    ropewalk::PositionPlan plan;
    plan.layers.resize(2);
    for (ropewalk::LayerPlan& layer : plan.layers) layer.rotation = spec;
    plan.trained_length = plan.configured_length = 4096;
    return plan;
  }();
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const bool allow_unknown : {false, true}) {
    try {
      const ropewalk::PositionPlan plan =
          ropewalk::ParseRopeDictionary(text, "rope dictionary", model, allow_unknown);
      for (const int64_t length : {1, 4096, 4097, 1 << 20}) ropewalk::Resolve(plan, length);
      ropewalk::Describe(plan, 8192);
    } catch (const ropewalk::Error&) {  // anything else that is thrown is a finding
    }
  }
  return 0;
}
