// ropewalk inspect: a model and its position encoding, without running it.
#include <fmt/format.h>

#include <algorithm>

#include "cli/input.h"
#include "cli/inspect_page.h"
#include "cli/json_text.h"
#include "cli/options.h"
#include "cli/output.h"

namespace ropewalk::cli {
namespace {

using Json = nlohmann::ordered_json;

int64_t Parameters(const ModelFiles& files) {
  int64_t sum = 0;
  for (const auto& [name, weight] : files.tensors) sum += weight.rows() * weight.cols();
  return sum;
}

std::string WeightTypes(const ModelFiles& files) {
  std::map<std::string, int> counts;
  for (const auto& [name, weight] : files.tensors) ++counts[Info(weight.type).name];
  std::string text;
  for (const auto& [type, count] : counts) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, type);
  }
  return text;
}

// Properties that differ from a plain LLaMA.
std::vector<std::string> Unusual(const ModelFiles& files) {
  const ModelConfig& config = files.config;
  std::vector<std::string> list;  // without the plan's notes, which are printed with the plan
  int64_t no_position = 0, windows = 0, partial = 0, scaled = 0, biased = 0, encoded = 0;
  for (const LayerPlan& layer : config.plan.layers) {
    windows += layer.window_tokens > 0 ? 1 : 0;
    if (layer.encoding) {
      ++encoded;
      continue;
    }
    if (!layer.rotation) {
      layer.bias ? ++biased : ++no_position;
      continue;
    }
    partial += layer.rotation->rotary_dim < layer.rotation->head_dim ? 1 : 0;
    scaled += std::holds_alternative<NoScaling>(layer.rotation->scaling) ? 0 : 1;
  }
  if (!config.not_runnable.empty()) {
    list.push_back((config.decoder == nullptr
                        ? "its positions are read, but ropewalk's decoder does not run it: "
                        : "") +
                   config.not_runnable);
  }
  if (scaled > 0) {
    list.push_back(
        fmt::format("ships with a position scaling: trained at {} tokens, serves {}; "
                    "methods other than as-shipped replace it",
                    config.plan.trained_length, config.plan.configured_length));
  }
  if (config.plan.learned) {
    list.push_back(fmt::format(
        "no layer rotates: positions are {} learned vectors, so no text can be longer and no "
        "scaling method applies",
        config.plan.learned->positions));
    no_position = 0;
  }
  if (config.plan.absolute) {
    const int64_t positions = PositionsOf(*config.plan.absolute);
    list.push_back(fmt::format(
        "positions are in the embeddings: {}{}", Describe(*config.plan.absolute),
        positions == INT64_MAX
            ? std::string()
            : fmt::format(", which has {} positions, so no text can be longer", positions)));
    no_position = 0;
  }
  if (config.plan.recurrent_layer) {
    list.push_back(fmt::format("{} in front of the layers tells them the order of the tokens",
                               Describe(*config.plan.recurrent_layer)));
    no_position = 0;
  }
  if (config.encoding_tensors) {
    list.push_back("this program and ropewalk.zoo read the family ropewalk, other engines do not");
  }
  if (biased > 0 && !config.plan.learned) {
    list.push_back(fmt::format(
        "{} layers have a score bias instead of a rotation: text of any length can be read, and no "
        "scaling method applies to them",
        biased));
  }
  if (encoded > 0) {
    list.push_back(fmt::format(
        "{} layers encode queries and keys in the place of a rotation, by numbers that were "
        "learned with its frequencies: text of any length can be read, and no scaling method "
        "applies",
        encoded));
  }
  if (no_position > 0) list.push_back(fmt::format("{} layers without positions", no_position));
  if (windows > 0) list.push_back(fmt::format("{} layers with a sliding window", windows));
  if (partial > 0) list.push_back(fmt::format("{} layers rotate only part of a head", partial));
  if (config.plan.trained_length <= 0) {
    list.push_back(
        "the trained length is unknown: give --trained N to get recommendations of a sweep");
  }
  if (files.tokenizer == nullptr) {
    list.push_back("no tokenizer (" + files.tokenizer_error +
                   "): give token ids with --ids; passkey is left out");
  } else if (!files.tokenizer->adds_bos()) {
    list.push_back(files.tokenizer->bos_id() ? "has a BOS token but does not add it by default"
                                             : "has no BOS token");
  }
  if (files.tokenizer != nullptr) {
    const std::vector<std::string>& notes = files.tokenizer->notes();
    list.insert(list.end(), notes.begin(), notes.end());
  }
  list.insert(list.end(), config.not_honoured.begin(), config.not_honoured.end());
  if (!config.unknown_keys.empty()) {
    list.push_back(fmt::format("unknown keys: {}", fmt::join(config.unknown_keys, ", ")));
  }
  return list;
}

