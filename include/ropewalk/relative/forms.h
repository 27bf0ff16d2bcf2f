// The five forms of a score bias. Every relative method lowers to one of them; attention kernels
// implement the forms and know no methods.
//
//   score(i, j) = scale q_i . k_j + bias(i, j),  distance = position of query i - position of key j
//
// so the distance of a key before the query is positive. Heads are query heads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <variant>
#include <vector>

namespace ropewalk {

// bias = -slope |distance|.
struct SlopeForm {
  std::vector<float> behind;  // [heads], for distance >= 0
  std::vector<float> ahead;   // [heads], for distance < 0; not needed under a causal mask
};

// bias = values[head][distance - first].
struct DistanceForm {
  int64_t first = 0;  // distance of column 0, within 2^53
  int64_t columns = 0;
  std::vector<float> values;  // [heads, columns]
  // Whether all distances beyond an end of the table have that end's value: repeats_ahead for
  // distances below `first`, repeats_behind beyond the last column. Otherwise attention refuses
  // distances outside the table.
  bool repeats_ahead = false, repeats_behind = false;
};

// Products with the rows of a table, where the distance selects the row:
//   bias = scale ((q_i + query_bias) . query_rows[r] + k_j . key_rows[r] + key_bias . k_j),
//   out_i += sum over j of weight(i, j) value_rows[r],   r = row_of[distance - first]
// An empty vector means that the method does not have the term.
struct ContentForm {
  int64_t first = 0;  // distance of row_of[0], within 2^53
  std::vector<int32_t> row_of;
  int64_t rows = 0, head_dim = 0;
  int64_t table_heads = 1;        // 1: all heads share the rows
  std::vector<float> query_rows;  // [table_heads, rows, head_dim]
  std::vector<float> key_rows;    // [table_heads, rows, head_dim]
  std::vector<float> value_rows;  // [table_heads, rows, head_dim]
  std::vector<float> query_bias;  // [heads, head_dim]
  std::vector<float> key_bias;    // [heads, head_dim]
  // As in DistanceForm, for row_of.
  bool repeats_ahead = false, repeats_behind = false;
};

// A function of the positions of query and key, evaluated one tile at a time. Positions ascend.
class PairFunction {
 public:
  virtual ~PairFunction() = default;
  virtual int64_t heads() const = 0;
  // It is defined for positions 0 .. positions() - 1. Attention refuses others beforehand; Evaluate
  // and Backward throw Error.
  virtual int64_t positions() const { return INT64_MAX; }
  // out[r * stride + c] = bias of query position queries[r] and key position keys[c].
  virtual void Evaluate(int64_t head, std::span<const int64_t> queries,
                        std::span<const int64_t> keys, float* out, int64_t stride) const = 0;
  virtual int64_t parameters() const = 0;
  // The range of parameters() that Backward of a head changes; nondecreasing from head to head.
  struct Parameters {
    int64_t first, end;
  };
  virtual Parameters ParametersOf(int64_t /*head*/) const { return {0, parameters()}; }
  // gradient[parameters()] += d(loss) / d(parameter), from d_bias = d(loss) / d(bias) of a tile.
  virtual void Backward(int64_t head, std::span<const int64_t> queries,
                        std::span<const int64_t> keys, const float* d_bias, int64_t stride,
                        std::span<double> gradient) const = 0;
};
struct PairForm {
  std::shared_ptr<const PairFunction> function;
};

// A sum over the tokens between key and query that depends on content. Causal.
struct RunningForm {
  enum class Kind : uint8_t {
    // bias = sum over j < l <= i of log_gates[l]: forgetting gate, data-dependent ALiBi.
    kGates,
    // CoPE: position = min(sum over j <= l <= i of sigmoid(scale q_i . k_l), rows - 1); bias is
    // q_i . position_rows, interpolated linearly between the two neighbouring integer positions.
    kContextual
  };
  Kind kind = Kind::kGates;
  std::vector<float> log_gates;  // kGates: [tokens, heads], of all keys of the cache
  int64_t rows = 0, head_dim = 0;
  int64_t table_heads = 1;           // 1: all heads share the rows
  std::vector<float> position_rows;  // kContextual: [table_heads, rows, head_dim]
};

using ScoreForm = std::variant<SlopeForm, DistanceForm, ContentForm, PairForm, RunningForm>;

// Throws Error(kInvalidArgument), naming the form, the field, what was expected and what was given,
// unless every size fits `heads` heads of `head_dim` elements and every value is finite.
void CheckForm(const ScoreForm& form, int64_t heads, int64_t head_dim);

}  // namespace ropewalk
