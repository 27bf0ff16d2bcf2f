// The table of pairs: wavelengths, rotations, angles not seen in training.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "ropewalk/analysis/analysis.h"
#include "ropewalk/base/error.h"
#include "src/rotary/double_double.h"

namespace ropewalk {
namespace {

using internal::kTwoPi;
using internal::operator*;  // NOLINT(misc-unused-using-decls): the linter misses operators
using internal::operator/;  // NOLINT(misc-unused-using-decls): the linter misses operators

double Rotations(DoubleDouble frequency, int64_t length) {
  return (frequency * static_cast<double>(length) / kTwoPi).hi;
}

void CheckLength(const char* name, int64_t length) {
  if (length >= 1) return;
  throw Error(ErrorCode::kInvalidArgument, std::string("analysis: ") + name +
                                               " must be at least 1 token, got " +
                                               std::to_string(length));
}

}  // namespace

Frequencies TrainedFrequencies(const RotarySpec& spec) {
  RotarySpec trained = spec;
  trained.dialect = Dialect::kNative;
  trained.scaling = TrainedScaling(spec.scaling);
  for (AxisScaling& axis : trained.axes.scalings) axis.scaling = TrainedScaling(axis.scaling);
  return Resolve(trained, std::max<int64_t>(1, spec.trained_length));
}

int64_t Reach(const ResolvedPlan& plan, int rotation) {
  int64_t reach = 1;
  for (const ResolvedLayer& layer : plan.layers) {
    if (layer.rotation != rotation) continue;
    int64_t tokens = plan.length;
    if (layer.window_tokens > 0) tokens = std::min(tokens, layer.window_tokens);
    if (layer.chunk_tokens > 0) tokens = std::min(tokens, layer.chunk_tokens);
    reach = std::max(reach, tokens);
  }
  return reach;
}

double UnseenShare(double trained_frequency, int64_t trained_length, double frequency,
                   int64_t target_length) {
  CheckLength("trained_length", trained_length);
  CheckLength("target_length", target_length);
  constexpr double kTurn = 2 * std::numbers::pi;
  const double seen = trained_frequency * static_cast<double>(trained_length - 1);
  const double swept = frequency * static_cast<double>(target_length - 1);
  if (seen >= kTurn || swept <= seen) return 0;
  const double whole = std::floor(swept / kTurn);
  const double rest = swept - whole * kTurn;
  return (whole * (kTurn - seen) + std::max(0.0, rest - seen)) / swept;
}

std::vector<PairInfo> Pairs(const Frequencies& trained, int64_t trained_length,
                            const Frequencies& now, int64_t target_length) {
  CheckLength("trained_length", trained_length);
  CheckLength("target_length", target_length);
  if (trained.inv_freq.size() != now.inv_freq.size()) {
    throw Error(ErrorCode::kMismatch, "analysis: expected the frequencies of training (" +
                                          std::to_string(trained.inv_freq.size()) +
                                          " pairs) to have as many pairs as " + "those in use (" +
                                          std::to_string(now.inv_freq.size()) + ")");
  }
  std::vector<PairInfo> rows;
  rows.reserve(now.inv_freq.size());
  for (std::size_t i = 0; i < now.inv_freq.size(); ++i) {
    const DoubleDouble f = now.inv_freq[i];
    PairInfo row;
    row.frequency = f.hi;
    if (f.hi > 0) row.wavelength_tokens = (kTwoPi / f).hi;
    row.trained_rotations = Rotations(f, trained_length);
    row.target_rotations = Rotations(f, target_length);
    row.unseen_share = UnseenShare(trained.inv_freq[i].hi, trained_length, f.hi, target_length);
    if (!now.axis.empty()) row.axis = now.axis[i];
    rows.push_back(row);
  }
  return rows;
}

CriticalDimension Critical(const Frequencies& frequencies, int64_t length) {
  CheckLength("length", length);
  CriticalDimension out;
  out.first_pair = static_cast<int64_t>(frequencies.inv_freq.size());
  for (std::size_t i = 0; i < frequencies.inv_freq.size(); ++i) {
    if (Rotations(frequencies.inv_freq[i], length) >= 1) continue;
    if (out.incomplete_pairs++ == 0) out.first_pair = static_cast<int64_t>(i);
  }
  out.dimension = 2 * out.first_pair;
  return out;
}

}  // namespace ropewalk
