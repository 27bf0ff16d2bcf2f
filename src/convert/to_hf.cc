// GGUF -> Hugging Face folder.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ropewalk/base/error.h"
#include "ropewalk/convert/convert.h"
#include "src/convert/copy_folder.h"
#include "src/convert/not_kept.h"
#include "src/convert/regroup.h"
#include "src/engines/hf_config.h"
#include "src/io/atomic_file.h"
#include "src/tokenizer/export.h"

namespace ropewalk {
namespace {

using internal::ConfigJsonOf;
using internal::CreateFolder;
using internal::ExtrasOfGguf;
using internal::FindFamily;
using internal::FolderFamilyOf;
using internal::GgufRope;
using internal::HasRopeParameters;
using internal::Holds;
using internal::IsVector;
using internal::ListGgufKeys;
using internal::Naming;
using internal::NotesOf;
using internal::NotKept;
using internal::Regroup;
using internal::Regrouped;
using internal::SourceOf;
using internal::TokenIdsOf;
using internal::TokenizerFilesOfGguf;
using internal::WithPhi3Rope;
using internal::WithRopeSetting;
using internal::WriteFileAtomically;

using Json = nlohmann::ordered_json;

bool IsPlain(WeightType type) { return Info(type).block_elements == 1; }

const char* TorchName(WeightType type) {
  return type == WeightType::kBF16  ? "bfloat16"
         : type == WeightType::kF16 ? "float16"
         : type == WeightType::kF64 ? "float64"
                                    : "float32";
}

WeightType MatrixType(WeightType own, const ConvertOptions& options) {
  if (options.type) return *options.type;
  return IsPlain(own) ? own : WeightType::kF32;
}

// config.json with the scaling of the plan; `stored` becomes the plan as it says it.
std::string ConfigText(const ModelConfig& c, const Json& token_ids, const char* torch_dtype,
                       PositionPlan& stored) {
  const Json config = ConfigJsonOf(c, token_ids, torch_dtype);
  const bool rotates = FindFamily(c.architecture)->gguf_rope != GgufRope::kNone &&
                       c.plan.other != OtherEncoding::kAlibi;
  if (!rotates || std::holds_alternative<NoScaling>(OnlyRotation(c.plan).scaling)) {
    return config.dump(2) + "\n";
  }
  const RotarySpec& spec = OnlyRotation(c.plan);
  if (c.architecture == "phi3") return WithPhi3Rope(config, stored).dump(2) + "\n";
  SettingsTarget target{c.plan.trained_length, c.plan.configured_length, spec.base,
                        spec.rotary_dim};
  target.place = ParseHfConfig(config.dump(), "config.json").plan.place;
  const Json rope = Json::parse(HuggingFaceSetting(
      HasRopeParameters(config) ? ConfigSchema::kRopeParameters : ConfigSchema::kRopeScaling,
      spec.scaling, target));
  return WithRopeSetting(config.dump(2), "config.json", rope, c.plan.trained_length);
}

}  // namespace

Converted GgufToFolder(const ModelFiles& files, const std::string& folder,
                       const ConvertOptions& options) {
  const ModelConfig& c = files.config;
  ModelConfig target = c;  // the same model by another name, where transformers has one
  target.architecture = FolderFamilyOf(c).name;
  const bool axes = FindFamily(c.architecture)->axes != FindFamily(target.architecture)->axes;
  for (LayerPlan& layer : target.plan.layers) {
    if (axes && layer.rotation) layer.rotation->axes = {};
  }
  if (options.type && !IsPlain(*options.type)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("safetensors has no type {}; f32, f16 and bf16 can be asked for",
                            Info(*options.type).name));
  }
  const auto regrouped =
      Regroup(files, {&c, Naming::kGguf, c.permuted_qk}, {&target, Naming::kHuggingFace});
  Converted result;
  result.stored = target.plan;
  if (axes) {
    result.notes.push_back(fmt::format(
        "the text alone, whose tokens have one position: written as a {} model without axes for "
        "images",
        target.architecture));
  }
  std::map<WeightType, int64_t> bytes_by_type;
  int64_t decoded = 0;
  for (const Regrouped& t : regrouped) {
    if (IsVector(t.to)) continue;
    bytes_by_type[MatrixType(t.type(), options)] += t.bytes();
    if (!IsPlain(t.type())) ++decoded;
  }
  const WeightType main =
      std::max_element(bytes_by_type.begin(), bytes_by_type.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; })
          ->first;
  std::vector<TensorSource> tensors;
  for (const Regrouped& t : regrouped) {
    const bool vector = IsVector(t.to);
    WeightType type = vector ? t.type() : MatrixType(t.type(), options);
    if (vector && type == WeightType::kF32 && main != WeightType::kF64 && Holds(main, t)) {
      type = main;
    }
    if (!Holds(type, t)) result.same_values = false;
    tensors.push_back(SourceOf(t, type));
  }

  CreateFolder(folder);
  WriteSafetensors(folder + "/model.safetensors", tensors, {{"format", "pt"}});
  Json token_ids = {{"bos_token_id", nullptr}, {"eos_token_id", nullptr}};
  const GgufFile gguf = OpenGguf(files.path);
  std::vector<NotKept> not_kept;
  if (options.tokenizer) {
    const auto tokenizer = LoadTokenizerGguf(gguf);
    result.extras = ExtrasOfGguf(gguf, *tokenizer, &not_kept);
    for (const auto& [name, text] : TokenizerFilesOfGguf(gguf, result.extras)) {
      WriteFileAtomically(fmt::format("{}/{}", folder, name), text);
    }
    token_ids = TokenIdsOf(*tokenizer, result.extras);
  }
  WriteFileAtomically(folder + "/config.json",
                      ConfigText(target, token_ids, TorchName(main), result.stored));
  ListGgufKeys(files, gguf, &not_kept);
  for (std::string& note : NotesOf(not_kept, "a Hugging Face folder")) {
    result.notes.push_back(std::move(note));
  }
  const LatentSpec& latent = c.layer.attention.latent;
  if (constexpr double kOfTheCode = LatentSpec{}.norm_eps;
      latent.exists() && latent.norm_eps != kOfTheCode) {
    result.numbers.latent_norm_eps = kOfTheCode;
    result.notes.push_back(
        fmt::format("norms of latent attention have the epsilon {:g} in the file, as all norms, "
                    "and {:g} in the "
                    "folder, where it is a constant of transformers' code",
                    latent.norm_eps, kOfTheCode));
  }
  if (c.permuted_qk) {
    result.notes.push_back("rows of q and k put back for the half layout of Hugging Face");
  }
  if (decoded > 0) {
    result.notes.push_back(fmt::format("{} quantised matrices decoded to {}", decoded,
                                       Info(options.type.value_or(WeightType::kF32)).name));
  }
  return result;
}

}  // namespace ropewalk
