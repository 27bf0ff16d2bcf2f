// Weights from the files into the layers: which rows make which product.
#pragma once

#include <deque>
#include <functional>
#include <initializer_list>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "ropewalk/model/model.h"
#include "src/model/block.h"
#include "src/model/tensor_table.h"

namespace ropewalk::internal {

using RowMap = std::function<int64_t(int64_t)>;  // row wanted -> row of the file; empty: the same

// Checks the tensors of one model, and makes its parts out of them.
class TensorLoader {
 public:
  // Throws Error that names the file and the tensor; sets config.bare_names.
  TensorLoader(ModelConfig& config, const ModelFiles& files, Naming naming, ComputeType compute,
               WeightStorage weights);

  // Null where the model has no such tensor. layer -1: of no layer.
  const Weight* Find(TensorId id, int64_t layer = -1, bool bias = false, int64_t expert = -1) const;
  // All of a tensor, row by row; empty where there is none.
  AlignedBuffer<float> ReadAll(TensorId id, int64_t layer = -1, bool bias = false) const;
  std::vector<float> ReadVector(TensorId id, int64_t layer = -1, bool bias = false) const;
  // [out, in], however the file has it.
  std::vector<float> ReadMatrix(TensorId id, int64_t layer) const;
  // All of a tensor of EncodingTensors, by its name.
  std::vector<float> ReadEncoding(const std::string& name) const;

  NormWeights MakeNorm(TensorId id, const NormSpec& spec, int64_t layer = -1,
                       const RowMap& order = {}) const;
  Linear MakeHead() const;
  // A product of no layer.
  Linear MakeProduct(TensorId id, int64_t rows) const { return MakeLinear({{id, rows}}, -1); }
  LayerWeights MakeLayer(int64_t layer) const;

 private:
  struct Part;
  using Wanted = std::initializer_list<std::pair<TensorId, int64_t>>;  // with its rows
  std::vector<Part> Parts(Wanted wanted, int64_t layer, bool bias, int64_t expert = -1) const;
  std::vector<Part> Qkv(int64_t layer, bool bias) const;
  Linear MakeLinear(const std::vector<Part>& parts, const std::vector<Part>& bias_parts,
                    ComputeType compute) const;
  Linear MakeLinear(Wanted wanted, int64_t layer, int64_t expert = -1) const;
  Linear MakeRouter(TensorId id, int64_t rows, int64_t layer) const;
  CrossWeights MakeCross(int64_t layer) const;
  LatentWeights MakeLatent(int64_t layer) const;
  std::vector<Part> KeysAndValues(int64_t layer) const;
  ExpertWeights MakeExperts(int64_t layer) const;
  RowMap PairOrder(int64_t layer) const;

  const ModelConfig& c_;
  const TensorNames* names_;
  ComputeType compute_;
  WeightStorage weights_;
  // By layer, tensor, whether it is the bias, and expert (or head).
  std::map<std::tuple<int64_t, TensorId, bool, int64_t>, const Weight*> found_;
  std::map<std::string, const Weight*, std::less<>> encodings_;  // those of kEncoding
  std::deque<Weight> slices_;  // of tensors that hold all experts, or all heads
};

}  // namespace ropewalk::internal
