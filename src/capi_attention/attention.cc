// The cache, rotation on load, and attention with its gradient, for C.
#include <algorithm>
#include <optional>

#include "ropewalk/attention/backward.h"
#include "src/capi_attention/capi_attention.h"

namespace ropewalk::capi {
namespace {

static_assert(ROPEWALK_BIDIRECTIONAL == static_cast<int>(AttentionMask::kBidirectional));

std::optional<DistanceMap> MapOf(const ropewalk_distance_map* given) {
  if (given == nullptr) return std::nullopt;
  const ropewalk_distance_map m = Read(given, "map");
  if (m.kind < ROPEWALK_REROPE || m.kind > ROPEWALK_DPE) {
    Bad("map.kind: expected 1 to 8, got " + std::to_string(m.kind));
  }
  const std::pair<const char*, int64_t> given_fields[] = {
      {"window", m.window}, {"factor", m.factor}, {"group", m.group},   {"chunk", m.chunk},
      {"limit", m.limit},   {"sinks", m.sinks},   {"shift", m.shift},   {"head", m.head},
      {"mapped", m.mapped}, {"tail", m.tail},     {"length", m.length}, {"group1", m.group1},
      {"group2", m.group2}, {"group3", m.group3}, {"group4", m.group4}, {"group5", m.group5},
      {"group6", m.group6}, {"group7", m.group7}, {"group8", m.group8}};
  const MapInfo& info = DistanceMaps()[static_cast<std::size_t>(m.kind - 1)];
  DistanceMap map = info.make({}, 2, 2);  // of that kind; every field is set below
  for (const auto& [name, value] : given_fields) {
    bool used = false;
    std::visit(
        [&, &name = name, &value = value]<class M>(M& made) {
          VisitFields<M>([&](const auto& field) {
            if (std::strcmp(name, field.name) != 0) return;
            made.*field.member = value;
            used = true;
          });
        },
        map);
    if (used || value == 0) continue;
    Bad(std::string("map.") + name + ": a map of kind " + std::to_string(m.kind) +
        " has none; expected 0");
  }
  return map;
}

// A list whose length the tensors say.
template <class T>
std::span<T> Sized(T* data, int64_t count) {
  if (data == nullptr) return {};
  return {data, static_cast<std::size_t>(count)};
}

AttentionArgs ArgsOf(const ropewalk_attention_args* given) {
  const ropewalk_attention_args a = Read(given, "args");
  const KvCache& cache = NotNull(a.cache, "cache").cache;
  AttentionArgs args;
  args.q = View(a.q, "q");
  args.out = View(a.out, "out");
  args.cache = &cache;
  if (a.scale != 0) args.scale = a.scale;
  args.soft_cap = a.soft_cap;
  args.mask = Enum<AttentionMask>(a.mask, 0, 1, "mask");
  args.window_tokens = a.window_tokens;
  if (a.rotation != nullptr) args.rotation = &a.rotation->rotation;
  args.document_starts = List(a.document_starts, a.num_documents, "document_starts");
  args.query_document_starts =
      List(a.query_document_starts, a.num_query_documents, "query_document_starts");
  if (args.q.rank != 3) return args;  // refused, with its shape
  const int64_t tokens = args.q.shape[0], heads = args.q.shape[1];
  const int64_t rows = Count("q", tokens, heads);
  if (a.form != nullptr) {
    const PreparedForm& f = a.form->form;
    if (f.heads() != heads || f.head_dim() != cache.head_dim()) {
      Bad("form: made for " + std::to_string(f.heads()) + " heads of " +
          std::to_string(f.head_dim()) + ", expected " + std::to_string(heads) + " of " +
          std::to_string(cache.head_dim()));
    }
    args.prepared = &f;
  }
  args.sinks = Sized(a.sinks, heads);
  args.temperatures = Sized(a.temperatures, tokens);
  args.query_positions = Sized(a.query_positions, tokens);
  args.key_positions = Sized(a.key_positions, cache.tokens());
  args.log_sum_exp = Sized(a.log_sum_exp, rows);
  args.entropy = Sized(a.entropy, rows);
  return args;
}

// What a gradient is copied to, and whether the form has it.
template <class Form, class Visit>
void VisitGradient(const ropewalk_form_gradient& to, const Form& f, const Visit& visit) {
  visit("behind", to.behind, f.behind);
  visit("ahead", to.ahead, f.ahead);
  visit("values", to.values, f.values);
  visit("query_rows", to.query_rows, f.query_rows);
  visit("key_rows", to.key_rows, f.key_rows);
  visit("value_rows", to.value_rows, f.value_rows);
  visit("query_bias", to.query_bias, f.query_bias);
  visit("key_bias", to.key_bias, f.key_bias);
  visit("pair_parameters", to.pair_parameters, f.parameters);
  visit("log_gates", to.log_gates, f.log_gates);
  visit("position_rows", to.position_rows, f.position_rows);
}

// Which numbers a form has.
struct Has {
  bool behind = false, ahead = false, values = false, query_rows = false, key_rows = false,
       value_rows = false, query_bias = false, key_bias = false, parameters = false,
       log_gates = false, position_rows = false;

