// How engines read and apply position settings: one row per fact and range of versions. The formula
// of a method in an engine is that of RotarySpec::dialect; these rows are about files, flags and
// loaders. docs/engines.md shows them, and a test compares the two.
#pragma once

#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "ropewalk/engines/versions.h"

namespace ropewalk::internal {

enum class Fact : uint8_t {
  // Hugging Face transformers
  kRopeParameters,
  kYarnLengthFromConfig,
  kYarnFactorFromLengths,
  kYarnReadsTruncate,
  kYarnTruncateAtTopLevel,
  kPerLayerTypeAlone,
  kProportional,
  kDynamicKeepsLongest,
  kLongRopePerTypeFails,
  kLongRopeFromTopLevel,
  kDeepSeekV2LosesSoftmax,
  // vLLM
  kOnTransformers5,
  kDualChunk,
  kReRopePatch,
  kYarnDropsAttentionFactor,
  kDynamicAtTrainedLength,
  kCacheOfModelType,
  // llama.cpp
  kYarnAlwaysTruncates,
  kYarnOwnAmplitude,
  kSelfExtendInServer,
  kServerEndsAtContextLength,
  kYarnRaisesContextLength,
  kWholeHeads,
  kDivisorsForLlama,
  kQuantisedCacheNeedsFlash,
  kHadamardBeforeCache,
};

struct FactRow {
  Fact fact;
  EngineKind engine;
  VersionRange versions;
  const char* text;    // after the engine's name
  const char* source;  // a release that was read, a pull request
};

// Releases of transformers were read at each boundary, as PyPI has them; "#1" is a pull request.
inline constexpr FactRow kFacts[] = {
    {Fact::kRopeParameters,
     EngineKind::kTransformers,
     {EngineVersion{{5}}},
     "reads rope_parameters, which include the base, and still rope_theta and rope_scaling; "
     "earlier "
     "versions read only these and ignored rope_parameters without a warning",
     "5.0.0"},
    {Fact::kYarnLengthFromConfig,
     EngineKind::kTransformers,
     {{}, EngineVersion{{4, 51}}},
     "takes max_position_embeddings as the trained length in YaRN's ramp",
     "4.50.3, 4.51.0"},
    {Fact::kYarnFactorFromLengths,
     EngineKind::kTransformers,
     {EngineVersion{{4, 51}}, EngineVersion{{4, 56}}},
     "takes max_position_embeddings / original_max_position_embeddings as YaRN's factor",
     "4.51.0, 4.55.4, 4.56.0"},
    {Fact::kYarnReadsTruncate,
     EngineKind::kTransformers,
     {EngineVersion{{4, 55}}},
     "reads YaRN's truncate; earlier versions always round the ends of the ramp",
     "4.54.1, 4.55.0"},
    {Fact::kYarnTruncateAtTopLevel,
     EngineKind::kTransformers,
     {EngineVersion{{5}}},
     "reads truncate only at the top level of rope_parameters",
     "5.0.0, 5.23.0"},
    {Fact::kPerLayerTypeAlone,
     EngineKind::kTransformers,
     {EngineVersion{{5}}},
     "needs rope_parameters of a model with another base in sliding layers (Gemma 3) as a "
     "dictionary for each layer type; one for all of them is an error or ignored without a warning",
     "5.0.0, 5.23.0"},
    {Fact::kProportional,
     EngineKind::kTransformers,
     {EngineVersion{{5, 5}}},
     "has the rope_type proportional",
     "5.4.0, 5.5.0"},
    {Fact::kDynamicKeepsLongest,
     EngineKind::kTransformers,
     {EngineVersion{{5}}, EngineVersion{{5, 13}}},
     "never resets dynamic NTK: after one long prompt, short prompts keep its base",
     "#46624; 5.12.1, 5.13.0"},
    {Fact::kLongRopePerTypeFails,
     EngineKind::kTransformers,
     {EngineVersion{{5}}, EngineVersion{{5, 21}}},
     "fails with LongRoPE in a dictionary per layer type, on the second sequence beyond the "
     "trained length",
     "5.0.0, 5.20.0, 5.21.0"},
    {Fact::kLongRopeFromTopLevel,
     EngineKind::kTransformers,
     {{}, EngineVersion{{5}}},
     "takes LongRoPE's original_max_position_embeddings from the top level of config.json alone, "
     "max_position_embeddings where it is absent there, and their ratio as the factor",
     "4.43.0, 4.57.6, 5.0.0"},
    {Fact::kDeepSeekV2LosesSoftmax,
     EngineKind::kTransformers,
     {{}, EngineVersion{{5, 15}}},
     "loses YaRN's factor on the scores of deepseek_v2",
     "#47435; 5.14.1, 5.15.0"},

    // Earlier versions require transformers < 5.
    {Fact::kOnTransformers5,
     EngineKind::kVllm,
     {EngineVersion{{0, 19, 1}}},
     "runs on transformers 5",
     "#30566"},
    // Added by #11844; removed with the backends of its first engine (V0). The key is still parsed.
    {Fact::kDualChunk,
     EngineKind::kVllm,
     {EngineVersion{{0, 9}}, EngineVersion{{0, 11}}},
     "has dual chunk attention; later it reads dual_chunk_attention_config and ignores it",
     "#11844, #25351, #49296"},
    {Fact::kReRopePatch,
     EngineKind::kVllm,
     {EngineVersion{{0, 9, 2}}, EngineVersion{{0, 9, 3}}},
     "has ReRoPE with log-n by a patch of others, ModelEngine-Group/unified-cache-management",
     "unified-cache-management #497"},
    {Fact::kReRopePatch,
     EngineKind::kVllm,
     {EngineVersion{{0, 11}}, EngineVersion{{0, 11, 1}}},
     "has ReRoPE with log-n by a patch of others, ModelEngine-Group/unified-cache-management",
     "unified-cache-management #686"},
    {Fact::kYarnDropsAttentionFactor,
     EngineKind::kVllm,
     {},
     "ignores YaRN's attention_factor in versions with a fixed list of keys and uses "
     "0.1 ln factor + 1",
     "#46280, #48351, #56446"},
    {Fact::kDynamicAtTrainedLength,
     EngineKind::kVllm,
     {},
     "computes dynamic NTK once, for factor times the trained length (until #41277) or the served "
     "length, and uses it for short prompts too",
     "#41236, #41277"},
    {Fact::kCacheOfModelType,
     EngineKind::kVllm,
     {},
     "keeps its KV cache in the type of the model (--kv-cache-dtype auto); bfloat16 there is only "
     "for models that default to fp8, and q8_0 is not among its types",
     "vllm/config/cache.py; 0.9.0, 0.11.1"},

    {Fact::kYarnAlwaysTruncates,
     EngineKind::kLlamaCpp,
     {},
     "always truncates the ends of YaRN's ramp",
     "ggml_rope_yarn_corr_dims"},
    {Fact::kYarnOwnAmplitude,
     EngineKind::kLlamaCpp,
     {},
     "computes YaRN's attention factor itself (0.1 ln factor + 1) and overwrites one that is given "
     "by a flag",
     "src/llama-context.cpp; #17945"},
    {Fact::kSelfExtendInServer,
     EngineKind::kLlamaCpp,
     {{}, EngineVersion{{2024, 10, 12}}},
     "has --grp-attn-n and --grp-attn-w in llama-server; later only in other programs",
     "#9860"},
    {Fact::kServerEndsAtContextLength,
     EngineKind::kLlamaCpp,
     {},
     "serves no more tokens than the file's context_length (llama-server)",
     "#17459, #22140"},
    {Fact::kYarnRaisesContextLength,
     EngineKind::kLlamaCpp,
     {EngineVersion{{2026, 8, 30}}},
     "raises context_length by YaRN's flags",
     "#28030"},
    {Fact::kWholeHeads,
     EngineKind::kLlamaCpp,
     {},
     "only rotates whole heads in the architectures llama, qwen2, qwen3, qwen2vl, qwen3vl, "
     "qwen3vlmoe, smollm3, granite, minicpm, "
     "olmo, olmo2, starcoder2, internlm2, orion, falcon, qwen2moe, qwen3moe, olmoe, gpt-oss, "
     "llama4, baichuan and mistral3",
     "src/models/"},
    {Fact::kDivisorsForLlama,
     EngineKind::kLlamaCpp,
     {},
     "loads the tensors of divisors for the architectures llama, granite, minicpm and mistral3, "
     "rope_freqs.weight for llama4 as well, those of LongRoPE for phi3 and minicpm3 as well, and "
     "for "
     "no other that is written here",
     "src/models/"},
    {Fact::kQuantisedCacheNeedsFlash,
     EngineKind::kLlamaCpp,
     {},
     "needs flash attention for a quantised V cache",
     "#10378, #28524"},
    {Fact::kHadamardBeforeCache,
     EngineKind::kLlamaCpp,
     {EngineVersion{{2026, 4, 1}}},
     "multiplies queries, keys and values by a Hadamard matrix before a quantised KV cache rounds "
     "them, "
     "where the head size is a multiple of 64",
     "#21038, #27742"},
};

// The first row of a fact.
constexpr const FactRow& Row(Fact fact) {
  const FactRow* row = std::begin(kFacts);
  while (row->fact != fact) ++row;
  return *row;
}

// "llama.cpp always truncates ..."; the usual spelling of the engine's name.
const char* Title(EngineKind engine);
std::string Sentence(Fact fact);
// The versions of a fact in words, of all its rows: "0.9.2 and 0.11.0"; empty: all.
std::string Versions(Fact fact);
bool Holds(Fact fact, const EngineVersion& version);

}  // namespace ropewalk::internal
