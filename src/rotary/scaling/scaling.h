// The interface of a scaling method: one row, at the end of its file in this folder. All else
// (lists of names, checks, descriptions, the C interface, JSON) follows from the row and from the
// fields of the method's struct.
//
// `resolve` is pure: spec in, frequencies out. It fills `inv_freq` in double-double,
// `inv_freq_f32`, and the amplitude where the method has one. The callers have checked what is
// common to all: dims, base >= 1, factor >= 1, a trained length where one is needed.
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
#include "src/base/required.h"
#include "src/rotary/double_double.h"

namespace ropewalk::internal {

// The dialects that have a formula for a method, beside the native one.
constexpr unsigned Bit(Dialect d) { return 1u << static_cast<unsigned>(d); }
inline constexpr unsigned kPaper = Bit(Dialect::kPaper), kHuggingFace = Bit(Dialect::kHuggingFace),
                          kVllm = Bit(Dialect::kVllm), kLlamaCpp = Bit(Dialect::kLlamaCpp),
                          kMegatron = Bit(Dialect::kMegatron), kYarnRepo = Bit(Dialect::kYarnRepo),
                          kAllDialects =
                              kPaper | kHuggingFace | kVllm | kLlamaCpp | kMegatron | kYarnRepo;
struct Dialects {
  unsigned bits;
  const char* instead = "";  // what to do where there is none: "; change the base instead"
};

// Who says enough to set the method.
enum class Setting : uint8_t {
  kByHand,    // needs more than a factor: lists, another base
  kByFactor,  // a factor or the length alone decides
  kUsual      // kByFactor, and a sweep that names no methods tries it
};

template <class S>
struct ScalingRow {
  Required<const char*> name;    // "by-parts"
  Required<const char*> title;   // "NTK-by-parts (paper)"
  Required<const char*> source;  // paper or repository
  Required<bool> needs_trained_length;
  Required<bool> length_dependent;  // on the declared final length of the sequence
  Required<bool> trained_with;      // part of the model, not an extension of it: HoPE
  Required<Setting> setting;
  Required<Dialects> dialects;
  Required<Frequencies (*)(const S&, const RotarySpec&, int64_t length)> resolve;
  // d inv_freq / d base of a pair.
  Required<double (*)(const S&, const RotarySpec&, int64_t pair, double inv_freq)> by_base;
};

// Each file defines the specialization of its method; the linker misses one that is not there.
template <class S>
ScalingRow<S> RowOf();

template <class S>
Frequencies ResolveAs(const S& scaling, const RotarySpec& spec, int64_t length) {
  return RowOf<S>().resolve(scaling, spec, length);
}

// Throws Error(kUnsupported) where the spec's dialect has no formula for its method (dialect.cc).
void CheckDialect(const RotarySpec& spec);
// The spec's method on one axis (resolve.cc), and spread over its axes (axes.cc).
Frequencies ResolveScaling(const RotarySpec& spec, int64_t length);
Frequencies ResolveAxes(const RotarySpec& spec, int64_t length);

// What the methods share (common.cc).
inline int64_t Pairs(const RotarySpec& spec) { return spec.rotary_dim / 2; }
// No scaling (none.cc).
Frequencies ResolvePlain(const RotarySpec& spec);
// d inv_freq / d base of base^(-2 pair / dim) times what does not depend on the base;
// `elasticity`, where it does: d ln inv_freq / d ln of the plain frequency.
double PowerOfBase(double base, int64_t dim, int64_t pair, double inv_freq, double elasticity = 1);
template <class S>
double ByPlainBase(const S& /*scaling*/, const RotarySpec& spec, int64_t pair, double inv_freq) {
  return PowerOfBase(spec.base, spec.rotary_dim, pair, inv_freq);
}
// The elasticity of RampOverRotations.
double RampElasticity(const RotarySpec& spec, int64_t pair, double s, double low, double high);
// f_i = b^(-i/h).
DoubleDouble PlainFrequency(const RotarySpec& spec, int64_t i);
// f_i of the base b s^(d/(d-2)), which is b^(-i/h) s^(-i/(h-1)). Needs h >= 2.
DoubleDouble NtkFrequency(const RotarySpec& spec, DoubleDouble s, int64_t i);
// (1 - t) a + t b.
DoubleDouble Blend(DoubleDouble a, DoubleDouble b, DoubleDouble t);
// f_i with pair i interpolated by s where it makes at most `low` rotations within L, untouched from
// `high` rotations on, linear in the rotations between: YaRN paper, eq. 17 to 20.
Frequencies RampOverRotations(const RotarySpec& spec, double s, double low, double high);
// The pair index at which a pair makes `rotations` rotations within L: h ln(L / (2 pi rotations)) /
// ln b. Throws Error for base 1, whose pairs rotate alike.
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