  void operator()(const SlopeForm& f) { behind = true, ahead = !f.ahead.empty(); }
  void operator()(const DistanceForm&) { values = true; }
  void operator()(const ContentForm& f) {
    query_rows = !f.query_rows.empty(), key_rows = !f.key_rows.empty();
    value_rows = !f.value_rows.empty();
    query_bias = !f.query_bias.empty(), key_bias = !f.key_bias.empty();
  }
  void operator()(const PairForm& f) { parameters = f.function->parameters() > 0; }
  void operator()(const RunningForm& f) {
    log_gates = f.kind == RunningForm::Kind::kGates;
    position_rows = !log_gates;
  }
};

// Before anything is written.
void CheckWanted(const ropewalk_form_gradient& wanted, const PreparedForm* form) {
  Has has;
  if (form != nullptr) std::visit([&](const auto& f) { has(f); }, form->form());
  VisitGradient(wanted, has, [](const char* name, const void* to, bool there) {
    if (to == nullptr || there) return;
    Bad(std::string("d_form.") + name + ": the form has none; expected NULL");
  });
}

void Backward(const ropewalk_attention_backward_args* given) {
  const ropewalk_attention_backward_args a = Read(given, "args");
  const AttentionArgs forward = ArgsOf(a.forward);
  AttentionBackwardArgs args;
  args.forward = &forward;
  args.d_out = View(a.d_out, "d_out");
  args.d_q = View(a.d_q, "d_q");
  args.d_k = View(a.d_k, "d_k");
  args.d_v = View(a.d_v, "d_v");
  if (a.d_sinks != nullptr) {
    if (forward.sinks.empty()) Bad("d_sinks: the call has no sinks; expected NULL");
    args.d_sinks = {a.d_sinks, forward.sinks.size()};
  }
  FormGradient d_form;
  ropewalk_form_gradient wanted{};
  if (a.d_form != nullptr) {
    wanted = Read(a.d_form, "d_form");
    CheckWanted(wanted, forward.prepared);
    args.d_form = &d_form;
  }
  AttentionBackward(args);
  VisitGradient(wanted, d_form, [](const char*, auto* to, const auto& from) {
    if (to != nullptr) std::copy(from.begin(), from.end(), to);
  });
}

}  // namespace
}  // namespace ropewalk::capi

using ropewalk::capi::Guard;
using ropewalk::capi::NotNull;

ropewalk_status ropewalk_kv_cache_create(int64_t kv_heads, int64_t head_dim,
                                         int64_t capacity_tokens, ropewalk_kv_cache** out) {
  return Guard([&] {
    NotNull(out, "out");
    *out = new ropewalk_kv_cache{ropewalk::KvCache(kv_heads, head_dim, capacity_tokens)};
  });
}

ropewalk_status ropewalk_kv_cache_create_from(const ropewalk_kv_cache_spec* spec,
                                              ropewalk_kv_cache** out) {
  return Guard([&] {
    NotNull(out, "out");
    const ropewalk_kv_cache_spec s = ropewalk::capi::Read(spec, "spec");
    std::optional<int64_t> value_dim;
    if (s.value_dim != 0) value_dim = s.value_dim;
    *out = new ropewalk_kv_cache{ropewalk::KvCache(s.kv_heads, s.head_dim, s.capacity_tokens,
                                                   ropewalk::KvType::kF32, value_dim)};
  });
}

ropewalk_status ropewalk_kv_cache_append(ropewalk_kv_cache* cache, const ropewalk_tensor* k,
                                         const ropewalk_tensor* v) {
  return Guard([&] {
    NotNull(cache, "cache");
    cache->cache.Append(ropewalk::capi::View(k, "k"), ropewalk::capi::View(v, "v"));
  });
}

ropewalk_status ropewalk_kv_cache_truncate(ropewalk_kv_cache* cache, int64_t tokens) {
  return Guard([&] {
    NotNull(cache, "cache");
    cache->cache.Truncate(tokens);
  });
}

ropewalk_status ropewalk_kv_cache_get(const ropewalk_kv_cache* cache, ropewalk_kv_cache_info* out) {
  return Guard([&] {
    const ropewalk::KvCache& c = NotNull(cache, "cache").cache;
    ropewalk_kv_cache_info info = ropewalk::capi::Read(out, "out");
    info.tokens = c.tokens();
    info.capacity_tokens = c.capacity_tokens();
    info.kv_heads = c.kv_heads();
    info.head_dim = c.head_dim();
    info.bytes = c.bytes();
    info.value_dim = c.value_dim();
    ropewalk::capi::Write(info, out);
  });
}

void ropewalk_kv_cache_destroy(ropewalk_kv_cache* cache) { delete cache; }

ropewalk_status ropewalk_load_rotation_create(const ropewalk_spec* spec, int64_t length,
                                              int32_t precision, const ropewalk_distance_map* map,
                                              ropewalk_load_rotation** out) {
  return Guard([&] {
    NotNull(out, "out");
    const ropewalk::RotarySpec s = ropewalk::capi::SpecOf(spec);
    *out = new ropewalk_load_rotation{ropewalk::LoadRotation(s, ropewalk::Resolve(s, length),
                                                             ropewalk::capi::Precision(precision),
                                                             ropewalk::capi::MapOf(map))};
  });
}

ropewalk_status ropewalk_load_rotation_grow(ropewalk_load_rotation* rotation, int64_t tokens) {
  return Guard([&] {
    NotNull(rotation, "rotation");
    rotation->rotation.Grow(tokens);
  });
}

void ropewalk_load_rotation_destroy(ropewalk_load_rotation* rotation) { delete rotation; }

ropewalk_status ropewalk_attention(const ropewalk_attention_args* args) {
  return Guard([&] { ropewalk::Attention(ropewalk::capi::ArgsOf(args)); });
}

ropewalk_status ropewalk_attention_backward(const ropewalk_attention_backward_args* args) {
  return Guard([&] { ropewalk::capi::Backward(args); });
}
