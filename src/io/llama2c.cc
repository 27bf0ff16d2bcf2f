// llama2.c legacy checkpoint (karpathy/llama2.c, export.py, legacy_export): 7 int32, then float32
// tensors, each kind for all layers together.
#include <fmt/format.h>

#include <string_view>

#include "ropewalk/base/error.h"
#include "ropewalk/io/weights.h"
#include "src/io/bytes.h"
#include "src/io/fail.h"

namespace ropewalk {
namespace {

using internal::Fail;

constexpr int kHeaderInts = 7;
constexpr int64_t kHeaderBytes = kHeaderInts * sizeof(int32_t);

struct Entry {
  const char* name;  // a Hugging Face name; "{}" stands for the layer; empty: skipped
  std::vector<int64_t> shape;
};

// In the order of the file.
std::vector<Entry> Layout(const Llama2cFile& f) {
  const int64_t kv_dim = f.dim / f.heads * f.kv_heads, pairs = f.dim / f.heads / 2;
  std::vector<Entry> entries = {
      {"model.embed_tokens.weight", {f.vocab_size, f.dim}},
      {"model.layers.{}.input_layernorm.weight", {f.dim}},
      {"model.layers.{}.self_attn.q_proj.weight", {f.dim, f.dim}},
      {"model.layers.{}.self_attn.k_proj.weight", {kv_dim, f.dim}},
      {"model.layers.{}.self_attn.v_proj.weight", {kv_dim, f.dim}},
      {"model.layers.{}.self_attn.o_proj.weight", {f.dim, f.dim}},
      {"model.layers.{}.post_attention_layernorm.weight", {f.dim}},
      {"model.layers.{}.mlp.gate_proj.weight", {f.hidden_dim, f.dim}},
      {"model.layers.{}.mlp.down_proj.weight", {f.dim, f.hidden_dim}},
      {"model.layers.{}.mlp.up_proj.weight", {f.hidden_dim, f.dim}},
      {"model.norm.weight", {f.dim}},
      {"", {f.trained_length, pairs}},  // cos and sin, which the position plan replaces
      {"", {f.trained_length, pairs}},
  };
  if (!f.tied_head) entries.push_back({"lm_head.weight", {f.vocab_size, f.dim}});
  return entries;
}

bool PerLayer(const Entry& entry) {
  return std::string_view(entry.name).find("{}") != std::string_view::npos;
}

Llama2cFile ReadHeader(std::shared_ptr<const MappedFile> file) {
  const std::string& path = file->path();
  if (file->size() < kHeaderBytes) Fail(path, "too short for a llama2.c checkpoint");
  if (internal::Load<uint32_t>(file->data()) == 0x616b3432u) {  // "ak42"
    throw Error(ErrorCode::kUnsupported,
                path +
                    ": a llama2.c checkpoint of version 1 or 2; export it again with "
                    "'export.py --version 0'");
  }
  int32_t h[kHeaderInts];
  for (int i = 0; i < kHeaderInts; ++i) h[i] = internal::Load<int32_t>(file->data() + 4 * i);
  Llama2cFile f;
  f.dim = h[0];
  f.hidden_dim = h[1];
  f.layers = h[2];
  f.heads = h[3];
  f.kv_heads = h[4];
  f.tied_head = h[5] > 0;
  f.vocab_size = h[5] < 0 ? -int64_t{h[5]} : h[5];
  f.trained_length = h[6];
  if (f.dim < 1 || f.hidden_dim < 1 || f.layers < 1 || f.heads < 1 || f.kv_heads < 1 ||
      f.vocab_size < 1 || f.trained_length < 1 || f.dim % f.heads != 0 ||
      f.heads % f.kv_heads != 0 || f.dim / f.heads % 2 != 0) {
    Fail(path, fmt::format("not a llama2.c checkpoint: dim {}, hidden_dim {}, layers {}, heads {}, "
                           "kv_heads {}, vocab_size {}, seq_len {}",
                           h[0], h[1], h[2], h[3], h[4], h[5], h[6]));
  }
  f.file = std::move(file);
  return f;
}

}  // namespace

Llama2cFile OpenLlama2c(const std::string& path) {
  Llama2cFile f = ReadHeader(MappedFile::Open(path));
  const std::vector<Entry> entries = Layout(f);
  // The size decides first: nothing is built for a header that merely claims.
  __extension__ using Wide = __int128;  // sums of products of three int32 and a size
  Wide expected = kHeaderBytes;
  for (const Entry& entry : entries) {
    Wide bytes = PerLayer(entry) ? Wide{4} * f.layers : Wide{4};
    for (const int64_t extent : entry.shape) bytes *= extent;
    expected += bytes;
  }
  if (expected != static_cast<Wide>(f.file->size())) {
    Fail(path,
         fmt::format("{} bytes, but its header (dim {}, layers {}, vocab_size {}) needs {}; is "
                     "it a llama2.c checkpoint, and whole?",
                     f.file->size(), f.dim, f.layers, f.vocab_size,
                     expected > INT64_MAX ? std::string("more than 2^63")
                                          : std::to_string(static_cast<int64_t>(expected))));
  }
  const std::byte* at = f.file->data() + kHeaderBytes;
  for (const Entry& entry : entries) {
    for (int64_t layer = 0; layer < (PerLayer(entry) ? f.layers : 1); ++layer) {
      Weight weight;
      weight.shape = entry.shape;
      weight.bytes = *internal::TensorBytes(WeightType::kF32, entry.shape);
      weight.name = fmt::format(fmt::runtime(entry.name), layer);
      weight.file = f.file;
      weight.data = at;
      at += weight.bytes;
      if (!weight.name.empty()) f.tensors.emplace(weight.name, std::move(weight));
    }
  }
  return f;
}

}  // namespace ropewalk
