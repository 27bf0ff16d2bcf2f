// The atlas: measured models on one page, from folders that hold results.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ropewalk/eval/results.h"

namespace ropewalk::cli {

// Small models that were trained with one encoding each, as scripts/zoo.py writes them.
struct ZooCell {
  std::string method;
  int64_t length = 0;
  double perplexity = 0, passkey = 0;
};
struct ZooModel {
  std::string entry, positions;  // its name; the key `positions` of its config.json
  int64_t seed = 0;
  std::string model_hash, text_hash, refused;  // refused: why longer lengths are missing
  std::vector<ZooCell> cells;
};
struct Zoo {
  std::string measure;  // options of the sweep that measured each
  int64_t trained_length = 0;
  std::vector<ZooModel> models;
};

// A folder with results.jsonl of a sweep and what its shards wrote, or rows.jsonl of a zoo.
struct AtlasFolder {
  std::string name;
  std::vector<std::pair<std::string, std::string>> files;  // name and what it holds
  std::optional<SweepResults> sweep;
  std::optional<Zoo> zoo;
};

// Names of the files with results in a folder; none: there are no results.
std::vector<std::string> ResultFiles(const std::string& folder);
// Throws Error(kInvalidFile) where there are no results, the file ends within a line, or its format
// is none of these, with file and line.
AtlasFolder ReadAtlasFolder(const std::string& folder);
// The page as Markdown. Rows stand in one table where the same numbers would come from the same
// method: those of one model, text, protocol and arithmetic.
std::string AtlasPage(const std::vector<AtlasFolder>& folders);
std::string ZooSection(const Zoo& zoo, const std::string& name);  // a part of it

inline constexpr char kAtlasTitle[] = "# Atlas of measured models\n";

}  // namespace ropewalk::cli
