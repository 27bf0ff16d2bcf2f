// GGUF -> Hugging Face folder.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ropewalk/base/error.h"
#include "ropewalk/convert/convert.h"
#include "src/convert/copy_folder.h"
#include "src/convert/not_kept.h"
#include "src/engines/hf_config.h"
#include "src/io/atomic_file.h"
#include "src/model/rows.h"
#include "src/model/tensor_table.h"
#include "src/tokenizer/export.h"

namespace ropewalk {
namespace {

using internal::CheckFolderCanBe;
using internal::ConfigJsonOf;
using internal::CreateFolder;
using internal::ExpectedTensor;
using internal::ExpectedTensors;
using internal::ExtrasOfGguf;
using internal::HeadRows;
using internal::Holds;
using internal::ListGgufKeys;
using internal::Naming;
using internal::NotesOf;
using internal::NotKept;
using internal::Rearranged;
using internal::TensorId;
using internal::TokenIdsOf;
using internal::TokenizerFilesOfGguf;
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

WeightType MatrixType(const Weight& weight, const ConvertOptions& options) {
  if (options.type) return *options.type;
  return IsPlain(weight.type) ? weight.type : WeightType::kF32;
}

}  // namespace

Converted GgufToFolder(const ModelFiles& files, const std::string& folder,
                       const ConvertOptions& options) {
  const ModelConfig& c = files.config;
  CheckFolderCanBe(c);
  if (options.type && !IsPlain(*options.type)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("safetensors has no type {}; f32, f16 and bf16 can be asked for",
                            Info(*options.type).name));
  }
  const RotarySpec& spec = OnlyRotation(c.plan);
  Json rope = nullptr;
  if (!std::holds_alternative<NoScaling>(spec.scaling)) {
    rope = Json::parse(HuggingFaceSetting(
        ConfigSchema::kRopeScaling, spec.scaling,
        {c.plan.trained_length, c.plan.configured_length, spec.base, spec.rotary_dim}));
  }
  const auto from = ExpectedTensors(c, Naming::kGguf);
  const auto to = ExpectedTensors(c, Naming::kHuggingFace);
  Converted result;
  result.stored = c.plan;
  std::map<WeightType, int64_t> bytes_by_type;
  int64_t decoded = 0;
  for (const ExpectedTensor& t : from) {
    const Weight& weight = files.tensors.at(t.name);
    if (weight.shape.size() < 2) continue;
    bytes_by_type[MatrixType(weight, options)] += weight.bytes;
    if (!IsPlain(weight.type)) ++decoded;
  }
  const WeightType main =
      std::max_element(bytes_by_type.begin(), bytes_by_type.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; })
          ->first;
  std::vector<TensorSource> tensors;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const Weight& weight = files.tensors.at(from[i].name);
    const bool vector = weight.shape.size() < 2;
    WeightType type = vector ? weight.type : MatrixType(weight, options);
    if (vector && type == WeightType::kF32 && main != WeightType::kF64 && Holds(main, weight)) {
      type = main;
    }
    if (type != weight.type && !Holds(type, weight)) result.same_values = false;
    const TensorId id = from[i].id;
    const bool moves = c.permuted_qk && (id == TensorId::kQ || id == TensorId::kK);
    const HeadRows rows =
        moves ? HeadRows{c.head_dim, spec.rotary_dim, PairLayout::kHalf} : HeadRows{};
    tensors.push_back(Rearranged(weight, to[i].name, rows, type));
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
  std::string config = ConfigJsonOf(c, token_ids, TorchName(main)).dump(2) + "\n";
  if (!rope.is_null()) {
    config = WithRopeSetting(config, "config.json", rope, c.plan.trained_length);
  }
  WriteFileAtomically(folder + "/config.json", config);
  ListGgufKeys(files, gguf, &not_kept);
  for (std::string& note : NotesOf(not_kept, "a Hugging Face folder")) {
    result.notes.push_back(std::move(note));
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
