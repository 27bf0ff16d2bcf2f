// Rotation of ropewalk.torch (pointers.h says what a pointer is).
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "python/src/pointers.h"
#include "python/src/register.h"
#include "ropewalk/absolute/sinusoidal.h"
#include "ropewalk/plan/plan.h"
#include "ropewalk/rotary/gradient.h"
#include "ropewalk/rotary/rotate.h"
#include "ropewalk/rotary/table.h"

namespace ropewalk::python {
namespace {

// `bytes` per position, 4 or 8; 0: consecutive ones from `start` on.
Positions PositionsOf(Pointer data, int bytes, int64_t size, int axes, int64_t start) {
  if (bytes == 4) return Positions::Each(SpanAt<int32_t>(data, size), axes);
  if (bytes == 8) return Positions::Each(SpanAt<int64_t>(data, size), axes);
  return Positions::From(start);
}

// rows, or else frequencies; q_out and k_out are row-major, 0: in place.
void RotatePointers(Pointer q, const nb::tuple& q_shape, const nb::tuple& q_strides, Pointer k,
                    const nb::tuple& k_shape, const nb::tuple& k_strides, Pointer q_out,
                    Pointer k_out, int dtype, Pointer rows, int64_t first, int64_t count,
                    Pointer high, Pointer low, int64_t pairs, double amplitude, Pointer axis,
                    Pointer positions, int position_bytes, int64_t position_count, int axes,
                    int64_t start, int layout, int64_t first_dim, int64_t rotated_heads,
                    int direction) {
  RotateArgs args{.layout = static_cast<PairLayout>(layout),
                  .positions = PositionsOf(positions, position_bytes, position_count, axes, start),
                  .q = ViewOf(q, q_shape, q_strides, dtype),
                  .first_dim = first_dim,
                  .direction = static_cast<Direction>(direction),
                  .rotated_heads = rotated_heads};
  if (nb::len(k_shape) != 0) args.k = ViewOf(k, k_shape, k_strides, dtype);
  if (q_out != 0) args.q_out = NewRowMajor(args.q, q_out);
  if (k_out != 0) args.k_out = NewRowMajor(args.k, k_out);
  const bool much =
      args.q.NumElements() + (args.k.rank == 0 ? 0 : args.k.NumElements()) > kManyElements;
  if (high == 0) {
    const CosSinTable table = CosSinTable::View(At<const float>(rows), first, count, pairs,
                                                amplitude, SpanAt<uint8_t>(axis, pairs));
    args.table = &table;
    WithoutLockIf(much, [&] { Rotate(args); });
  } else {
    const Frequencies frequencies = FrequenciesOf(high, low, pairs, amplitude, axis);
    args.frequencies = &frequencies;
    WithoutLockIf(much, [&] { Rotate(args); });
  }
}

void FillRows(Pointer high, Pointer low, int64_t pairs, double amplitude, int64_t first,
              int64_t count, int precision, Pointer out) {
  const Frequencies frequencies = FrequenciesOf(high, low, pairs, amplitude, 0);
  WithoutLockIf(count * pairs > kManyElements / 64, [&] {
    const CosSinTable table(frequencies, first, count, static_cast<AnglePrecision>(precision));
    if (count > 0) std::copy_n(table.Row(first), count * 2 * pairs, At<float>(out));
  });
}

// Rows of any positions, of magnitude below 2^31: out [count, 2, pairs].
void FillCosSinRows(Pointer high, Pointer low, int64_t pairs, Pointer positions, int64_t count,
                    Pointer out) {
  const Frequencies frequencies = FrequenciesOf(high, low, pairs, 1, 0);
  WithoutLockIf(count * pairs > kManyElements / 64, [&] {
    const std::span<const int64_t> given = SpanAt<int64_t>(positions, count);
    std::vector<int64_t> magnitudes(given.begin(), given.end());
    for (int64_t& p : magnitudes) p = p < 0 ? -std::max(p, -INT64_MAX) : p;
    FillCosSin(frequencies, magnitudes, AnglePrecision::kExact, At<float>(out));
    for (int64_t i = 0; i < count; ++i) {
      float* sine = At<float>(out) + (2 * i + 1) * pairs;
      if (given[static_cast<std::size_t>(i)] < 0) {
        std::transform(sine, sine + pairs, sine, [](float s) { return -s; });
      }
    }
  });
}

std::vector<double> BothParts(std::span<const DoubleDouble> frequencies) {  // [2, pairs]
  std::vector<double> both;
  for (const DoubleDouble& f : frequencies) both.push_back(f.hi);
  for (const DoubleDouble& f : frequencies) both.push_back(f.lo);
  return both;
}

std::vector<double> SinusoidalFrequencies(int64_t dim, int layout, double base, int ladder) {
  SinusoidalSpec spec(static_cast<SinusoidalLayout>(layout));
  spec.dim = dim;
  spec.base = base;
  spec.ladder = static_cast<SinusoidalLadder>(ladder);
  return BothParts(Sinusoidal(spec).frequencies());
}

// out [pairs + 1] float64: of the frequencies, then of the amplitude; added to what is there.
void AddFrequencyGradient(Pointer value, const nb::tuple& shape, const nb::tuple& strides,
                          Pointer gradient, const nb::tuple& gradient_strides, int dtype,
                          Pointer high, Pointer low, int64_t pairs, double amplitude, Pointer axis,
                          Pointer positions, int position_bytes, int64_t position_count, int axes,
                          int64_t start, int layout, int64_t first_dim, Pointer out) {
  const Frequencies frequencies = FrequenciesOf(high, low, pairs, amplitude, axis);
  const RotaryGradientArgs args{
      .frequencies = &frequencies,
      .layout = static_cast<PairLayout>(layout),
      .positions = PositionsOf(positions, position_bytes, position_count, axes, start),
      .value = ViewOf(value, shape, strides, dtype),
      .gradient = ViewOf(gradient, shape, gradient_strides, dtype),
      .first_dim = first_dim};
  WithoutLockIf(args.value.NumElements() > kManyElements, [&] {
    const RotaryGradient g = FrequencyGradient(args);
    for (int64_t i = 0; i < pairs; ++i) At<double>(out)[i] += g.inv_freq[i];
    At<double>(out)[pairs] += g.amplitude;
  });
}

}  // namespace

void RegisterPointers(nb::module_& m) {
  nb::module_ pointers = m.def_submodule("pointers", "Ops on raw pointers, for ropewalk.torch.");
  pointers.def("rotate", &RotatePointers);
  pointers.def("fill_rows", &FillRows);
  pointers.def("frequency_gradient", &AddFrequencyGradient);
  pointers.def("frequencies",
               [](const ResolvedRotation& r) { return BothParts(r.frequencies.inv_freq); });
  pointers.def("decay", [](const ResolvedRotation& r) {  // xPos: [pairs], centre
    return nb::make_tuple(r.frequencies.log_decay, r.frequencies.decay_centre);
  });
  pointers.def("sinusoidal_frequencies", &SinusoidalFrequencies);
  pointers.def("fill_cos_sin", &FillCosSinRows);
  BindAttentionPointers(pointers);
}

}  // namespace ropewalk::python
