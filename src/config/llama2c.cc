#include "src/config/llama2c.h"

#include <fmt/format.h>

#include "ropewalk/base/error.h"
#include "src/config/family.h"

namespace ropewalk::internal {

ModelConfig Llama2cConfig(const Llama2cFile& file) {
  const std::string& path = file.file->path();
  const auto check = [&](const char* name, int64_t value, int64_t high) {
    if (value >= 1 && value <= high) return value;
    throw Error(ErrorCode::kInvalidFile,
                fmt::format("{}: {}: expected 1 to {}, got {}", path, name, high, value));
  };
  ModelConfig c;
  c.format = FileFormat::kLlama2c;
  c.format_name = "llama2.c";
  c.architecture = "llama";
  c.layers = check("n_layers", file.layers, kMaxLayers);
  c.hidden = check("dim", file.dim, kMaxDim);
  c.heads = check("n_heads", file.heads, kMaxDim);
  c.kv_heads = check("n_kv_heads", file.kv_heads, kMaxDim);
  c.feed_forward = check("hidden_dim", file.hidden_dim, kMaxDim);
  c.vocab = check("vocab_size", file.vocab_size, kMaxDim);
  c.tied_head = file.tied_head;
  if (c.hidden % c.heads != 0 || c.hidden / c.heads % 2 != 0) {
    throw Error(ErrorCode::kInvalidFile,
                fmt::format("{}: dim {} does not divide into {} heads of even size", path, c.hidden,
                            c.heads));
  }
  c.head_dim = c.hidden / c.heads;
  CheckSizes(c, path);
  c.plan.trained_length = check("seq_len", file.trained_length, kMaxTokens);
  c.plan.configured_length = c.plan.trained_length;
  c.permuted_qk = true;
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = c.head_dim;
  spec.base = 10000;
  spec.trained_length = c.plan.trained_length;
  LayerPlan layer;
  layer.rotation = spec;
  c.plan.layers.assign(c.layers, layer);
  c.plan.notes = {"base 10000 and epsilon 1e-05 are constants of llama2.c, not in the file",
                  "q and k are stored for the interleaved layout and permuted at load to the half "
                  "layout"};
  return c;
}

}  // namespace ropewalk::internal
