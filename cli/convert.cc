// ropewalk convert: Hugging Face folder <-> GGUF, and q and k between the pair layouts.
#include "src/convert/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/input.h"
#include "cli/json_text.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/setting.h"
#include "cli/write_proven.h"
#include "ropewalk/base/error.h"
#include "src/config/json_object.h"
#include "src/convert/verify.h"
#include "src/engines/gguf_rope.h"
#include "src/io/json.h"

namespace ropewalk::cli {
namespace {

namespace fs = std::filesystem;

struct ConvertCommand {
  Options options;
  std::string type, layout;
  int64_t head_dim = 0, rotary_dim = 0;
  bool no_tokenizer = false, no_verify = false;
};

std::optional<WeightType> TypeOf(const std::string& name) {
  if (name.empty()) return std::nullopt;
  for (const WeightType type :
       {WeightType::kF32, WeightType::kF16, WeightType::kBF16, WeightType::kQ8_0}) {
    std::string lower = Info(type).name;
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (lower == name) return type;
  }
  throw UsageError("--type: expected f32, f16, bf16 or q8_0, got '" + name + "'");
}

// One line: equal bits, or by how much rounding moved the largest.
std::string CompareLogits(const std::vector<float>& before, const std::vector<float>& after,
                          bool same_values) {
  if (before.size() == after.size() &&
      std::memcmp(before.data(), after.data(), before.size() * sizeof(float)) == 0) {
    return fmt::format("the same bits before and after ({} of them)", before.size());
  }
  double largest = 0, difference = 0;
  for (std::size_t i = 0; i < std::min(before.size(), after.size()); ++i) {
    largest = std::max(largest, std::abs(double{before[i]}));
    difference = std::max(difference, std::abs(double{before[i]} - after[i]));
  }
  if (same_values || before.size() != after.size()) {
    throw Error(ErrorCode::kMismatch,
                fmt::format("the logits differ by up to {:g} although no weight was rounded: the "
                            "conversion is wrong, please report it with the model's name",
                            difference));
  }
  return fmt::format(
      "differ by at most {:.2e} of the largest, because weights were rounded to the "
      "type asked for",
      difference / largest);
}

void Report(const ConvertCommand& c, const internal::Converted& written,
            const internal::PlanProof* proof, const std::string& logits) {
  if (c.options.json) {
    nlohmann::ordered_json json = {{"output", c.options.output}, {"notes", written.notes}};
    if (proof != nullptr) {
      json["plan_hash"] = proof->read;
      json["plan_hash_before"] = proof->asked;
    }
    if (!logits.empty()) json["logits"] = logits;
    fmt::print("{}\n", JsonText(json));
    return;
  }
  fmt::print("wrote     {}\n", c.options.output);
  if (proof != nullptr) {
    fmt::print("plan      {} at {} tokens; {}\n", proof->read, proof->length,
               proof->asked == proof->read
                   ? std::string("the same before and after")
                   : fmt::format("before {}: GGUF holds float32, frequencies differ by at most "
                                 "{:.1e} of themselves",
                                 proof->asked, proof->largest_difference));
  }
  if (!logits.empty()) fmt::print("logits    {}\n", logits);
  for (const std::string& note : written.notes) fmt::print("note      {}\n", note);
}

// Another format.
void RunFormat(const ConvertCommand& c) {
  const Options& options = c.options;
  const ModelFiles files = OpenModelFor(options, true);
  const bool to_gguf = options.output.ends_with(".gguf");
  const bool from_gguf = files.config.format == FileFormat::kGguf;
  std::error_code error;
  if (to_gguf == from_gguf || (!from_gguf && !fs::is_directory(files.path, error))) {
    throw UsageError(
        "convert goes from a Hugging Face folder to a name that ends in .gguf, or from a GGUF file "
        "to a folder; --layout converts within safetensors");
  }
  if (!files.config.not_runnable.empty()) {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("{}: {}; only models that the decoder runs are converted, because their "
                    "logits are the proof",
                    files.path, files.config.not_runnable));
  }
  if (!c.no_tokenizer && files.tokenizer == nullptr) {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("{} has no tokenizer that can be read ({}); --no-tokenizer converts the "
                    "weights alone",
                    files.path, files.tokenizer_error));
  }
  const internal::ConvertOptions how{TypeOf(c.type), !c.no_tokenizer};
  const PositionPlan& plan = files.config.plan;
  internal::Converted written;
  internal::PlanProof proof;
  std::string logits;
  const auto write = [&](const std::string& path) {
    if (to_gguf) {
      written = internal::FolderToGguf(files, path, how);
      return;
    }
    const RotarySpec& spec = internal::OnlyRotation(plan);
    nlohmann::ordered_json setting = nullptr;
    if (!std::holds_alternative<NoScaling>(spec.scaling)) {
      setting = HuggingFaceSetting(
          /*rope_parameters=*/false, spec.scaling,
          {plan.trained_length, plan.configured_length, spec.base, spec.rotary_dim});
    }
    written = internal::GgufToFolder(files, path, setting, how);
  };
  WriteProven(options.output, [&](const std::string& path) {
    write(path);
    OpenOptions open;
    open.allow_unknown = options.allow_unknown;
    const ModelFiles read = OpenModel(path, open);
    proof = internal::ProvePlan(plan, written.stored, read.config.plan, plan.configured_length);
    if (!c.no_tokenizer) {
      internal::ProveTokenizer(*files.tokenizer, RequireTokenizer(read));
      internal::ProveExtras(written.extras, read);
    }
    if (!c.no_verify) {
      logits = CompareLogits(internal::ProbeLogits(files, written.stored),
                             internal::ProbeLogits(read), written.same_values);
    }
  });
  Report(c, written, &proof, logits);
}

