#include "ropewalk/eval/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ropewalk/base/did_you_mean.h"
#include "ropewalk/base/error.h"
#include "ropewalk/config/config.h"
#include "ropewalk/engines/settings.h"
#include "ropewalk/eval/task.h"
#include "ropewalk/plan/method.h"

namespace ropewalk {
namespace {

// "self-extend:window=512,group=8" arrives in two pieces, because commas separate methods and
// settings: a piece that begins with key= belongs to the one before it.
std::vector<std::string> JoinSettings(const std::vector<std::string>& given) {
  std::vector<std::string> methods;
  for (const std::string& piece : given) {
    const std::size_t end = piece.find_first_of(":+=");
    if (end != std::string::npos && piece[end] == '=' && !methods.empty()) {
      methods.back() += "," + piece;
    } else {
      methods.push_back(piece);
    }
  }
  return methods;
}

// A name of a dictionary from its strings and numbers, "yarn(factor 4, beta_fast 16)", to tell
// several apart. Lists are left out, and the trained length, which is equal in all.
std::string DictionaryName(const nlohmann::ordered_json& dictionary) {
  std::string type = "default", rest;
  for (const auto& [key, value] : dictionary.items()) {
    if (value.is_structured() || value.is_null()) continue;
    const std::string text = value.is_string()   ? value.get<std::string>()
                             : value.is_number() ? fmt::format("{:.6g}", value.get<double>())
                                                 : value.dump();
    if (key == "rope_type" || (key == "type" && !dictionary.contains("rope_type"))) {
      type = text;
    } else if (key != "type" && key != "original_max_position_embeddings") {
      rest += fmt::format("{}{} {}", rest.empty() ? "" : ", ", key, text);
    }
  }
  return rest.empty() ? type + "()" : type + "(" + rest + ")";
}

void AddDefaultLengths(bool settle, const PositionPlan& model_plan, const TokenText& text,
                       PreparedSweep& sweep) {
  const int64_t trained = sweep.spec.trained_length;
  if (trained < 8) {
    throw Error(ErrorCode::kInvalidArgument,
                "the trained length of the model is unknown; give it, or the lengths to measure");
  }
  if (settle) SettleProtocol(trained / 2, sweep.spec);
  const Protocol& protocol = sweep.spec.protocol;
  const bool aligned = protocol.kind == Protocol::Kind::kAligned;
  const int64_t room = static_cast<int64_t>(text.ids.size()) + (protocol.bos ? 1 : 0) -
                       (aligned ? (protocol.anchors - 1) * protocol.scored_per_anchor : 0);
  std::string left_out;
  for (const int64_t length : {trained / 2, trained, 2 * trained, 4 * trained, 8 * trained}) {
    if (length > PositionsOf(model_plan)) break;
    if (length <= room || length <= trained) {
      sweep.spec.lengths.push_back(length);
    } else {
      left_out += (left_out.empty() ? "" : ", ") + std::to_string(length);
    }
  }
  if (!left_out.empty()) {
    sweep.notes.push_back(
        fmt::format("the text ({} tokens) is too short for length {}", text.ids.size(), left_out));
  }
}

std::vector<std::string> DefaultMethods(const SweepSpec& spec, const PositionPlan& model_plan) {
  std::vector<std::string> names;
  const bool beyond = spec.lengths.back() > spec.trained_length;
  const std::vector<LayerPlan>& layers = model_plan.layers;
  const bool rotates = std::any_of(layers.begin(), layers.end(),
                                   [](const LayerPlan& l) { return l.rotation.has_value(); });
  for (const MethodInfo& method : Methods()) {
    const bool none = PositionMethod().name() == method.name;
    if (!method.usual || (!rotates && !none)) continue;
    if (none || beyond || !spec.factors.empty()) names.emplace_back(method.name);
  }
  for (const LayerPlan& layer : layers) {
    if (layer.rotation && !std::holds_alternative<NoScaling>(layer.rotation->scaling)) {
      names.emplace_back(kAsShipped);
      break;
    }
  }
  return names;
}

// Notes on cells that are added for the recommendations, or on why there are none.
void AddNotesOnTrained(PreparedSweep& sweep) {
  const int64_t trained = sweep.spec.trained_length;
  if (trained <= 0) {
    sweep.notes.emplace_back(
        "the trained length is unknown, so nothing will be recommended; give it with --trained N");
  } else if (sweep.longest > trained && !JudgesBeyondTrained(sweep.spec)) {
    sweep.notes.push_back(fmt::format(
        "{} cannot score windows of the trained {} tokens, so nothing will be recommended; use a "
        "smaller number",
        sweep.spec.protocol.Name(), trained));
  }
  for (const SweepTask& task : sweep.tasks) {
    if (!task.added || task.kv != sweep.spec.kv.front()) continue;  // once for all types
    sweep.notes.push_back(fmt::format(
        "{} at {} tokens, the trained length, is added: usability is judged relative to it",
        task.method, task.length));
  }
}

// Which lengths hold no prompt of a task.
void AddNotesOnTasks(PreparedSweep& sweep) {
  std::vector<int64_t> lengths;
  for (const SweepTask& task : sweep.tasks) lengths.push_back(task.length);
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  for (const auto& sampled : sweep.spec.tasks) {
    for (const int64_t length : lengths) {
      if (!sampled->Prompts(length).empty()) continue;
      sweep.notes.push_back(fmt::format("{} is left out at {} tokens: {}", sampled->task().Name(),
                                        length, sampled->too_short()));
    }
  }
}

}  // namespace

std::vector<SweepMethod> ParseMethods(const std::vector<std::string>& names,
                                      const PositionPlan& model_plan) {
  std::vector<SweepMethod> methods;
  for (const std::string& name : JoinSettings(names)) {
    const auto same = [&](const SweepMethod& m) { return NameOf(m) == name; };
    if (std::any_of(methods.begin(), methods.end(), same)) continue;
    if (name == kAsShipped) {
      methods.emplace_back(FixedPlan{name, model_plan});
      continue;
    }
    try {
      methods.emplace_back(PositionMethod::Parse(name));
    } catch (const Error& e) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}, or {}{}", e.what(), kAsShipped, DidYouMean(name, {kAsShipped})));
    }
  }
  return methods;
}

