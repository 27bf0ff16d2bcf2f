// GGUF metadata. The pair layout is not in the file: it follows the architecture's name, and
// "llama" has its q and k rows permuted for the interleaved layout.
#include "src/config/gguf/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "ropewalk/base/error.h"
#include "src/config/gguf/experts.h"
#include "src/config/json_object.h"
#include "src/config/number_keys.h"
#include "src/io/gguf_file.h"

namespace ropewalk {
namespace {

using internal::Family;
using internal::GgufKeys;

// Without the architecture's prefix: known to be without effect on positions.
constexpr const char* kHarmless[] = {"attention.layer_norm_epsilon",
                                     "attention.causal",
                                     "rope.scaling.finetuned",
                                     "tensor_data_layout",
                                     "use_parallel_residual",
                                     "expert_count",
                                     "expert_used_count"};
// Parts of a key that say it is about positions.
constexpr const char* kPositionWords[] = {"rope",        "alibi",   "position", "yarn",
                                          "temperature", "sliding", "relative"};

void SortKeys(const GgufKeys& keys, bool allow_unknown, ModelConfig& c) {
  const std::string& prefix = keys.prefix();
  const std::vector<std::string_view> known(keys.asked().begin(), keys.asked().end());
  for (const auto& [name, value] : keys.gguf().metadata) {
    if (name.starts_with("general.") || name.starts_with("tokenizer.") ||
        name.starts_with("quantize.") || name.starts_with("split.")) {
      continue;
    }
    const bool ours = name.starts_with(prefix);
    const std::string key = ours ? name.substr(prefix.size()) : name;
    if (ours && keys.asked().contains(key)) continue;
    const auto same = [&](const char* k) { return key == k; };
    if (ours && std::any_of(std::begin(kHarmless), std::end(kHarmless), same)) {
      c.harmless_keys.push_back(name);
      continue;
    }
    const auto part = [&](const char* w) { return key.find(w) != std::string::npos; };
    if (std::none_of(std::begin(kPositionWords), std::end(kPositionWords), part)) {
      c.unknown_keys.push_back(name);
      continue;
    }
    const std::string message =
        fmt::format("{}: unknown key {}{}", keys.File(), internal::Shown(nlohmann::json(name)),
                    DidYouMean(key, known));
    if (!allow_unknown) {
      throw Error(
          ErrorCode::kInvalidConfig,
          message +
              "; by its name it changes positions; allow unknown keys to go on (--allow-unknown)");
    }
    c.not_honoured.push_back(message + "; ignored");
  }
}

const Family& ReadFamily(const GgufFile& gguf, std::string& name) {
  const auto it = gguf.metadata.find("general.architecture");
  const std::string& file = gguf.file->path();
  if (it == gguf.metadata.end()) {
    throw Error(ErrorCode::kInvalidConfig,
                fmt::format("{}: general.architecture: expected one of {}, but it is missing", file,
                            internal::RunnableGgufNames()));
  }
  name = internal::WithFile(file, [&] { return it->second.AsString("general.architecture"); });
  const Family* family = internal::FindGgufFamily(name);
  if (family == nullptr) {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("{}: general.architecture: {} is not supported; GGUF files of {} run, and "
                    "the positions of these are read: {}",
                    file, internal::Shown(nlohmann::json(name)), internal::RunnableGgufNames(),
                    internal::GgufFamilyNames()));
  }
  return *family;
}

// Models that have the general.architecture of another family: keys tell them.
const Family& FamilyOfKeys(const Family& given, const GgufKeys& keys) {
  const std::string_view name = given.name;
  constexpr int64_t kSigmoid = 2;
  const char* other = nullptr;
  if (name == "olmo2" &&
      keys.Int("attention.sliding_window", 0, internal::kMaxTokens).value_or(0) > 0) {
    other = "olmo3";
  } else if (name == "llama" && internal::HasGgufExperts(keys)) {
    other = "mixtral";
  } else if (name == "deepseek_v2" && keys.Int("expert_gating_func", 0, 1000) == kSigmoid) {
    other = "deepseek_v3";
  }
  return other == nullptr ? given : *internal::FindFamily(other);
}

// Some architectures have one number for each layer: the largest, since some layers have none.
int64_t ReadLargest(const GgufKeys& keys, const char* key, bool required, ModelConfig& c) {
  const auto list = keys.Ints(key, 0, internal::kMaxDim);
  const int64_t blocks = c.layers + c.further_layers;
  if (list && keys.IsArray(key) && static_cast<int64_t>(list->size()) != blocks) {
    keys.Fail(key, fmt::format("a number, or an array of one for each of {} layers, got {}", blocks,
                               list->size()));
  }
  if (list && c.not_runnable.empty() &&
      std::adjacent_find(list->begin(), list->end(), std::not_equal_to<>()) != list->end()) {
    c.not_runnable = fmt::format(
        "{}: {} differs by layer: the decoder computes models with one number for all of them",
        keys.File(), keys.Name(key));
  }
  const int64_t largest =
      list && !list->empty() ? *std::max_element(list->begin(), list->end()) : 0;
  if (largest < 1 && (required || list)) {
    keys.Fail(key, list ? fmt::format("1 to {}, got 0", internal::kMaxDim)
                        : fmt::format("1 to {}, but it is missing", internal::kMaxDim));
  }
  return largest;
}

void ReadHeadDim(const GgufKeys& keys, const Family& family, ModelConfig& c) {
  auto head_dim = keys.Int("attention.key_length", 2, internal::kMaxHeadDim);
  // Of latent attention, key_length is that of the compressed keys in newer files.
  const auto latent = keys.Int("attention.key_length_mla", 2, internal::kMaxHeadDim);
  if (family.Has(internal::kMla) && latent) head_dim = latent;
  if (!head_dim && c.hidden % c.heads != 0) {
    keys.Fail(
        "attention.key_length",
        fmt::format("it, because {} elements do not divide into {} heads", c.hidden, c.heads));
  }
  c.head_dim = head_dim ? *head_dim : c.hidden / c.heads;
  const auto v = keys.Int("attention.value_length", 1, internal::kMaxDim);
  const bool alike = internal::RunsFromGguf(family) && !family.Has(internal::kMla);
  if (alike && v && *v != c.head_dim) {
    keys.Fail("attention.value_length", fmt::format("the head size {}, got {}", c.head_dim, *v));
  }
}

void ReadSizes(const GgufKeys& keys, const Family& family, ModelConfig& c) {
  c.layers = keys.RequiredInt("block_count", 1, internal::kMaxLayers);
  // Of block_count, these predict further tokens and do not run.
  c.further_layers = keys.Int("nextn_predict_layers", 0, c.layers - 1).value_or(0);
  c.layers -= c.further_layers;
  c.hidden = keys.RequiredInt("embedding_length", 1, internal::kMaxDim);
  const bool runs = internal::RunsFromGguf(family);
  const bool rotates = family.gguf_rope != internal::GgufRope::kNone;
  c.heads = ReadLargest(keys, "attention.head_count", runs || rotates, c);
  const int64_t kv_heads = ReadLargest(keys, "attention.head_count_kv", false, c);
  c.kv_heads = kv_heads > 0 ? kv_heads : c.heads;
  c.feed_forward = ReadLargest(keys, "feed_forward_length", runs, c);
  if (c.heads > 0) ReadHeadDim(keys, family, c);
  internal::CheckSizes(c, keys.File());
  c.vocab = internal::GgufVocab(keys);
  if (runs && c.vocab < 1) keys.Fail("vocab_size", "1 or more, but it is missing");
  c.tied_head = !keys.gguf().tensors.contains("output.weight");
  if (runs) internal::ReadGgufLayer(keys, family, c);
}

void RefuseNumberKeys(const GgufKeys& keys, bool allow_unknown, ModelConfig& c) {
  std::vector<std::string> said;
  for (const internal::NumberKey& key : internal::NumberKeys()) {
    if (key.gguf == nullptr || keys.asked().contains(key.gguf) || !keys.Has(key.gguf)) continue;
    const bool* flag = std::get_if<bool>(&keys.gguf().metadata.at(keys.Name(key.gguf)).value);
    const double value = flag != nullptr ? *flag : *keys.Number(key.gguf, -HUGE_VAL, HUGE_VAL);
    // 0 is "not given" to llama.cpp.
    const bool unset = flag == nullptr && value == 0;
    if (unset || internal::IsNeutral(key, value, c)) {
      c.harmless_keys.push_back(keys.Name(key.gguf));
    } else {
      said.push_back(fmt::format("{} = {}", keys.Name(key.gguf),
                                 flag == nullptr ? fmt::format("{:g}", value)
                                 : *flag         ? "true"
                                                 : "false"));
    }
  }
  internal::RefuseNumbers(keys.File(), said, allow_unknown, c);
}

}  // namespace

