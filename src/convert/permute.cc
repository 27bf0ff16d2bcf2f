// Weights of q and k in the other pair layout, in safetensors: models and LoRA adapters.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "ropewalk/base/error.h"
#include "ropewalk/convert/convert.h"
#include "src/config/json_object.h"
#include "src/convert/copy_folder.h"
#include "src/io/atomic_file.h"
#include "src/io/json.h"
#include "src/model/rows.h"

namespace ropewalk {
namespace {

using internal::CopyFiles;
using internal::CreateFolder;
using internal::FolderFile;
using internal::HeadRows;
using internal::IsWeightFile;
using internal::ListFolder;
using internal::ParseOrderedObject;
using internal::Rearranged;
using internal::WriteFileAtomically;

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

bool Contains(const std::string& name, const char* part) {
  return name.find(part) != std::string::npos;
}

// Of weights, biases, norms over a head, and of LoRA what writes into the rotated elements: B and
// DoRA's magnitudes. A reads the input, whose elements do not rotate.
bool IsQOrK(const std::string& name) {
  if (Contains(name, "lora_A")) return false;
  for (const char* part :
       {"q_proj.", "k_proj.", "q_norm.", "k_norm.", "q_layernorm.", "k_layernorm."}) {
    if (Contains(name, part)) return true;
  }
  return false;
}

[[noreturn]] void RefuseLatent(const std::string& what) {
  throw Error(ErrorCode::kUnsupported,
              what +
                  " is of latent attention, which rotates the last rows of each query head and "
                  "of the vector that keys are made of; its rows are not put into another layout");
}

// Rotated rows that are not the first of each head of a q_proj or k_proj.
void RefuseOtherPlaces(const std::string& name) {
  if (Contains(name, "kv_a_proj") || Contains(name, "q_b_proj")) {
    RefuseLatent(fmt::format("tensor '{}'", name));
  }
  for (const char* part : {"qkv_proj", "query_key_value", "c_attn", "W_pack", "Wqkv", "qkv."}) {
    if (!Contains(name, part)) continue;
    throw Error(ErrorCode::kUnsupported,
                fmt::format("tensor '{}' holds q, k and v in one; how they lie in it differs by "
                            "model, so split it first",
                            name));
  }
}

// By which config.json of a model that rotates halves says that rows of q and k are in the
// interleaved layout. Readers that rotate halves, as transformers' are, have to refuse it.
constexpr char kInterleavedKey[] = "rope_interleaved";

bool IsInterleaved(const Json& config, const std::string& path) {
  const auto said = config.find(kInterleavedKey);
  if (said == config.end() || said->is_null()) return false;
  if (said->is_boolean()) return *said == true;
  throw Error(ErrorCode::kInvalidConfig, fmt::format("{}: {}: expected true or false, got {}", path,
                                                     kInterleavedKey, internal::Shown(*said)));
}

bool RotatesNeighbours(const ModelConfig& c) {
  return std::any_of(c.plan.layers.begin(), c.plan.layers.end(), [](const LayerPlan& layer) {
    return layer.rotation && layer.rotation->layout == PairLayout::kInterleaved;
  });
}

// The family's own code rotates consecutive elements, so its rows are in their order from the
// start, and no key of config.json says otherwise.
[[noreturn]] void RefuseNeighbours(const std::string& path, const std::string& family,
                                   bool interleaved) {
  throw Error(
      ErrorCode::kUnsupported,
      interleaved
          ? fmt::format("{}: its rotation is interleaved already: the code of a {} model rotates "
                        "pairs of consecutive elements, and rows of q and k are in their order",
                        path, family)
          : fmt::format("{}: the code of a {} model rotates pairs of consecutive elements, and no "
                        "key can say that rows are in the half layout, so that every reader would "
                        "read the result wrong; for code of your own, permute the .safetensors "
                        "file (--head-dim N)",
                        path, family));
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
    RefuseOtherPlaces(name);
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

ModelFiles OpenEitherLayout(const std::string& folder, bool allow_unknown) {
  const std::string path = (fs::path(folder) / "config.json").string();
  Json config = ParseOrderedObject(MappedFile::Open(path)->text(), path);
  const bool interleaved = IsInterleaved(config, path);
  config.erase(kInterleavedKey);
  ModelFiles files;
  files.path = folder;
  files.config = ParseHfConfig(config.dump(), path, allow_unknown);
  if (files.config.text_part) {
    throw Error(ErrorCode::kUnsupported,
                path + ": rows of a model that reads images too are not put into another layout");
  }
  files.config.permuted_qk = interleaved && !RotatesNeighbours(files.config);
  files.tensors = OpenSafetensorsFolder(folder);
  return files;
}

ModelFiles RotatedAsStored(ModelFiles files) {
  if (!files.config.permuted_qk) return files;
  files.config.permuted_qk = false;
  for (LayerPlan& layer : files.config.plan.layers) {
    if (layer.rotation) layer.rotation->layout = PairLayout::kInterleaved;
  }
  return files;
}

Converted PermuteFolder(const ModelFiles& files, const std::string& to, PairLayout to_layout) {
  const std::string config_path = (fs::path(files.path) / "config.json").string();
  Json config = ParseOrderedObject(MappedFile::Open(config_path)->text(), config_path);
  const bool interleaved = to_layout == PairLayout::kInterleaved;
  if (files.config.layer.attention.latent.exists()) RefuseLatent(config_path + ": the model");
  if (RotatesNeighbours(files.config)) {
    RefuseNeighbours(config_path, files.config.architecture, interleaved);
  }
  if (IsInterleaved(config, config_path) == interleaved) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: the model is in the {} layout already", config_path,
                            interleaved ? "interleaved" : "half"));
  }
  if (interleaved && files.config.encoding_tensors) {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("{}: the family {} has the half layout alone, and no other engine reads "
                    "it",
                    config_path, files.config.architecture));
  }
  config.erase(kInterleavedKey);
  if (interleaved) config[kInterleavedKey] = true;
  const RotarySpec& spec = OnlyRotation(files.config.plan);
  std::vector<std::string> left_out;
  std::vector<FolderFile> others = ListFolder(files.path, &left_out);
  std::erase_if(others, [&](const FolderFile& file) {
    const bool here = file.name.find('/') == std::string::npos;
    const bool permuted = here && (file.name.ends_with(".safetensors") ||
                                   file.name == "model.safetensors.index.json");
    if (!permuted && IsWeightFile(file.name)) left_out.push_back(file.name);
    return permuted || IsWeightFile(file.name) || file.name == "config.json";
  });
  CreateFolder(to);
  Converted result = PermuteSafetensors(files.path, to + "/model.safetensors",
                                        {spec.head_dim, spec.rotary_dim}, to_layout);
  CopyFiles(others, to, /*link_weights=*/false);
  WriteFileAtomically(to + "/config.json", config.dump(2) + "\n");
  if (!left_out.empty()) {
    result.notes.push_back(
        fmt::format("left out: {} (hidden folders, and weights that would be in "
                    "the other layout)",
                    fmt::join(left_out, ", ")));
  }
  return result;
}

}  // namespace ropewalk