Json TokenizerJson(const Tokenizer& tokenizer) {
  Json json = {{"kind", tokenizer.kind()},
               {"hash", tokenizer.hash()},
               {"vocab", tokenizer.vocab_size()},
               {"adds_bos", tokenizer.adds_bos()}};
  if (tokenizer.bos_id()) json["bos_id"] = *tokenizer.bos_id();
  if (tokenizer.eos_id()) json["eos_id"] = *tokenizer.eos_id();
  return json;
}

Json ModelJson(const ModelFiles& files, const std::string& hash, const InspectPage& page) {
  const ModelConfig& c = files.config;
  Json json = {{"model", ModelName(files.path)},
               {"format", c.format_name},
               {"architecture", c.architecture},
               {"layers", c.layers},
               {"hidden", c.hidden},
               {"heads", c.heads},
               {"kv_heads", c.kv_heads},
               {"head_dim", c.head_dim},
               {"feed_forward", c.feed_forward},
               {"experts", c.experts.count},
               {"experts_per_token", c.experts.chosen},
               {"vocab", c.vocab},
               {"tied_head", c.not_runnable.empty() ? Json(c.tied_head) : Json()},
               {"parameters", Parameters(files)},
               {"trained_length", page.plan.trained_length},
               {"configured_length", page.plan.configured_length},
               {"plan", Describe(page.plan, page.length)},
               {"plan_hash", page.resolved.hash},
               {"plan_length", page.length},
               {"model_hash", hash},
               {"not_runnable", c.not_runnable},
               {"notes", page.plan.notes},
               {"unusual", Unusual(files)},
               {"harmless_keys", c.harmless_keys},
               {"not_honoured", c.not_honoured}};
  if (files.tokenizer != nullptr) json["tokenizer"] = TokenizerJson(*files.tokenizer);
  json["positions"] = PageJson(page);
  return json;
}

// Of an encoder-decoder model, whose encoder the other lines are about.
std::string DecoderText(const DecoderPart& part) {
  const ModelConfig& d = part.config;
  return fmt::format(
      "decoder        {} layers of these sizes with cross-attention, {}{}; begins with id {}; id "
      "{} "
      "ends what the encoder reads\n",
      d.layers, d.tied_head ? "head tied to the embedding" : "head of its own",
      d.logit_scale == 1 ? "" : fmt::format(", logits times {:.6g}", d.logit_scale),
      part.start_id ? fmt::format("{}", *part.start_id) : "(not given)", part.end_id);
}

Json DecoderJson(const DecoderPart& part, const InspectPage& page) {
  return {{"layers", part.config.layers},
          {"tied_head", part.config.tied_head},
          {"logit_scale", part.config.logit_scale},
          {"start_id", part.start_id ? Json(*part.start_id) : Json()},
          {"end_id", part.end_id},
          {"plan", Describe(page.plan, page.length)},
          {"plan_hash", page.resolved.hash},
          {"positions", PageJson(page)}};
}

