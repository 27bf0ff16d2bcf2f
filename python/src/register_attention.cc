// ropewalk/attention: attention over keys and values given at once, and its gradient.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "python/src/arrays.h"
#include "python/src/forms.h"
#include "python/src/register.h"
#include "ropewalk/attention/attention.h"
#include "ropewalk/attention/backward.h"
#include "ropewalk/plan/plan.h"

namespace ropewalk::python {
namespace {

// What forward and backward take alike: one sequence, and its options by name.
struct AttentionCall {
  Array q, k, v, sinks, temperatures, query_positions, key_positions, document_starts,
      query_document_starts;
  TensorView q_view, k_view, v_view;
  std::shared_ptr<const ScoreForm> form;
  const ResolvedRotation* rotated = nullptr;
  std::optional<DistanceMap> map;
  AnglePrecision precision = AnglePrecision::kExact;
  KvCache cache;
  std::optional<LoadRotation> rotation;
  AttentionArgs args;

  AttentionCall(nb::handle q_given, nb::handle k_given, nb::handle v_given,
                const nb::dict& options);
  void Prepare();  // what takes time
};

template <class T>
T Get(const nb::dict& options, const char* name, T otherwise) {
  return options.contains(name) ? nb::cast<T>(options[name]) : otherwise;
}

Array ListOf(const nb::dict& options, const char* name) {
  return options.contains(name) ? Array(options[name], name) : Array();
}

AttentionCall::AttentionCall(nb::handle q_given, nb::handle k_given, nb::handle v_given,
                             const nb::dict& options)
    : q(q_given, "q"),
      k(k_given, "k"),
      v(v_given, "v"),
      sinks(ListOf(options, "sinks")),
      temperatures(ListOf(options, "temperatures")),
      query_positions(ListOf(options, "query_positions")),
      key_positions(ListOf(options, "key_positions")),
      document_starts(ListOf(options, "document_starts")),
      query_document_starts(ListOf(options, "query_document_starts")),
      q_view(q.View()),
      k_view(k.View()),
      v_view(v.View()) {
  for (const auto& [view, name] : {std::pair{&k_view, "k"}, std::pair{&v_view, "v"}}) {
    if (view->rank != 3) {
      Bad(std::string(name) + ": expected [tokens, kv_heads, head_dim], got " +
          view->ShapeString());
    }
  }
  if (options.contains("form")) form = nb::cast<PyForm>(options["form"]).form;
  if (options.contains("rotation")) {
    rotated = nb::cast<const ResolvedRotation*>(options["rotation"]);
  }
  if (options.contains("map")) map = nb::cast<DistanceMap>(options["map"]);
  args.q = q_view;
  args.scale = Get<float>(options, "scale", 1.0f);
  args.window_tokens = Get<int64_t>(options, "window", 0);
  args.mask =
      Get<bool>(options, "causal", true) ? AttentionMask::kCausal : AttentionMask::kBidirectional;
  args.soft_cap = Get<float>(options, "soft_cap", 0.0f);
  args.sinks = sinks.List<const float>();
  args.temperatures = temperatures.List<const float>();
  args.query_positions = query_positions.List<const int64_t>();
  args.key_positions = key_positions.List<const int64_t>();
  args.document_starts = document_starts.List<const int64_t>();
  args.query_document_starts = query_document_starts.List<const int64_t>();
}

void AttentionCall::Prepare() {
  const int64_t tokens = k_view.shape[0];
  cache = KvCache(k_view.shape[1], k_view.shape[2], tokens, KvType::kF32, v_view.shape[2]);
  cache.Append(k_view, v_view);
  args.cache = &cache;
  args.form = form.get();
  if (rotated == nullptr) return;
  rotation.emplace(rotated->spec, rotated->frequencies, precision, map);
  // Others than consecutive positions are refused when attention is computed.
  const std::span<const int64_t> at = args.key_positions;
  const bool apart =
      std::ssize(at) == tokens && tokens > 0 && at[0] >= 0 && at.back() - at[0] == tokens - 1;
  rotation->Grow(apart ? at.back() + 1 : tokens);
  args.rotation = &*rotation;
}

std::span<float> Room(const Array& array, const TensorView& q) {
  if (!array.given()) return {};
  array.CheckShape({q.rank > 0 ? q.shape[0] : 0, q.rank > 1 ? q.shape[1] : 0});
  return array.List<float>();
}

void Forward(nb::handle q, nb::handle k, nb::handle v, nb::handle out, nb::handle log_sum_exp,
             nb::handle entropy, const nb::dict& options) {
  AttentionCall call(q, k, v, options);
  const Array out_array = Array::Written(out, "out"),
              lse_array = Array::Written(log_sum_exp, "log_sum_exp"),
              entropy_array = Array::Written(entropy, "entropy");
  call.args.out = out_array.View();
  call.args.log_sum_exp = Room(lse_array, call.q_view);
  call.args.entropy = Room(entropy_array, call.q_view);
  nb::gil_scoped_release release;
  call.Prepare();
  Attention(call.args);
}

template <class T>
void Add(nb::dict& out, const char* name, std::vector<T>& values) {
  if (!values.empty()) out[name] = nb::cast(Owned(std::move(values)), nb::rv_policy::automatic);
}

// The gradients of the numbers of the form, by the names of its fields.
nb::dict AttentionGradients(nb::handle q, nb::handle k, nb::handle v, nb::handle out,
                            nb::handle log_sum_exp, nb::handle d_out, nb::handle d_q,
                            nb::handle d_k, nb::handle d_v, nb::handle d_sinks,
                            const nb::dict& options) {
  AttentionCall call(q, k, v, options);
  const Array out_array(out, "out"),
      lse_array = Array::Written(log_sum_exp, "log_sum_exp"), d_out_array(d_out, "d_out"),
      d_q_array = Array::Written(d_q, "d_q"), d_k_array = Array::Written(d_k, "d_k"),
      d_v_array = Array::Written(d_v, "d_v"), d_sinks_array = Array::Written(d_sinks, "d_sinks");
  call.args.out = out_array.View();
  call.args.log_sum_exp = Room(lse_array, call.q_view);
  FormGradient d_form;
  AttentionBackwardArgs args;
  args.forward = &call.args;
  args.d_out = d_out_array.View();
  args.d_q = d_q_array.View();
  args.d_k = d_k_array.View();
  args.d_v = d_v_array.View();
  if (call.form != nullptr) args.d_form = &d_form;
  args.d_sinks = d_sinks_array.List<float>();
  {
    nb::gil_scoped_release release;
    call.Prepare();
    AttentionBackward(args);
  }
  nb::dict written;
  Add(written, "behind", d_form.behind);
  Add(written, "ahead", d_form.ahead);
  Add(written, "values", d_form.values);
  Add(written, "query_rows", d_form.query_rows);
  Add(written, "key_rows", d_form.key_rows);
  Add(written, "value_rows", d_form.value_rows);
  Add(written, "query_bias", d_form.query_bias);
  Add(written, "key_bias", d_form.key_bias);
  Add(written, "parameters", d_form.parameters);
  Add(written, "log_gates", d_form.log_gates);
  Add(written, "position_rows", d_form.position_rows);
  return written;
}

}  // namespace

void RegisterAttention(nb::module_& m) {
  m.def("attention", &Forward, nb::arg("q"), nb::arg("k"), nb::arg("v"), nb::arg("out"),
        nb::arg("log_sum_exp").none(), nb::arg("entropy").none(), nb::arg("options"));
  m.def("attention_backward", &AttentionGradients, nb::arg("q"), nb::arg("k"), nb::arg("v"),
        nb::arg("out"), nb::arg("log_sum_exp"), nb::arg("d_out"), nb::arg("d_q"), nb::arg("d_k"),
        nb::arg("d_v"), nb::arg("d_sinks").none(), nb::arg("options"));
}

}  // namespace ropewalk::python
