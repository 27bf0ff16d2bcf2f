#include "src/config/family.h"

#include <fmt/format.h>

#include <algorithm>

#include "ropewalk/base/error.h"
#include "src/config/block.h"

namespace ropewalk::internal {
namespace {

template <class Name>
std::string Join(Name name) {
  std::string s;
  for (const Family& f : Families()) {
    if (name(f) == nullptr) continue;
    for (const std::string& word : WordsOf(name(f))) s += (s.empty() ? "" : ", ") + word;
  }
  return s;
}

constexpr SharedKey kSharedKeys[] = {
    {"layer_types"},
    {"sliding_window"},
    {"use_sliding_window"},
    {"max_window_layers"},
    {"no_rope_layers"},
    {"no_rope_layer_interval"},
    {.key = "partial_rotary_factor", .stops_with = "rope_theta"},
    {.key = "head_dim", .usual = true, .stops_with = "rope_scaling"},
    {.key = "rope_theta", .usual = true},
    {.key = "rope_scaling", .usual = true},
    {.key = "rope_parameters", .usual = true},
};

}  // namespace

std::vector<std::string> WordsOf(std::string_view list) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < list.size();) {
    const std::size_t end = std::min(list.find(' ', at), list.size());
    if (end > at) words.emplace_back(list.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

bool HasWord(std::string_view list, std::string_view word) {
  const std::vector<std::string> words = WordsOf(list);
  return std::find(words.begin(), words.end(), word) != words.end();
}

const char* NameOf(OtherEncoding other) {
  constexpr const char* kNames[] = {"",
                                    "no positions at all: a recurrent state knows the order",
                                    "learned absolute positions",
                                    "ALiBi, a slope per head over the distance",
                                    "a learned bias over buckets of distance (T5)",
                                    "disentangled relative attention (DeBERTa)",
                                    "Transformer-XL's relative positions (XLNet)",
                                    "Shaw's relative positions (NEZHA)",
                                    "another encoding"};
  return kNames[static_cast<std::size_t>(other)];
}

bool Family::Takes(std::string_view key) const { return HasWord(keys, key); }

std::span<const SharedKey> SharedKeys() { return kSharedKeys; }

bool Family::Reads(std::string_view key) const {
  if (Has(kElsewhere)) return true;
  const auto shared = std::find_if(std::begin(kSharedKeys), std::end(kSharedKeys),
                                   [&](const SharedKey& k) { return key == k.key; });
  if (shared == std::end(kSharedKeys) || !shared->usual) return Takes(key);
  if (other != OtherEncoding::kNone && key.starts_with("rope_")) return false;  // nothing rotates
  return !HasWord(unread, key);
}

const Family* FindFamily(const std::string& hf_model_type) {
  for (const Family& f : Families()) {
    if (hf_model_type == f.name || HasWord(f.aliases, hf_model_type)) return &f;
  }
  return nullptr;
}

const Family* FindGgufFamily(const std::string& architecture) {
  for (const Family& f : Families()) {
    if (f.gguf != nullptr && HasWord(f.gguf, architecture)) return &f;
  }
  return nullptr;
}

const Family* WrittenAs(const Family& family) {
  if (family.gguf_as != nullptr) return FindGgufFamily(family.gguf_as);
  return family.gguf == nullptr ? nullptr : &family;
}

std::string FamilyNames() {
  return Join([](const Family& f) { return f.name; });
}
std::string GgufFamilyNames() {
  return Join([](const Family& f) { return f.gguf; });
}
std::string RunnableFamilyNames() {
  return Join([](const Family& f) { return f.Runs() ? f.name : nullptr; });
}

std::string EncoderFamilyNames() {
  return Join([](const Family& f) { return f.encoder != EncoderKind::kNone ? f.name : nullptr; });
}

std::string NotRunnable(const Family& family) {
  if (family.Runs()) return "";
  return fmt::format(
      "the positions of a {} model are read but its decoder is not built in; models that run are "
      "{}",
      family.name, RunnableFamilyNames());
}

bool RunsFromGguf(const Family& family) {
  return family.Runs() && (family.gguf != nullptr || family.gguf_as != nullptr);
}

std::string RunnableGgufNames() {
  return Join([](const Family& f) {
    return RunsFromGguf(f) || f.encoder == EncoderKind::kT5 ? f.gguf : nullptr;
  });
}

std::string NotRunnableFromGguf(const Family& family) {
  if (RunsFromGguf(family)) return "";
  const std::string what = fmt::format(
      "the positions of a {} model are read from GGUF, its weights are not (GGUF files that run "
      "are "
      "those of {})",
      family.name, RunnableGgufNames());
  if (family.encoder != EncoderKind::kNone) {
    return what + "; ropewalk embed runs the same model as a Hugging Face folder";
  }
  return what + (family.Runs() ? "; the same model runs as a Hugging Face folder"
                               : "; nor does the decoder run it as a Hugging Face folder");
}

bool HasQkvBiasAlways(const Family& family) {
  return family.block->qkv_bias.key == nullptr && family.block->qkv_bias.otherwise;
}

void CheckSizes(const ModelConfig& c, const std::string& where) {
  if (c.heads > 0 && c.kv_heads > 0 && c.heads % c.kv_heads != 0) {
    throw Error(ErrorCode::kInvalidConfig,
                fmt::format("{}: {} query heads cannot share {} key heads evenly", where, c.heads,
                            c.kv_heads));
  }
  if (c.heads * c.head_dim > kMaxDim) {
    throw Error(ErrorCode::kInvalidConfig,
                fmt::format("{}: {} heads of {} are more than {} elements", where, c.heads,
                            c.head_dim, kMaxDim));
  }
}

}  // namespace ropewalk::internal
