// ropewalk atlas: adds results to a folder of results, and writes its page.
#include "cli/atlas.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "cli/options.h"
#include "cli/output.h"
#include "cli/report.h"
#include "ropewalk/base/error.h"

namespace ropewalk::cli {
namespace {

namespace fs = std::filesystem;

// Its folders with results, by name.
std::vector<std::string> FoldersOf(const std::string& atlas) {
  std::vector<std::string> folders;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(atlas, error)) {
    if (!ResultFiles(entry.path().string()).empty()) folders.push_back(entry.path().string());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

std::vector<AtlasFolder> ReadAll(const std::vector<std::string>& folders) {
  std::vector<AtlasFolder> out;
  for (const std::string& folder : folders) {
    out.push_back(ReadAtlasFolder(folder));
    out.back().name = FolderName(folder);
  }
  return out;
}

void AddLines(const std::string& text, std::set<std::string>& out) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) out.insert(line);
}

// Results under a name that the atlas has stay, unless `folder` is the same sweep gone on: it has
// every one of their lines.
void CheckName(const AtlasFolder& folder, const fs::path& place) {
  if (!fs::exists(place)) return;
  std::set<std::string> now, then;
  for (const auto& [name, text] : folder.files) AddLines(text, now);
  const std::vector<std::string> names = ResultFiles(place.string());
  for (const std::string& name : names) {
    std::ostringstream text;
    text << std::ifstream(place / name, std::ios::binary).rdbuf();
    AddLines(text.str(), then);
  }
  if (!names.empty() && std::includes(now.begin(), now.end(), then.begin(), then.end())) return;
  throw Error(ErrorCode::kMismatch,
              fmt::format("{} has rows that the new {} does not have, so it is not replaced; "
                          "rename one of the two folders",
                          place.string(), folder.name));
}

void CheckPage(const fs::path& page) {
  if (!fs::exists(page)) return;
  std::ostringstream text;
  text << std::ifstream(page, std::ios::binary).rdbuf();
  if (text.str().starts_with(kAtlasTitle)) return;
  throw Error(ErrorCode::kIo, page.string() +
                                  ": exists and is no atlas of ropewalk, so it is not replaced; "
                                  "choose another folder with --atlas");
}

void Add(const Options& options) {
  if (options.folders.empty()) throw UsageError("atlas add: expected a folder that holds results");
  if (!options.output.empty()) {
    throw UsageError("atlas add writes the page into the folder of --atlas: leave out -o");
  }
  const fs::path atlas = options.atlas, page = atlas / "README.md";
  // Everything is read and checked before anything is written.
  const std::vector<AtlasFolder> added = ReadAll(options.folders);
  CheckPage(page);
  std::set<std::string> names;
  for (const AtlasFolder& folder : added) {
    if (!names.insert(folder.name).second) {
      throw UsageError("atlas add: two folders are called " + folder.name + "; rename one");
    }
    CheckName(folder, atlas / folder.name);
  }
  ReadAll(FoldersOf(options.atlas));
  for (const AtlasFolder& folder : added) {
    std::error_code error;
    fs::create_directories(atlas / folder.name, error);
    if (error) {
      throw Error(ErrorCode::kIo, fmt::format("cannot make {}: {}", (atlas / folder.name).string(),
                                              error.message()));
    }
    for (const auto& [name, text] : folder.files) {
      WriteWhole((atlas / folder.name / name).string(), text);
    }
  }
  WriteWhole(page.string(), AtlasPage(ReadAll(FoldersOf(options.atlas))));
  fmt::print("{}\n", page.string());
}

}  // namespace

void RunAtlas(const Options& options) {
  if (options.action == "add") return Add(options);
  const std::vector<std::string> folders =
      options.folders.empty() ? FoldersOf(options.atlas) : options.folders;
  if (folders.empty()) {
    throw Error(ErrorCode::kIo, options.atlas +
                                    ": no folder in it holds results; ropewalk atlas add DIR adds "
                                    "the folder of a sweep");
  }
  if (!options.output.empty()) CheckPage(options.output);
  WriteResult(options, AtlasPage(ReadAll(folders)));
}

}  // namespace ropewalk::cli