int64_t internal::GgufVocab(const GgufKeys& keys) {
  const auto& metadata = keys.gguf().metadata;
  const auto& tensors = keys.gguf().tensors;
  const auto embedding = tensors.find("token_embd.weight");
  const auto vocab = keys.Int("vocab_size", 1, kMaxDim);
  if (embedding != tensors.end()) return embedding->second.rows();
  if (vocab) return *vocab;
  const auto tokens = metadata.find("tokenizer.ggml.tokens");
  if (tokens == metadata.end()) return 0;
  const auto* list = std::get_if<std::vector<std::string>>(&tokens->second.value);
  return list == nullptr ? 0 : static_cast<int64_t>(list->size());
}

ModelConfig ParseGgufConfig(const GgufFile& gguf, bool allow_unknown) {
  std::string name;
  const Family& given = ReadFamily(gguf, name);
  const GgufKeys keys(gguf, name + ".");
  const Family& family = FamilyOfKeys(given, keys);
  const std::string format = fmt::format("GGUF v{}", gguf.version);
  if (family.encoder == internal::EncoderKind::kT5) {
    ModelConfig c = internal::ReadGgufT5(keys, allow_unknown);
    c.format_name = format;
    SortKeys(keys, allow_unknown, c);
    return c;
  }
  ModelConfig c;
  c.format = FileFormat::kGguf;
  c.format_name = format;
  c.architecture = family.name;
  c.not_runnable = internal::NotRunnableFromGguf(family);
  ReadSizes(keys, family, c);
  internal::ReadGgufPlan(keys, family, c);
  if (internal::RunsFromGguf(family)) RefuseNumberKeys(keys, allow_unknown, c);
  SortKeys(keys, allow_unknown, c);
  return c;
}

}  // namespace ropewalk
