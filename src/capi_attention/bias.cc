// ropewalk_bias: methods over distance by name, lowered to their form, and gradients back.
#include <algorithm>
#include <type_traits>
#include <variant>

#include "ropewalk/relative/distance_bias.h"
#include "src/capi_attention/capi_attention.h"

namespace ropewalk::capi {
namespace {

// An integer of first .. last.
int64_t Whole(const ropewalk_parameter& p, double first, double last) {
  if (!(p.value >= first && p.value <= last) || p.value != static_cast<double>(int64_t(p.value))) {
    Bad("parameters: " + std::string(p.name) + ": expected an integer from " +
        std::to_string(int64_t(first)) + " to " + std::to_string(int64_t(last)) + ", got " +
        std::to_string(p.value));
  }
  return static_cast<int64_t>(p.value);
}

// Numbers, flags and enums as their number; lists are no parameters.
void Set(const ropewalk_parameter& p, int /*last*/, double& out) { out = p.value; }
void Set(const ropewalk_parameter& p, int /*last*/, int64_t& out) { out = Whole(p, 0, 1 << 30); }
void Set(const ropewalk_parameter& p, int /*last*/, bool& out) { out = Whole(p, 0, 1) == 1; }
template <class E>
requires std::is_enum_v<E>
void Set(const ropewalk_parameter& p, int last, E& out) { out = static_cast<E>(Whole(p, 0, last)); }

template <class B>
void SetParameter(const ropewalk_parameter& p, const char* method, B& bias) {
  bool set = false;
  std::string known;
  VisitFields<B>([&](const auto& field) {
    auto& value = bias.*field.member;
    if constexpr (requires { Set(p, field.last, value); }) {
      known += (known.empty() ? "" : ", ") + std::string(field.name);
      if (std::strcmp(field.name, p.name) != 0) return;
      Set(p, field.last, value);
      set = true;
    }
  });
  if (!set) Bad("parameters: " + std::string(method) + " has no " + p.name + "; it has " + known);
}

DistanceBias BiasOf(const ropewalk_bias& b) {
  NotNull(b.method, "bias.method");
  CheckHeads("bias", b.heads, b.head_dim);
  std::string names;
  for (const DistanceBiasInfo& info : DistanceBiases()) {
    names += (names.empty() ? "" : ", ") + std::string(info.name);
    if (std::string(info.name) != b.method) continue;
    DistanceBias bias = info.make();
    for (const ropewalk_parameter& p : Parameters(b.parameters, b.num_parameters)) {
      std::visit([&](auto& m) { SetParameter(p, info.name, m); }, bias);
    }
    SetLearned(List(b.values, b.num_values, "values"), b.heads, bias);
    return bias;
  }
  Bad("bias.method: expected one of " + names + "; got \"" + b.method +
      "\" (ropewalk_form_create takes any other)");
}

// The gradient of the numbers of a form, in their places.
struct CopyGradient {
  const ropewalk_bias& b;
  const ropewalk_form_gradient& d;

  void operator()(SlopeForm& form) const {
    form.behind = Copied("d_form.behind", &NotNull(d.behind, "d_form.behind"), b.heads);
    if (!form.ahead.empty()) form.ahead = Copied("d_form.ahead", d.ahead, b.heads);
  }
  void operator()(DistanceForm& form) const {
    NotNull(d.values, "d_form.values");
    std::copy_n(d.values, form.values.size(), form.values.begin());
  }
  template <class Form>
  void operator()(Form& /*form*/) const {}
};

}  // namespace
}  // namespace ropewalk::capi

using ropewalk::capi::Guard;
using ropewalk::capi::NotNull;
using ropewalk::capi::Read;

ropewalk_status ropewalk_form_lower(const ropewalk_bias* bias, ropewalk_form** out) {
  return Guard([&] {
    NotNull(out, "out");
    const ropewalk_bias b = Read(bias, "bias");
    *out = new ropewalk_form{ropewalk::PreparedForm(
        ropewalk::Lower(ropewalk::capi::BiasOf(b), b.heads, b.max_distance), b.heads, b.head_dim)};
  });
}

ropewalk_status ropewalk_bias_gradient(const ropewalk_bias* bias,
                                       const ropewalk_form_gradient* d_form, double* out) {
  return Guard([&] {
    NotNull(out, "out");
    const ropewalk_bias b = Read(bias, "bias");
    const ropewalk_form_gradient d = Read(d_form, "d_form");
    const ropewalk::DistanceBias method = ropewalk::capi::BiasOf(b);
    ropewalk::ScoreForm form = ropewalk::Lower(method, b.heads, b.max_distance);
    std::visit(ropewalk::capi::CopyGradient{b, d}, form);
    const std::vector<double> gradient = ropewalk::Backward(method, form);
    std::copy(gradient.begin(), gradient.end(), out);
  });
}
