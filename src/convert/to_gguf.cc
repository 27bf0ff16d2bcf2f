// Hugging Face folder -> GGUF, as llama.cpp's converter has it: names, keys, permuted q and k of
// "llama", float32 vectors.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <variant>

#include "ropewalk/base/error.h"
#include "ropewalk/convert/convert.h"
#include "src/convert/gguf_model.h"
#include "src/convert/not_kept.h"
#include "src/convert/regroup.h"
#include "src/engines/llamacpp.h"
#include "src/tokenizer/export.h"

namespace ropewalk {
namespace {

using internal::ExtrasOfFolder;
using internal::Family;
using internal::FindLlamaCpp;
using internal::GgufFamilyOf;
using internal::GgufKeysOf;
using internal::GgufModelKeys;
using internal::GgufPositionsOf;
using internal::Holds;
using internal::IsVector;
using internal::kGgufPermuted;
using internal::kNeedsHead;
using internal::ListFolderKeys;
using internal::Naming;
using internal::NormalizedRows;
using internal::NotesOf;
using internal::NoteWhatLlamaCppDoes;
using internal::NotKept;
using internal::Regroup;
using internal::Regrouped;
using internal::SourceOf;
using internal::StoredRope;
using internal::TensorId;
using internal::TokenIdsOf;
using internal::TokenizerKeysOfFolder;

// llama.cpp's general.file_type for a file whose matrices are mostly of this type.
int64_t FileType(WeightType type) {
  switch (type) {
    case WeightType::kF16:
      return 1;
    case WeightType::kQ8_0:
      return 7;
    case WeightType::kBF16:
      return 32;
    case WeightType::kMXFP4:
      return 38;
    default:
      return 0;
  }
}

WeightType TypeFor(const Regrouped& tensor, const ConvertOptions& options, Converted& result) {
  if (IsVector(tensor.to)) return WeightType::kF32;
  const WeightType stored = tensor.type();
  const WeightType own = stored == WeightType::kMXFP4Pair ? WeightType::kMXFP4 : stored;
  const WeightType type = options.type.value_or(own);
  if (tensor.to.shape.back() % Info(type).block_elements == 0) return type;
  result.notes.push_back(fmt::format("{} stays {}: its rows of {} are no whole blocks of {}",
                                     tensor.from[0]->name, Info(own).name, tensor.to.shape.back(),
                                     Info(type).name));
  return own;
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

// llama.cpp loads no file whose name speaks of Phi-3 unless the vocabulary has Phi-3's tokens
// (src/llama-vocab.cpp).
void NameForLlamaCpp(std::map<std::string, GgufValue>& metadata, Converted& result) {
  std::string& name = std::get<std::string>(metadata.at("general.name").value);
  std::string lower = name;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto tokens = metadata.find("tokenizer.ggml.tokens");
  if (tokens == metadata.end()) return;
  if (lower.find("phi-3") == name.npos && lower.find("phi3") == name.npos) return;
  const auto& pieces = std::get<std::vector<std::string>>(tokens->second.value);
  for (const char* piece : {"<unk>", "<s>", "</s>", "<|endoftext|>"}) {
    if (std::ranges::find(pieces, piece) != pieces.end()) continue;
    result.notes.push_back(
        fmt::format("general.name is model and not {}: llama.cpp loads no file with Phi-3 in its "
                    "name without Phi-3's tokens, and {} is not in this vocabulary",
                    name, piece));
    name = "model";
    return;
  }
}

}  // namespace

Converted FolderToGguf(const ModelFiles& files, const std::string& path,
                       const ConvertOptions& options) {
  const ModelConfig& c = files.config;
  const Family& family = GgufFamilyOf(c);
  const std::string architecture = family.gguf;
  StoredRope rope = GgufPositionsOf(c, family);
  Converted result;
  result.stored = std::move(rope.stored);
  result.notes = std::move(rope.notes);

  std::map<std::string, GgufValue> metadata = GgufModelKeys(c, family);
  metadata.merge(rope.keys);
  metadata["general.architecture"] = {architecture, GgufType::kString};
  std::error_code ignored;  // it is read already, and a name is all that it gives
  metadata["general.name"] = {
      std::filesystem::weakly_canonical(files.path, ignored).filename().string(),
      GgufType::kString};
  metadata["general.quantization_version"] = {int64_t{2}, GgufType::kU32};
  if (options.tokenizer) {
    AddTokenizer(files, metadata, result);
    NameForLlamaCpp(metadata, result);
  } else {  // llama.cpp loads no file without the key
    metadata["tokenizer.ggml.model"] = {std::string("no_vocab"), GgufType::kString};
    std::vector<NotKept> not_kept;
    ListFolderKeys(files, nlohmann::ordered_json::object(), &not_kept);
    for (std::string& note : NotesOf(not_kept, "GGUF")) result.notes.push_back(std::move(note));
  }

  const bool permuted = family.Has(kGgufPermuted);
  std::vector<TensorSource> tensors = std::move(rope.tensors);
  std::map<WeightType, int64_t> bytes_by_type;
  for (const Regrouped& t :
       Regroup(files, {&c, Naming::kHuggingFace}, {&c, Naming::kGguf, permuted})) {
    const WeightType type = TypeFor(t, options, result);
    if (!Holds(type, t)) result.same_values = false;
    if (!IsVector(t.to)) bytes_by_type[type] += t.bytes();
    tensors.push_back(SourceOf(t, type));
    if (t.to.id == TensorId::kHead && c.normalized_head) {
      tensors.back() = NormalizedRows(*t.from[0], t.to, options.type.value_or(WeightType::kF32));
      result.notes.push_back(
          "rows of the head divided by their length, which llama.cpp does not do of itself");
    }
    if (t.to.id != TensorId::kEmbedding || !c.tied_head) continue;
    if (!FindLlamaCpp(architecture)->Takes(kNeedsHead)) continue;
    tensors.push_back(tensors.back());
    tensors.back().name = "output.weight";
    result.notes.push_back(
        "the embedding written once more, as the head: llama.cpp loads no file "
        "of this architecture without output.weight");
  }
  const auto most =
      std::max_element(bytes_by_type.begin(), bytes_by_type.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  metadata["general.file_type"] = {FileType(most->first), GgufType::kU32};
  NoteWhatLlamaCppDoes(c, family, result);
  WriteGguf(path, metadata, tensors);
  return result;
}

}  // namespace ropewalk
