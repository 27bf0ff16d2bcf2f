#include "src/model/family.h"

#include <fmt/format.h>

#include "ropewalk/base/error.h"

namespace ropewalk::internal {
namespace {

using Window = Family::Window;

// clang-format off
constexpr Family kFamilies[] = {
    {.name = "llama", .gguf_name = "llama", .default_theta = 1e4, .kv_heads_default_heads = true,
     .default_head_dim = 0, .qkv_bias = false, .attention_bias_key = true, .mlp_bias_key = true,
     .qk_norm = false, .window = Window::kNone, .default_window = 0, .no_rope_interval = 0,
     .gguf_permuted = true},
    {.name = "mistral", .gguf_name = nullptr, .default_theta = 1e4, .kv_heads_default_heads = false,
     .default_head_dim = 0, .qkv_bias = false, .attention_bias_key = false, .mlp_bias_key = false,
     .qk_norm = false, .window = Window::kAll, .default_window = 4096, .no_rope_interval = 0,
     .gguf_permuted = true},
    {.name = "qwen2", .gguf_name = "qwen2", .default_theta = 1e4, .kv_heads_default_heads = false,
     .default_head_dim = 0, .qkv_bias = true, .attention_bias_key = false, .mlp_bias_key = false,
     .qk_norm = false, .window = Window::kFromMaxWindowLayers, .default_window = 4096,
     .no_rope_interval = 0, .gguf_permuted = false},
    {.name = "qwen3", .gguf_name = "qwen3", .default_theta = 1e4, .kv_heads_default_heads = false,
     .default_head_dim = 128, .qkv_bias = false, .attention_bias_key = true, .mlp_bias_key = false,
     .qk_norm = true, .window = Window::kFromMaxWindowLayers, .default_window = 4096,
     .no_rope_interval = 0, .gguf_permuted = false},
    {.name = "smollm3", .gguf_name = nullptr, .default_theta = 2e6, .kv_heads_default_heads = false,
     .default_head_dim = 0, .qkv_bias = false, .attention_bias_key = true, .mlp_bias_key = true,
     .qk_norm = false, .window = Window::kNone, .default_window = 0, .no_rope_interval = 4,
     .gguf_permuted = true},
};
// clang-format on

template <class Name>
std::string Join(Name name) {
  std::string s;
  for (const Family& f : kFamilies) {
    if (name(f) == nullptr) continue;
    if (!s.empty()) s += ", ";
    s += name(f);
  }
  return s;
}

}  // namespace

const Family* FindFamily(const std::string& hf_model_type) {
  for (const Family& f : kFamilies) {
    if (hf_model_type == f.name) return &f;
  }
  return nullptr;
}

const Family* FindGgufFamily(const std::string& architecture) {
  for (const Family& f : kFamilies) {
    if (f.gguf_name != nullptr && architecture == f.gguf_name) return &f;
  }
  return nullptr;
}

std::string FamilyNames() {
  return Join([](const Family& f) { return f.name; });
}
std::string GgufFamilyNames() {
  return Join([](const Family& f) { return f.gguf_name; });
}

void CheckSizes(const ModelConfig& c, const std::string& where) {
  if (c.heads % c.kv_heads != 0) {
    throw Error(ErrorCode::kInvalidConfig,
                fmt::format("{}: {} query heads cannot share {} key heads evenly", where, c.heads,
                            c.kv_heads));
  }
  if (c.heads * c.head_dim > kMaxDim) {
    throw Error(ErrorCode::kInvalidConfig,
                fmt::format("{}: {} heads of {} are more than {} elements", where, c.heads,
                            c.head_dim, kMaxDim));
  }
}

}  // namespace ropewalk::internal
