// The same model with another position setting: no weight is touched.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "ropewalk/base/error.h"
#include "ropewalk/convert/convert.h"
#include "src/config/hf/positions_write.h"
#include "src/convert/copy_folder.h"
#include "src/engines/gguf_rope.h"
#include "src/engines/hf_config.h"
#include "src/io/atomic_file.h"
#include "src/io/json.h"

namespace ropewalk {

using internal::CopyCount;
using internal::CopyFiles;
using internal::CreateFolder;
using internal::FolderFile;
using internal::GgufRopeOf;
using internal::HasRopeParameters;
using internal::IsGgufRopeKey;
using internal::IsGgufRopeTensor;
using internal::IsWeightFile;
using internal::ListFolder;
using internal::ParseOrderedObject;
using internal::StoredRope;
using internal::WithRopeSetting;
using internal::WriteFileAtomically;

namespace fs = std::filesystem;

namespace {

// In the schema that the file has.
std::string WithSetting(const std::string& before, const std::string& config,
                        const PositionPlan& plan, const SettingsTarget& target) {
  const auto schema = HasRopeParameters(ParseOrderedObject(before, config))
                          ? ConfigSchema::kRopeParameters
                          : ConfigSchema::kRopeScaling;
  const std::string setting = HuggingFaceSetting(schema, OnlyRotation(plan).scaling, target);
  return WithRopeSetting(before, config, nlohmann::ordered_json::parse(setting),
                         plan.trained_length);
}

}  // namespace

Converted ExtendFolder(const ModelFiles& files, const std::string& folder, const PositionPlan& plan,
                       const SettingsTarget& target, bool link_weights) {
  const std::string config = (fs::path(files.path) / "config.json").string();
  const std::string before(MappedFile::Open(config)->text());
  const std::string text = files.config.encoding_tensors
                               ? internal::WithPositions(before, config, plan)
                               : WithSetting(before, config, plan, target);
  std::vector<std::string> hidden, foreign;
  std::vector<FolderFile> others = ListFolder(files.path, &hidden);
  std::erase_if(others, [](const FolderFile& file) { return file.name == "config.json"; });
  for (const FolderFile& file : others) {
    // Of a program that does not read config.json.
    if (IsWeightFile(file.name) && !file.name.ends_with(".safetensors") &&
        !file.name.ends_with(".bin")) {
      foreign.push_back(file.name);
    }
  }
  CreateFolder(folder);
  WriteFileAtomically(folder + "/config.json", text);
  const CopyCount count = CopyFiles(others, folder, link_weights);
  Converted result;
  result.stored = plan;
  result.notes.push_back(
      fmt::format("config.json rewritten; {} other files copied{}", count.copied,
                  count.linked > 0 ? fmt::format(", {} hard-linked: whoever rewrites one of these "
                                                 "in place rewrites that of {}",
                                                 count.linked, files.path)
                                   : ""));
  if (!hidden.empty()) {
    result.notes.push_back(fmt::format("hidden folders left out: {}", fmt::join(hidden, ", ")));
  }
  if (!foreign.empty()) {
    result.notes.push_back(fmt::format("copied as they are, and so without the new setting: {}",
                                       fmt::join(foreign, ", ")));
  }
  return result;
}

Converted ExtendGguf(const ModelFiles& files, const std::string& path, const PositionPlan& plan,
                     int64_t served_length) {
  const GgufFile from = OpenGguf(files.path);
  const std::string& architecture =
      from.metadata.at("general.architecture").AsString("general.architecture");
  StoredRope rope = GgufRopeOf(architecture, plan, served_length);
  std::map<std::string, GgufValue> metadata;
  for (const auto& [key, value] : from.metadata) {
    if (IsGgufRopeKey(architecture, key) || key.starts_with("split.")) continue;
    metadata[key] = value;
  }
  std::vector<std::string> keys;
  for (auto& [key, value] : rope.keys) {
    metadata[key] = std::move(value);
    keys.push_back(key);
  }
  std::vector<const Weight*> weights;
  for (const auto& [name, weight] : from.tensors) {
    if (!IsGgufRopeTensor(name)) weights.push_back(&weight);
  }
  // As they lie in the file: readers that map it run through it front to back.
  std::sort(weights.begin(), weights.end(), [](const Weight* a, const Weight* b) {
    return a->file->path() != b->file->path() ? a->file->path() < b->file->path()
                                              : a->data < b->data;
  });
  std::vector<TensorSource> tensors = std::move(rope.tensors);
  for (const Weight* weight : weights) tensors.push_back(CopyOf(*weight));
  WriteGguf(path, metadata, tensors);
  Converted result;
  result.stored = std::move(rope.stored);
  result.notes.push_back(fmt::format("{} tensors copied byte for byte; keys set: {}",
                                     weights.size(), fmt::join(keys, ", ")));
  result.notes.insert(result.notes.end(), rope.notes.begin(), rope.notes.end());
  return result;
}

}  // namespace ropewalk
