#include "ropewalk/eval/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string_view>

#include "ropewalk/base/error.h"
#include "src/eval/cell_json.h"
#include "src/eval/results_text.h"
#include "src/eval/sweep_files.h"

namespace ropewalk {
namespace internal {
namespace {

using Json = nlohmann::ordered_json;

// How the lines begin that ToJson and Line write. A line that was cut says by them whose it is.
constexpr std::string_view kHeaderBegin = R"({"format":"ropewalk-sweep")";
constexpr std::string_view kRowBegin = R"({"method":)";
constexpr char kNoHeader[] = "expected the header of a ropewalk sweep";

[[noreturn]] void BadLine(const std::string& path, int64_t line, const std::string& why) {
  throw Error(ErrorCode::kInvalidFile,
              path + ", line " + std::to_string(line) + ": " + why +
                  "; the file was written or changed by something else: move it away");
}

// Whether `line`, the last one, is a row of ours of which the end is missing: its newline, or,
// `ended` by one, bytes that are zero because a power cut left their length alone. The header is the
// first thing in the file, so what begins otherwise is somebody else's, however short.
bool IsTorn(std::string_view line, int64_t number, bool ended) {
  const bool zeros = line.find('\0') != line.npos;
  if (ended && !zeros) return false;
  if (number == 1) return line.starts_with(kHeaderBegin);
  const std::size_t n = std::min(line.size(), kRowBegin.size());
  return line.substr(0, n) == kRowBegin.substr(0, n) || zeros;
}

// What nlohmann says, without the name of its exception in front.
std::string Why(const Json::exception& e) {
  const std::string_view what = e.what();
  const std::size_t end = what.starts_with("[json.exception") ? what.find("] ") : what.npos;
  return std::string(end == what.npos ? what : what.substr(end + 2));
}

SweepHeader ParseHeader(const Json& json, const std::string& path) {
  if (!json.is_object() || json.value("format", Json()) != "ropewalk-sweep") {
    BadLine(path, 1, kNoHeader);
  }
  const Json schema = json.value("schema", Json());
  if (schema != 1 && schema != kSchema) {
    BadLine(path, 1,
            "expected schema 1 or 2, found " + schema.dump() +
                " (written by another version of ropewalk)");
  }
  return HeaderFromJson(json);
}

// Rows are compared with each other: those of another model, text or engine are not of this sweep.
void CheckOfHeader(const Cell& row, const SweepHeader& header) {
  const Cell& common = header.common;
  const auto check = [](const char* key, const std::string& here, const std::string& there) {
    if (here == there) return;
    throw BadValue(
        fmt::format("\"{}\" is \"{}\", that of the header \"{}\": the row is of another "
                    "sweep, with which the others do not compare",
                    key, here, there));
  };
  check("model_hash", row.model_hash, common.model_hash);
  check("text_hash", row.text_hash, common.text_hash);
  check("compute", row.compute, common.compute);
  check("angles", row.angles, common.angles);
}

}  // namespace

ParsedResults ParseResults(const std::string& text, const std::string& path) {
  ParsedResults result;
  size_t begin = 0;
  int64_t number = 0;
  while (begin < text.size()) {
    ++number;
    const size_t end = std::min(text.find('\n', begin), text.size());
    const Json json = Json::parse(text.begin() + begin, text.begin() + end, nullptr, false);
    if (end == text.size() || json.is_discarded()) {  // a whole line ends in a newline
      const std::string_view line(text.data() + begin, end - begin);
      if (end + 1 >= text.size() && IsTorn(line, number, end < text.size())) break;
      BadLine(path, number, number == 1 ? kNoHeader : "no JSON");
    }
    try {
      if (number == 1) {
        result.results.header = ParseHeader(json, path);
        result.has_header = true;
      } else {
        Cell& cell = result.results.cells.emplace_back(CellFromJson(json));
        CheckRow(cell);
        CheckOfHeader(cell, result.results.header);
      }
    } catch (const Json::exception& e) {
      BadLine(path, number, Why(e));
    }
    begin = end + 1;
  }
  result.whole_bytes = static_cast<int64_t>(begin);
  result.results.dropped_bytes = static_cast<int64_t>(text.size() - begin);
  return result;
}

}  // namespace internal

namespace {

// A shard may be writing the last line of its file, even of its header.
internal::ParsedResults ParseFile(std::string text, const std::string& path, bool complete) {
  const size_t bytes = text.size();
  if (!complete) text.resize(text.rfind('\n') + 1);  // npos + 1 is 0
  internal::ParsedResults parsed = internal::ParseResults(text, path);
  parsed.results.dropped_bytes += static_cast<int64_t>(bytes - text.size());
  return parsed;
}

}  // namespace

SweepResults ReadResults(const std::string& folder) {
  std::vector<std::string> names = internal::FilesOf(folder, internal::kResults);
  const std::string without = internal::NameOfFile(internal::kResults, {});
  if (names.empty()) names = {without};
  internal::RowStore rows;
  SweepResults results;
  bool any = false;
  for (const std::string& name : names) {
    const std::string path = fmt::format("{}/{}", folder, name);
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    if (file) text << file.rdbuf();
    if (!file) {
      throw Error(ErrorCode::kIo, "cannot read " + path + ": expected the folder of a sweep");
    }
    internal::ParsedResults parsed = ParseFile(std::move(text).str(), path, name == without);
    results.dropped_bytes += parsed.results.dropped_bytes;
    if (!parsed.has_header) continue;
    if (any) {
      internal::CheckSame(parsed.results.header, results.header.common, path);
    } else {
      results.header = std::move(parsed.results.header);
    }
    any = true;
    rows.Add(std::move(parsed.results.cells));
  }
  if (!any) {
    throw Error(ErrorCode::kInvalidFile,
                folder + "/" + names.front() + ": empty, the sweep wrote nothing yet");
  }
  results.cells = std::move(rows).Take();
  return results;
}

std::string Version() { return ROPEWALK_VERSION; }

}  // namespace ropewalk
