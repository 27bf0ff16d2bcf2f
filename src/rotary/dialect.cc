// The names of the dialects, and the check that one has a formula for a method.
#include <iterator>

#include "ropewalk/base/error.h"
#include "src/rotary/scaling/scaling.h"

namespace ropewalk {
namespace {

constexpr const char* kNames[] = {"native",   "paper",    "hf",       "vllm",
                                  "llamacpp", "megatron", "yarn_repo"};

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
  const Dialects who = std::visit(
      [](const auto& s) -> Dialects { return RowOf<std::decay_t<decltype(s)>>().dialects; },
      spec.scaling);
  if ((who.bits & Bit(spec.dialect)) != 0) return;
  throw Error(ErrorCode::kUnsupported, std::string("rotary: ") + Name(spec.dialect) +
                                           " has no formula for " + Describe(spec.scaling) +
                                           who.instead);
}

}  // namespace internal
}  // namespace ropewalk
