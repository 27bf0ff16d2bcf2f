// ropewalk extend: writes the model with another position setting.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/engines.h"
#include "cli/input.h"
#include "cli/json_text.h"
#include "cli/options.h"
#include "cli/write_proven.h"
#include "ropewalk/base/error.h"
#include "ropewalk/convert/convert.h"
#include "ropewalk/engines/settings.h"
#include "ropewalk/plan/method.h"

namespace ropewalk::cli {
namespace {

namespace fs = std::filesystem;

// The requested setting.
struct Request {
  PositionPlan plan;
  Scaling scaling;
  SettingsTarget target;
  std::string words;  // with a map and a temperature
};

double FactorFor(const Options& options, const PositionMethod& method, int64_t trained) {
  if (options.factors.size() > 1 || options.lengths.size() > 1) {
    throw UsageError("a model holds one setting: give one --factor or one --length");
  }
  if (!options.factors.empty()) return options.factors[0];
  if (!options.lengths.empty()) {
    return std::max(
        1.0, static_cast<double>(ParseLength(options.lengths[0])) / static_cast<double>(trained));
  }
  if (method.is_none()) return 1;
  throw UsageError("give --factor S, or --length N for the factor N / trained length");
}

// Configuration files cannot hold a distance map or a temperature that training did not have, and
// this command leaves layers with a local base as they are.
[[noreturn]] void RefuseUnwritable(const ModelFiles& files, const PositionPlan& plan,
                                   const PositionMethod& method, double factor,
                                   const std::vector<EngineChoice>& engines) {
  const auto rotation =
      std::find_if(plan.layers.begin(), plan.layers.end(),
                   [](const LayerPlan& layer) { return layer.rotation.has_value(); });
  SettingsTarget target{plan.trained_length,
                        std::llround(static_cast<double>(plan.trained_length) * factor)};
  if (rotation != plan.layers.end()) {
    const bool local = LocalBase(files.config.plan).has_value();
    target.base = local ? OnlyRotation(files.config.plan).base : rotation->rotation->base;
    target.local_base = LocalBase(files.config.plan);
    target.rotary_dim = rotation->rotation->rotary_dim;
  }
  target.place = files.config.plan.place;
  std::string who;
  for (const EngineSetting& e : Narrow(SettingsFor(method, factor, target), engines)) {
    if (e.expressible) who += fmt::format(". {} has it as {} ({})", e.Title(), e.setting, e.note);
  }
  throw Error(ErrorCode::kUnsupported,
              fmt::format("{} cannot hold {}: {}{}", files.config.format_name,
                          method.Describe(factor, plan.trained_length),
                          method.only_scales()
                              ? "it holds one scaling, for the layers that see everything"
                              : "it changes how attention uses positions, and files only hold "
                                "frequencies",
                          !who.empty()      ? who
                          : engines.empty() ? ". No known engine has it"
                                            : ". No chosen engine has it"));
}

Request Settle(const Options& options, const ModelFiles& files) {
  const std::vector<SweepMethod> methods = MethodsOf(options, files, {});
  if (methods.size() != 1 || NameOf(methods[0]) == kAsShipped) {
    throw UsageError("a model holds one setting: give one --method, or one --rope-scaling");
  }
  Request request;
  int64_t trained =
      options.trained.empty() ? files.config.plan.trained_length : ParseLength(options.trained);
  if (trained < 1) {
    throw UsageError("the trained length of the model is unknown; give --trained N");
  }
  double factor = 1;  // served length / trained length; some methods have no factor of their own
  if (const auto* fixed = std::get_if<FixedPlan>(&methods[0])) {
    request.plan = fixed->plan;
    request.scaling = OnlyRotation(request.plan).scaling;
    request.words = Describe(request.scaling);
    trained = request.plan.trained_length;
  } else {
    const auto& method = std::get<PositionMethod>(methods[0]);
    factor = FactorFor(options, method, trained);
    request.scaling = method.ScalingFor(factor);
    request.plan = method.Apply(files.config.plan, factor, trained);
    request.words = method.Describe(factor, trained);
    // A config.json of the family ropewalk has a map and a temperature.
    const bool holds_all = files.config.encoding_tensors;
    if (method.all_layers() || !(method.only_scales() || holds_all)) {
      RefuseUnwritable(files, request.plan, method, factor, EnginesOf(options.engines));
    }
  }
  const RotarySpec& spec = OnlyRotation(request.plan);
  Resolve(spec, trained);  // refuses a factor below 1 and the like before anything is written
  if (files.config.encoding_tensors) Resolve(request.plan, trained);  // a map beside other parts
  const double served =
      std::floor(static_cast<double>(trained) * std::max(factor, FactorOf(request.scaling)));
  request.target = {trained,
                    static_cast<int64_t>(served),
                    spec.base,
                    spec.rotary_dim,
                    spec.base != OnlyRotation(files.config.plan).base,
                    LocalBase(request.plan)};
  request.target.place = files.config.plan.place;
  if (!options.lengths.empty()) {
    request.target.target_length =
        std::max(request.target.target_length, ParseLength(options.lengths[0]));
  }
  return request;
}

// The error where the written setting differs from the requested one: why, and what to do.
[[noreturn]] void RefuseScaling(const std::string& format, const Request& request,
                                const Error& error) {
  const std::string method = Describe(request.scaling);
  std::string why = error.what();
  if (IsLengthDependent(request.scaling)) {
    SettingsTarget one = request.target;
    one.local_base.reset();  // --rope-scaling is the dictionary of the layers that are scaled
    one.place = {};          // and replaces scaling and base alone
    const auto fixed = nlohmann::ordered_json::parse(
        HuggingFaceSetting(ConfigSchema::kRopeParameters, request.scaling, one));
    why = fmt::format(
        "it depends on the length of each text, and of such methods only --method dynamic has a "
        "type. Use its setting at {} tokens, for shorter texts too: --length {} --rope-scaling "
        "'{}'",
        request.target.target_length, request.target.target_length,
        fixed.at("rope_parameters").dump());
  } else if (std::holds_alternative<HopeScaling>(request.scaling)) {
    why =
        "it has pairs with frequency 0, and there is no type for that. A GGUF file of the "
        "architecture llama can hold it: ropewalk convert MODEL -o MODEL.gguf, then extend that "
        "file";
  }
  throw Error(ErrorCode::kUnsupported, fmt::format("{} cannot hold {}: {}", format, method, why));
}

void Print(const Options& options, const ModelFiles& files, const Request& request,
           const Converted& written, const PlanProof& proof) {
  // No engine reads the family ropewalk, whose file says it all.
  auto settings =
      files.config.encoding_tensors
          ? std::vector<EngineSetting>()
          : Narrow(SettingsFor(request.scaling, request.target), EnginesOf(options.engines));
  for (EngineSetting& s : settings) {
    if (s.kind != EngineKind::kLlamaCpp || s.expressible || !options.output.ends_with(".gguf")) {
      continue;
    }
    s.expressible = true;
    s.setting = fmt::format("-c {}", request.target.target_length);
    s.note = "The setting is in the written file; there is no flag for it.";
  }
  const bool rounded = proof.asked != proof.read;
  if (options.json) {
    nlohmann::ordered_json json = {{"output", options.output},
                                   {"scaling", request.words},
                                   {"trained_length", request.target.trained_length},
                                   {"served_length", request.target.target_length},
                                   {"plan_hash", proof.read},
                                   {"plan_hash_asked", proof.asked},
                                   {"largest_difference", proof.largest_difference},
                                   {"notes", written.notes},
                                   {"settings", SettingsJson(settings)}};
    fmt::print("{}\n", JsonText(json));
    return;
  }
  fmt::print("wrote     {}\n", options.output);
  fmt::print("scaling   {}, trained at {}, for {} tokens\n", request.words,
             request.target.trained_length, request.target.target_length);
  fmt::print("plan      {} at {} tokens; {}\n", proof.read, proof.length,
             rounded ? fmt::format("requested was {}: GGUF stores float32, the relative difference "
                                   "of frequencies is at most {:.1e}",
                                   proof.asked, proof.largest_difference)
                     : std::string("read back, equal to the requested one"));
  for (const std::string& note : written.notes) fmt::print("note      {}\n", note);
  if (settings.empty()) return;
  fmt::print("\nThe same setting as flags or keys of engines:\n");
  for (const EngineSetting& s : settings) {
    fmt::print("\n{}\n", s.Title());
    if (!s.setting.empty()) fmt::print("{}\n", s.setting);
    if (!s.note.empty()) fmt::print("  {}\n", s.note);
  }
}

// Both formats in and out are the same, so what the name says has to be.
void CheckOutput(const std::string& output, const ModelFiles& files, bool folder) {
  if (folder && output.ends_with(".gguf")) {
    throw UsageError(fmt::format(
        "-o {}: extend makes a folder of a folder, and this is the name of a file; take the ending "
        "away, or make a GGUF file of the result with ropewalk convert",
        output));
  }
  if (!folder && !output.ends_with(".gguf")) {
    throw UsageError(fmt::format(
        "-o {}: extend makes a GGUF file of a GGUF file, so its name has to end in .gguf", output));
  }
  std::error_code error;
  const fs::path to = fs::weakly_canonical(fs::absolute(output, error), error);
  const fs::path inside = to.lexically_relative(fs::canonical(files.path, error));
  if (folder && !error && !inside.empty() && *inside.begin() != "..") {
    throw UsageError(
        fmt::format("-o {}: inside {}, whose folders are copied too; choose a place outside of it",
                    output, files.path));
  }
}

}  // namespace

void RunExtend(const Options& options) {
  const ModelFiles files = OpenModelFor(options, false);  // weights are copied unread
  std::error_code error;
  const bool folder =
      fs::is_directory(files.path, error) && files.config.format == FileFormat::kHuggingFace;
  if (!folder && files.config.format != FileFormat::kGguf) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{}: {} has no place for a position setting; Hugging Face folders and "
                            "GGUF files do",
                            files.path, files.config.format_name));
  }
  if (options.link && !folder) {
    throw UsageError("--link is for folders: a GGUF file holds its keys and its weights in one");
  }
  CheckOutput(options.output, files, folder);
  const Request request = Settle(options, files);
  Converted written;
  PlanProof proof;
  WriteProven(options.output, [&](const std::string& path) {
    written = folder ? ExtendFolder(files, path, request.plan, request.target, options.link)
                     : ExtendGguf(files, path, request.plan, request.target.target_length);
    OpenOptions open;
    open.allow_unknown = options.allow_unknown;
    open.need_weights = false;
    const ModelFiles read = OpenModel(path, open);
    try {
      proof =
          ProvePlan(request.plan, written.stored, read.config.plan, request.target.target_length);
    } catch (const Error& e) {
      RefuseScaling(read.config.format_name, request, e);
    }
  });
  Print(options, files, request, written, proof);
}

}  // namespace ropewalk::cli
