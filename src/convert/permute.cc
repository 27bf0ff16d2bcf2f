// Weights of q and k in the other pair layout, in safetensors: models and LoRA adapters.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "ropewalk/base/error.h"
#include "src/convert/convert.h"
#include "src/convert/copy_folder.h"
#include "src/io/atomic_file.h"

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
  std::error_code error;
  return fs::is_directory(from, error) ? OpenSafetensorsFolder(from) : OpenSafetensors(from);
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
  std::vector<std::string> left_out;
  std::vector<FolderFile> others = ListFolder(from, &left_out);
  std::erase_if(others, [&](const FolderFile& file) {
    const bool here = file.name.find('/') == std::string::npos;
    const bool permuted = here && (file.name.ends_with(".safetensors") ||
                                   file.name == "model.safetensors.index.json");
    if (!permuted && IsWeightFile(file.name)) left_out.push_back(file.name);
    return permuted || IsWeightFile(file.name) || file.name == "config.json";
  });
  CreateFolder(to);
  Converted result = PermuteSafetensors(from, to + "/model.safetensors", sizes, to_layout);
  CopyFiles(others, to, /*link_weights=*/false);
  WriteFileAtomically(to + "/config.json", config_json);
  if (!left_out.empty()) {
    result.notes.push_back(
        fmt::format("left out: {} (hidden folders, and weights that would be in "
                    "the other layout)",
                    fmt::join(left_out, ", ")));
  }
  return result;
}

}  // namespace ropewalk::internal
