// The biases of ropewalk/relative by name: parameters from Python, Lower, and gradients back.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include "python/src/arrays.h"
#include "python/src/forms.h"
#include "ropewalk/base/fields.h"
#include "ropewalk/relative/alibi.h"
#include "ropewalk/relative/deberta.h"
#include "ropewalk/relative/fire.h"
#include "ropewalk/relative/kerple.h"
#include "ropewalk/relative/running.h"
#include "ropewalk/relative/sandwich.h"
#include "ropewalk/relative/shaw.h"
#include "ropewalk/relative/swin.h"
#include "ropewalk/relative/t5.h"
#include "ropewalk/relative/transformer_xl.h"
#include "ropewalk/relative/tupe.h"

namespace ropewalk::python {
namespace {

// The members of a bias, and of its gradient, by name.
template <class B>
constexpr auto Members() {
  return B::Fields();
}
template <>
constexpr auto Members<ShawBias>() {
  using B = ShawBias;
  return std::tuple{Field{"left", &B::left},         Field{"right", &B::right},
                    Field{"head_dim", &B::head_dim}, Field{"table_heads", &B::table_heads},
                    Field{"key_rows", &B::key_rows}, Field{"value_rows", &B::value_rows}};
}
template <>
constexpr auto Members<TransformerXlBias>() {
  using B = TransformerXlBias;
  return std::tuple{Field{"model_dim", &B::model_dim},
                    Field{"head_dim", &B::head_dim},
                    Field{"causal", &B::causal},
                    Field{"clamp_distance", &B::clamp_distance},
                    Field{"projection", &B::projection},
                    Field{"content_bias", &B::content_bias},
                    Field{"position_bias", &B::position_bias}};
}
template <>
constexpr auto Members<DebertaBias>() {
  using B = DebertaBias;
  return std::tuple{Field{"buckets", &B::buckets},
                    Field{"max_position", &B::max_position},
                    Field{"model_dim", &B::model_dim},
                    Field{"head_dim", &B::head_dim},
                    Field{"embedding", &B::embedding},
                    Field{"key_projection", &B::key_projection},
                    Field{"key_projection_bias", &B::key_projection_bias},
                    Field{"query_projection", &B::query_projection},
                    Field{"query_projection_bias", &B::query_projection_bias}};
}
template <>
constexpr auto Members<FireBias>() {
  using B = FireBias;
  return std::tuple{Field{"w1", &B::w1}, Field{"b1", &B::b1}, Field{"w2", &B::w2},
                    Field{"b2", &B::b2}, Field{"c", &B::c},   Field{"threshold", &B::threshold}};
}
template <>
constexpr auto Members<TupeBias>() {
  using B = TupeBias;
  return std::tuple{Field{"positions", &B::positions},
                    Field{"model_dim", &B::model_dim},
                    Field{"head_dim", &B::head_dim},
                    Field{"embedding", &B::embedding},
                    Field{"query_projection", &B::query_projection},
                    Field{"query_projection_bias", &B::query_projection_bias},
                    Field{"key_projection", &B::key_projection},
                    Field{"key_projection_bias", &B::key_projection_bias},
                    Field{"relative", &B::relative},
                    Field{"from_cls", &B::from_cls},
                    Field{"to_cls", &B::to_cls}};
}
template <>
constexpr auto Members<SwinBias>() {
  using B = SwinBias;
  return std::tuple{Field{"height", &B::height},
                    Field{"width", &B::width},
                    Field{"pretrained_height", &B::pretrained_height},
                    Field{"pretrained_width", &B::pretrained_width},
                    Field{"w1", &B::w1},
                    Field{"b1", &B::b1},
                    Field{"w2", &B::w2}};
}
template <>
constexpr auto Members<ForgetGateBias>() {
  using B = ForgetGateBias;
  return std::tuple{Field{"model_dim", &B::model_dim}, Field{"weight", &B::weight},
                    Field{"bias", &B::bias}};
}
template <>
constexpr auto Members<CopeBias>() {
  using B = CopeBias;
  return std::tuple{Field{"rows", &B::rows}, Field{"head_dim", &B::head_dim},
                    Field{"table_heads", &B::table_heads},
                    Field{"position_rows", &B::position_rows}};
}
template <>
constexpr auto Members<KerpleBias::Gradient>() {
  using G = KerpleBias::Gradient;
  return std::tuple{Field{"r1", &G::r1}, Field{"r2", &G::r2}};
}
template <>
constexpr auto Members<ShawBias::Gradient>() {
  using G = ShawBias::Gradient;
  return std::tuple{Field{"key_rows", &G::key_rows}, Field{"value_rows", &G::value_rows}};
}
template <>
constexpr auto Members<TransformerXlBias::Gradient>() {
  using G = TransformerXlBias::Gradient;
  return std::tuple{Field{"projection", &G::projection}, Field{"content_bias", &G::content_bias},
                    Field{"position_bias", &G::position_bias}};
}
template <>
constexpr auto Members<DebertaBias::Gradient>() {
  using G = DebertaBias::Gradient;
  return std::tuple{Field{"embedding", &G::embedding}, Field{"key_projection", &G::key_projection},
                    Field{"key_projection_bias", &G::key_projection_bias},
                    Field{"query_projection", &G::query_projection},
                    Field{"query_projection_bias", &G::query_projection_bias}};
}
template <>
constexpr auto Members<FireBias::Gradient>() {
  using G = FireBias::Gradient;
  return std::tuple{Field{"w1", &G::w1}, Field{"b1", &G::b1}, Field{"w2", &G::w2},
                    Field{"b2", &G::b2}, Field{"c", &G::c},   Field{"threshold", &G::threshold}};
}
template <>
constexpr auto Members<TupeBias::Gradient>() {
  using G = TupeBias::Gradient;
  return std::tuple{Field{"embedding", &G::embedding},
                    Field{"query_projection", &G::query_projection},
                    Field{"query_projection_bias", &G::query_projection_bias},
                    Field{"key_projection", &G::key_projection},
                    Field{"key_projection_bias", &G::key_projection_bias},
                    Field{"relative", &G::relative},
                    Field{"from_cls", &G::from_cls},
                    Field{"to_cls", &G::to_cls}};
}
template <>
constexpr auto Members<SwinBias::Gradient>() {
  using G = SwinBias::Gradient;
  return std::tuple{Field{"w1", &G::w1}, Field{"b1", &G::b1}, Field{"w2", &G::w2}};
}
template <>
constexpr auto Members<ForgetGateBias::Gradient>() {
  using G = ForgetGateBias::Gradient;
  return std::tuple{Field{"weight", &G::weight}, Field{"bias", &G::bias}, Field{"x", &G::x}};
}

template <class S, class Visit>
void VisitMembers(const Visit& visit) {
  std::apply([&](const auto&... field) { (visit(field), ...); }, Members<S>());
}

template <class B>
B Read(const nb::dict& given);

// Python has checked numbers, flags and enums already.
template <class T>
void Set(const char* /*name*/, nb::handle given, T& out) {
  if constexpr (std::is_enum_v<T>) {
    out = static_cast<T>(nb::cast<int>(given));
  } else {
    out = nb::cast<T>(given);
  }
}
void Set(const char* name, nb::handle given, std::vector<float>& out) {
  const Array array(given, name);
  const std::span<const float> list = array.List<const float>();
  out.assign(list.begin(), list.end());
}
void Set(const char* /*name*/, nb::handle given, std::optional<T5Bias>& out) {
  if (!given.is_none()) out = Read<T5Bias>(nb::cast<nb::dict>(given));
}

template <class B>
B Read(const nb::dict& given) {
  B bias;
  VisitMembers<B>([&](const auto& field) {
    if (given.contains(field.name)) Set(field.name, given[field.name], bias.*field.member);
  });
  return bias;
}

nb::object Number(const std::vector<double>& values) {
  return nb::cast(Owned(values), nb::rv_policy::automatic);
}
nb::object Number(double value) { return nb::float_(value); }

template <class G>
nb::dict Written(const G& gradient) {
  nb::dict out;
  VisitMembers<G>([&](const auto& field) { out[field.name] = Number(gradient.*field.member); });
  return out;
}
nb::dict Written(const char* name, const std::vector<double>& gradient) {
  nb::dict out;
  out[name] = Number(gradient);
  return out;
}

using AnyBias =
    std::variant<AlibiBias, T5Bias, KerpleBias, SandwichBias, ShawBias, TransformerXlBias,
                 DebertaBias, FireBias, TupeBias, SwinBias, ForgetGateBias, CopeBias>;
constexpr const char* kNames[] = {"alibi",           "t5",      "kerple", "sandwich", "shaw",
                                  "transformer-xl",  "deberta", "fire",   "tupe",     "swin",
                                  "forgetting-gate", "cope"};

struct PyBias {
  AnyBias bias;
  int64_t heads = 0;
};

template <std::size_t... I>
AnyBias ReadAny(const std::string& name, const nb::dict& given, std::index_sequence<I...>) {
  std::optional<AnyBias> out;
  ((name == kNames[I] ? (void)(out = Read<std::variant_alternative_t<I, AnyBias>>(given)) : void()),
   ...);
  if (!out) Bad("bias: got \"" + name + "\"");
  return *out;
}

PyBias Make(const std::string& name, int64_t heads, const nb::dict& given) {
  return {ReadAny(name, given, std::make_index_sequence<std::variant_size_v<AnyBias>>()), heads};
}

PyForm Lowered(const PyBias& b, int64_t max_distance) {
  nb::gil_scoped_release release;
  ScoreForm form = std::visit(
      [&]<class B>(const B& bias) -> ScoreForm {
        if constexpr (std::is_same_v<B, ForgetGateBias>) {
          Bad("bias: a forgetting gate is lowered with its input x");
        } else {
          return bias.Lower(b.heads, max_distance);
        }
      },
      b.bias);
  return {std::make_shared<const ScoreForm>(std::move(form)), b.heads};
}

PyForm LoweredWith(const PyBias& b, nb::handle given) {
  const Array x(given, "x");
  const std::span<const float> list = x.List<const float>();
  nb::gil_scoped_release release;
  const auto& gate = std::get<ForgetGateBias>(b.bias);
  return {std::make_shared<const ScoreForm>(gate.Lower(b.heads, list)), b.heads};
}

// d(loss) / d(parameters), from the gradients of the numbers of `form`, which this bias was lowered
// to.
class BackwardOf {
 public:
  BackwardOf(const ScoreForm& form, std::span<const double> sums, std::span<const float> input)
      : gradient_(form), parameters_(sums), x_(input) {}

