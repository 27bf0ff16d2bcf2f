// A ladder as text to paste.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ropewalk/eval/ladder.h"

namespace ropewalk {
namespace {

using Json = nlohmann::ordered_json;

// Rungs of one factor as one.
struct Step {
  double factor = 1;
  int64_t up_to = 0;
  const Cell* cell = nullptr;
  std::string Name() const {
    return factor == 1 ? "no scaling" : fmt::format("factor {:.4g}", factor);
  }
};

std::vector<Step> StepsOf(const Ladder& ladder, const std::vector<Cell>& cells) {
  std::vector<Step> steps;
  for (const LadderRung& rung : ladder.rungs) {
    const Cell* cell = rung.factor == 1 ? FindCell(cells, PositionMethod().name(), 1, rung.up_to)
                                        : FindCell(cells, ladder.method, rung.factor, rung.up_to);
    if (!steps.empty() && steps.back().factor == rung.factor) steps.pop_back();
    steps.push_back({.factor = rung.factor, .up_to = rung.up_to, .cell = cell});
  }
  return steps;
}

EngineSetting Named(const std::string& engine, std::optional<EngineKind> kind = std::nullopt) {
  EngineSetting setting;
  setting.engine = engine;
  setting.kind = kind;
  return setting;
}

// The newest setting of an engine for a step. No scaling is said too: the files may have one.
EngineSetting SettingOf(const Step& step, const std::string& engine) {
  for (EngineSetting& s : SettingsFor(*step.cell, step.up_to)) {
    if (s.engine.starts_with(engine)) return s;
  }
  EngineSetting none = Named(engine);
  none.expressible = false;
  none.note = "No setting is known.";
  return none;
}

// The settings of every step, or the reason why one has none.
struct Steps {
  std::vector<std::string> settings;
  std::string objection;
};
Steps SettingsOf(const std::vector<Step>& steps, const std::string& engine) {
  Steps out;
  for (const Step& step : steps) {
    const EngineSetting s = SettingOf(step, engine);
    if (!s.expressible && out.objection.empty()) {
      out.objection = fmt::format("{}: {}", step.Name(), s.note);
    }
    out.settings.push_back(s.setting);
  }
  return out;
}

std::string RoutingRule(const std::vector<Step>& steps, const char* where) {
  std::string rule = "Tokens of a request are those of its prompt and max_tokens together:";
  for (std::size_t i = 0; i < steps.size(); ++i) {
    rule += fmt::format("{} up to {} go to {} {}", i == 0 ? "" : ",", steps[i].up_to, where, i + 1);
  }
  return rule +
         ". A conversation stays where it began, or begins anew: keys of one factor are wrong "
         "under another.";
}

EngineSetting VllmServers(const std::vector<Step>& steps) {
  EngineSetting out = Named(fmt::format("vLLM, {} servers", steps.size()), EngineKind::kVllm);
  const Steps settings = SettingsOf(steps, "vLLM");
  out.note = settings.objection;
  out.expressible = settings.objection.empty();
  if (!out.expressible) return out;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    out.setting += fmt::format("{}# {}: {}, up to {} tokens\nvllm serve MODEL --port {} {}",
                               i == 0 ? "" : "\n", i + 1, steps[i].Name(), steps[i].up_to, 8001 + i,
                               settings.settings[i]);
  }
  out.note = RoutingRule(steps, "server");
  return out;
}

// The factor that request-static YaRN takes for a request: the smallest of the list that covers it.
double Covering(const std::vector<Step>& steps, int64_t trained, int64_t tokens) {
  double factor = 0;
  for (const Step& step : steps) {
    const bool covers = step.factor * static_cast<double>(trained) >= static_cast<double>(tokens);
    if (covers && (factor == 0 || step.factor < factor)) factor = step.factor;
  }
  return factor;
}

// vLLM's pull request 53964, as its documentation and tests say.
EngineSetting RequestStatic(const Ladder& ladder, const std::vector<Step>& steps) {
  EngineSetting out = Named("vLLM, request-static YaRN", EngineKind::kVllm);
  const std::string origin =
      "In no release yet: pull request 53964 of vLLM, which so far takes it for models with mRoPE "
      "alone. ";
  for (const LadderRung& rung : ladder.rungs) {
    const double taken = Covering(steps, ladder.trained, rung.up_to);
    if (ladder.method == "yarn" && taken == rung.factor) continue;
    out.expressible = false;
    out.note = origin + (ladder.method != "yarn"
                             ? "It has YaRN's factors, not those of " + ladder.method + "."
                             : fmt::format("It takes the smallest factor that covers a request, "
                                           "{:.4g} at {} tokens instead of {:.4g}.",
                                           taken, rung.up_to, rung.factor));
    return out;
  }
  const EngineSetting largest = SettingOf(steps.back(), "vLLM");
  std::vector<double> factors;
  factors.reserve(steps.size());
  for (const Step& step : steps) factors.push_back(step.factor);
  std::ranges::sort(factors);
  out.setting = "vllm serve MODEL " + largest.setting + " --request-static-yarn-factors";
  for (const double factor : factors) out.setting += fmt::format(" {:.6g}", factor);
  out.note = origin + "A request keeps the smallest factor that covers its prompt and max_tokens.";
  return out;
}

// "-c 8192 --rope-scale 4" as lines of an INI file.
std::string IniLines(const std::string& flags) {
  std::istringstream words(flags);
  std::string out, word;
  while (words >> word) {
    const bool key = word.starts_with("--") || word == "-c";
    out += key ? "\n" + word.substr(word.find_first_not_of('-')) + " =" : " " + word;
  }
  return out;
}

bool SelfExtends(const Step& step) {
  const auto method = step.cell->named();
  const auto map = method ? method->MapFor(step.factor, step.cell->trained_length) : std::nullopt;
  return map && std::holds_alternative<SelfExtend>(*map);
}

EngineSetting LlamaProfiles(const std::vector<Step>& steps) {
  EngineSetting out = Named("llama.cpp, profiles", EngineKind::kLlamaCpp);
  Steps settings = SettingsOf(steps, "llama.cpp");
  for (const Step& step : steps) {
    if (!settings.objection.empty() || !SelfExtends(step)) continue;
    settings.objection = "Profiles are for llama-server. " + SettingOf(step, "llama.cpp").note;
  }
  out.note = settings.objection;
  out.expressible = settings.objection.empty();
  if (!out.expressible) return out;
  out.setting = "; llama-server --models-preset ladder.ini";
  for (std::size_t i = 0; i < steps.size(); ++i) {
    out.setting += fmt::format("\n\n; {}\n[model-{}]\nmodel = MODEL.gguf{}", steps[i].Name(),
                               steps[i].up_to, IniLines(settings.settings[i]));
  }
  out.note =
      "A file ladder.ini for llama-server since December 2025 (pull request 17859); a request "
      "names its profile as \"model\". " +
      RoutingRule(steps, "profile");
  if (out.setting.find("ARCH") != std::string::npos) {
    out.note += " ARCH is the file's general.architecture.";
  }
  return out;
}

constexpr char kPerRequestHead[] = R"(import copy, json

RUNGS = [  # tokens of prompt and answer, keys of config.json
)";
constexpr char kPerRequestTail[] = R"(]

def table(keys):
    config = copy.deepcopy(model.config)
    for key, value in json.loads(keys).items():
        setattr(config, key, value)
    return type(model.model.rotary_emb)(config).to(model.device)

tables = [(length, table(keys)) for length, keys in RUNGS]

def generate(inputs, max_new_tokens, **options):
    tokens = inputs["input_ids"].shape[1] + max_new_tokens
    model.model.rotary_emb = next(table for length, table in tables if tokens <= length)
    return model.generate(**inputs, max_new_tokens=max_new_tokens, **options))";

