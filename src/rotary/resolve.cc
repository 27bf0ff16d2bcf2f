// Checks what all methods share, then hands the spec to its method.
#include <cmath>
#include <string>

#include "ropewalk/base/error.h"
#include "ropewalk/rotary/frequencies.h"
#include "src/rotary/scaling/scaling.h"

namespace ropewalk {
namespace {

using internal::BadScaling;

void CheckDims(const RotarySpec& spec) {
  const int64_t d = spec.rotary_dim;
  if (d < 2 || d % 2 != 0) {
    BadScaling("rotary_dim must be even and at least 2 (elements rotate in pairs), got " +
               std::to_string(d));
  }
  if (spec.head_dim > int64_t{1} << 20) {
    BadScaling("head_dim " + std::to_string(spec.head_dim) + " is over the limit of 1048576");
  }
  if (spec.first_dim < 0 || spec.first_dim > spec.head_dim - d) {
    BadScaling("rotated elements [" + std::to_string(spec.first_dim) + ", first_dim + " +
               std::to_string(d) + ") must lie within the head of " +
               std::to_string(spec.head_dim));
  }
  if (!(spec.base > 1 && std::isfinite(spec.base))) {
    BadScaling("base must be a number above 1, got " + std::to_string(spec.base));
  }
}

bool NeedsTrainedLength(const Scaling& scaling) {
  return !(std::holds_alternative<NoScaling>(scaling) ||
           std::holds_alternative<LinearScaling>(scaling) ||
           std::holds_alternative<NtkScaling>(scaling) ||
           std::holds_alternative<ExplicitScaling>(scaling));
}

struct Dispatch {
  const RotarySpec& spec;
  int64_t length;
  Frequencies operator()(const NoScaling&) const { return internal::ResolveNone(spec); }
  Frequencies operator()(const LinearScaling& s) const { return internal::ResolveLinear(s, spec); }
  Frequencies operator()(const NtkScaling& s) const { return internal::ResolveNtk(s, spec); }
  Frequencies operator()(const DynamicNtkScaling& s) const {
    return internal::ResolveDynamic(s, spec, length);
  }
  Frequencies operator()(const ByPartsScaling& s) const {
    return internal::ResolveByParts(s, spec);
  }
  Frequencies operator()(const ByPartsRepoScaling& s) const {
    return internal::ResolveByPartsRepo(s, spec);
  }
  Frequencies operator()(const YarnScaling& s) const { return internal::ResolveYarn(s, spec); }
  Frequencies operator()(const Llama3Scaling& s) const { return internal::ResolveLlama3(s, spec); }
  Frequencies operator()(const LongRopeScaling& s) const {
    return internal::ResolveLongRope(s, spec, length);
  }
  Frequencies operator()(const ExplicitScaling& s) const {
    return internal::ResolveExplicit(s, spec);
  }
};

}  // namespace

Frequencies Resolve(const RotarySpec& spec, int64_t length) {
  CheckDims(spec);
  if (length < 1) BadScaling("length must be at least 1 token, got " + std::to_string(length));
  const double factor = FactorOf(spec.scaling);
  if (!(factor >= 1 && std::isfinite(factor))) {
    BadScaling("factor must be a number of at least 1 (target over trained length), got " +
               std::to_string(factor));
  }
  if (NeedsTrainedLength(spec.scaling) && spec.trained_length < 1) {
    BadScaling(Describe(spec.scaling) +
               " needs trained_length, the length in tokens the model was trained at");
  }
  Frequencies out = std::visit(Dispatch{spec, length}, spec.scaling);
  if (!(out.amplitude > 0 && std::isfinite(out.amplitude))) {
    BadScaling("the amplitude (attention_factor, mscale) must be positive, got " +
               std::to_string(out.amplitude));
  }
  return out;
}

}  // namespace ropewalk
