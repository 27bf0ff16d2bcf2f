// The same model with another position setting: no weight is touched.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "ropewalk/base/error.h"
#include "src/io/atomic_file.h"
#include "src/model/convert/convert.h"
#include "src/model/convert/gguf_rope.h"
#include "src/model/convert/hf_config.h"

namespace ropewalk::internal {

namespace fs = std::filesystem;

Converted ExtendFolder(const ModelFiles& files, const std::string& folder, const PositionPlan& plan,
                       const nlohmann::ordered_json& setting) {
  const fs::path from(files.path);
  const std::string config = (from / "config.json").string();
  const auto text = std::string(MappedFile::Open(config)->text());
  NewFolder out(folder);
  const LinkCount count = LinkFiles(files.path, out.path(),
                                    [](const std::string& name) { return name != "config.json"; });
  WriteFileAtomically(out / "config.json",
                      WithRopeSetting(text, config, setting, plan.trained_length));
  out.Commit();
  Converted result;
  result.stored = plan;
  result.notes.push_back(fmt::format(
      "config.json rewritten; {} files are hard links to those of {}{}", count.linked, files.path,
      count.copied > 0 ? fmt::format(", {} are copies", count.copied) : ""));
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
  for (auto& [key, value] : rope.keys) metadata[key] = std::move(value);
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
  result.notes.push_back(fmt::format("{} tensors copied byte for byte, keys of {} set",
                                     weights.size(), architecture + ".rope.*"));
  return result;
}

}  // namespace ropewalk::internal
