// Weights of q and k in the other pair layout, in safetensors: models and LoRA adapters.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "ropewalk/base/error.h"
#include "src/io/atomic_file.h"
#include "src/model/convert/convert.h"

namespace ropewalk::internal {
namespace {

namespace fs = std::filesystem;

bool Contains(const std::string& name, const char* part) {
  return name.find(part) != std::string::npos;
}

// Of weights, biases, norms over a head, and of LoRA what writes into the rotated elements: B and
// DoRA's magnitudes. A reads the input, whose elements do not rotate.
bool IsQOrK(const std::string& name) {
  if (Contains(name, "lora_A")) return false;
  return Contains(name, "q_proj.") || Contains(name, "k_proj.") || Contains(name, "q_norm.") ||
         Contains(name, "k_norm.");
}

void RefuseFused(const std::string& name) {
  for (const char* part : {"qkv_proj", "query_key_value", "c_attn", "W_pack", "Wqkv", "qkv."}) {
    if (!Contains(name, part)) continue;
    throw Error(ErrorCode::kUnsupported,
                fmt::format("tensor '{}' holds q, k and v in one; how they lie in it differs by "
                            "model, so split it first",
                            name));
  }
}

std::map<std::string, Weight> Open(const std::string& from) {
  return fs::is_directory(from) ? OpenSafetensorsFolder(from) : OpenSafetensors(from);
}

}  // namespace

Converted PermuteSafetensors(const std::string& from, const std::string& to, HeadSizes sizes,
                             PairLayout to_layout) {
  const auto weights = Open(from);
  const HeadRows rows{sizes.head_dim, sizes.rotary_dim, to_layout};
  std::vector<TensorSource> tensors;
  int64_t moved = 0;
  for (const auto& [name, weight] : weights) {
    RefuseFused(name);
    moved += IsQOrK(name) ? 1 : 0;
    tensors.push_back(Rearranged(weight, name, IsQOrK(name) ? rows : HeadRows{}));
  }
  if (moved == 0) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{}: no tensor is called q_proj or k_proj, so there is nothing whose "
                            "rows could be put into the other layout",
                            from));
  }
  WriteSafetensors(to, tensors, {{"format", "pt"}});
  Converted result;
  result.notes.push_back(
      fmt::format("rows of {} tensors put into the {} layout; {} copied byte "
                  "for byte",
                  moved, to_layout == PairLayout::kHalf ? "half" : "interleaved",
                  static_cast<int64_t>(weights.size()) - moved));
  return result;
}

Converted PermuteFolder(const std::string& from, const std::string& to,
                        const std::string& config_json, HeadSizes sizes, PairLayout to_layout) {
  NewFolder out(to);
  Converted result = PermuteSafetensors(from, out / "model.safetensors", sizes, to_layout);
  LinkFiles(from, out.path(), [](const std::string& name) {
    return name != "config.json" && !name.ends_with(".safetensors") &&
           !name.ends_with(".safetensors.index.json");
  });
  WriteFileAtomically(out / "config.json", config_json);
  out.Commit();
  return result;
}

}  // namespace ropewalk::internal
