#include "src/eval/cell_json.h"

#include <algorithm>
#include <concepts>
#include <iterator>
#include <limits>

#include "ropewalk/base/hash.h"
#include "src/eval/earlier_rows.h"
#include "src/eval/whole.h"

namespace ropewalk {
namespace internal {
namespace {

using Json = nlohmann::ordered_json;

// One list of the fields of a row: `visit(key, member)` for each, in the order of the file.
template <class C, class Visit>
void VisitCommon(C& c, Visit&& visit) {
  visit("version", c.version);
  visit("model_hash", c.model_hash);
  visit("text_hash", c.text_hash);
  visit("tokenizer", c.tokenizer);
  visit("tokenizer_hash", c.tokenizer_hash);
  visit("trained_length", c.trained_length);
  visit("longest_length", c.longest_length);
  visit("protocol", c.protocol);
  visit("anchors", c.anchors);
  visit("bos", c.bos);
  visit("seed", c.seed);
  visit("compute", c.compute);
  visit("angles", c.angles);
  visit("threads", c.threads);
}

template <class C, class Visit>
void VisitCell(C& c, Visit&& visit) {
  visit("method", c.method);
  visit("factor", c.factor);
  visit("length", c.length);
  visit("scaling", c.scaling);
  visit("plan_hash", c.plan_hash);
  visit("shared_with", c.shared_with);
  visit("perplexity", c.perplexity);
  visit("mean_nll", c.mean_nll);
  visit("standard_error", c.standard_error);
  visit("bits_per_byte", c.bits_per_byte);
  visit("windows", c.windows);
  visit("scored_tokens", c.scored_tokens);
  visit("window_nll", c.window_nll);
  visit("bucket_edges", c.bucket_edges);
  visit("bucket_nll", c.bucket_nll);
  visit("seconds", c.seconds);
  visit("rope_base", c.rope_base);
  visit("rotary_dim", c.rotary_dim);
  visit("amplitude", c.amplitude);
  visit("inv_freq", c.inv_freq);
  VisitCommon(c, visit);
}

// Keys that schema 1 got later: lines that were written before have none of them.
template <class C, class Visit>
void VisitCommonLater(C& c, Visit&& visit) {
  visit("tasks_protocol", c.tasks_protocol);
}
template <class C, class Visit>
void VisitLater(C& c, Visit&& visit) {
  VisitCommonLater(c, visit);
  visit("tasks", c.tasks);
  visit("race_exit", c.race_exit);
  visit("unfinished", c.unfinished);
  visit("entropy", c.entropy);
  visit("entropy_share", c.entropy_share);
  visit("local_base", c.local_base);
  visit("kv", c.kv);
  visit("kv_keys", c.kv_keys);
  visit("place", c.place);
  visit("text_part", c.setting_place.text_part);
  visit("flat_file", c.setting_place.flat_file);
  visit("rope_keys", c.setting_place.rope_keys);
  visit("shipped", c.setting_place.shipped);
  visit("kept_in_gguf", c.setting_place.kept_in_gguf);
  visit("stated_length", c.setting_place.stated_length);
  visit("configured_length", c.setting_place.configured_length);
}

template <class R, class Visit>
void VisitTask(R& r, Visit&& visit) {
  visit("task", r.task);
  visit("protocol", r.protocol);
  visit("data_hash", r.data_hash);
  visit("prompts", r.prompts);
  visit("exact", r.exact);
  visit("recall", r.recall);
  visit("mean_nll", r.mean_nll);
  visit("standard_error", r.standard_error);
  visit("fed_tokens", r.fed_tokens);
  visit("answers", r.answers);
}

template <class E, class Visit>
void VisitExit(E& e, Visit&& visit) {
  visit("round", e.round);
  visit("against", e.against);
  visit("against_factor", e.against_factor);
  visit("difference", e.difference);
  visit("standard_error", e.standard_error);
  visit("at_least", e.at_least);
}

template <class A, class Visit>
void VisitAnswer(A& a, Visit&& visit) {
  visit("prompt", a.prompt);
  visit("question", a.question);
  visit("depth", a.depth);
  visit("nll", a.nll);
  visit("tokens", a.tokens);
  visit("exact", a.exact);
  visit("recall", a.recall);
  visit("output", a.output);
}

Json Written(const TaskAnswer& answer) {
  Json json;
  VisitAnswer(answer, [&](const char* key, const auto& value) { json[key] = value; });
  if (answer.output.empty()) json.erase("output");
  return json;
}
Json Written(const std::optional<RaceExit>& exit) {
  Json json;
  if (exit) VisitExit(*exit, [&](const char* key, const auto& value) { json[key] = value; });
  return json;
}
Json Written(const TaskResult& result);
template <class T>
Json Written(const std::vector<T>& items) {
  Json json = Json::array();
  for (const T& item : items) json.push_back(Written(item));
  return json;
}
template <class T>
Json Written(const T& value) {
  return value;
}
Json Written(KvType kv) { return Name(kv); }
Json Written(const TaskResult& result) {
  Json json;
  VisitTask(result, [&](const char* key, const auto& value) { json[key] = Written(value); });
  return json;
}

// The value of a key as messages have it.
std::string Got(const Json& json) {
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  constexpr size_t kMost = 40;
  return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
}

template <class T>
constexpr const char* kExpected = "an object";
template <>
constexpr const char* kExpected<bool> = "true or false";
template <>
constexpr const char* kExpected<double> = "a number or null";
template <>
constexpr const char* kExpected<std::string> = "a string";
template <std::integral T>
constexpr const char* kExpected<T> = "a whole number";
template <class T>
constexpr const char* kExpected<std::vector<T>> = "an array";
template <>
constexpr const char* kExpected<std::optional<RaceExit>> = "an object or null";

// BadValue that names the key where it is missing or of another type.
template <class T>
void ReadKey(const Json& json, const char* key, T& out);

void Read(const Json& json, double& out) {
  out = json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
}
void Read(const Json& json, std::vector<double>& out) {
  out.clear();
  for (const Json& item : json.get_ref<const Json::array_t&>()) Read(item, out.emplace_back());
}
template <class T>
void Read(const Json& json, T& out) {
  if constexpr (std::integral<T> && !std::same_as<T, bool>) {
    ReadWhole(json, out);
  } else {
    json.get_to(out);
  }
}
template <std::integral T>
void Read(const Json& json, std::vector<T>& out) {
  ReadWhole(json, out);
}
void Read(const Json& json, KvType& out) {
  const auto name = json.get<std::string>();
  const auto* const found = std::ranges::find(kKvTypes, name, [](KvType t) { return Name(t); });
  if (found == std::end(kKvTypes)) {
    throw BadValue("\"kv\": no type of a KV cache: '" + name + "'");
  }
  out = *found;
}
void Read(const Json& json, TaskAnswer& out) {
  VisitAnswer(out, [&](const char* key, auto& value) {
    if (json.contains(key)) ReadKey(json, key, value);
  });
}
void Read(const Json& json, std::optional<RaceExit>& out) {
  out.reset();
  if (json.is_null()) return;
  VisitExit(out.emplace(), [&](const char* key, auto& value) { ReadKey(json, key, value); });
}
void Read(const Json& json, TaskResult& out);
template <class T>
void ReadAll(const Json& json, std::vector<T>& out) {
  out.clear();
  for (const Json& item : json.get_ref<const Json::array_t&>()) Read(item, out.emplace_back());
}
void Read(const Json& json, std::vector<TaskAnswer>& out) { ReadAll(json, out); }
void Read(const Json& json, std::vector<TaskResult>& out) { ReadAll(json, out); }
void Read(const Json& json, TaskResult& out) {
  VisitTask(out, [&](const char* key, auto& value) { ReadKey(json, key, value); });
}

template <class T>
void ReadKey(const Json& json, const char* key, T& out) {
  if (!json.is_object()) throw BadValue("expected an object, got " + Got(json));
  const auto found = json.find(key);
  if (found == json.end()) throw BadValue("expected a key \"" + std::string(key) + "\"");
  try {
    Read(*found, out);
  } catch (const BadValue&) {
    throw;
  } catch (const Json::exception&) {
    throw BadValue("\"" + std::string(key) + "\": expected " + kExpected<T> + ", got " +
                   Got(*found));
  }
}

std::string Text(const std::string& value) { return value; }
template <class T>
std::string Text(const T& value) {
  return Json(value).dump();
}

}  // namespace

std::vector<std::pair<std::string, std::string>> CommonIdentity(const Cell& cell) {
  std::vector<std::pair<std::string, std::string>> fields;
  const auto add = [&](const char* key, const auto& value) {
    fields.emplace_back(key, Text(value));
  };
  VisitCommon(cell, add);
  VisitCommonLater(cell, add);
  return fields;
}

Json ToJson(const Cell& cell) {
  Json json;
  VisitCell(cell, [&](const char* key, const auto& value) { json[key] = value; });
  VisitLater(cell, [&](const char* key, const auto& value) { json[key] = Written(value); });
  if (cell.kv == KvType::kF32) {  // rows of sweeps without another type are as they were
    json.erase("kv");
    json.erase("kv_keys");
  }
  if (cell.place < 0) json.erase("place");
  for (const char* key : {"text_part", "flat_file", "rope_keys", "shipped", "kept_in_gguf",
                          "stated_length", "configured_length"}) {
    if (json[key] == "" || json[key] == false || json[key] == 0) json.erase(key);
  }
  json["identity"] = cell.Identity();
  return json;
}

Cell CellFromJson(const Json& json) {
  Cell cell;
  VisitCell(cell, [&](const char* key, auto& value) { ReadKey(json, key, value); });
  VisitLater(cell, [&](const char* key, auto& value) {
    if (json.contains(key)) ReadKey(json, key, value);
  });
  AddEarlierPasskey(json, cell);
  return cell;
}

Json ToJson(const TaskResult& result) { return Written(result); }
Json ToJson(const std::vector<TaskAnswer>& answers) { return Written(answers); }

std::vector<TaskAnswer> AnswersFromJson(const Json& json) {
  std::vector<TaskAnswer> answers;
  Read(json, answers);
  return answers;
}

TaskResult TaskFromJson(const Json& json) {
  TaskResult result;
  Read(json, result);
  return result;
}

Json ToJson(const SweepHeader& header) {
  Json json;
  json["format"] = "ropewalk-sweep";
  json["schema"] = kSchema;
  VisitCommon(header.common, [&](const char* key, const auto& value) { json[key] = value; });
  VisitCommonLater(header.common, [&](const char* key, const auto& value) { json[key] = value; });
  json["model_path"] = header.model_path;
  json["model_name"] = header.model_name;
  if (!header.family.empty()) json["family"] = header.family;
  json["text_path"] = header.text_path;
  json["text_tokens"] = header.text_tokens;
  json["command"] = header.command;
  json["notes"] = header.notes;
  return json;
}

SweepHeader HeaderFromJson(const Json& json) {
  SweepHeader header;
  VisitCommon(header.common, [&](const char* key, auto& value) { ReadKey(json, key, value); });
  VisitCommonLater(header.common, [&](const char* key, auto& value) {
    if (json.contains(key)) ReadKey(json, key, value);
  });
  AddEarlierPasskey(json, header.common);
  ReadKey(json, "model_path", header.model_path);
  ReadKey(json, "model_name", header.model_name);
  if (json.contains("family")) ReadKey(json, "family", header.family);
  ReadKey(json, "text_path", header.text_path);
  ReadKey(json, "text_tokens", header.text_tokens);
  ReadKey(json, "command", header.command);
  ReadKey(json, "notes", header.notes);
  return header;
}

std::string Line(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace internal

std::string ToJson(const Cell& cell, int indent) {
  return internal::Line(internal::ToJson(cell), indent);
}
std::string ToJson(const SweepHeader& header, int indent) {
  return internal::Line(internal::ToJson(header), indent);
}

std::string Cell::Identity() const {
  Hasher hasher;
  const auto add = [&](const std::string& key, const std::string& value) {
    hasher.Update(key);
    hasher.Update(std::string_view("\0", 1));
    hasher.Update(value);
    hasher.Update(std::string_view("\0", 1));
  };
  add("format", "ropewalk-cell-1");
  add("method", method);
  add("factor", internal::Text(factor));
  add("length", std::to_string(length));
  add("scaling", scaling);
  add("plan_hash", plan_hash);
  if (kv != KvType::kF32) add("kv", Name(kv));
  for (const auto& [key, value] : internal::CommonIdentity(*this)) {
    if (key != "tasks_protocol" || !value.empty()) add(key, value);
  }
  return hasher.Hex();
}

}  // namespace ropewalk
