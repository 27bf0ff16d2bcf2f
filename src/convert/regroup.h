// The tensors of a model as another format has them: other names, q, k and v in one tensor or in
// three, gate and up in one or in two, experts one by one or all in one tensor, keys and values of
// latent attention together or apart, rows of heads in another order.
#pragma once

#include <functional>
#include <vector>

#include "ropewalk/io/writer.h"
#include "ropewalk/model/model.h"
#include "src/model/tensor_table.h"

namespace ropewalk::internal {

// How one format has them.
struct Grouping {
  const ModelConfig* config;  // whose names count
  Naming naming;
  bool permuted = false;  // rows of q and k are in the interleaved order of a model that has halves
};

// A tensor of the new format, and where each of its rows is. Rows are those of the product, [out,
// in], of all matrices one behind the other, however a tensor stores them; of a bias, elements.
struct Regrouped {
  struct Row {
    const Weight* weight;
    int64_t row;
  };
  ExpectedTensor to;
  std::vector<const Weight*> from;    // all that it is made of
  std::function<Row(int64_t)> where;  // empty: one tensor, row by row
  // Stored [in, out]: this one, and which of `from`.
  bool to_transposed = false;
  std::vector<const Weight*> from_transposed = {};
  bool Transposes() const { return to_transposed || !from_transposed.empty(); }
  // Type of all of `from`; float32 where they differ.
  WeightType type() const;
  int64_t bytes() const;
};
// Every tensor of the model. Of a vector (a bias), each element is a row. The configurations of the
// groupings have to outlive the result.
std::vector<Regrouped> Regroup(const ModelFiles& files, const Grouping& from, const Grouping& to);

// What llama.cpp wants in float32 whatever matrices are: vectors, biases of experts, routers, norms
// of q and k that each head has of its own, the table of positions.
bool IsVector(const ExpectedTensor& tensor);

// To be written with elements of this type. Stored bytes are moved where the type stays.
TensorSource SourceOf(const Regrouped& tensor, WeightType type);
// The matrix with each row divided by its length.
TensorSource NormalizedRows(const Weight& weight, const ExpectedTensor& to, WeightType type);
// True where every element survives that.
bool Holds(WeightType type, const Regrouped& tensor);

}  // namespace ropewalk::internal
