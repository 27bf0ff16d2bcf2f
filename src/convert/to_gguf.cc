// Hugging Face folder -> GGUF, as llama.cpp's converter has it: names, keys, permuted q and k of
// "llama", float32 vectors.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "ropewalk/base/error.h"
#include "ropewalk/convert/convert.h"
#include "src/config/family.h"
#include "src/convert/not_kept.h"
#include "src/engines/gguf_rope.h"
#include "src/engines/hf_config.h"
#include "src/model/rows.h"
#include "src/model/tensor_table.h"
#include "src/tokenizer/export.h"

namespace ropewalk {
namespace {

using internal::ExpectedTensors;
using internal::ExtrasOfFolder;
using internal::Family;
using internal::FindFamily;
using internal::GgufKeysOf;
using internal::GgufRopeOf;
using internal::HasQkvBiasAlways;
using internal::HeadRows;
using internal::Holds;
using internal::kConvertedFamilies;
using internal::kGgufPermuted;
using internal::ListFolderKeys;
using internal::Naming;
using internal::NotesOf;
using internal::NotKept;
using internal::Rearranged;
using internal::StoredRope;
using internal::TensorId;
using internal::TokenIdsOf;
using internal::TokenizerKeysOfFolder;
using internal::TransformersClass;

// llama.cpp's general.file_type for a file whose matrices are mostly of this type.
int64_t FileType(WeightType type) {
  switch (type) {
    case WeightType::kF16:
      return 1;
    case WeightType::kQ8_0:
      return 7;
    case WeightType::kBF16:
      return 32;
    default:
      return 0;
  }
}

const Family& GgufFamilyOf(const ModelConfig& c) {
  const Family* family = FindFamily(c.architecture);
  if (family == nullptr || TransformersClass(c.architecture) == nullptr) {
    throw Error(ErrorCode::kUnsupported, fmt::format("a '{}' model is not written as GGUF; {} are",
                                                     c.architecture, kConvertedFamilies));
  }
  for (std::size_t l = 0; l < c.plan.layers.size(); ++l) {
    const bool slides = c.plan.layers[l].window_tokens > 0;
    if (!slides && c.plan.layers[l].rotation) continue;
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("GGUF cannot hold it: layer {} {}, for which {} has no key that llama.cpp "
                    "reads",
                    l, slides ? "has a sliding window" : "does not rotate (NoPE)", family->gguf));
  }
  if (c.layer.attention.out_bias && std::string_view(family->gguf) != "llama") {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("GGUF cannot hold it: o_proj has a bias (attention_bias), which llama.cpp "
                    "does not take of the architecture {}",
                    family->gguf));
  }
  if (HasQkvBiasAlways(*family) && c.heads * c.head_dim != c.hidden) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("GGUF cannot hold it: {} heads of {} for {} hidden elements; llama.cpp "
                            "takes hidden / heads for the head size of the architecture {}",
                            c.heads, c.head_dim, c.hidden, family->gguf));
  }
  return *family;
}

std::map<std::string, GgufValue> SizeKeys(const ModelConfig& c, const std::string& architecture) {
  std::map<std::string, GgufValue> keys;
  const auto integer = [&](const char* key, int64_t value) {
    keys[architecture + "." + key] = {value, GgufType::kU32};
  };
  integer("block_count", c.layers);
  integer("embedding_length", c.hidden);
  integer("feed_forward_length", c.feed_forward);
  integer("attention.head_count", c.heads);
  integer("attention.head_count_kv", c.kv_heads);
  integer("attention.key_length", c.head_dim);
  integer("attention.value_length", c.head_dim);
  integer("vocab_size", c.vocab);
  keys[architecture + ".attention.layer_norm_rms_epsilon"] = {
      static_cast<double>(static_cast<float>(c.norm_eps)), GgufType::kF32};
  return keys;
}

// Which rows of which tensor move.
HeadRows RowsOf(TensorId id, const ModelConfig& c, const RotarySpec& spec, bool permuted) {
  const bool q_or_k = id == TensorId::kQ || id == TensorId::kK;
  if (!permuted || !q_or_k) return {};
  return {c.head_dim, spec.rotary_dim, PairLayout::kInterleaved};
}

WeightType TypeFor(const Weight& weight, const ConvertOptions& options, Converted& result) {
  if (weight.shape.size() < 2) return WeightType::kF32;
  WeightType type = options.type.value_or(weight.type);
  if (weight.cols() % Info(type).block_elements != 0) {
    result.notes.push_back(fmt::format("{} stays {}: its rows of {} are no whole blocks of {}",
                                       weight.name, Info(weight.type).name, weight.cols(),
                                       Info(type).name));
    type = weight.type;
  }
  return type;
}