  nb::dict operator()(const AlibiBias& b) const {
    return Written("slopes", Unlocked([&] { return b.Backward(As<SlopeForm>()); }));
  }
  nb::dict operator()(const T5Bias& b) const {
    return Written("embedding", Unlocked([&] { return b.Backward(As<DistanceForm>()); }));
  }
  nb::dict operator()(const KerpleBias& b) const { return Of<DistanceForm>(b); }
  nb::dict operator()(const SandwichBias&) const { return {}; }
  nb::dict operator()(const ShawBias& b) const { return Of<ContentForm>(b); }
  nb::dict operator()(const TransformerXlBias& b) const { return Of<ContentForm>(b); }
  nb::dict operator()(const DebertaBias& b) const { return Of<ContentForm>(b); }
  nb::dict operator()(const FireBias& b) const { return OfPairs(b); }
  nb::dict operator()(const TupeBias& b) const { return OfPairs(b); }
  nb::dict operator()(const SwinBias& b) const { return OfPairs(b); }
  nb::dict operator()(const ForgetGateBias& b) const {
    return Written(Unlocked([&] { return b.Backward(As<RunningForm>(), x_); }));
  }
  nb::dict operator()(const CopeBias& b) const {
    return Written("position_rows", Unlocked([&] { return b.Backward(As<RunningForm>()); }));
  }

