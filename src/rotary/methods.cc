// What follows from the rows of the scaling methods, and from the fields of their structs.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "src/base/fields_text.h"
#include "src/rotary/scaling/scaling.h"

namespace ropewalk {
namespace {

using internal::RowOf;
using internal::Setting;

static_assert(kListsAllFields<Scaling>, "Fields() of a scaling leaves out a member");

template <class S>
Scaling Make([[maybe_unused]] double factor) {
  S s;
  if constexpr (requires { s.factor; }) {
    if (factor != 0) s.factor = factor;
  }
  return s;
}

template <class S>
MethodInfo MakeInfo() {
  const internal::ScalingRow<S> row = RowOf<S>();
  return {.name = row.name,
          .title = row.title,
          .source = row.source,
          .length_dependent = row.length_dependent,
          .needs_trained_length = row.needs_trained_length,
          .by_factor = row.setting != Setting::kByHand,
          .usual = row.setting == Setting::kUsual,
          .make = Make<S>};
}

template <std::size_t... I>
std::vector<MethodInfo> MakeInfos(std::index_sequence<I...> /*alternatives*/) {
  return {MakeInfo<std::variant_alternative_t<I, Scaling>>()...};
}

}  // namespace

const std::vector<MethodInfo>& ScalingMethods() {
  static const std::vector<MethodInfo> all =
      MakeInfos(std::make_index_sequence<std::variant_size_v<Scaling>>());
  return all;
}

const std::vector<MethodInfo>& Methods() {
  static const std::vector<MethodInfo> methods = [] {
    std::vector<MethodInfo> list = ScalingMethods();
    std::erase_if(list, [](const MethodInfo& m) { return !m.by_factor; });
    return list;
  }();
  return methods;
}

const MethodInfo& FindMethod(const std::string& name) {
  std::string names;
  for (const MethodInfo& method : Methods()) {
    if (name == method.name) return method;
    names += names.empty() ? method.name : std::string(", ") + method.name;
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("method: expected one of {}; got \"{}\"", names, name));
}

const MethodInfo& InfoOf(const Scaling& scaling) { return ScalingMethods()[scaling.index()]; }

std::string Describe(const Scaling& scaling) {
  return std::visit(
      [&](const auto& s) { return internal::DescribeFields(InfoOf(scaling).name, s); }, scaling);
}

bool IsLengthDependent(const Scaling& scaling) { return InfoOf(scaling).length_dependent; }

double FactorOf(const Scaling& scaling) {
  return std::visit(
      [](const auto& s) {
        if constexpr (requires { s.factor.value_or(1); }) {
          return s.factor.value_or(1);
        } else if constexpr (requires { s.factor; }) {
          return s.factor;
        } else {
          return 1.0;
        }
      },
      scaling);
}

Scaling TrainedScaling(const Scaling& scaling) {
  return std::visit(
      [](auto s) -> Scaling {
        if (!RowOf<decltype(s)>().trained_with) return NoScaling{};
        if constexpr (requires { s.factor; }) s.factor = 1;
        return s;
      },
      scaling);
}

}  // namespace ropewalk
