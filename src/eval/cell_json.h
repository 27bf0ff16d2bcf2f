// Rows and the header of results.jsonl as JSON. docs/results-format.md lists the keys.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "ropewalk/eval/eval.h"
#include "ropewalk/eval/results.h"

namespace ropewalk::internal {

// What is wrong with a line, in plain words.
struct BadValue : nlohmann::ordered_json::exception {
  explicit BadValue(const std::string& what) : exception(501, what.c_str()) {}
};

// Of the lines that are written. Rows of schema 1 are read too (earlier_rows.h).
constexpr int kSchema = 2;

// What all cells of one sweep share and what decides their numbers, by JSON key.
std::vector<std::pair<std::string, std::string>> CommonIdentity(const Cell& cell);

nlohmann::ordered_json ToJson(const Cell& cell);
nlohmann::ordered_json ToJson(const SweepHeader& header);
nlohmann::ordered_json ToJson(const TaskResult& result);
nlohmann::ordered_json ToJson(const std::vector<TaskAnswer>& answers);
// Throw BadValue, which names the key that is missing or of a wrong type.
Cell CellFromJson(const nlohmann::ordered_json& json);
// Throws BadValue for a number that no sweep gives, which names the key.
void CheckRow(const Cell& row);
TaskResult TaskFromJson(const nlohmann::ordered_json& json);
std::vector<TaskAnswer> AnswersFromJson(const nlohmann::ordered_json& json);
SweepHeader HeaderFromJson(const nlohmann::ordered_json& json);

// One line without its newline, or with an indent. NaN becomes null, bytes that are not UTF-8
// become U+FFFD.
std::string Line(const nlohmann::ordered_json& json, int indent = -1);

}  // namespace ropewalk::internal