PairLayout LayoutOf(const std::string& name) {
  if (name == "half") return PairLayout::kHalf;
  if (name == "interleaved") return PairLayout::kInterleaved;
  throw UsageError("--layout: expected half or interleaved, got '" + name + "'");
}

// q and k of a folder, to be read by code that pairs elements the other way. config.json says so by
// `rope_interleaved`, which every reader that rotates halves has to refuse, and this one does.
void RunFolderLayout(const ConvertCommand& c, PairLayout to) {
  const fs::path from(c.options.model);
  const std::string config_path = (from / "config.json").string();
  auto json = internal::ParseOrderedObject(MappedFile::Open(config_path)->text(), config_path);
  const auto said = json.find("rope_interleaved");
  if (said != json.end() && !said->is_boolean() && !said->is_null()) {
    throw Error(ErrorCode::kInvalidConfig,
                fmt::format("{}: rope_interleaved: expected true or false, got {}", config_path,
                            internal::Shown(*said)));
  }
  const bool is_interleaved = said != json.end() && *said == true;
  if (is_interleaved == (to == PairLayout::kInterleaved)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: the model is in the {} layout already", config_path, c.layout));
  }
  json.erase("rope_interleaved");
  ModelFiles files;
  files.path = c.options.model;
  files.config = ParseHfConfig(json.dump(), config_path, c.options.allow_unknown);
  SayNotHonoured(files.config);
  files.tensors = OpenSafetensorsFolder(c.options.model);
  if (to == PairLayout::kInterleaved) json["rope_interleaved"] = true;
  const RotarySpec& spec = internal::OnlyRotation(files.config.plan);
  internal::Converted written;
  std::string logits;
  WriteProven(c.options.output, [&](const std::string& path) {
    written = internal::PermuteFolder(c.options.model, path, json.dump(2) + "\n",
                                      {spec.head_dim, spec.rotary_dim}, to);
    if (c.no_verify) return;
    ModelFiles read;
    read.path = path;
    read.config = files.config;
    read.tensors = OpenSafetensors(path + "/model.safetensors");
    files.config.permuted_qk = is_interleaved;
    read.config.permuted_qk = !is_interleaved;
    logits = CompareLogits(internal::ProbeLogits(files), internal::ProbeLogits(read), true);
  });
  Report(c, written, nullptr, logits);
}

void RunLayout(const ConvertCommand& c) {
  const PairLayout to = LayoutOf(c.layout);
  if (!c.type.empty()) throw UsageError("--layout moves rows and never changes --type");
  std::error_code error;
  if (fs::exists(fs::path(c.options.model) / "config.json", error)) {
    return RunFolderLayout(c, to);
  }
  if (!c.options.model.ends_with(".safetensors")) {
    throw UsageError(
        "--layout takes a Hugging Face folder, or one .safetensors file (a model or a "
        "LoRA adapter) with --head-dim");
  }
  if (c.head_dim < 2) throw UsageError("--layout of one file: give --head-dim N of the model");
  const int64_t rotary_dim = c.rotary_dim > 0 ? c.rotary_dim : c.head_dim;
  internal::Converted written;
  WriteProven(c.options.output, [&](const std::string& path) {
    written = internal::PermuteSafetensors(c.options.model, path, {c.head_dim, rotary_dim}, to);
  });
  Report(c, written, nullptr, "");
}

}  // namespace

void AddConvertCommand(CLI::App& app) {
  const auto c = std::make_shared<ConvertCommand>();
  CLI::App* command = app.add_subcommand(
      "convert", "Hugging Face folder to GGUF and back; q and k between the pair layouts");
  AddOptions(*command, c->options, {Opt::kModel, Opt::kThreads, Opt::kAllowUnknown, Opt::kJson});
  command->add_option("-o,--output", c->options.output, "What to write; must not exist")
      ->required();
  command->add_option("--type", c->type,
                      "f32, f16, bf16 or q8_0 (GGUF) for the matrices; without it they stay what "
                      "they are, where the format has it");
  command->add_option("--layout", c->layout,
                      "half or interleaved: put the rows of q and k into this pair layout");
  command->add_option("--head-dim", c->head_dim, "Elements of a head, for --layout of one file")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--rotary-dim", c->rotary_dim,
                   "How many of them rotate, for --layout of one file; without it all")
      ->check(CLI::PositiveNumber);
  command->add_flag("--no-tokenizer", c->no_tokenizer, "Convert the weights alone");
  command->add_flag("--no-verify", c->no_verify,
                    "Do not run the model before and after to compare its logits (which needs its "
                    "size in float32 as memory)");
  command->footer(
      "The result is read back: positions, tokenizer and the logits of a probe are compared with "
      "the source before the command says that it is done.\n\nExamples:\n"
      "  ropewalk convert ./SmolLM2-135M -o smollm2.gguf --type q8_0\n"
      "  ropewalk convert model.gguf -o model-hf\n"
      "  ropewalk convert adapter_model.safetensors --layout interleaved --head-dim 64 -o out.st");
  command->callback([c] { c->layout.empty() ? RunFormat(*c) : RunLayout(*c); });
}

}  // namespace ropewalk::cli
