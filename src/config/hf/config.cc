// Hugging Face config.json, the schema of transformers 4 (rope_theta, rope_scaling) and of 5
// (rope_parameters), of every family in the table; of a multimodal model its text part.
#include "src/config/hf/config.h"

#include <fmt/format.h>

#include <algorithm>

#include "ropewalk/base/error.h"
#include "src/config/block.h"
#include "src/config/hf/positions_object.h"
#include "src/config/hf/vendor.h"
#include "src/plan/local_base.h"

namespace ropewalk {
namespace {

using internal::Family;
using internal::HfSource;
using internal::JsonObject;
using internal::Shown;
using nlohmann::json;

constexpr const char* kOtherParts[] = {"vision_config", "audio_config", "talker_config",
                                       "code2wav_config", "token2wav_config"};

// Models whose code runs a text without images as the family of their text part does.
constexpr std::string_view kTextAlone[] = {"gemma3",     "llama4",   "llava",    "mistral3",
                                           "qwen2_5_vl", "qwen2_vl", "qwen3_vl", "qwen3_vl_moe"};

bool RunsTextAlone(std::string_view type) {
  return std::find(std::begin(kTextAlone), std::end(kTextAlone), type) != std::end(kTextAlone);
}

// The text part and the way to it; null when the configuration is flat.
const json* FindTextPart(const JsonObject& top, std::string& name) {
  for (const char* part : internal::kTextParts) {
    const json* value = top.Find(part);
    if (value != nullptr && value->is_object() && !value->empty()) {
      name = part;
      return value;
    }
  }
  return nullptr;
}

// "llava", when its text_config does not say its own type, means a llama.
std::string TextTypeOf(const std::string& outer) {
  if (internal::FindFamily(outer + "_text") != nullptr) return outer + "_text";
  if (internal::FindFamily(outer) != nullptr) return outer;
  if (outer == "mistral3" || outer == "pixtral") return "mistral";
  return outer.starts_with("llava") ? "llama" : outer;
}

const Family& ReadFamily(const JsonObject& object, const std::string& outer) {
  const auto given = object.String("model_type");
  if (!given && outer.empty()) {
    object.Fail("model_type", "one of " + internal::FamilyNames());
  }
  const std::string type = given ? *given : TextTypeOf(outer);
  const Family* family = internal::FindFamily(type);
  if (family == nullptr) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{}: model_type: {} is not supported; supported are {}", object.where(),
                            Shown(json(type)), internal::FamilyNames()));
  }
  return *family;
}

void RefuseQuantized(const JsonObject& object, ModelConfig& c) {
  c.not_runnable = object.where() +
                   ": quantization_config: weights quantised by it are not supported; use the "
                   "unquantised model, or a GGUF file";
}

// MXFP4 is read where the family is published in it.
void ReadQuantization(const HfSource& source, ModelConfig& c) {
  const json* value = source.top.Find("quantization_config");
  if (value == nullptr) return;
  const internal::TensorNames* mxfp4 = source.family.block->mxfp4;
  if (mxfp4 != nullptr && value->is_object() && value->value("quant_method", json()) == "mxfp4") {
    c.tensor_names = mxfp4;
    return;
  }
  RefuseQuantized(source.top, c);
}

void ReadPositions(const HfSource& source, ModelConfig& c) {
  if (source.family.Has(internal::kPositionsObject)) {
    internal::ReadPositionsObject(source, c);
    return;
  }
  const internal::InsteadOfRotation instead = internal::ReadOtherEncoding(source);
  if (instead.other == OtherEncoding::kNone) {
    internal::ReadHfPlan(source, c);
  } else {
    internal::ReadHfOther(source, instead, c);
  }
}

ModelConfig ReadFlat(const HfSource& given) {
  ModelConfig c;
  const json read = internal::WithoutUnread(given, c);
  const JsonObject top(read, given.top.where());
  for (const std::string& key : given.top.asked()) top.Find(key);  // known by now: model_type, ...
  const HfSource source = {top, given.family, given.nested, given.allow_unknown};
  const Family& family = source.family;
  c.format = FileFormat::kHuggingFace;
  c.format_name = "Hugging Face";
  c.architecture = family.name;
  c.not_runnable = internal::NotRunnable(family);
  internal::RefuseTwoDimensions(source);
  internal::ReadHfSizes(source, c);
  if (family.Runs()) {
    internal::ReadHfBlock(source, c);
    ReadQuantization(source, c);
  }
  ReadPositions(source, c);
  if (family.encoder != internal::EncoderKind::kNone && !source.nested) {
    internal::ReadHfEncoder(source, c);
  }
  internal::RefuseNumberKeys(source, c);
  internal::SortKeys(top, family, source.allow_unknown, c);
  return c;
}

