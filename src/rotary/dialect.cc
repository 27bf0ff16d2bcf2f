// Which dialect has a formula for which method, and their names.
#include <iterator>

#include "ropewalk/base/error.h"
#include "src/rotary/scaling/scaling.h"

namespace ropewalk {
namespace {

constexpr const char* kNames[] = {"native",   "paper",    "hf",       "vllm",
                                  "llamacpp", "megatron", "yarn_repo"};

constexpr unsigned Bit(Dialect d) { return 1u << static_cast<unsigned>(d); }
constexpr unsigned kPaper = Bit(Dialect::kPaper), kHf = Bit(Dialect::kHuggingFace),
                   kVllm = Bit(Dialect::kVllm), kLlamaCpp = Bit(Dialect::kLlamaCpp),
                   kMegatron = Bit(Dialect::kMegatron), kYarnRepo = Bit(Dialect::kYarnRepo),
                   kAll = kPaper | kHf | kVllm | kLlamaCpp | kMegatron | kYarnRepo;

struct Who {
  unsigned dialects;
  const char* instead;  // what to do where there is none
};

// NTK-aware is a changed base to Hugging Face and Megatron, which is why they need no formula.
struct Formula {
  Who operator()(const NoScaling&) const { return {kAll, ""}; }
  Who operator()(const LinearScaling&) const { return {kAll, ""}; }
  Who operator()(const BaseScaling&) const { return {kAll, ""}; }
  Who operator()(const NtkScaling&) const {
    return {kPaper | kVllm | kLlamaCpp | kYarnRepo, "; change the base instead"};
  }
  Who operator()(const NtkFixedScaling&) const { return {kPaper | kVllm, ""}; }
  Who operator()(const NtkMixedScaling&) const { return {kPaper | kVllm, ""}; }
  Who operator()(const DynamicNtkScaling&) const { return {kPaper | kHf | kVllm | kYarnRepo, ""}; }
  Who operator()(const DynamicLinearScaling&) const { return {kYarnRepo | kMegatron, ""}; }
  Who operator()(const QwenNtkScaling&) const { return {0, ""}; }
  Who operator()(const ByPartsScaling&) const {
    return {kPaper, "; the yarn repository's is the method by-parts-repo"};
  }
  Who operator()(const ByPartsRepoScaling&) const {
    return {kYarnRepo, "; the paper's is the method by-parts"};
  }
  Who operator()(const YarnScaling&) const { return {kAll, ""}; }
  Who operator()(const DynamicYarnScaling&) const { return {kYarnRepo, ""}; }
  Who operator()(const Llama3Scaling&) const { return {kAll & ~(kPaper | kYarnRepo), ""}; }
  Who operator()(const LongRopeScaling&) const { return {kPaper | kHf | kVllm | kLlamaCpp, ""}; }
  Who operator()(const ProportionalScaling&) const {
    return {kPaper | kHf | kVllm | kLlamaCpp, ""};
  }
  Who operator()(const HopeScaling&) const { return {kPaper, ""}; }
  Who operator()(const ExplicitScaling&) const { return {kLlamaCpp, ""}; }
};

}  // namespace

const char* Name(Dialect dialect) { return kNames[static_cast<std::size_t>(dialect)]; }

Dialect ParseDialect(const std::string& name) {
  std::string names;
  for (std::size_t i = 0; i < std::size(kNames); ++i) {
    if (name == kNames[i]) return static_cast<Dialect>(i);
    names += (i == 0 ? "" : ", ") + std::string(kNames[i]);
  }
  throw Error(ErrorCode::kInvalidArgument,
              "dialect: expected one of " + names + "; got \"" + name + "\"");
}

namespace internal {

void CheckDialect(const RotarySpec& spec) {
  if (spec.dialect == Dialect::kNative) return;
  const Who who = std::visit(Formula{}, spec.scaling);
  if ((who.dialects & Bit(spec.dialect)) != 0) return;
  throw Error(ErrorCode::kUnsupported, std::string("rotary: ") + Name(spec.dialect) +
                                           " has no formula for " + Describe(spec.scaling) +
                                           who.instead);
}

}  // namespace internal
}  // namespace ropewalk
