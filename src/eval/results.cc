#include "ropewalk/eval/results.h"

#include <fstream>
#include <sstream>

#include "ropewalk/base/error.h"
#include "src/eval/cell_json.h"
#include "src/eval/results_text.h"

namespace ropewalk {
namespace internal {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void BadLine(const std::string& path, int64_t line, const std::string& why) {
  throw Error(ErrorCode::kInvalidFile,
              path + ", line " + std::to_string(line) + ": " + why +
                  "; the file was changed by something else, move it away");
}

SweepHeader ParseHeader(const Json& json, const std::string& path) {
  if (!json.is_object() || json.value("format", Json()) != "ropewalk-sweep") {
    BadLine(path, 1, "expected the header of a ropewalk sweep");
  }
  if (json.value("schema", Json()) != 1) {
    BadLine(path, 1,
            "expected schema 1, found " + json.value("schema", Json()).dump() +
                " (written by another version of ropewalk)");
  }
  return HeaderFromJson(json);
}

}  // namespace

ParsedResults ParseResults(const std::string& text, const std::string& path) {
  ParsedResults result;
  size_t begin = 0;
  int64_t number = 0;
  while (begin < text.size()) {
    ++number;
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;  // torn: a whole line ends in a newline
    const Json json = Json::parse(text.begin() + begin, text.begin() + end, nullptr, false);
    // A power cut may leave a last line of the right length but without its bytes.
    if (json.is_discarded() && end + 1 == text.size()) break;
    if (json.is_discarded()) BadLine(path, number, "no JSON");
    try {
      if (number == 1) {
        result.results.header = ParseHeader(json, path);
        result.has_header = true;
      } else {
        result.results.cells.push_back(CellFromJson(json));
      }
    } catch (const Json::exception& e) {
      BadLine(path, number, e.what());
    }
    begin = end + 1;
  }
  result.whole_bytes = static_cast<int64_t>(begin);
  result.results.dropped_bytes = static_cast<int64_t>(text.size() - begin);
  return result;
}

}  // namespace internal

SweepResults ReadResults(const std::string& folder) {
  const std::string path = folder + "/results.jsonl";
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file) {
    throw Error(ErrorCode::kIo, "cannot read " + path + ": expected the folder of a sweep");
  }
  internal::ParsedResults parsed = internal::ParseResults(text.str(), path);
  if (!parsed.has_header) {
    throw Error(ErrorCode::kInvalidFile, path + ": empty, the sweep wrote nothing yet");
  }
  return std::move(parsed.results);
}

std::string Version() { return ROPEWALK_VERSION; }

}  // namespace ropewalk
