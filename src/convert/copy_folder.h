// The files of a model's folder that a new folder gets as they are.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ropewalk::internal {

struct FolderFile {
  std::string name;  // below the folder, "onnx/model.onnx"
  std::string path;  // of the file itself where a symbolic link leads to it
  int64_t bytes = 0;
};

// Every file below `folder` in order of its name, through symbolic links as well (the cache of
// Hugging Face's hub has those), but not in hidden folders (.git, .cache), whose names `hidden`
// gets. Error where a link leads nowhere or in a circle, or something is neither file nor folder.
std::vector<FolderFile> ListFolder(const std::string& folder, std::vector<std::string>* hidden);

// By its name: tensors of any format, which are large and nothing but tensors.
bool IsWeightFile(const std::string& name);

void CreateFolder(const std::string& folder);  // Error(kIo) with the reason; fine when it is there

struct CopyCount {
  int64_t copied = 0, linked = 0;
};
// Copies `files` to the same names below `to`, sharing blocks where the file system can; with
// `link_weights` weights become hard links, or copies where it has none. Error(kIo) before anything
// large is copied when there is no room for it.
CopyCount CopyFiles(const std::vector<FolderFile>& files, const std::string& to, bool link_weights);

}  // namespace ropewalk::internal
