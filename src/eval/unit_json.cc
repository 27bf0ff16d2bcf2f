// Lines of units.jsonl: what a sweep has measured of cells that have no row yet.
#include <nlohmann/json.hpp>

#include "src/eval/cell_json.h"
#include "src/eval/cell_work.h"
#include "src/eval/whole.h"

namespace ropewalk::internal {
namespace {

using Json = nlohmann::ordered_json;

double Number(const Json& json) {
  return json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
}

Json WindowJson(const WindowScore& score) {
  Json json = {{"nats", score.nats},
               {"tokens", score.tokens},
               {"bytes", score.bytes},
               {"bucket_nats", score.bucket_nats},
               {"bucket_tokens", score.bucket_tokens},
               {"entropy", score.entropy},
               {"entropy_share", score.entropy_share}};
  if (!score.answers.empty()) json["answers"] = ToJson(score.answers);
  if (!score.key_answers.empty()) json["key_answers"] = ToJson(score.key_answers);
  return json;
}

WindowScore WindowFromJson(const Json& json) {
  WindowScore score;
  score.nats = Number(json.at("nats"));
  ReadWhole(json.at("tokens"), score.tokens);
  score.bytes = Number(json.at("bytes"));
  json.at("bucket_nats").get_to(score.bucket_nats);
  ReadWhole(json.at("bucket_tokens"), score.bucket_tokens);
  score.entropy = Number(json.at("entropy"));
  score.entropy_share = Number(json.at("entropy_share"));
  if (json.contains("answers")) score.answers = AnswersFromJson(json["answers"]);
  if (json.contains("key_answers")) score.key_answers = AnswersFromJson(json["key_answers"]);
  return score;
}

}  // namespace

std::string ToJson(const UnitRecord& unit) {
  Json json = {{"cell", unit.cell}, {"seconds", unit.seconds}};
  if (unit.window >= 0) {
    json["window"] = unit.window;
    json["score"] = WindowJson(unit.score);
  }
  if (unit.task) {
    if (unit.task_index >= 0) json["index"] = unit.task_index;
    json["task"] = ToJson(*unit.task);
  }
  return Line(json);
}

UnitRecord UnitFromJson(const std::string& line) {
  const Json json = Json::parse(line);
  UnitRecord unit;
  json.at("cell").get_to(unit.cell);
  json.at("seconds").get_to(unit.seconds);
  if (json.contains("window")) {
    ReadWhole(json["window"], unit.window);
    unit.score = WindowFromJson(json.at("score"));
  }
  if (json.contains("task")) {
    unit.task = TaskFromJson(json["task"]);
    if (json.contains("index")) ReadWhole(json["index"], unit.task_index);
  }
  return unit;
}

void AddUnit(const UnitRecord& unit, CellParts& parts) {
  if (unit.window >= 0) {
    if (unit.window != static_cast<int64_t>(parts.windows.size())) return;
    parts.windows.push_back(unit.score);
  } else if (unit.task) {
    const auto next = static_cast<int64_t>(parts.tasks.size());
    if (unit.task_index >= 0 && unit.task_index != next) return;
    parts.tasks.push_back(*unit.task);
  }
  parts.seconds += unit.seconds;
}

}  // namespace ropewalk::internal
