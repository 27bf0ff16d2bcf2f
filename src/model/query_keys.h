// PoPE and FoPE of a model of the family ropewalk: what encodes queries and keys in the place of a
// rotation, with what each layer learned.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ropewalk/rotary/table.h"
#include "src/model/block.h"
#include "src/model/encoding_tensors.h"
#include "src/model/tensor_loader.h"

namespace ropewalk::internal {

// The parameters of a layer whose encoding is that of the plan; none without one.
void AddQueryKeyTensors(const ModelConfig& config, std::vector<EncodingTensor>& all);

// Immutable. The config outlives it, and all its layers have the same encoding.
class QueryKeyEncoder {
 public:
  // Null where the plan has no encoding.
  static std::unique_ptr<const QueryKeyEncoder> Load(const ModelConfig& config,
                                                     const TensorLoader& loader);

  // q and k [tokens, heads or kv_heads, head_dim] become [.., key_dim] at positions from
  // first_position on, whose rows `table` has (EncodingFrequencies). FoPE changes the numbers where
  // they are; PoPE writes to s.encoded, and the views become views of that.
  void Encode(std::size_t layer, const CosSinTable& table, int64_t first_position, TensorView& q,
              TensorView& k, LayerScratch& s) const;
  int64_t bytes() const;

 private:
  struct Learned {
    std::vector<float> cosines, sines;  // PoPE: of the phases [kv_heads, head_dim]; FoPE: weights
  };
  explicit QueryKeyEncoder(const ModelConfig& config) : c_(config) {}
  void EncodePope(const Learned& learned, const CosSinTable& table, int64_t first_position,
                  TensorView& q, TensorView& k, LayerScratch& s) const;
  void RotateFope(const Learned& learned, const CosSinTable& table, int64_t first_position,
                  const TensorView& q, const TensorView& k, LayerScratch& s) const;

  const ModelConfig& c_;
  std::vector<Learned> layers_;
};

}  // namespace ropewalk::internal