EngineSetting PerRequest(const std::vector<Step>& steps, const std::string& engine) {
  EngineSetting out = Named(engine + ", per request", EngineKind::kTransformers);
  const Steps settings = SettingsOf(steps, engine);
  out.note = settings.objection;
  out.expressible = settings.objection.empty();
  if (!out.expressible) return out;
  std::string rungs;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    Json keys = Json::parse(settings.settings[i]);
    // Of a loaded configuration that is another name of rope_parameters.
    if (keys.contains("rope_parameters")) keys.erase("rope_scaling");
    rungs += fmt::format("    ({}, '{}'),\n", steps[i].up_to, keys.dump());
  }
  out.setting = kPerRequestHead + rungs + kPerRequestTail;
  out.note =
      "Behind the loading of a model whose rotary_emb all layers share, as Llama's and Qwen's; one "
      "request at a time. A request that no rung holds is an error.";
  return out;
}

}  // namespace

std::vector<EngineSetting> LadderSettings(const Ladder& ladder, const std::vector<Cell>& cells,
                                          const std::string& family) {
  if (family == kPositionsFamily) {
    EngineSetting none = Named(kPositionsSetting);
    none.expressible = false;
    none.note = fmt::format(
        "It holds one setting for text of every length. ropewalk extend --method {} writes a "
        "folder "
        "for each factor.",
        ladder.method);
    return {none};
  }
  const std::vector<Step> steps = StepsOf(ladder, cells);
  if (steps.empty() || steps.back().cell == nullptr || steps.back().cell->rotary_dim < 2) return {};
  return {VllmServers(steps), RequestStatic(ladder, steps), LlamaProfiles(steps),
          PerRequest(steps, "Hugging Face transformers 5"),
          PerRequest(steps, "Hugging Face transformers 4")};
}

}  // namespace ropewalk
