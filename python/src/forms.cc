#include "python/src/forms.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "python/src/arrays.h"

namespace ropewalk::python {
namespace {

constexpr auto kArray = nb::rv_policy::automatic;

// Calls visit(name, array, sizes) for every list of numbers of a form.
template <class Visit>
void VisitLists(SlopeForm& f, int64_t heads, const Visit& visit) {
  visit("behind", f.behind, {heads});
  visit("ahead", f.ahead, {heads});
}
template <class Visit>
void VisitLists(DistanceForm& f, int64_t heads, const Visit& visit) {
  visit("values", f.values, {heads, f.columns});
}
template <class Visit>
void VisitLists(ContentForm& f, int64_t heads, const Visit& visit) {
  visit("query_rows", f.query_rows, {f.table_heads, f.rows, f.head_dim});
  visit("key_rows", f.key_rows, {f.table_heads, f.rows, f.head_dim});
  visit("value_rows", f.value_rows, {f.table_heads, f.rows, f.head_dim});
  visit("query_bias", f.query_bias, {heads, f.head_dim});
  visit("key_bias", f.key_bias, {heads, f.head_dim});
}
template <class Visit>
void VisitLists(PairForm&, int64_t, const Visit&) {}
template <class Visit>
void VisitLists(RunningForm& f, int64_t heads, const Visit& visit) {
  if (f.kind == RunningForm::Kind::kGates) {
    visit("log_gates", f.log_gates, {static_cast<int64_t>(f.log_gates.size()) / heads, heads});
  } else {
    visit("position_rows", f.position_rows, {f.table_heads, f.rows, f.head_dim});
  }
}

struct AddList {
  nb::dict& out;
  void operator()(const char* name, const std::vector<float>& values,
                  std::initializer_list<int64_t> sizes) const {
    if (values.empty()) {
      out[name] = nb::none();
      return;
    }
    out[name] = nb::cast(Owned(values, {sizes.begin(), sizes.end()}), kArray);
  }
};

struct AddNumbers {
  nb::dict& out;
  void operator()(const SlopeForm&) const {}
  void operator()(const DistanceForm& f) const { Table(f, f.columns); }
  void operator()(const ContentForm& f) const {
    Table(f, static_cast<int64_t>(f.row_of.size()));
    out["row_of"] = nb::cast(Owned(f.row_of), kArray);
  }
  void operator()(const PairForm& f) const {
    out["parameters"] = f.function->parameters();
    out["positions"] = f.function->positions();
  }
  void operator()(const RunningForm&) const {}
  template <class F>
  void Table(const F& f, int64_t columns) const {
    out["first"] = f.first;
    out["columns"] = columns;
    out["repeats_ahead"] = f.repeats_ahead;
    out["repeats_behind"] = f.repeats_behind;
  }
};

const char* KindOf(const ScoreForm& form) {
  constexpr const char* kKinds[] = {"slope", "distance", "content", "pair"};
  const auto* running = std::get_if<RunningForm>(&form);
  if (running == nullptr) return kKinds[form.index()];
  return running->kind == RunningForm::Kind::kGates ? "gates" : "contextual";
}

nb::dict FieldsOf(const PyForm& f) {
  nb::dict out;
  std::visit(AddNumbers{out}, *f.form);
  ScoreForm copy = *f.form;
  std::visit([&](auto& form) { VisitLists(form, f.heads, AddList{out}); }, copy);
  return out;
}

// The bias of each head, query position and key position, where it needs no content.
struct Dense {
  std::span<const int64_t> q, k;
  int64_t heads;
  std::vector<float> out =
      std::vector<float>(static_cast<std::size_t>(heads) * q.size() * k.size());

