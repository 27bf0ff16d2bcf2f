// ropewalk/rotary: Rotate, Rerotate and what is learned of them.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <utility>

#include "python/src/arrays.h"
#include "python/src/register.h"
#include "python/src/rotary.h"
#include "ropewalk/plan/plan.h"
#include "ropewalk/rotary/gradient.h"
#include "ropewalk/rotary/rerotate.h"
#include "ropewalk/rotary/rotate.h"

namespace ropewalk::python {
namespace {

constexpr std::array kDirections = {"forward", "adjoint", "inverse"};

Positions PositionsOf(const Array& list, int64_t start, int axes) {
  if (!list.given()) return Positions::From(start);
  if (list.HoldsInt32()) return Positions::Each(list.List<const int32_t>(), axes);
  return Positions::Each(list.List<const int64_t>(), axes);
}

// What few calls have: values, a cache to write to, norms in front.
struct RotateMore {
  Array v, v_out, slots, q_norm, k_norm;

  // {"v", "v_out", "rotate_values", "slots", "k_scale", "v_scale", "q_norm", "k_norm", "norm_eps"}
  RotateMore(const nb::dict& given, RotateArgs& args) {
    const auto array = [&](const char* key, const char* name) {
      return given.contains(key) ? Array(given[key], name) : Array();
    };
    if (given.contains("v")) {
      const bool elsewhere = given.contains("v_out");
      v = elsewhere ? Array(given["v"], "v") : Array::Written(given["v"], "v");
      if (elsewhere) v_out = Array::Written(given["v_out"], "out of v");
      args.v = v.View();
      args.v_out = v_out.View();
      if (nb::cast<bool>(given["rotate_values"])) args.values = ValueRotation::kRotate;
    }
    slots = array("slots", "slots");
    args.slots = slots.List<const int64_t>();
    if (given.contains("k_scale")) args.k_scale = nb::cast<float>(given["k_scale"]);
    if (given.contains("v_scale")) args.v_scale = nb::cast<float>(given["v_scale"]);
    q_norm = array("q_norm", "q_norm");
    k_norm = array("k_norm", "k_norm");
    args.q_norm.weight = q_norm.List<const float>();
    args.k_norm.weight = k_norm.List<const float>();
    if (given.contains("norm_eps")) {
      args.q_norm.eps = args.k_norm.eps = nb::cast<double>(given["norm_eps"]);
    }
  }
};

// Angles are those of the table, or without one of the rotation.
void CallRotate(nb::handle q, nb::handle k, nb::handle q_out, nb::handle k_out,
                const PyTable* table, const ResolvedRotation* rotation, int64_t start,
                nb::handle positions, int axes, const std::string& layout, int64_t first_dim,
                int64_t rotated_heads, const std::string& direction, const std::string& precision,
                const nb::dict& more) {
  const bool to_q = !q_out.is_none(), to_k = !k_out.is_none();
  const Array q_in = to_q ? Array(q, "q") : Array::Written(q, "q");
  const Array k_in = to_k ? Array(k, "k") : Array::Written(k, "k");
  const Array q_to = Array::Written(q_out, "out of q"), k_to = Array::Written(k_out, "out of k");
  const Array list(positions, "positions");
  // Held, because another thread may grow the table in the meantime.
  const std::shared_ptr<const CosSinTable> kept = table != nullptr ? table->table : nullptr;
  RotateArgs args{.table = kept.get(),
                  .layout = LayoutOf(layout),
                  .positions = PositionsOf(list, start, axes),
                  .q = q_in.View(),
                  .k = k_in.View(),
                  .q_out = q_to.View(),
                  .k_out = k_to.View(),
                  .first_dim = first_dim,
                  .direction = Choice<Direction>("direction", direction, kDirections),
                  .precision = Choice<AnglePrecision>("precision", precision, kPrecisions),
                  .rotated_heads = rotated_heads};
  if (rotation != nullptr) args.frequencies = &rotation->frequencies;
  const RotateMore held(more, args);
  nb::gil_scoped_release release;
  Rotate(args);
}

// Keys in ggml's Q8_0: bytes, [.., tokens, heads, blocks * 34].
Q8KeysView Q8View(const Array& keys) {
  const int64_t rank = keys.rank(), bytes = rank == 0 ? 0 : keys.size(rank - 1);
  if ((rank != 3 && rank != 4) || bytes % 34 != 0) {
    Bad("keys: expected Q8_0 as uint8 [tokens, heads, 34 head_dim / 32] or with a batch in front, "
        "got " +
        keys.ShapeString());
  }
  const std::span<uint8_t> all = keys.List<uint8_t>();
  return Q8KeysView::Contiguous(all.data(), rank == 4 ? keys.size(0) : 1, keys.size(rank - 3),
                                keys.size(rank - 2), bytes / 34 * 32);
}

Moves MovesOf(const std::string& kind, int64_t delta, const Array& from, const Array& to) {
  constexpr std::array kKinds = {"all", "sequences", "tokens", "from-to"};
  const auto list = to.List<const int64_t>();
  switch (Choice<Moves::Kind>("moves", kind, kKinds)) {
    case Moves::Kind::kAll:
      return Moves::All(delta);
    case Moves::Kind::kSequences:
      return Moves::Sequences(list);
    case Moves::Kind::kTokens:
      return Moves::Tokens(list);
    case Moves::Kind::kFromTo:
      return Moves::FromTo(from.List<const int64_t>(), list);
  }
  return Moves::All(delta);
}

// Keys are moved in place.
void CallRerotate(nb::handle keys, const ResolvedRotation& rotation, const std::string& kind,
                  int64_t delta, nb::handle from, nb::handle to,
                  const ResolvedRotation* old_rotation, bool keep_amplitude) {
  const Array k = Array::Written(keys, "keys");
  const Array old_positions(from, "old_positions"), moves(to, "positions");
  RerotateArgs args{.frequencies = &rotation.frequencies,
                    .layout = rotation.spec.layout,
                    .moves = MovesOf(kind, delta, old_positions, moves),
                    .first_dim = rotation.spec.first_dim};
  if (k.HoldsBytes()) {
    args.q8_keys = Q8View(k);
  } else {
    args.keys = k.View();
  }
  if (old_rotation != nullptr) {
    args.from = &old_rotation->frequencies;
    if (!keep_amplitude) args.amplitude = AmplitudeChange::kRatio;
  }
  nb::gil_scoped_release release;
  Rerotate(args);
}

// d(loss) / d(inv_freq), and d(loss) / d(amplitude), from rotated values and their gradient.
nb::tuple CallFrequencyGradient(const ResolvedRotation& rotation, nb::handle value,
                                nb::handle gradient, int64_t start, nb::handle positions,
                                int axes) {
  const Array v(value, "value"), g(gradient, "gradient"), list(positions, "positions");
  const RotaryGradientArgs args{.frequencies = &rotation.frequencies,
                                .layout = rotation.spec.layout,
                                .positions = PositionsOf(list, start, axes),
                                .value = v.View(),
                                .gradient = g.View(),
                                .first_dim = rotation.spec.first_dim};
  RotaryGradient out;
  {
    nb::gil_scoped_release release;
    out = FrequencyGradient(args);
  }
  return nb::make_tuple(Owned(std::move(out.inv_freq)), out.amplitude);
}

nb::ndarray<nb::numpy, int64_t> PagedSlots(nb::handle given, int64_t block_slots, nb::handle first,
                                           int64_t tokens) {
  const Array table(given, "block_table"), starts(first, "first");
  table.CheckShape({-1, -1});
  starts.CheckShape({table.size(0)});
  const auto blocks = table.List<const int32_t>();
  const auto begin = starts.List<const int64_t>();
  return Owned(
      Unlocked([&] { return BlockTableSlots(blocks, table.size(1), block_slots, begin, tokens); }));
}

}  // namespace

void RegisterRotate(nb::module_& m) {
  const auto rotation = nb::arg("rotation").none();
  m.def("rotate", &CallRotate, nb::arg("q").none(), nb::arg("k").none(), nb::arg("q_out").none(),
        nb::arg("k_out").none(), nb::arg("table").none(), rotation, nb::arg("start"),
        nb::arg("positions").none(), nb::arg("axes"), nb::arg("layout"), nb::arg("first_dim"),
        nb::arg("rotated_heads"), nb::arg("direction"), nb::arg("precision"), nb::arg("more"));
  m.def("rerotate", &CallRerotate, nb::arg("keys"), nb::arg("rotation"), nb::arg("moves"),
        nb::arg("delta"), nb::arg("old_positions").none(), nb::arg("positions").none(),
        nb::arg("old_rotation").none(), nb::arg("keep_amplitude"));
  m.def("frequency_gradient", &CallFrequencyGradient, nb::arg("rotation"), nb::arg("value"),
        nb::arg("gradient"), nb::arg("start"), nb::arg("positions").none(), nb::arg("axes"));
  m.def("block_table_slots", &PagedSlots);
  m.def("ring_slots", [](int64_t capacity, nb::handle first, int64_t tokens) {
    const Array starts(first, "first");
    const auto begin = starts.List<const int64_t>();
    return Owned(Unlocked([&] { return RingSlots(capacity, begin, tokens); }));
  });
}

}  // namespace ropewalk::python
