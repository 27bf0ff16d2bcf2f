// ropewalk_spec -> RotarySpec, and the handles made of it.
#include <optional>
#include <variant>
#include <vector>

#include "ropewalk/rotary/gradient.h"
#include "src/capi/capi.h"

namespace ropewalk::capi {
namespace {

// Methods that need more than a factor are not among Methods().
Scaling ScalingOf(const std::string& name) {
  std::string known;
  for (const MethodInfo& method : ScalingMethods()) {
    if (name == method.name) return method.make(0);  // a factor is among the parameters, or missing
    known += (known.empty() ? "" : ", ") + std::string(method.name);
  }
  Bad("method: expected one of " + known + "; got \"" + name + "\"");
}

// Numbers and flags; lists are no parameters.
void Set(const ropewalk_parameter& parameter, double& number) { number = parameter.value; }
void Set(const ropewalk_parameter& parameter, std::optional<double>& number) {
  number = parameter.value;
}
void Set(const ropewalk_parameter& parameter, bool& flag) {
  if (parameter.value != 0 && parameter.value != 1) {
    Bad("parameters: " + std::string(parameter.name) + " is 0 or 1, got " +
        std::to_string(parameter.value));
  }
  flag = parameter.value == 1;
}

void SetParameter(const ropewalk_parameter& parameter, Scaling& scaling) {
  const std::string name = parameter.name;
  std::string known;
  bool set = false;
  std::visit(
      [&]<class S>(S& s) {
        VisitFields<S>([&](const auto& field) {
          auto& value = s.*field.member;
          if constexpr (requires { Set(parameter, value); }) {
            known += (known.empty() ? "" : ", ") + std::string(field.name);
            if (name != field.name) return;
            Set(parameter, value);
            set = true;
          }
        });
      },
      scaling);
  if (set) return;
  Bad("parameters: " + Describe(scaling) + " has no " + name +
      (known.empty() ? "" : "; it has " + known));
}

void SetFactors(const ropewalk_spec& s, Scaling& scaling) {
  const std::span<const double> factors = List(s.factors, s.num_factors, "factors");
  if (LongRopeScaling* l = std::get_if<LongRopeScaling>(&scaling)) {
    const std::span<const double> longs = List(s.long_factors, s.num_factors, "long_factors");
    l->short_factor.assign(factors.begin(), factors.end());
    l->long_factor.assign(longs.begin(), longs.end());
  } else if (ExplicitScaling* e = std::get_if<ExplicitScaling>(&scaling)) {
    e->divisors.assign(factors.begin(), factors.end());
  } else if (!factors.empty()) {
    Bad("factors: only longrope and explicit take them");
  }
}

}  // namespace

RotarySpec SpecOf(const ropewalk_spec* spec) {
  const ropewalk_spec s = Read(spec, "spec");
  RotarySpec out(Layout(s.layout));
  out.head_dim = s.head_dim;
  out.rotary_dim = s.rotary_dim == 0 ? s.head_dim : s.rotary_dim;
  out.first_dim = s.first_dim;
  if (s.base != 0) out.base = s.base;
  out.trained_length = s.trained_length;
  out.dialect = Enum<Dialect>(s.dialect, 0, 6, "dialect");
  out.scaling = ScalingOf(s.method == nullptr ? "none" : s.method);
  for (const ropewalk_parameter& p : Parameters(s.parameters, s.num_parameters)) {
    SetParameter(p, out.scaling);
  }
  SetFactors(s, out.scaling);
  const std::span<const int64_t> sections = List(s.sections, s.num_sections, "sections");
  out.axes.sections.assign(sections.begin(), sections.end());
  out.axes.order = Enum<AxisOrder>(s.axis_order, 0, 2, "axis_order");
  out.axes.own_ladders = s.own_ladders != 0;
  if (s.xpos != nullptr) {
    const ropewalk_xpos x = Read(s.xpos, "xpos");
    out.xpos.emplace();
    if (x.scale_base != 0) out.xpos->scale_base = x.scale_base;
    if (x.gamma != 0) out.xpos->gamma = x.gamma;
    out.xpos->centre = x.centre;
  }
  return out;
}

}  // namespace ropewalk::capi

