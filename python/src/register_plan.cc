// ropewalk/plan and ropewalk/config: the position plans of models.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "python/src/arrays.h"
#include "python/src/plan.h"
#include "python/src/register.h"
#include "ropewalk/config/config.h"
#include "ropewalk/eval/ranked_engine.h"
#include "ropewalk/model/model.h"
#include "ropewalk/plan/method.h"

namespace ropewalk::python {
namespace {

// Where a model's file states no length, as `ropewalk inspect` does.
int64_t LengthOf(const PositionPlan& plan) {
  const int64_t length = std::max(plan.trained_length, plan.configured_length);
  return length > 0 ? length : 4096;
}

PyPlan Make(ModelConfig config) {
  const int64_t length = LengthOf(config.plan);
  PyPlan plan{std::move(config.plan), length, std::move(config.not_honoured)};
  plan.family = std::move(config.architecture);
  return plan;
}

PyPlan OpenPlan(const std::string& path, bool allow_unknown) {
  nb::gil_scoped_release release;
  OpenOptions options;
  options.allow_unknown = allow_unknown;
  options.need_weights = false;
  return Make(std::move(OpenModel(path, options).config));
}

PyPlan Parse(const std::string& json, const std::string& name, bool allow_unknown) {
  nb::gil_scoped_release release;
  return Make(ParseConfig(json, name, allow_unknown));
}

// The length that a plan extends to: at least its own, and the trained one times the largest factor
// of its rotations.
int64_t Reach(const PositionPlan& plan) {
  double factor = 1;
  for (const LayerPlan& layer : plan.layers) {
    if (layer.rotation) factor = std::max(factor, FactorOf(layer.rotation->scaling));
  }
  return std::max<int64_t>(LengthOf(plan),
                           std::llround(factor * static_cast<double>(plan.trained_length)));
}

// `factor` target length over trained length; without one it follows from `length`, and without
// that the method must not need it.
PyPlan WithMethod(const PyPlan& given, const std::string& text, std::optional<double> factor,
                  std::optional<int64_t> length, int64_t trained_length) {
  nb::gil_scoped_release release;
  const PositionMethod method = PositionMethod::Parse(text);
  const int64_t trained = trained_length > 0 ? trained_length : given.plan.trained_length;
  if (!factor && length && trained > 0) {
    factor = std::max(1.0, static_cast<double>(*length) / static_cast<double>(trained));
  }
  if (!factor && method.uses_factor()) {
    Bad("method " + text + ": expected a factor (target length over trained length), or a length" +
        (length ? "; this model does not state its trained length: give trained_length" : ""));
  }
  PositionPlan plan = method.Apply(given.plan, factor.value_or(1), trained_length);
  if (!length) {
    length = factor && trained > 0 ? std::llround(*factor * static_cast<double>(trained))
                                   : std::max(given.resolved.length, Reach(plan));
  }
  return {std::move(plan), *length, given.not_honoured};
}

PositionPlan WithTrained(PositionPlan plan, int64_t trained_length) {
  if (trained_length < 1) return plan;
  plan.trained_length = trained_length;
  for (LayerPlan& layer : plan.layers) {
    if (layer.rotation) layer.rotation->trained_length = trained_length;
  }
  return plan;
}

PyPlan WithRope(const PyPlan& given, const std::string& json, const std::string& name,
                std::optional<int64_t> length, int64_t trained_length, bool allow_unknown) {
  nb::gil_scoped_release release;
  PositionPlan plan =
      WithTrained(ParseRopeDictionary(json, name, given.plan, allow_unknown), trained_length);
  const int64_t reach = std::max(given.resolved.length, Reach(plan));
  return {std::move(plan), length.value_or(reach), given.not_honoured};
}

// A bias as its name and its parameters, from which Python makes its class.
struct BiasFields {
  int64_t heads;
  nb::tuple operator()(const AlibiBias& b) const {
    constexpr const char* kRules[] = {"powers-of-two", "geometric"};
    constexpr const char* kAhead[] = {"causal", "symmetric", "signed", "zero"};
    nb::dict d;
    d["heads"] = heads;
    d["rule"] = kRules[static_cast<int>(b.rule)];
    d["ahead"] = kAhead[static_cast<int>(b.ahead)];
    d["max_bias"] = b.max_bias;
    d["scale"] = b.scale;
    d["bfloat16"] = b.bfloat16;
    return nb::make_tuple("alibi", d);
  }
  nb::tuple operator()(const T5LayerBias& b) const {
    nb::dict d;
    d["heads"] = heads;
    d["buckets"] = b.bias.buckets;
    d["last_distance"] = b.bias.last_distance;
    d["bidirectional"] = b.bias.bidirectional;
    return nb::make_tuple("t5", d);
  }
  nb::tuple operator()(const DebertaLayerBias& b) const {
    nb::dict d;
    d["heads"] = heads;
    d["buckets"] = b.bias.buckets;
    d["max_position"] = b.bias.max_position;
    d["content_to_position"] = b.content_to_position;
    d["position_to_content"] = b.position_to_content;
    return nb::make_tuple("deberta", d);
  }
  nb::tuple operator()(const TransformerXlBias& b) const {
    nb::dict d;
    d["heads"] = heads;
    d["model_dim"] = b.model_dim;
    d["head_dim"] = b.head_dim;
    d["causal"] = b.causal;
    d["clamp_distance"] = b.clamp_distance;
    return nb::make_tuple("transformer-xl", d);
  }
  nb::tuple operator()(const NezhaLayerBias& b) const {
    ShawBias shaw = b.Shaw();
    const auto rows = static_cast<std::size_t>(shaw.left + shaw.right + 1);
    const auto dim = static_cast<std::size_t>(shaw.head_dim);
    nb::dict d;
    d["heads"] = heads;
    d["left"] = shaw.left;
    d["right"] = shaw.right;
    d["key_rows"] = Owned(std::move(shaw.key_rows), {rows, dim});
    d["value_rows"] = Owned(std::move(shaw.value_rows), {rows, dim});
    return nb::make_tuple("shaw", d);
  }
  nb::tuple operator()(const KerpleBias& b) const {
    nb::dict d;
    d["heads"] = heads;
    d["kernel"] = b.kernel == KerpleKernel::kLog ? "log" : "power";
    d["causal"] = b.causal;
    return nb::make_tuple("kerple", d);
  }
  nb::tuple operator()(const SandwichBias& b) const {
    nb::dict d;
    d["heads"] = heads;
    d["dim"] = b.dim;
    d["base"] = b.base;
    d["causal"] = b.causal;
    return nb::make_tuple("sandwich", d);
  }
  // Values of the others are tensors of the model.
  nb::tuple operator()(const LearnedAlibiLayerBias& b) const {
    nb::dict d;
    d["causal"] = b.causal;
    return OfModel("alibi", d);
  }
  nb::tuple operator()(const FireLayerBias& b) const {
    nb::dict d;
    d["width"] = b.width;
    return OfModel("fire", d);
  }
  nb::tuple operator()(const ShawLayerBias& b) const {
    nb::dict d;
    d["left"] = b.left;
    d["right"] = b.right;
    d["values"] = b.values;
    d["per_head"] = b.per_head;
    return OfModel("shaw", d);
  }
  nb::tuple operator()(const TupeLayerBias& b) const {
    nb::dict d;
    d["positions"] = b.positions;
    d["reset"] = b.reset;
    d["relative"] = b.relative;
    d["buckets"] = b.buckets;
    d["last_distance"] = b.last_distance;
    return OfModel("tupe", d);
  }
  nb::tuple operator()(const CopeLayerBias& b) const {
    nb::dict d;
    d["rows"] = b.rows;
    d["per_head"] = b.per_head;
    return OfModel("cope", d);
  }
  nb::tuple operator()(const GateLayerBias& /*gate*/) const { return OfModel("gate", nb::dict()); }