std::vector<KvType> ParseKvTypes(const std::vector<std::string>& names) {
  std::vector<std::string_view> known;
  for (const KvType type : kKvTypes) known.emplace_back(Name(type));
  for (const std::string& name : names) {
    if (std::ranges::find(known, name) != known.end()) continue;
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("kv: expected types of a KV cache, {}, got '{}'{}",
                            fmt::join(known, ", "), name, DidYouMean(name, known)));
  }
  std::vector<KvType> types;
  for (const KvType type : kKvTypes) {
    if (std::ranges::find(names, Name(type)) != names.end()) types.push_back(type);
  }
  if (types.empty()) types.push_back(KvType::kF32);
  return types;
}

std::vector<std::string> AddDictionary(const std::string& dictionary, const std::string& what,
                                       const PositionPlan& model_plan, bool allow_unknown,
                                       std::vector<SweepMethod>& methods) {
  FixedPlan method;
  method.plan = ParseRopeDictionary(dictionary, what, model_plan, allow_unknown);
  const auto json = nlohmann::ordered_json::parse(dictionary);
  method.dictionary = json.dump();
  const std::string name = method.name = DictionaryName(json);
  const auto& all = method.plan.notes;
  const auto known = static_cast<std::ptrdiff_t>(std::min(model_plan.notes.size(), all.size()));
  std::vector<std::string> notes(all.begin() + known, all.end());
  for (int number = 2;; ++number) {
    const auto same = std::find_if(methods.begin(), methods.end(),
                                   [&](const SweepMethod& m) { return NameOf(m) == method.name; });
    if (same == methods.end()) break;
    const auto* fixed = std::get_if<FixedPlan>(&*same);
    if (fixed != nullptr && fixed->dictionary == method.dictionary) return notes;  // given twice
    method.name = fmt::format("{} #{}", name, number);
  }
  methods.emplace_back(std::move(method));
  return notes;
}

void SettleProtocol(int64_t shortest_length, SweepSpec& spec) {
  Protocol& protocol = spec.protocol;
  const int64_t behind = std::min(shortest_length / 2, shortest_length - protocol.prefix);
  protocol.scored_per_anchor = std::clamp<int64_t>(behind, 1, 1024);
  if (protocol.anchors == 0) protocol.anchors = WindowsFor(protocol.scored_per_anchor);
}

int64_t WindowsFor(int64_t scored_per_anchor) {
  if (scored_per_anchor < 256) return 8;
  return scored_per_anchor < 512 ? 6 : 4;
}

PreparedSweep PrepareSweep(SweepSpec spec, bool settle, const PositionPlan& model_plan,
                           const TokenText& text) {
  PreparedSweep sweep;
  sweep.spec = std::move(spec);
  std::sort(sweep.spec.lengths.begin(), sweep.spec.lengths.end());
  if (sweep.spec.lengths.empty()) AddDefaultLengths(settle, model_plan, text, sweep);
  if (sweep.spec.methods.empty()) {
    sweep.spec.methods = ParseMethods(DefaultMethods(sweep.spec, model_plan), model_plan);
  }
  const int64_t trained = sweep.spec.trained_length, shortest = sweep.spec.lengths.front();
  const bool beyond = sweep.spec.lengths.back() > trained;
  if (settle) {
    SettleProtocol(beyond && trained > 0 ? std::min(trained, shortest) : shortest, sweep.spec);
  }
  sweep.tasks = PlanSweep(sweep.spec, model_plan);
  sweep.longest = sweep.tasks.back().length;
  AddNotesOnTrained(sweep);
  sweep.notes.insert(sweep.notes.end(), model_plan.notes.begin(), model_plan.notes.end());
  AddNotesOnTasks(sweep);
  // Too short a text is found now, not after the first cells.
  for (const SweepTask& task : sweep.tasks) {
    MakeWindows(text, sweep.spec.protocol, task.length, sweep.longest, sweep.spec.bos_id);
  }
  return sweep;
}

}  // namespace ropewalk