void AddTokenizer(const ModelFiles& files, std::map<std::string, GgufValue>& metadata,
                  Converted& result) {
  const Tokenizer& tokenizer = *files.tokenizer;
  std::vector<NotKept> not_kept;
  auto keys = TokenizerKeysOfFolder(files.path, files.config.vocab);
  TokenizerExtras& extras = result.extras;
  extras = ExtrasOfFolder(files.path, tokenizer, &not_kept);
  constexpr char kUnknown[] = "tokenizer.ggml.unknown_token_id";
  if (const auto unknown = keys.find(kUnknown); unknown != keys.end()) {
    const auto id = static_cast<int32_t>(unknown->second.AsInt(kUnknown));
    if (const int32_t named = extras.ids.emplace("unk", id).first->second; named != id) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("{}: unk_token is token {}, but tokenizer.model has token {} for "
                              "what is unknown, and GGUF holds one; --no-tokenizer converts the "
                              "weights alone",
                              files.path, named, id));
    }
  }
  keys.merge(GgufKeysOf(extras));
  if (!keys.contains("tokenizer.ggml.eos_token_id")) {
    result.notes.push_back(
        "the tokenizer has no end token, which GGUF cannot express: llama.cpp takes token 11 of "
        "byte-level BPE and token 2 of SentencePiece for it");
  }
  for (auto& [key, value] : keys) metadata[key] = std::move(value);
  ListFolderKeys(files, TokenIdsOf(tokenizer, extras), &not_kept);
  for (std::string& note : NotesOf(not_kept, "GGUF")) result.notes.push_back(std::move(note));
}

}  // namespace

Converted FolderToGguf(const ModelFiles& files, const std::string& path,
                       const ConvertOptions& options) {
  const ModelConfig& c = files.config;
  const Family& family = GgufFamilyOf(c);
  const std::string architecture = family.gguf;
  StoredRope rope = GgufRopeOf(architecture, c.plan, c.plan.configured_length);
  const RotarySpec& spec = OnlyRotation(c.plan);
  Converted result;
  result.stored = std::move(rope.stored);
  result.notes = std::move(rope.notes);

  std::map<std::string, GgufValue> metadata = SizeKeys(c, architecture);
  metadata.merge(rope.keys);
  metadata["general.architecture"] = {architecture, GgufType::kString};
  std::error_code ignored;  // it is read already, and a name is all that it gives
  metadata["general.name"] = {
      std::filesystem::weakly_canonical(files.path, ignored).filename().string(),
      GgufType::kString};
  metadata["general.quantization_version"] = {int64_t{2}, GgufType::kU32};
  if (options.tokenizer) {
    AddTokenizer(files, metadata, result);
  } else {  // llama.cpp loads no file without the key
    metadata["tokenizer.ggml.model"] = {std::string("no_vocab"), GgufType::kString};
    std::vector<NotKept> not_kept;
    ListFolderKeys(files, nlohmann::ordered_json::object(), &not_kept);
    for (std::string& note : NotesOf(not_kept, "GGUF")) result.notes.push_back(std::move(note));
  }

  std::vector<TensorSource> tensors = std::move(rope.tensors);
  const auto from = ExpectedTensors(c, Naming::kHuggingFace);
  const auto to = ExpectedTensors(c, Naming::kGguf);  // the same tensors in the same order
  std::map<WeightType, int64_t> bytes_by_type;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const Weight& weight = files.tensors.at(from[i].name);
    const WeightType type = TypeFor(weight, options, result);
    if (type != weight.type && !Holds(type, weight)) result.same_values = false;
    if (weight.shape.size() > 1) bytes_by_type[type] += weight.bytes;
    tensors.push_back(Rearranged(weight, to[i].name,
                                 RowsOf(from[i].id, c, spec, family.Has(kGgufPermuted)), type));
  }
  const auto most =
      std::max_element(bytes_by_type.begin(), bytes_by_type.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  metadata["general.file_type"] = {FileType(most->first), GgufType::kU32};
  if (family.Has(kGgufPermuted)) {
    result.notes.push_back(
        "rows of q and k permuted for the interleaved layout, as llama.cpp "
        "expects them of this architecture");
  }
  WriteGguf(path, metadata, tensors);
  return result;
}

}  // namespace ropewalk