 private:
  template <class F>
  const F& As() const {
    const F* form = std::get_if<F>(&gradient_);
    if (form == nullptr) Bad("form: expected one that this bias was lowered to");
    return *form;
  }
  template <class F, class B>
  nb::dict Of(const B& b) const {
    return Written(Unlocked([&] { return b.Backward(As<F>()); }));
  }
  template <class B>
  nb::dict OfPairs(const B& b) const {
    return Written(Unlocked([&] { return b.Backward(parameters_); }));
  }

  const ScoreForm& gradient_;
  std::span<const double> parameters_;  // of a PairForm
  std::span<const float> x_;            // of a forgetting gate
};

nb::dict Backward(const PyBias& b, const PyForm& form, const nb::dict& given, nb::handle x) {
  const ScoreForm gradient = GradientForm(*form.form, given);
  const Array input(x, "x");
  Array parameters;
  if (std::holds_alternative<PairForm>(*form.form)) {
    if (!given.contains("parameters")) Bad("gradient: expected \"parameters\"");
    parameters = Array(given["parameters"], "gradient.parameters");
  }
  return std::visit(
      BackwardOf(gradient, parameters.List<const double>(), input.List<const float>()), b.bias);
}

}  // namespace

void BindBiases(nb::module_& m) {
  nb::class_<PyBias>(m, "Bias")
      .def("lower", &Lowered)
      .def("lower_with", &LoweredWith)
      .def("backward", &Backward, nb::arg("form"), nb::arg("gradient"), nb::arg("x").none());
  m.def("make_bias", &Make);
  m.def("t5_bucket", [](const nb::dict& t5, nb::handle given) {
    const Array distances(given, "distances");
    const auto bias = Read<T5Bias>(t5);
    const auto list = distances.List<const int64_t>();
    return Owned(Unlocked([&] {
      std::vector<int64_t> out;
      for (const int64_t d : list) out.push_back(bias.Bucket(d));
      return out;
    }));
  });
  m.def("deberta_row", [](const nb::dict& deberta, nb::handle given) {
    const Array distances(given, "distances");
    const auto bias = Read<DebertaBias>(deberta);
    const auto list = distances.List<const int64_t>();
    return Owned(Unlocked([&] {
      std::vector<int64_t> out;
      for (const int64_t d : list) out.push_back(bias.Row(d));
      return out;
    }));
  });
  m.def("shaw_sinusoidal_rows", [](int64_t left, int64_t right, int64_t head_dim) {
    const std::vector<float> rows = ShawSinusoidalRows(left, right, head_dim);
    return Owned(rows,
                 {static_cast<std::size_t>(left + right + 1), static_cast<std::size_t>(head_dim)});
  });
}

}  // namespace ropewalk::python
