// ropewalk_form_spec -> ScoreForm.
#include <memory>
#include <utility>

#include "src/capi_attention/capi_attention.h"

namespace ropewalk::capi {
namespace {

constexpr uint32_t Bit(int32_t kind) { return 1u << kind; }
constexpr uint32_t kTables = Bit(ROPEWALK_DISTANCE) | Bit(ROPEWALK_CONTENT);
constexpr uint32_t kRows = Bit(ROPEWALK_CONTENT) | Bit(ROPEWALK_CONTEXTUAL);

// A field that another kind has, and that is set, is a mistake.
void CheckFields(const ropewalk_form_spec& s) {
  const struct {
    const char* name;
    bool set;
    uint32_t kinds;
  } fields[] = {{"behind", s.behind != nullptr, Bit(ROPEWALK_SLOPE)},
                {"ahead", s.ahead != nullptr, Bit(ROPEWALK_SLOPE)},
                {"first", s.first != 0, kTables},
                {"columns", s.columns != 0, kTables},
                {"repeats_ahead", s.repeats_ahead != 0, kTables},
                {"repeats_behind", s.repeats_behind != 0, kTables},
                {"values", s.values != nullptr, Bit(ROPEWALK_DISTANCE)},
                {"row_of", s.row_of != nullptr, Bit(ROPEWALK_CONTENT)},
                {"rows", s.rows != 0, kRows},
                {"table_heads", s.table_heads != 0, kRows},
                {"query_rows", s.query_rows != nullptr, Bit(ROPEWALK_CONTENT)},
                {"key_rows", s.key_rows != nullptr, Bit(ROPEWALK_CONTENT)},
                {"value_rows", s.value_rows != nullptr, Bit(ROPEWALK_CONTENT)},
                {"query_bias", s.query_bias != nullptr, Bit(ROPEWALK_CONTENT)},
                {"key_bias", s.key_bias != nullptr, Bit(ROPEWALK_CONTENT)},
                {"pair_bias", s.pair_bias != nullptr, Bit(ROPEWALK_PAIR)},
                {"pair_gradient", s.pair_gradient != nullptr, Bit(ROPEWALK_PAIR)},
                {"pair_context", s.pair_context != nullptr, Bit(ROPEWALK_PAIR)},
                {"pair_parameters", s.pair_parameters != 0, Bit(ROPEWALK_PAIR)},
                {"pair_positions", s.pair_positions != 0, Bit(ROPEWALK_PAIR)},
                {"log_gates", s.log_gates != nullptr, Bit(ROPEWALK_GATES)},
                {"gate_tokens", s.gate_tokens != 0, Bit(ROPEWALK_GATES)},
                {"position_rows", s.position_rows != nullptr, Bit(ROPEWALK_CONTEXTUAL)}};
  for (const auto& field : fields) {
    if (field.set && (field.kinds & Bit(s.kind)) == 0) {
      Bad(std::string("spec.") + field.name + ": a form of kind " + std::to_string(s.kind) +
          " has none; expected 0");
    }
  }
}

// A required list of a * b * c numbers.
template <class T>
std::vector<T> Required(const char* name, const T* data, int64_t a, int64_t b, int64_t c = 1) {
  NotNull(data, name);
  return Copied(name, data, Count(name, a, b, c));
}

class PairOfC final : public PairFunction {
 public:
  explicit PairOfC(const ropewalk_form_spec& spec) : s_(spec) {}
  int64_t heads() const override { return s_.heads; }
  int64_t positions() const override {
    return s_.pair_positions == 0 ? INT64_MAX : s_.pair_positions;
  }
  void Evaluate(int64_t head, std::span<const int64_t> queries, std::span<const int64_t> keys,
                float* out, int64_t stride) const override {
    s_.pair_bias(s_.pair_context, head, queries.data(), static_cast<int64_t>(queries.size()),
                 keys.data(), static_cast<int64_t>(keys.size()), out, stride);
  }
  int64_t parameters() const override { return s_.pair_parameters; }
  void Backward(int64_t head, std::span<const int64_t> queries, std::span<const int64_t> keys,
                const float* d_bias, int64_t stride, std::span<double> gradient) const override {
    if (s_.pair_gradient == nullptr) return;
    s_.pair_gradient(s_.pair_context, head, queries.data(), static_cast<int64_t>(queries.size()),
                     keys.data(), static_cast<int64_t>(keys.size()), d_bias, stride,
                     gradient.data());
  }

