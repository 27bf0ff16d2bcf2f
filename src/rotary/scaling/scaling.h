// One function a scaling method: spec in, frequencies out; pure. Each fills `inv_freq` in
// double-double, `inv_freq_f32`, and the amplitude where it has one. The callers have checked what
// is common to all: dims, base > 1, factor >= 1, a trained length where one is needed.
//
// Notation: d = rotary_dim, h = d / 2 pairs, b = base, f_i = b^(-i/h), s = factor, L = trained
// length.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ropewalk/base/error.h"
#include "ropewalk/rotary/frequencies.h"
#include "ropewalk/rotary/spec.h"
#include "src/rotary/double_double.h"

namespace ropewalk::internal {

Frequencies ResolveNone(const RotarySpec& spec);
Frequencies ResolveLinear(const LinearScaling& scaling, const RotarySpec& spec);
Frequencies ResolveNtk(const NtkScaling& scaling, const RotarySpec& spec);
Frequencies ResolveNtkFixed(const NtkFixedScaling& scaling, const RotarySpec& spec);
Frequencies ResolveNtkMixed(const NtkMixedScaling& scaling, const RotarySpec& spec);
Frequencies ResolveDynamicLinear(const DynamicLinearScaling& scaling, const RotarySpec& spec,
                                 int64_t length);
Frequencies ResolveQwen(const QwenNtkScaling& scaling, const RotarySpec& spec, int64_t length);
Frequencies ResolveDynamicYarn(const DynamicYarnScaling& scaling, const RotarySpec& spec,
                               int64_t length);
Frequencies ResolveProportional(const ProportionalScaling& scaling, const RotarySpec& spec);
Frequencies ResolveHope(const HopeScaling& scaling, const RotarySpec& spec);
Frequencies ResolveBase(const BaseScaling& scaling, const RotarySpec& spec);
Frequencies ResolveDynamic(const DynamicNtkScaling& scaling, const RotarySpec& spec,
                           int64_t length);
Frequencies ResolveByParts(const ByPartsScaling& scaling, const RotarySpec& spec);
Frequencies ResolveByPartsRepo(const ByPartsRepoScaling& scaling, const RotarySpec& spec);
Frequencies ResolveYarn(const YarnScaling& scaling, const RotarySpec& spec);
Frequencies ResolveLlama3(const Llama3Scaling& scaling, const RotarySpec& spec);
Frequencies ResolveLongRope(const LongRopeScaling& scaling, const RotarySpec& spec, int64_t length);
Frequencies ResolveExplicit(const ExplicitScaling& scaling, const RotarySpec& spec);

// Throws Error(kUnsupported) where the spec's dialect has no formula for its method (dialect.cc).
void CheckDialect(const RotarySpec& spec);
// The spec's method on one axis (resolve.cc), and spread over its axes (axes.cc).
Frequencies ResolveScaling(const RotarySpec& spec, int64_t length);
Frequencies ResolveAxes(const RotarySpec& spec, int64_t length);

// What the methods share (common.cc).
inline int64_t Pairs(const RotarySpec& spec) { return spec.rotary_dim / 2; }
// f_i = b^(-i/h).
DoubleDouble PlainFrequency(const RotarySpec& spec, int64_t i);
// f_i of the base b s^(d/(d-2)), which is b^(-i/h) s^(-i/(h-1)). Needs h >= 2.
DoubleDouble NtkFrequency(const RotarySpec& spec, DoubleDouble s, int64_t i);
// (1 - t) a + t b.
DoubleDouble Blend(DoubleDouble a, DoubleDouble b, DoubleDouble t);
// f_i with pair i interpolated by s where it makes at most `low` rotations within L, untouched from
// `high` rotations on, linear in the rotations between: YaRN paper, eq. 17 to 20.
Frequencies RampOverRotations(const RotarySpec& spec, double s, double low, double high);
// The pair index at which `rotations` full turns fit into L: h ln(L / (2 pi rotations)) / ln b.
DoubleDouble PairOfRotations(const RotarySpec& spec, double rotations);
// The same in double, by the operations of Hugging Face and of the yarn repository.
double PairOfRotationsDouble(const RotarySpec& spec, double rotations);

// float32, with Hugging Face's order of operations.
std::vector<float> TorchFrequencies(float base, int64_t pairs);  // 1 / base^(2i/d)
// clamp((i - low) / (high - low), 0, 1) with PyTorch's scalar rounding.
std::vector<float> TorchRamp(double low, double high, int64_t pairs);
// Each exact frequency rounded once, for methods that Hugging Face does not have.
std::vector<float> RoundedFrequencies(const std::vector<DoubleDouble>& exact);

[[noreturn]] void BadScaling(const std::string& message);

}  // namespace ropewalk::internal