std::string ModelText(const ModelFiles& files, const std::string& hash) {
  const ModelConfig& c = files.config;
  std::string text = files.path + "\n";
  text += fmt::format("format         {}, architecture {}\n", c.format_name, c.architecture);
  std::vector<std::string> sizes = {fmt::format("{} layers", c.layers)};
  const auto add = [&](int64_t size, const std::string& words) {
    if (size > 0) sizes.push_back(words);  // sizes that are not needed may not have been read
  };
  add(c.hidden, fmt::format("width {}", c.hidden));
  add(c.heads, fmt::format("{} query and {} key heads of {}", c.heads, c.kv_heads, c.head_dim));
  add(c.feed_forward, fmt::format("feed-forward {}", c.feed_forward));
  add(c.experts.count, fmt::format("{} experts of {}, {} per token", c.experts.count,
                                   c.experts.feed_forward, c.experts.chosen));
  add(c.vocab, fmt::format("vocabulary {}", c.vocab));
  // The default depends on the family; it is read for models that run.
  if (c.not_runnable.empty()) {
    sizes.emplace_back(c.tied_head ? "head tied to the embedding" : "head of its own");
  }
  text += fmt::format("sizes          {}\n", fmt::join(sizes, ", "));
  if (c.decoder != nullptr) text += DecoderText(*c.decoder);
  if (files.tensors.empty()) {
    text += fmt::format("weights        none in this folder\n");
  } else {
    text += fmt::format("weights        {} parameters in {} tensors ({})\n", Parameters(files),
                        files.tensors.size(), WeightTypes(files));
  }
  if (files.tokenizer != nullptr) {
    const auto id = [](const std::optional<int32_t>& i) {
      return i ? std::to_string(*i) : std::string("none");
    };
    text +=
        fmt::format("tokenizer      {}, {} tokens, BOS {}{}, EOS {}, {}\n", files.tokenizer->kind(),
                    files.tokenizer->vocab_size(), id(files.tokenizer->bos_id()),
                    files.tokenizer->adds_bos() ? " (added)" : " (not added)",
                    id(files.tokenizer->eos_id()), files.tokenizer->hash());
  }
  if (!hash.empty()) text += fmt::format("model hash     {}\n", hash);
  return text;
}

// Other engines do not read the family ropewalk: what they would compute of its rotation is nothing.
void WithoutOtherEngines(const ModelConfig& config, InspectPage& page) {
  if (!config.encoding_tensors) return;
  for (InspectRotation& rotation : page.rotations) rotation.engines.clear();
  std::erase_if(page.findings, [](const Finding& f) { return f.engine != "the model"; });
}

void RunOne(const Options& options) {
  const bool measure = !options.text.empty() || !options.ids.empty();
  const ModelFiles files = OpenModelFor(options, measure);
  InspectPage page = MakePage(options, ModelName(files.path), files.config.plan);
  page.whole_file = files.config.not_honoured.empty();
  WithoutOtherEngines(files.config, page);
  if (measure) MeasureText(options, files, page);
  const std::string hash = files.tensors.empty() ? "" : files.Hash();
  Json json = ModelJson(files, hash, page);
  std::string decoder;
  if (const auto& part = files.config.decoder; part != nullptr) {
    const InspectPage its = MakePage(options, ModelName(files.path), part->config.plan);
    json["decoder"] = DecoderJson(*part, its);
    decoder = fmt::format("\nPositions of the decoder, at {} tokens:\n{}", its.length,
                          Describe(its.plan, its.length));
  }
  if (options.html) return WriteResult(options, PageHtml(page, json));
  if (options.json) return WriteResult(options, JsonLine(json) + "\n");
  std::string text = ModelText(files, hash);
  text +=
      fmt::format("\nPositions, at {} tokens:\n{}", page.length, Describe(page.plan, page.length));
  text += decoder;
  const std::vector<std::string> unusual = Unusual(files);
  if (!unusual.empty()) text += "\nUnusual:\n";
  for (const std::string& line : unusual) text += fmt::format("  - {}\n", line);
  WriteResult(options, text + PageText(page));
}

void RunDiff(const Options& options) {
  std::vector<PositionPlan> plans;
  for (const std::string& path : options.diff) {
    Options one = options;
    one.model = path;
    plans.push_back(OpenModelFor(one, false).config.plan);
  }
  std::vector<InspectPage> pages;
  int64_t length = 0;
  for (const bool settled : {false, true}) {  // both at the longer of their lengths
    pages.clear();
    for (std::size_t i = 0; i < plans.size(); ++i) {
      Options one = options;
      if (settled) one.lengths = {std::to_string(length)};
      pages.push_back(MakePage(one, options.diff[i], plans[i], false));
      length = std::max(length, pages.back().length);
    }
    if (!options.lengths.empty()) break;
  }
  const Json diff = DiffJson(pages[0], pages[1]);
  WriteResult(options, options.json ? JsonLine(diff) + "\n" : DiffText(diff));
}

}  // namespace

void RunInspect(const Options& options) {
  if (options.diff.empty() == options.model.empty()) {
    throw UsageError("give one MODEL, or two with --diff A B");
  }
  if (options.diff.empty()) return RunOne(options);
  if (options.html || !options.text.empty() || !options.ids.empty()) {
    throw UsageError("--diff compares two settings: no --html, --text or --ids");
  }
  RunDiff(options);
}

}  // namespace ropewalk::cli
