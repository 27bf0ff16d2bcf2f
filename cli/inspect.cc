// ropewalk inspect: what a model is and what it does with positions.
#include <fmt/format.h>

#include <algorithm>

#include "cli/commands.h"
#include "cli/input.h"
#include "cli/options.h"
#include "src/eval/cell_json.h"

namespace ropewalk::cli {
namespace {

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

// What a reader would not expect of a plain LLaMA.
std::vector<std::string> Unusual(const ModelFiles& files) {
  const ModelConfig& config = files.config;
  std::vector<std::string> list;  // the plan's own notes are printed with it
  int64_t no_position = 0, windows = 0, partial = 0, scaled = 0;
  for (const LayerPlan& layer : config.plan.layers) {
    windows += layer.window_tokens > 0 ? 1 : 0;
    if (!layer.rotation) {
      ++no_position;
      continue;
    }
    partial += layer.rotation->rotary_dim < layer.rotation->head_dim ? 1 : 0;
    scaled += std::holds_alternative<NoScaling>(layer.rotation->scaling) ? 0 : 1;
  }
  if (scaled > 0) {
    list.push_back(
        fmt::format("ships with a position scaling: trained at {} tokens, serves {}; "
                    "methods other than as-shipped replace it",
                    config.plan.trained_length, config.plan.configured_length));
  }
  if (no_position > 0) list.push_back(fmt::format("{} layers without positions", no_position));
  if (windows > 0) list.push_back(fmt::format("{} layers with a sliding window", windows));
  if (partial > 0) list.push_back(fmt::format("{} layers rotate only part of a head", partial));
  if (config.plan.trained_length <= 0) {
    list.push_back("does not say at which length it was trained: sweep needs --trained N");
  }
  if (files.tokenizer == nullptr) {
    list.push_back("no tokenizer (" + files.tokenizer_error +
                   "): give token ids with --ids; passkey is left out");
  } else if (!files.tokenizer->adds_bos()) {
    list.push_back(files.tokenizer->bos_id() ? "adds no BOS by itself, though it has one"
                                             : "has no BOS");
  }
  if (!config.unknown_keys.empty()) {
    list.push_back(
        fmt::format("keys that nobody here knows: {}", fmt::join(config.unknown_keys, ", ")));
  }
  return list;
}

nlohmann::ordered_json AsJson(const ModelFiles& files, const std::string& hash, int64_t length) {
  const ModelConfig& c = files.config;
  nlohmann::ordered_json json = {{"model", ModelName(files.path)},
                                 {"format", c.format},
                                 {"architecture", c.architecture},
                                 {"layers", c.layers},
                                 {"hidden", c.hidden},
                                 {"heads", c.heads},
                                 {"kv_heads", c.kv_heads},
                                 {"head_dim", c.head_dim},
                                 {"feed_forward", c.feed_forward},
                                 {"vocab", c.vocab},
                                 {"tied_head", c.tied_head},
                                 {"parameters", Parameters(files)},
                                 {"trained_length", c.plan.trained_length},
                                 {"configured_length", c.plan.configured_length},
                                 {"plan", Describe(c.plan, length)},
                                 {"plan_hash", Resolve(c.plan, length).hash},
                                 {"plan_length", length},
                                 {"model_hash", hash},
                                 {"notes", c.plan.notes},
                                 {"unusual", Unusual(files)},
                                 {"harmless_keys", c.harmless_keys}};
  if (files.tokenizer != nullptr) {
    json["tokenizer"] = {{"kind", files.tokenizer->kind()},
                         {"hash", files.tokenizer->hash()},
                         {"vocab", files.tokenizer->vocab_size()},
                         {"adds_bos", files.tokenizer->adds_bos()}};
    if (files.tokenizer->bos_id()) json["tokenizer"]["bos_id"] = *files.tokenizer->bos_id();
    if (files.tokenizer->eos_id()) json["tokenizer"]["eos_id"] = *files.tokenizer->eos_id();
  }
  return json;
}

void Run(const Options& options) {
  const ModelFiles files = OpenModelFor(options, false);
  const ModelConfig& c = files.config;
  // Where a model serves more than it was trained at, its scaling shows only beyond.
  const int64_t length = std::max<int64_t>({1, c.plan.trained_length, c.plan.configured_length});
  const std::string hash = files.tensors.empty() ? "" : files.Hash();
  if (options.json) {
    fmt::print("{}\n", internal::Line(AsJson(files, hash, length)));
    return;
  }
  fmt::print("{}\n", files.path);
  fmt::print("format         {}, architecture {}\n", c.format, c.architecture);
  fmt::print(
      "sizes          {} layers, width {}, {} query and {} key heads of {}, feed-forward {}, "
      "vocabulary {}, head {}\n",
      c.layers, c.hidden, c.heads, c.kv_heads, c.head_dim, c.feed_forward, c.vocab,
      c.tied_head ? "tied to the embedding" : "of its own");
  if (files.tensors.empty()) {
    fmt::print("weights        none in this folder\n");
  } else {
    fmt::print("weights        {} parameters in {} tensors ({})\n", Parameters(files),
               files.tensors.size(), WeightTypes(files));
  }
  if (files.tokenizer != nullptr) {
    const auto id = [](const std::optional<int32_t>& i) {
      return i ? std::to_string(*i) : std::string("none");
    };
    fmt::print("tokenizer      {}, {} tokens, BOS {}{}, EOS {}, {}\n", files.tokenizer->kind(),
               files.tokenizer->vocab_size(), id(files.tokenizer->bos_id()),
               files.tokenizer->adds_bos() ? " (added)" : " (not added)",
               id(files.tokenizer->eos_id()), files.tokenizer->hash());
  }
  if (!hash.empty()) fmt::print("model hash     {}\n", hash);
  fmt::print("\nPositions, at {} tokens:\n{}", length, Describe(c.plan, length));
  const std::vector<std::string> unusual = Unusual(files);
  if (!unusual.empty()) fmt::print("\nUnusual:\n");
  for (const std::string& line : unusual) fmt::print("  - {}\n", line);
}

}  // namespace

void AddInspectCommand(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "inspect", "What a model is, its positions layer by layer, its hash, what is unusual");
  AddOptions(*command, *options, {Opt::kModel, Opt::kAllowUnknown, Opt::kThreads, Opt::kJson});
  command->footer("Works on a lone config.json, and without weights or tokenizer.");
  command->callback([options] { Run(*options); });
}

}  // namespace ropewalk::cli