// Keys outside the text part: repeated ones must agree with it, and what else is about positions
// belongs to nobody.
void SortOuterKeys(const JsonObject& top, const JsonObject& text, bool allow_unknown,
                   ModelConfig& c) {
  for (const auto& [key, value] : top.value().items()) {
    const json* inner = text.Find(key);
    if (inner == nullptr || value.is_null() || !internal::IsAboutPositions(key)) continue;
    if (*inner != value) {
      internal::Contradiction(top.where(), key, Shown(value), text.where() + ": " + key,
                              Shown(*inner));
    }
    top.Find(key);
  }
  for (const char* part : kOtherParts) {
    if (!top.Has(part)) continue;
    c.plan.notes.push_back(
        fmt::format("{} is not read: these are the positions of the text", part));
  }
  ModelConfig outer;
  static const Family none = {.name = "multimodal"};
  internal::SortKeys(top, none, allow_unknown, outer);
  c.not_honoured.insert(c.not_honoured.end(), outer.not_honoured.begin(), outer.not_honoured.end());
  c.unknown_keys.insert(c.unknown_keys.end(), outer.unknown_keys.begin(), outer.unknown_keys.end());
}

ModelConfig ReadNested(const JsonObject& top, const std::string& outer, int depth,
                       bool allow_unknown) {
  std::string part;
  const json* text_value = depth < 3 ? FindTextPart(top, part) : nullptr;
  if (text_value == nullptr) {
    ModelConfig c = ReadFlat({top, ReadFamily(top, outer), !outer.empty(), allow_unknown});
    // Qwen2-VL as published: the text's keys at the top, beside those of another part.
    if (outer.empty() && RunsTextAlone(top.String("model_type").value_or(""))) {
      c.plan.place.text_part = "text_config";
      c.plan.place.flat_file = true;
      c.text_part = c.not_runnable.empty();
    }
    return c;
  }
  const JsonObject text(*text_value, top.where() + ": " + part);
  const std::string type = top.String("model_type").value_or("");
  ModelConfig c = ReadNested(text, type.empty() ? "?" : type, depth + 1, allow_unknown);
  SortOuterKeys(top, text, allow_unknown, c);
  c.plan.notes.push_back(
      fmt::format("{} of a {} model; its keys of positions are there", part, type));
  std::string& where = c.plan.place.text_part;
  where = where.empty() ? part : part + "." + where;
  // transformers 5 reads it here alone and writes it; 4 reads that of the text part.
  c.tied_head = top.Bool("tie_word_embeddings").value_or(c.tied_head);
  if (!c.not_runnable.empty()) return c;
  if (top.Has("quantization_config")) {
    RefuseQuantized(top, c);
    return c;
  }
  c.text_part = RunsTextAlone(type);
  if (!c.text_part) {
    c.not_runnable = fmt::format(
        "the positions of {} are read, but the decoder does not run the text part of a {} model",
        part, type);
  }
  return c;
}

// Adds the file to errors that rotary's Resolve throws.
template <class F>
auto WithSource(const std::string& source, F&& f) {
  try {
    return f();
  } catch (const Error& e) {
    if (std::string_view(e.what()).starts_with(source)) throw;
    throw Error(ErrorCode::kInvalidConfig, source + ": " + e.what());
  }
}

}  // namespace

ModelConfig ParseHfConfig(const std::string& json_text, const std::string& file,
                          bool allow_unknown) {
  const json value = internal::ParseJsonObject(json_text, file);
  const JsonObject top(value, file);
  return WithSource(file, [&] { return ReadNested(top, "", 0, allow_unknown); });
}

PositionPlan ParseRopeDictionary(const std::string& json_text, const std::string& source,
                                 const PositionPlan& plan, bool allow_unknown) {
  const json value = internal::ParseJsonObject(json_text, source);
  const JsonObject object(value, source);
  internal::RopeContext context;
  context.type_required = false;
  context.allow_unknown = allow_unknown;
  context.max_position = plan.configured_length;
  // The dictionary may name another original length than the file; without one the plan's holds.
  if (!object.Has("original_max_position_embeddings")) context.original = plan.trained_length;
  const internal::RopeDictionary rope = ParseRope(object, context);
  for (const char* key : {"mrope_section", "xdrope_section", "mrope_interleaved", "interleaved",
                          "llama_4_scaling_beta"}) {
    if (!object.Has(key)) continue;
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{}: {}: axes and temperatures are the model's own; a dictionary "
                            "replaces scaling, base and rotated share alone",
                            source, key));
  }
  PositionPlan out = WithScaling(plan, rope.scaling, rope.original.value_or(0));
  out.notes.insert(out.notes.end(), rope.notes.begin(), rope.notes.end());
  out.notes.insert(out.notes.end(), rope.ignored.begin(), rope.ignored.end());
  WithSource(source, [&] {
    for (std::size_t l = 0; l < out.layers.size(); ++l) {
      if (!out.layers[l].rotation || internal::HasLocalBase(plan, plan.layers[l])) continue;
      RotarySpec& spec = *out.layers[l].rotation;
      if (rope.theta) spec.base = *rope.theta;
      if (rope.type == "proportional") {
        spec.rotary_dim = spec.head_dim;
      } else if (rope.partial) {
        spec.rotary_dim = internal::RotaryDim(spec.head_dim, *rope.partial, source);
      }
      // The multiplier of the scores belongs to the model's attention, not to the dictionary.
      if (auto* yarn = std::get_if<YarnScaling>(&spec.scaling); yarn != nullptr) {
        yarn->softmax_mscale = plan.yarn_scales_scores && yarn->mscale_all_dim.has_value();
      }
      Resolve(spec, std::max<int64_t>(out.trained_length, 1));
    }
  });
  return out;
}

}  // namespace ropewalk