 private:
  ropewalk_form_spec s_;
};

PairForm PairOf(const ropewalk_form_spec& s) {
  if (s.pair_bias == nullptr) Bad("spec.pair_bias: expected a function, got NULL");
  constexpr int64_t kMost = int64_t{1} << 40;
  if (s.pair_parameters < 0 || s.pair_parameters > kMost || s.pair_positions < 0) {
    Bad("spec.pair_parameters and pair_positions: expected 0 or more, got " +
        std::to_string(s.pair_parameters) + " and " + std::to_string(s.pair_positions));
  }
  if ((s.pair_gradient != nullptr) != (s.pair_parameters > 0)) {
    Bad("spec.pair_gradient: expected a function where pair_parameters is above 0, and there "
        "alone");
  }
  return {std::make_shared<PairOfC>(s)};
}

ContentForm ContentOf(const ropewalk_form_spec& s, int64_t table_heads) {
  ContentForm f;
  f.first = s.first;
  f.row_of = Required("spec.row_of", s.row_of, s.columns, 1);
  f.repeats_ahead = s.repeats_ahead != 0;
  f.repeats_behind = s.repeats_behind != 0;
  f.rows = s.rows;
  f.head_dim = s.head_dim;
  f.table_heads = table_heads;
  const int64_t table = Count("spec.rows", table_heads, s.rows, s.head_dim);
  f.query_rows = Copied("spec.query_rows", s.query_rows, table);
  f.key_rows = Copied("spec.key_rows", s.key_rows, table);
  f.value_rows = Copied("spec.value_rows", s.value_rows, table);
  const int64_t vectors = s.heads * s.head_dim;
  f.query_bias = Copied("spec.query_bias", s.query_bias, vectors);
  f.key_bias = Copied("spec.key_bias", s.key_bias, vectors);
  return f;
}

ScoreForm FormOf(const ropewalk_form_spec& s) {
  if (s.kind < ROPEWALK_SLOPE || s.kind > ROPEWALK_CONTEXTUAL) {
    Bad("spec.kind: expected 1 to 6, got " + std::to_string(s.kind));
  }
  CheckFields(s);
  CheckHeads("spec", s.heads, s.head_dim);
  const int64_t table_heads = s.table_heads == 0 ? 1 : s.table_heads;
  switch (s.kind) {
    case ROPEWALK_SLOPE:
      return SlopeForm{Required("spec.behind", s.behind, s.heads, 1),
                       Copied("spec.ahead", s.ahead, s.heads)};
    case ROPEWALK_DISTANCE:
      return DistanceForm{s.first, s.columns, Required("spec.values", s.values, s.heads, s.columns),
                          s.repeats_ahead != 0, s.repeats_behind != 0};
    case ROPEWALK_CONTENT:
      return ContentOf(s, table_heads);
    case ROPEWALK_PAIR:
      return PairOf(s);
    default:
      break;
  }
  RunningForm f;
  if (s.kind == ROPEWALK_GATES) {
    f.log_gates = Required("spec.log_gates", s.log_gates, s.gate_tokens, s.heads);
    return f;
  }
  f.kind = RunningForm::Kind::kContextual;
  f.rows = s.rows;
  f.head_dim = s.head_dim;
  f.table_heads = table_heads;
  f.position_rows =
      Required("spec.position_rows", s.position_rows, table_heads, s.rows, s.head_dim);
  return f;
}

}  // namespace
}  // namespace ropewalk::capi

ropewalk_status ropewalk_form_create(const ropewalk_form_spec* spec, ropewalk_form** out) {
  return ropewalk::capi::Guard([&] {
    ropewalk::capi::NotNull(out, "out");
    const ropewalk_form_spec s = ropewalk::capi::Read(spec, "spec");
    *out =
        new ropewalk_form{ropewalk::PreparedForm(ropewalk::capi::FormOf(s), s.heads, s.head_dim)};
  });
}

void ropewalk_form_destroy(ropewalk_form* form) { delete form; }
