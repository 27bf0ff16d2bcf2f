// Checks what all methods share, then hands the spec to its method.
#include <cmath>
#include <optional>
#include <string>
#include <type_traits>

#include "ropewalk/base/error.h"
#include "ropewalk/base/fields.h"
#include "ropewalk/rotary/frequencies.h"
#include "src/rotary/reduction.h"
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
  if (spec.head_dim < d || spec.first_dim < 0 || spec.first_dim > spec.head_dim - d) {
    BadScaling("rotated elements [" + std::to_string(spec.first_dim) + ", first_dim + " +
               std::to_string(d) + ") must lie within the head of " +
               std::to_string(spec.head_dim));
  }
  if (!(spec.base >= 1 && std::isfinite(spec.base))) {
    BadScaling("base must be a number of at least 1, got " + std::to_string(spec.base));
  }
}

// Nothing is scaled by a factor that was forgotten.
void CheckFactor(const RotarySpec& spec) {
  const double factor = FactorOf(spec.scaling);
  if (factor == 0) {
    BadScaling(std::string(InfoOf(spec.scaling).name) +
               ": factor is required and not set: the target length over the trained length, "
               "such as 4 (1 scales nothing)");
  }
  if (!(factor >= 1 && std::isfinite(factor))) {
    BadScaling("factor must be a number of at least 1 (target over trained length), got " +
               std::to_string(factor));
  }
}

template <class S>
void CheckNumbers(const S& scaling) {
  VisitFields<S>([&](const auto& field) {
    using T = std::remove_cvref_t<decltype(scaling.*field.member)>;
    const auto check = [&](double value) {
      if (std::isfinite(value)) return;
      BadScaling(Describe(Scaling(scaling)) + ": " + field.name + " must be a number, got " +
                 std::to_string(value));
    };
    if constexpr (std::is_same_v<T, double>) check(scaling.*field.member);
    if constexpr (std::is_same_v<T, std::optional<double>>) {
      check((scaling.*field.member).value_or(0));
    }
  });
}

// xPos (arXiv 2212.10554, section 3.2): zeta_i = (2i/d + gamma) / (1 + gamma).
void ResolveXpos(const RotarySpec& spec, Frequencies& out) {
  const XposDecay& x = *spec.xpos;
  if (!(x.scale_base > 0 && std::isfinite(x.scale_base) && x.gamma > 0 && std::isfinite(x.gamma) &&
        std::isfinite(x.centre))) {
    BadScaling("xpos: scale_base and gamma must be positive and centre a number");
  }
  for (int64_t i = 0; i < internal::Pairs(spec); ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(internal::Pairs(spec));
    out.log_decay.push_back(std::log((share + x.gamma) / (1 + x.gamma)) / x.scale_base);
  }
  out.decay_centre = x.centre;
}

}  // namespace

Frequencies internal::ResolveScaling(const RotarySpec& spec, int64_t length) {
  CheckFactor(spec);
  if (spec.trained_length < 0 || spec.trained_length > int64_t{1} << 53) {  // exact as a double
    BadScaling("trained_length: expected 0 (not known) to 2^53 tokens, got " +
               std::to_string(spec.trained_length));
  }
  if (InfoOf(spec.scaling).needs_trained_length && spec.trained_length < 1) {
    BadScaling(Describe(spec.scaling) +
               " needs trained_length, the length in tokens the model was trained at");
  }
  CheckDialect(spec);
  std::visit([](const auto& s) { CheckNumbers(s); }, spec.scaling);
  Frequencies out =
      std::visit([&](const auto& s) { return ResolveAs(s, spec, length); }, spec.scaling);
  for (const DoubleDouble& f : out.inv_freq) {
    if (std::isfinite(f.hi)) continue;
    BadScaling(Describe(spec.scaling) + ": expected frequencies that are numbers, got " +
               std::to_string(f.hi) + " at length " + std::to_string(length));
  }
  if (!(out.amplitude > 0 && std::isfinite(out.amplitude))) {
    BadScaling("the amplitude (attention_factor, mscale) must be positive, got " +
               std::to_string(out.amplitude));
  }
  return out;
}

Frequencies Resolve(const RotarySpec& spec, int64_t length) {
  CheckDims(spec);
  if (length < 1) BadScaling("length must be at least 1 token, got " + std::to_string(length));
  if (spec.rotated_heads < 0) {
    BadScaling("rotated_heads must be 0 (all) or more, got " + std::to_string(spec.rotated_heads));
  }
  Frequencies out = spec.axes.sections.empty() ? internal::ResolveScaling(spec, length)
                                               : internal::ResolveAxes(spec, length);
  if (spec.xpos) ResolveXpos(spec, out);
  return out;
}

double ExactAngle(const DoubleDouble& inv_freq, int64_t position) {
  const auto steps = static_cast<internal::Uint128>(static_cast<internal::Int128>(position));
  const internal::ReducedAngle r = internal::Reduce(internal::ToTurns(inv_freq) * steps);
  const int turn = r.quadrant > 2 || (r.quadrant == 2 && r.hi > 0) ? r.quadrant - 4 : r.quadrant;
  const double half_turns = 0.5 * turn;  // a product with it is exact
  const DoubleDouble sum = internal::TwoSum(internal::kPi.hi * half_turns, r.hi);
  return sum.hi + (sum.lo + internal::kPi.lo * half_turns + r.lo);
}

}  // namespace ropewalk
