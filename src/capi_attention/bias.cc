// ropewalk_bias: methods over distance by name, lowered to their form, and gradients back.
#include <algorithm>
#include <utility>
#include <variant>

#include "ropewalk/relative/alibi.h"
#include "ropewalk/relative/kerple.h"
#include "ropewalk/relative/sandwich.h"
#include "ropewalk/relative/t5.h"
#include "src/capi_attention/capi_attention.h"

namespace ropewalk::capi {
namespace {

using Method = std::variant<AlibiBias, T5Bias, KerpleBias, SandwichBias>;

struct Field {
  const char* name;
  std::variant<double*, int64_t*, bool*, AlibiSlopes*, AlibiAhead*, KerpleKernel*> value;
};

std::vector<Field> FieldsOf(AlibiBias& b) {
  return {{"rule", &b.rule},
          {"ahead", &b.ahead},
          {"max_bias", &b.max_bias},
          {"scale", &b.scale},
          {"bfloat16", &b.bfloat16}};
}
std::vector<Field> FieldsOf(T5Bias& b) {
  return {{"buckets", &b.buckets},
          {"last_distance", &b.last_distance},
          {"bidirectional", &b.bidirectional}};
}
std::vector<Field> FieldsOf(KerpleBias& b) {
  return {{"kernel", &b.kernel}, {"causal", &b.causal}};
}
std::vector<Field> FieldsOf(SandwichBias& b) {
  return {{"dim", &b.dim}, {"base", &b.base}, {"causal", &b.causal}};
}

// An integer of first .. last.
int64_t Whole(const ropewalk_parameter& p, double first, double last) {
  if (!(p.value >= first && p.value <= last) || p.value != static_cast<double>(int64_t(p.value))) {
    Bad("parameters: " + std::string(p.name) + ": expected an integer from " +
        std::to_string(int64_t(first)) + " to " + std::to_string(int64_t(last)) + ", got " +
        std::to_string(p.value));
  }
  return static_cast<int64_t>(p.value);
}

struct Setter {
  const ropewalk_parameter& p;
  void operator()(double* out) const { *out = p.value; }
  void operator()(int64_t* out) const { *out = Whole(p, 0, 1 << 30); }
  void operator()(bool* out) const { *out = Whole(p, 0, 1) == 1; }
  void operator()(AlibiSlopes* out) const { *out = static_cast<AlibiSlopes>(Whole(p, 0, 1)); }
  void operator()(AlibiAhead* out) const { *out = static_cast<AlibiAhead>(Whole(p, 0, 3)); }
  void operator()(KerpleKernel* out) const { *out = static_cast<KerpleKernel>(Whole(p, 0, 1)); }
};

void SetParameters(const ropewalk_bias& b, const std::vector<Field>& fields) {
  for (const ropewalk_parameter& p : Parameters(b.parameters, b.num_parameters)) {
    const auto field = std::find_if(fields.begin(), fields.end(), [&](const Field& f) {
      return std::strcmp(f.name, p.name) == 0;
    });
    if (field == fields.end()) {
      std::string known;
      for (const Field& f : fields) known += (known.empty() ? "" : ", ") + std::string(f.name);
      Bad("parameters: " + std::string(b.method) + " has no " + p.name + "; it has " + known);
    }
    std::visit(Setter{p}, field->value);
  }
}

void Expect(const ropewalk_bias& b, int64_t expected) {
  if (b.num_values == expected) return;
  Bad("values: expected " + std::to_string(expected) + " for " + b.method + " of " +
      std::to_string(b.heads) + " heads, got " + std::to_string(b.num_values));
}

struct SetValues {
  const ropewalk_bias& b;
  std::vector<float> values;

  void operator()(AlibiBias& m) const {
    if (!values.empty()) Expect(b, b.heads);
    m.slopes = values;
  }
  void operator()(T5Bias& m) const {
    Expect(b, Count("buckets", m.buckets, b.heads));
    m.embedding = values;
  }
  void operator()(KerpleBias& m) const {
    Expect(b, 2 * b.heads);
    m.r1.assign(values.begin(), values.begin() + b.heads);
    m.r2.assign(values.begin() + b.heads, values.end());
  }
  void operator()(SandwichBias&) const { Expect(b, 0); }
};

Method MethodOf(const ropewalk_bias& b) {
  const std::pair<const char*, Method> methods[] = {{"alibi", AlibiBias{}},
                                                    {"t5", T5Bias{}},
                                                    {"kerple", KerpleBias{}},
                                                    {"sandwich", SandwichBias{}}};
  NotNull(b.method, "bias.method");
  if (b.heads < 1 || b.heads > 1 << 16) {
    Bad("bias.heads: expected 1 to 65536, got " + std::to_string(b.heads));
  }
  std::string names;
  for (const auto& [name, plain] : methods) {
    names += (names.empty() ? "" : ", ") + std::string(name);
    if (std::string(name) != b.method) continue;
    Method method = plain;
    std::visit([&](auto& m) { SetParameters(b, FieldsOf(m)); }, method);
    const std::span<const float> values = List(b.values, b.num_values, "values");
    std::visit(SetValues{b, {values.begin(), values.end()}}, method);
    return method;
  }
  Bad("bias.method: expected one of " + names + "; got \"" + b.method +
      "\" (ropewalk_form_create takes any other)");
}

ScoreForm Lowered(const Method& method, int64_t heads, int64_t max_distance) {
  const auto* alibi = std::get_if<AlibiBias>(&method);
  if (alibi != nullptr && alibi->bfloat16) return alibi->LowerInBfloat16(heads);
  return std::visit([&](const auto& m) -> ScoreForm { return m.Lower(heads, max_distance); },
                    method);
}

struct Differentiate {
  const ropewalk_bias& b;
  const ropewalk_form_gradient& d;

  std::vector<double> operator()(const AlibiBias& m) const {
    if (m.slopes.empty() || m.bfloat16) Bad("bias.values: expected learned slopes, got none");
    SlopeForm gradient{Copied(&NotNull(d.behind, "d_form.behind"), b.heads), {}};
    if (m.ahead != AlibiAhead::kCausal) gradient.ahead = Copied(d.ahead, b.heads);
    return m.Backward(gradient);
  }
  std::vector<double> operator()(const T5Bias& m) const { return m.Backward(Table(m)); }
  std::vector<double> operator()(const KerpleBias& m) const {
    KerpleBias::Gradient g = m.Backward(Table(m));
    g.r1.insert(g.r1.end(), g.r2.begin(), g.r2.end());
    return g.r1;
  }
  std::vector<double> operator()(const SandwichBias&) const {
    Bad("bias.method: sandwich learns nothing");
  }

  template <class M>
  DistanceForm Table(const M& m) const {
    DistanceForm form = m.Lower(b.heads, b.max_distance);
    NotNull(d.values, "d_form.values");
    std::copy_n(d.values, form.values.size(), form.values.begin());
    return form;
  }
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
        ropewalk::capi::Lowered(ropewalk::capi::MethodOf(b), b.heads, b.max_distance), b.heads,
        b.head_dim)};
  });
}

ropewalk_status ropewalk_bias_gradient(const ropewalk_bias* bias,
                                       const ropewalk_form_gradient* d_form, double* out) {
  return Guard([&] {
    NotNull(out, "out");
    const ropewalk_bias b = Read(bias, "bias");
    const ropewalk_form_gradient d = Read(d_form, "d_form");
    const std::vector<double> gradient =
        std::visit(ropewalk::capi::Differentiate{b, d}, ropewalk::capi::MethodOf(b));
    std::copy(gradient.begin(), gradient.end(), out);
  });
}
