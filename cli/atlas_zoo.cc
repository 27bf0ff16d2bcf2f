// Results of trained encodings (docs/results/zoo) in the atlas.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "cli/atlas.h"
#include "cli/report_text.h"
#include "ropewalk/base/error.h"

namespace ropewalk::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
constexpr char kZooFile[] = "rows.jsonl";

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(ErrorCode::kIo, path.string() + ": cannot be read");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// A key that may be absent or null.
std::string TextOf(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found == json.end() || found->is_null() ? "" : found->get<std::string>();
}

int64_t WholeOf(const Json& json) {
  if (!json.is_number_integer()) {
    throw Json::other_error::create(
        501, "expected a whole number, got " + json.dump().substr(0, 40), &json);
  }
  return json.get<int64_t>();
}

ZooModel ModelOf(const Json& row) {
  ZooModel model;
  model.entry = row.at("entry").get<std::string>();
  model.positions = row.at("positions").dump();
  model.seed = WholeOf(row.at("seed"));
  model.model_hash = row.at("model_hash").get<std::string>();
  model.text_hash = row.at("text_hash").get<std::string>();
  model.refused = TextOf(row, "refused");
  for (const Json& cell : row.at("cells")) {
    model.cells.push_back({cell.at("method").get<std::string>(), WholeOf(cell.at("length")),
                           cell.at("perplexity").get<double>(), cell.at("passkey").get<double>()});
  }
  return model;
}

Zoo ParseZoo(const std::string& text, const std::string& path) {
  Zoo zoo;
  std::istringstream lines(text);
  std::string line;
  for (int64_t number = 1; std::getline(lines, line); ++number) {
    try {
      const Json json = Json::parse(line);
      if (number > 1) {
        zoo.models.push_back(ModelOf(json));
        continue;
      }
      if (json.at("format") != "ropewalk-zoo" || json.at("schema") != 1) {
        throw Error(ErrorCode::kInvalidFile,
                    path + ", line 1: expected format ropewalk-zoo of schema 1");
      }
      zoo.measure = json.at("measure").get<std::string>();
      zoo.trained_length = WholeOf(json.at("trained_length"));
    } catch (const Json::exception& e) {
      throw Error(ErrorCode::kInvalidFile,
                  fmt::format("{}, line {}: no row of a zoo: {}", path, number, e.what()));
    }
  }
  return zoo;
}

void CheckWhole(const std::string& path, const std::string& text) {
  if (text.ends_with('\n')) return;
  throw Error(ErrorCode::kInvalidFile,
              path +
                  ": its last line is incomplete, as of a sweep that was interrupted while it "
                  "wrote; the command that began the sweep goes on and mends it");
}

}  // namespace

std::vector<std::string> ResultFiles(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    // results.jsonl, and results.3-of-16.jsonl of a shard
    if (name.starts_with("results.") && name.ends_with("jsonl")) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  if (names.empty() && fs::exists(fs::path(folder) / kZooFile, error)) names = {kZooFile};
  return names;
}

AtlasFolder ReadAtlasFolder(const std::string& folder) {
  AtlasFolder out;
  const std::vector<std::string> names = ResultFiles(folder);
  const bool is_zoo = names == std::vector<std::string>{kZooFile};
  if (!is_zoo) out.sweep = ReadResults(folder);
  for (const std::string& name : names) {
    const std::string path = (fs::path(folder) / name).string();
    out.files.emplace_back(name, ReadFile(path));
    CheckWhole(path, out.files.back().second);
    if (is_zoo) out.zoo = ParseZoo(out.files.back().second, path);
  }
  if (is_zoo ? !out.zoo->models.empty() : !out.sweep->cells.empty()) return out;
  throw Error(ErrorCode::kInvalidFile, folder + " holds no finished cell yet; run its sweep first");
}

std::string ZooSection(const Zoo& zoo, const std::string& name) {
  std::set<int64_t> lengths;
  std::set<std::string> texts;
  for (const ZooModel& model : zoo.models) {
    texts.insert(model.text_hash);
    for (const ZooCell& cell : model.cells) lengths.insert(cell.length);
  }
  TextRows rows(1, {"encoding"});
  for (const int64_t length : lengths) rows[0].push_back(fmt::format("{}", length));
  std::string refused, settings;
  for (const ZooModel& model : zoo.models) {
    std::vector<std::string> methods;
    for (const ZooCell& cell : model.cells) {
      if (std::find(methods.begin(), methods.end(), cell.method) == methods.end()) {
        methods.push_back(cell.method);
      }
    }
    const std::string label = fmt::format("{}, seed {}", model.entry, model.seed);
    for (const std::string& method : methods) {
      rows.push_back({method == "none" ? label : fmt::format("{}, {}", label, method)});
      for (const int64_t length : lengths) {
        const auto cell = std::find_if(
            model.cells.begin(), model.cells.end(),
            [&](const ZooCell& c) { return c.method == method && c.length == length; });
        rows.back().push_back(
            cell == model.cells.end()
                ? "-"
                : fmt::format("{}, {:.2f}", PerplexityText(cell->perplexity), cell->passkey));
      }
    }
    settings += fmt::format("- {}, model {}: `{}`\n", MarkdownText(label), model.model_hash,
                            model.positions);
    if (!model.refused.empty()) {
      refused += fmt::format("- {}: {}\n", MarkdownText(label), MarkdownText(model.refused));
    }
  }
  std::string out = fmt::format(
      "## {}: a model for each encoding\n\nModels that differ in their encoding alone, trained at "
      "{} tokens. Perplexity and share of passkeys found, by length in tokens; behind the seed a "
      "method that was applied to the trained model.\n\n{}\nMeasured with `{}`; text {}.\n\n",
      MarkdownText(name), zoo.trained_length, MarkdownTable(rows), zoo.measure,
      fmt::join(texts, ", "));
  if (!refused.empty()) out += "Lengths that are missing:\n\n" + refused + "\n";
  return out + "Settings, the key `positions` of a config.json of the family ropewalk:\n\n" +
         settings + "\n";
}

}  // namespace ropewalk::cli