 private:
  nb::tuple OfModel(const char* type, const nb::dict& settings) const {
    nb::dict d;
    d["heads"] = heads;
    d["type"] = type;
    d["settings"] = settings;
    return nb::make_tuple("model", d);
  }
};

nb::object TemperatureOf(const std::optional<QueryTemperature>& t) {
  if (!t) return nb::none();
  constexpr std::array kKinds = {"step-log", "log-n", "mscale"};
  const char* kind = kKinds[static_cast<std::size_t>(t->kind)];
  return nb::make_tuple(kind, t->beta, t->period, t->offset);
}

template <typename T>
nb::object DescribedOf(const std::optional<T>& part) {
  if (!part) return nb::none();
  return nb::cast(Describe(*part));
}

nb::list LayersOf(const PyPlan& p) {
  nb::list layers;
  for (const ResolvedLayer& layer : p.resolved.layers) {
    nb::dict d;
    d["rotation"] = layer.rotation;
    d["bias"] = layer.bias;
    d["window"] = layer.window_tokens;
    d["chunk"] = layer.chunk_tokens;
    d["temperature"] = TemperatureOf(layer.temperature);
    d["map"] = layer.map ? nb::cast(*layer.map) : nb::none();
    d["recurrent"] = layer.recurrent;
    d["encoding"] = DescribedOf(layer.encoding);
    d["rotates_values"] = layer.rotates_values;
    layers.append(d);
  }
  return layers;
}

nb::list BiasesOf(const PyPlan& p) {
  nb::list biases;
  for (const LayerBias& bias : p.resolved.biases) {
    biases.append(std::visit(BiasFields{bias.heads}, bias.method));
  }
  return biases;
}

nb::ndarray<nb::numpy, double> Temperatures(const std::string& kind, double beta, int64_t period,
                                            int64_t offset, nb::handle given) {
  constexpr std::array kKinds = {"step-log", "log-n", "mscale"};
  const QueryTemperature t{Choice<QueryTemperature::Kind>("kind", kind, kKinds), beta, period,
                           offset};
  if (period < 1) Bad("period: expected 1 token or more, got " + std::to_string(period));
  const Array positions(given, "positions");
  const auto list = positions.List<const int64_t>();
  return Owned(Unlocked([&] {
    std::vector<double> out;
    for (const int64_t p : list) out.push_back(Temperature(t, p));
    return out;
  }));
}

// For pickle, of the same version of the package.
nb::tuple PartsOf(const PyPlan& p) {
  const std::vector<std::byte> bytes = PackPlan(p.plan);
  return nb::make_tuple(nb::bytes(bytes.data(), bytes.size()), p.resolved.length, p.resolved.hash,
                        p.not_honoured, p.family);
}

PyPlan PlanOfParts(const nb::bytes& bytes, int64_t length, const std::string& hash,
                   std::vector<std::string> not_honoured, std::string family) {
  const auto* begin = reinterpret_cast<const std::byte*>(bytes.c_str());
  PyPlan plan(UnpackPlan({begin, begin + bytes.size()}), length, std::move(not_honoured));
  if (plan.resolved.hash != hash) {
    throw Error(ErrorCode::kMismatch,
                "the plan of positions that came is not the one that was sent: another version of "
                "ropewalk wrote it");
  }
  plan.family = std::move(family);
  return plan;
}

}  // namespace

void RegisterPlan(nb::module_& m) {
  nb::class_<PyPlan>(m, "Plan")
      .def_prop_ro("hash", [](const PyPlan& p) { return p.resolved.hash; })
      .def_prop_ro("length", [](const PyPlan& p) { return p.resolved.length; })
      .def_prop_ro("trained_length", [](const PyPlan& p) { return p.plan.trained_length; })
      .def_prop_ro("configured_length", [](const PyPlan& p) { return p.plan.configured_length; })
      .def_prop_ro("notes", [](const PyPlan& p) { return p.plan.notes; })
      .def_prop_ro("not_honoured", [](const PyPlan& p) { return p.not_honoured; })
      .def_prop_ro("learned",
                   [](const PyPlan& p) -> nb::object {
                     if (!p.plan.learned) return nb::none();
                     return nb::make_tuple(p.plan.learned->positions, p.plan.learned->first_row);
                   })
      .def_prop_ro("absolute", [](const PyPlan& p) { return DescribedOf(p.plan.absolute); })
      .def_prop_ro("recurrent_layer",
                   [](const PyPlan& p) { return DescribedOf(p.plan.recurrent_layer); })
      .def_prop_ro("rotations", [](const PyPlan& p) { return p.resolved.rotations; })
      .def_prop_ro("layers", LayersOf)
      .def_prop_ro("biases", BiasesOf)
      .def("parts", &PartsOf)
      .def("__eq__",
           [](const PyPlan& a, const PyPlan& b) {
             return a.plan == b.plan && a.resolved.length == b.resolved.length;
           })
      .def("__str__", [](const PyPlan& p) { return Describe(p.plan, p.resolved.length); })
      .def("at",
           [](const PyPlan& p, int64_t length) {
             nb::gil_scoped_release release;
             return PyPlan(p.plan, length, p.not_honoured);
           })
      .def("with_trained",
           [](const PyPlan& p, int64_t trained_length) {
             PositionPlan plan = WithTrained(p.plan, trained_length);
             const int64_t length = LengthOf(plan);
             return PyPlan(std::move(plan), length, p.not_honoured);
           })
      .def("with_method", &WithMethod, nb::arg("method"), nb::arg("factor").none(),
           nb::arg("length").none(), nb::arg("trained_length"))
      .def("with_rope", &WithRope, nb::arg("json"), nb::arg("name"), nb::arg("length").none(),
           nb::arg("trained_length"), nb::arg("allow_unknown"));
  m.def("open_plan", &OpenPlan);
  m.def("parse_plan", &Parse);
  m.def("plan_of_parts", &PlanOfParts);
  m.def("temperatures", &Temperatures);
}

}  // namespace ropewalk::python
