#include "src/engines/llamacpp.h"

#include <algorithm>
#include <iterator>

namespace ropewalk::internal {
namespace {

constexpr uint32_t kLlama =
    kDivisorTensor | kLongRopeTensors | kHeadSize | kOutBias | kMlpBias | kOwnHead;

constexpr LlamaCppArchitecture kArchitectures[] = {
    {"llama", kLlama},
    {"qwen2", kOwnHead},
    {"qwen3", kHeadSize | kOwnHead},
    {"qwen2vl", kOwnHead},
    {"qwen3vl", kHeadSize | kOwnHead},
    {"qwen3vlmoe", kHeadSize | kOwnHead},
    {"smollm3", kOwnHead},
    {"granite", kLlama},
    {"minicpm", kLlama},
    {"phi3", kPartOfAHead | kLongRopeTensors | kOwnHead | kIgnoredWindow},
    {"olmo", kOwnHead},
    {"olmo2", kOwnHead | kNeedsHead | kWindows},
    {"command-r", kPartOfAHead, /*qk_norm_from_layers=*/64},
    {"cohere2", kPartOfAHead | kWindows},
    {"glm4", kPartOfAHead | kHeadSize | kOwnHead},
    {"chatglm", kPartOfAHead | kOwnHead},
    {"starcoder2", kOutBias | kMlpBias | kEveryBias | kOwnHead | kIgnoredWindow},
    {"internlm2", kOwnHead | kNeedsHead},
    {"orion", kOwnHead | kNeedsHead},
    {"stablelm", kPartOfAHead | kOwnHead | kNeedsHead},
    {"gptneox", kPartOfAHead | kOutBias | kMlpBias | kEveryBias | kOwnHead | kNeedsHead},
    {"falcon", kOwnHead | kParallelAlone},
    {"phi2", kPartOfAHead | kOutBias | kMlpBias | kEveryBias | kOwnHead | kNeedsHead},
    {"gpt2", kOutBias | kMlpBias | kEveryBias | kOwnHead},
    {"bloom", kOutBias | kMlpBias | kEveryBias | kOwnHead},
    {"mpt", kOwnHead},
    {"qwen3moe", kHeadSize | kOwnHead},
    {"qwen2moe", kOwnHead | kNeedsHead},
    {"olmoe", kOwnHead | kNeedsHead | kAllKeyHeads},
    {"gpt-oss", kHeadSize | kOutBias | kMlpBias | kEveryBias | kOwnHead | kNeedsHead | kWindows},
    {"deepseek2", kPartOfAHead | kHeadSize | kOwnHead},
    {"mistral4", kPartOfAHead | kHeadSize | kOwnHead | kTemperature},
    {"llama4", kDivisorTensor | kHeadSize | kOwnHead},
    {"qwen", kPartOfAHead | kOwnHead | kNeedsHead | kAllKeyHeads},
    {"baichuan", kOwnHead | kNeedsHead},
    {"minicpm3", kPartOfAHead | kLongRopeTensors | kHeadSize | kOwnHead},
    {"mistral3", kLlama | kTemperature},
};

}  // namespace

const LlamaCppArchitecture* FindLlamaCpp(std::string_view architecture) {
  const auto* it =
      std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                   [&](const LlamaCppArchitecture& a) { return a.name == architecture; });
  return it == std::end(kArchitectures) ? nullptr : it;
}

}  // namespace ropewalk::internal