  float* Row(int64_t head, std::size_t i) {
    return out.data() + (static_cast<std::size_t>(head) * q.size() + i) * k.size();
  }
  void operator()(const SlopeForm& f) {
    for (int64_t h = 0; h < heads; ++h) {
      for (std::size_t i = 0; i < q.size(); ++i) {
        for (std::size_t j = 0; j < k.size(); ++j) {
          const int64_t d = q[i] - k[j];
          if (d < 0 && f.ahead.empty()) {
            Bad("bias: it has no value for keys after their query; key position " +
                std::to_string(k[j]) + ", query position " + std::to_string(q[i]));
          }
          const float slope = (d < 0 ? f.ahead : f.behind)[static_cast<std::size_t>(h)];
          Row(h, i)[j] = -slope * static_cast<float>(d < 0 ? -d : d);
        }
      }
    }
  }
  void operator()(const DistanceForm& f) {
    for (std::size_t i = 0; i < q.size(); ++i) {
      for (std::size_t j = 0; j < k.size(); ++j) {
        const int64_t column = q[i] - k[j] - f.first;
        const bool before = column < 0, beyond = column >= f.columns;
        if ((before && !f.repeats_ahead) || (beyond && !f.repeats_behind)) {
          Bad("bias: distance " + std::to_string(q[i] - k[j]) +
              " is outside its table, which has " + std::to_string(f.first) + " to " +
              std::to_string(f.first + f.columns - 1) + "; lower it for a larger distance");
        }
        const int64_t c = std::clamp<int64_t>(column, 0, f.columns - 1);
        for (int64_t h = 0; h < heads; ++h) {
          Row(h, i)[j] = f.values[static_cast<std::size_t>(h * f.columns + c)];
        }
      }
    }
  }
  void operator()(const PairForm& f) {
    for (int64_t h = 0; h < heads; ++h) {
      f.function->Evaluate(h, q, k, Row(h, 0), static_cast<int64_t>(k.size()));
    }
  }
  template <class F>
  void operator()(const F&) {
    throw Error(ErrorCode::kUnsupported,
                "bias: it depends on the content of the tokens, not on positions alone");
  }
};

nb::ndarray<nb::numpy, float> DenseBias(const PyForm& f, nb::handle queries, nb::handle keys) {
  const Array q(queries, "query_positions"), k(keys, "key_positions");
  Dense dense{q.List<const int64_t>(), k.List<const int64_t>(), f.heads};
  for (const auto& list : {dense.q, dense.k}) {
    if (!std::is_sorted(list.begin(), list.end())) Bad("positions: expected ascending ones");
  }
  {
    nb::gil_scoped_release release;
    std::visit(dense, *f.form);
  }
  const auto heads = static_cast<std::size_t>(f.heads);
  return Owned(std::move(dense.out), {heads, dense.q.size(), dense.k.size()});
}

struct TakeList {
  const nb::dict& given;
  void operator()(const char* name, std::vector<float>& values,
                  std::initializer_list<int64_t> /*sizes*/) const {
    std::fill(values.begin(), values.end(), 0.0f);
    if (!given.contains(name) || nb::handle(given[name]).is_none()) return;
    const Array array(given[name], name);
    const std::span<const float> list = array.List<const float>();
    if (list.size() != values.size()) {
      Bad(std::string("gradient.") + name + ": expected " + std::to_string(values.size()) +
          " numbers, got " + std::to_string(list.size()));
    }
    std::copy(list.begin(), list.end(), values.begin());
  }
};

}  // namespace

ScoreForm GradientForm(const ScoreForm& form, const nb::dict& given) {
  ScoreForm out = form;
  std::visit([&](auto& f) { VisitLists(f, 1, TakeList{given}); }, out);
  return out;
}

void BindForms(nb::module_& m) {
  nb::class_<PyForm>(m, "Form")
      .def_prop_ro("kind", [](const PyForm& f) { return KindOf(*f.form); })
      .def_prop_ro("heads", [](const PyForm& f) { return f.heads; })
      .def_prop_ro("fields", FieldsOf)
      .def("bias", DenseBias);
}

}  // namespace ropewalk::python