using ropewalk::capi::Guard;
using ropewalk::capi::NotNull;

ropewalk_status ropewalk_frequencies_create(const ropewalk_spec* spec, int64_t length,
                                            ropewalk_frequencies** out) {
  return Guard([&] {
    NotNull(out, "out");
    ropewalk::Frequencies f = ropewalk::Resolve(ropewalk::capi::SpecOf(spec), length);
    std::vector<double> inv_freq;
    for (const ropewalk::DoubleDouble& x : f.inv_freq) inv_freq.push_back(x.hi);
    *out = new ropewalk_frequencies{std::move(f), std::move(inv_freq)};
  });
}

ropewalk_status ropewalk_frequencies_get(const ropewalk_frequencies* frequencies,
                                         ropewalk_frequencies_info* out) {
  return Guard([&] {
    const ropewalk::Frequencies& f = NotNull(frequencies, "frequencies").frequencies;
    ropewalk_frequencies_info info = ropewalk::capi::Read(out, "out");
    info.pairs = static_cast<int64_t>(f.inv_freq.size());
    info.axes = f.axes;
    info.amplitude = f.amplitude;
    info.softmax_multiplier = f.softmax_multiplier;
    info.inv_freq = frequencies->inv_freq.data();
    info.inv_freq_f32 = f.inv_freq_f32.data();
    info.axis = f.axis.empty() ? nullptr : f.axis.data();
    ropewalk::capi::Write(info, out);
  });
}

void ropewalk_frequencies_destroy(ropewalk_frequencies* frequencies) { delete frequencies; }

ropewalk_status ropewalk_table_create(const ropewalk_frequencies* frequencies, int64_t first,
                                      int64_t count, int32_t precision, ropewalk_table** out) {
  return Guard([&] {
    NotNull(out, "out");
    *out = new ropewalk_table{ropewalk::CosSinTable(NotNull(frequencies, "frequencies").frequencies,
                                                    first, count,
                                                    ropewalk::capi::Precision(precision))};
  });
}

ropewalk_status ropewalk_table_create_cuda(const ropewalk_frequencies* frequencies, int64_t first,
                                           int64_t count, int32_t precision, void* stream,
                                           ropewalk_table** out) {
  return Guard([&] {
    NotNull(out, "out");
    *out = new ropewalk_table{ropewalk::CosSinTable(
        NotNull(frequencies, "frequencies").frequencies, first, count,
        ropewalk::capi::Precision(precision), ropewalk::Device::kCuda, stream)};
  });
}

ropewalk_status ropewalk_table_grow(ropewalk_table* table, int64_t count) {
  return Guard([&] {
    NotNull(table, "table");
    table->table.Grow(count);
  });
}

ropewalk_status ropewalk_table_row(const ropewalk_table* table, int64_t position,
                                   const float** out) {
  return Guard([&] {
    NotNull(out, "out");
    const ropewalk::CosSinTable& t = NotNull(table, "table").table;
    if (!t.Contains(position)) {
      ropewalk::capi::Bad("position " + std::to_string(position) +
                          " is outside the table, which holds " + std::to_string(t.count()) +
                          " from " + std::to_string(t.first()) + " on");
    }
    *out = t.Row(position);
  });
}

void ropewalk_table_destroy(ropewalk_table* table) { delete table; }

ropewalk_status ropewalk_fill_cos_sin(const ropewalk_frequencies* frequencies,
                                      const int64_t* positions, int64_t count, int32_t precision,
                                      float* out) {
  return Guard([&] {
    NotNull(frequencies, "frequencies");
    if (count != 0) NotNull(out, "out");
    ropewalk::FillCosSin(frequencies->frequencies,
                         ropewalk::capi::List(positions, count, "positions"),
                         ropewalk::capi::Precision(precision), out);
  });
}

ropewalk_status ropewalk_base_derivative(const ropewalk_spec* spec, int64_t length, double* out) {
  return Guard([&] {
    NotNull(out, "out");
    const std::vector<double> derivative =
        ropewalk::BaseDerivative(ropewalk::capi::SpecOf(spec), length);
    std::copy(derivative.begin(), derivative.end(), out);
  });
}
