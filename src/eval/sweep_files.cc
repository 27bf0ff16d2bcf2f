#include "src/eval/sweep_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <tuple>
#include <utility>

#include "ropewalk/base/error.h"
#include "src/eval/cell_json.h"
#include "src/eval/results_text.h"
#include "src/io/files.h"

namespace ropewalk::internal {
namespace {

namespace fs = std::filesystem;

// The shard of "results.3-of-16.jsonl"; nothing for a name that no shard's file has.
std::optional<Shard> ShardOfFile(const std::string& name, const std::string& kind) {
  const std::string begin = kind + ".", end = ".jsonl";
  if (!name.starts_with(begin) || !name.ends_with(end)) return {};
  if (name.size() <= begin.size() + end.size()) return {};
  std::string middle = name.substr(begin.size(), name.size() - begin.size() - end.size());
  const size_t of = middle.find("-of-");
  if (of == std::string::npos) return {};
  middle.replace(of, 4, "/");
  try {
    const Shard shard = ParseShard(middle, [](const char*) -> const char* { return nullptr; });
    if (NameOfFile(kind.c_str(), shard) == name) return shard;
  } catch (const Error&) {  // somebody's own file
  }
  return {};
}

std::string TextOf(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// From `begin` to the end of the last whole line, and how long the file is.
std::string WholeLines(const std::string& path, int64_t begin, int64_t& bytes) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) {
    file.seekg(0, std::ios::end);
    bytes = static_cast<int64_t>(file.tellg());
    if (bytes < begin) return {};
    file.seekg(begin);
    if (bytes > begin) text << file.rdbuf();
  }
  if (!file) {
    throw Error(ErrorCode::kIo, "cannot read " + path + ": " + std::strerror(errno));
  }
  std::string lines = text.str();
  const size_t end = lines.rfind('\n');
  lines.resize(end == std::string::npos ? 0 : end + 1);
  return lines;
}

// How much a row has measured.
auto Measured(const Cell& row) {
  return std::tuple(IsFinishedRow(row, false), row.windows, !row.unfinished, row.tasks.size());
}

}  // namespace

std::string NameOfFile(const char* kind, const std::optional<Shard>& shard) {
  if (!shard) return fmt::format("{}.jsonl", kind);
  return fmt::format("{}.{}-of-{}.jsonl", kind, shard->index, shard->count);
}

std::vector<std::string> FilesOf(const std::string& folder, const char* kind) {
  std::vector<std::tuple<int64_t, int64_t, std::string>> found;
  for (const std::string& name : NamesIn(folder)) {
    std::error_code gone;
    if (!fs::is_regular_file(fs::path(folder) / name, gone)) continue;
    if (name == NameOfFile(kind, {})) found.emplace_back(0, 0, name);
    if (const auto shard = ShardOfFile(name, kind)) {
      found.emplace_back(shard->count, shard->index, name);
    }
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> names;
  names.reserve(found.size());
  for (auto& [count, index, name] : found) names.push_back(std::move(name));
  return names;
}

void CheckSame(const SweepHeader& theirs, const Cell& ours, const std::string& path) {
  const auto there = CommonIdentity(theirs.common);
  const auto here = CommonIdentity(ours);
  std::string differences;
  for (size_t i = 0; i < here.size(); ++i) {
    if (there[i].second == here[i].second) continue;
    if (!differences.empty()) differences += "; ";
    differences += here[i].first + " there " + there[i].second + ", here " + here[i].second;
  }
  if (differences.empty()) return;
  throw Error(ErrorCode::kMismatch,
              path + " holds results of another sweep (" + differences +
                  "); choose another folder with -o, or give the options it was made with");
}

bool IsFinishedRow(const Cell& row, bool race) {
  return !row.unfinished && (race || !row.race_exit);
}

void RowStore::Put(Cell cell) {
  const auto [at, added] = index_.try_emplace(cell.Identity(), cells_.size());
  if (added) {
    cells_.push_back(std::move(cell));
  } else {
    cells_[at->second] = std::move(cell);
  }
}

void RowStore::Add(std::vector<Cell>&& cells) {
  RowStore file;
  for (Cell& cell : cells) file.Put(std::move(cell));
  for (Cell& cell : file.cells_) {
    const Cell* there = Find(cell.Identity());
    if (there == nullptr || Measured(cell) > Measured(*there)) Put(std::move(cell));
  }
}

const Cell* RowStore::Find(const std::string& identity) const {
  const auto found = index_.find(identity);
  return found == index_.end() ? nullptr : &cells_[found->second];
}

std::vector<Cell> RowStore::Take() && {
  // Lengths are finished in the order in which they decide something.
  std::stable_sort(cells_.begin(), cells_.end(), [](const Cell& a, const Cell& b) {
    return std::tie(a.length, a.place) < std::tie(b.length, b.place);
  });
  for (Cell& cell : cells_) cell.place = -1;
  return std::move(cells_);
}

void OthersFile::ReadUnits(UnitStore& units) {
  int64_t bytes = 0;
  std::string text = WholeLines(path_, bytes_, bytes);
  if (bytes < bytes_) {  // its owner has cut it
    bytes_ = lines_ = 0;
    text = WholeLines(path_, 0, bytes);
  }
  const int64_t known = bytes_;
  try {
    bytes_ += units.AddLines(text, path_, lines_);
  } catch (const Error&) {
    if (known == 0) throw;
    // It was cut and has grown since: begin again.
    bytes_ = lines_ = 0;
    bytes_ = units.AddLines(WholeLines(path_, 0, bytes), path_, lines_);
  }
}

void OthersFile::ReadRows(const Cell& common, RowStore& rows) {
  int64_t bytes = 0;
  std::string text = WholeLines(path_, 0, bytes);
  if (bytes == bytes_) return;
  // Nobody else is at work there, so that what has no end was torn, or is not ours.
  if (path_.ends_with("/" + NameOfFile(kResults, {}))) text = TextOf(path_);
  bytes_ = bytes;
  ParsedResults parsed = ParseResults(text, path_);
  if (!parsed.has_header) return;
  CheckSame(parsed.results.header, common, path_);
  rows.Add(std::move(parsed.results.cells));
}

std::vector<OthersFile*> OthersFiles::Files(const char* kind, const std::string& own) {
  std::vector<OthersFile*> files;
  for (const std::string& name : FilesOf(folder_, kind)) {
    if (name == own) continue;
    files.push_back(&files_.try_emplace(name, folder_ + "/" + name).first->second);
  }
  return files;
}

void OthersFiles::Read(const Cell& common, RowStore& rows, UnitStore& units) {
  for (OthersFile* file : Files(kResults, own_[0])) file->ReadRows(common, rows);
  for (OthersFile* file : Files(kUnits, own_[1])) file->ReadUnits(units);
}

}  // namespace ropewalk::internal
