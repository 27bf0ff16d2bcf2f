// Names: which mean the same, which are known, and what happens to the others.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ropewalk/base/error.h"
#include "src/config/hf/config.h"

namespace ropewalk::internal {
namespace {

struct AliasGroup {
  const char* name;
  const char* others;  // for keys about positions: only where the family's row has them
  bool about_positions;
};
constexpr AliasGroup kAliases[] = {
    {"num_hidden_layers", "n_layer n_layers num_layers", false},
    {"hidden_size", "n_embd n_embed d_model", false},
    {"num_attention_heads", "n_head n_heads num_heads", false},
    {"num_key_value_heads", "num_kv_heads n_head_kv n_kv_heads multi_query_group_num", false},
    {"head_dim", "kv_channels attention_head_dim d_kv", false},
    {"intermediate_size", "n_inner ffn_hidden_size d_ff ffn_dim mlp_hidden_size", false},
    {"vocab_size", "padded_vocab_size", false},
    {"max_position_embeddings",
     "n_positions n_ctx max_seq_len seq_length max_sequence_length model_max_length", true},
    {"rope_theta", "rotary_emb_base rope_embedding_base", true},
    {"partial_rotary_factor", "rotary_pct rope_pct rope_percent rope_percentage rotary_percent",
     true},
};

// Known, and without effect on where a token stands.
constexpr const char* kHarmless[] = {
    "architectures",
    "_name_or_path",
    "name_or_path",
    "_attn_implementation",
    "_attn_implementation_autoset",
    "attn_implementation",
    "torch_dtype",
    "dtype",
    "transformers_version",
    "use_cache",
    "attention_dropout",
    "hidden_dropout",
    "initializer_range",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "pretraining_tp",
    "tie_word_embeddings",
    "quantization_config",
    "output_router_logits",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "aux_loss_alpha",
    "seq_aux",
    "ep_size",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
    "auto_map",
    // Settings of MLC, of feed-forward layers, of generation and of multimodal processors: about
    // positions by their names alone.
    "context_window_size",
    "prefill_chunk_size",
    "position_id_per_seconds",
    "seconds_per_chunk",
    "vision_config",
    "audio_config",
    "image_size",
    "chunk_size_feed_forward",
    "mamba_chunk_size",
    "mlp_layer_types",
    "temperature",
    "is_composition",
    // Of models that read images too: what stands for an image, and how it is made into tokens.
    "image_token_id",
    "image_token_index",
    "video_token_id",
    "video_token_index",
    "vision_token_id",
    "vision_start_token_id",
    "vision_end_token_id",
    "boi_token_index",
    "eoi_token_index",
    "image_seq_length",
    "mm_tokens_per_image",
    "multimodal_projector_bias",
    "projector_hidden_act",
    "spatial_merge_size",
    "vision_feature_layer",
    "vision_feature_select_strategy",
};
// Switches of other models that these files have off.
constexpr const char* kHarmlessOff[] = {"use_mrope", "position_embedding_xdrope"};
// Parts of a name that say it is about positions.
constexpr const char* kPositionWords[] = {
    "rope",      "rotary",      "position",        "theta",        "yarn",
    "ntk",       "alibi",       "long_factor",     "short_factor", "window_size",
    "sliding",   "layer_types", "chunk_attention", "attn_factor",  "attention_factor",
    "logn_attn", "chunk_size",  "temperature",     "relative_att"};

template <class T, class Read>
std::optional<T> Aliased(const HfSource& source, const char* name, Read read) {
  std::optional<T> value;
  std::string first;
  for (const std::string& key : source.NamesOf(name)) {
    const std::optional<T> v = read(key);
    if (!v) continue;
    if (value && *value != *v) {
      Contradiction(source.top.where(), first, fmt::format("{}", *value), key,
                    fmt::format("{}", *v));
    }
    if (!value) value = v, first = key;
  }
  return value;
}

template <class List>
bool Contains(const List& list, const std::string& key) {
  return std::find(std::begin(list), std::end(list), key) != std::end(list);
}

}  // namespace

void Contradiction(const std::string& where, const std::string& a, const std::string& a_value,
                   const std::string& b, const std::string& b_value) {
  throw Error(ErrorCode::kInvalidConfig,
              fmt::format("{}: {} is {} but {} is {}; remove the wrong one", where, a, a_value, b,
                          b_value));
}

std::vector<std::string> KeyNames(const Family& family, const char* name) {
  std::vector<std::string> names = {name};
  for (const AliasGroup& group : kAliases) {
    if (std::string_view(group.name) != name) continue;
    for (const std::string& other : WordsOf(group.others)) {
      // Qwen's seq_length is what it was trained at, not what it serves.
      if (other == "seq_length" && family.Has(kSeqLengthIsTrained)) continue;
      if (!group.about_positions || family.Takes(other)) names.push_back(other);
    }
  }
  return names;
}

std::optional<int64_t> HfSource::Int(const char* name, int64_t low, int64_t high) const {
  return Aliased<int64_t>(*this, name,
                          [&](const std::string& key) { return top.Int(key, low, high); });
}
std::optional<double> HfSource::Number(const char* name, double low, double high) const {
  return Aliased<double>(*this, name,
                         [&](const std::string& key) { return top.Number(key, low, high); });
}

bool IsHarmless(const std::string& key) { return Contains(kHarmless, key); }

bool IsAboutPositions(const std::string& key) {
  return std::any_of(std::begin(kPositionWords), std::end(kPositionWords),
                     [&](const char* w) { return key.find(w) != std::string::npos; });
}

void SortKeys(const JsonObject& top, const Family& family, bool allow_unknown, ModelConfig& c) {
  std::vector<std::string_view> known(top.asked().begin(), top.asked().end());
  for (const auto& [key, value] : top.value().items()) {
    if (top.asked().contains(key)) continue;
    // The family's own keys that no reader asked for say nothing here.
    const bool off = value == false && Contains(kHarmlessOff, key);
    if (IsHarmless(key) || off || family.Takes(key)) {
      c.harmless_keys.push_back(key);
      continue;
    }
    if (value.is_null() || !IsAboutPositions(key)) {
      c.unknown_keys.push_back(key);
      continue;
    }
    const std::string message =
        fmt::format("{}: unknown key {} = {}{}", top.where(), Shown(nlohmann::json(key)),
                    Shown(value), DidYouMean(key, known));
    if (!allow_unknown) {
      throw Error(ErrorCode::kInvalidConfig, message +
                                                 "; by its name it changes positions: remove it, "
                                                 "or allow unknown keys (--allow-unknown)");
    }
    c.not_honoured.push_back(message + "; ignored");
    c.unknown_keys.push_back(key);
  }
}

}  // namespace ropewalk::internal
