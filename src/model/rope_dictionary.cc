#include "src/model/rope_dictionary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ropewalk/base/error.h"

namespace ropewalk::internal {
namespace {

// Which types give a key a meaning; one letter a type.
enum TypeBit : unsigned {
  kDefault = 1,
  kLinear = 2,
  kDynamic = 4,
  kYarn = 8,
  kLongRope = 16,
  kLlama3 = 32,
  kAll = 63
};

struct TypeRow {
  const char* name;
  const char* canonical;
  TypeBit bit;
};
constexpr TypeRow kTypes[] = {
    {"default", "default", kDefault},    {"linear", "linear", kLinear},
    {"dynamic", "dynamic", kDynamic},    {"yarn", "yarn", kYarn},
    {"longrope", "longrope", kLongRope}, {"su", "longrope", kLongRope},  // Phi-3's first name
    {"llama3", "llama3", kLlama3},
};

struct KeyRow {
  const char* name;
  unsigned types;         // where it is consumed
  bool harmless = false;  // elsewhere and here without effect on what is computed
};
constexpr KeyRow kKeys[] = {
    {"rope_type", kAll},
    {"type", kAll},
    {"rope_theta", kAll},
    {"partial_rotary_factor", kAll},
    {"original_max_position_embeddings", kAll},
    {"factor", kLinear | kDynamic | kYarn | kLongRope | kLlama3},
    {"attention_factor", kYarn | kLongRope},
    {"attn_factor", kYarn},
    {"beta_fast", kYarn},
    {"beta_slow", kYarn},
    {"mscale", kYarn},
    {"mscale_all_dim", kYarn},
    {"truncate", kYarn},
    {"short_factor", kLongRope},
    {"long_factor", kLongRope},
    {"low_freq_factor", kLlama3},
    {"high_freq_factor", kLlama3},
    {"finetuned", 0, true},  // says how the model was made
};

constexpr double kMaxFactor = 1e6;

std::string TypeNames(unsigned bits) {
  std::string s;
  for (const TypeRow& t : kTypes) {
    if ((t.bit & bits) == 0) continue;
    if (!s.empty()) s += ", ";
    s += t.name;
  }
  return s;
}

const TypeRow& FindType(const JsonObject& rope, const char* key, const std::string& name) {
  for (const TypeRow& t : kTypes) {
    if (name == t.name) return t;
  }
  std::vector<std::string_view> names;
  for (const TypeRow& t : kTypes) names.push_back(t.name);
  throw Error(ErrorCode::kUnsupported,
              fmt::format("{}: {}: unknown type {}{}; known are {}", rope.where(), key,
                          Shown(nlohmann::json(name)), DidYouMean(name, names), TypeNames(kAll)));
}

const TypeRow& ReadType(const JsonObject& rope, const RopeContext& context) {
  const auto a = rope.String("rope_type"), b = rope.String("type");
  if (!a && !b) {
    if (!context.type_required) return kTypes[0];
    throw Error(ErrorCode::kInvalidConfig,
                fmt::format("{}: it has neither rope_type nor type; add \"rope_type\", one of {}",
                            rope.where(), TypeNames(kAll)));
  }
  const TypeRow& type = FindType(rope, a ? "rope_type" : "type", a ? *a : *b);
  if (a && b && FindType(rope, "type", *b).bit != type.bit) {
    throw Error(ErrorCode::kInvalidConfig,
                fmt::format("{}: rope_type is \"{}\" but type is \"{}\"; remove the wrong one",
                            rope.where(), *a, *b));
  }
  return type;
}

void CheckKeys(const JsonObject& rope, const TypeRow& type, bool allow_unknown,
               std::vector<std::string>& notes) {
  for (const auto& [key, value] : rope.value().items()) {
    if (value.is_null()) continue;
    const auto row = std::find_if(std::begin(kKeys), std::end(kKeys),
                                  [&key = key](const KeyRow& k) { return key == k.name; });
    if (row != std::end(kKeys) && (row->harmless || (row->types & type.bit) != 0)) continue;
    std::string message;
    if (row != std::end(kKeys)) {
      message = fmt::format("{}: {} = {} has no meaning for type \"{}\", only for {}", rope.where(),
                            key, Shown(value), type.name, TypeNames(row->types));
    } else {
      std::vector<std::string_view> names;
      for (const KeyRow& k : kKeys) {
        if (k.harmless || (k.types & type.bit) != 0) names.push_back(k.name);
      }
      message = fmt::format("{}: unknown key {} = {}{}", rope.where(), Shown(nlohmann::json(key)),
                            Shown(value), DidYouMean(key, names));
    }
    if (!allow_unknown) {
      throw Error(ErrorCode::kInvalidConfig,
                  message + "; it may change positions: remove it, or allow unknown keys");
    }
    notes.push_back(message + "; ignored");
  }
}

std::optional<double> Factor(const JsonObject& rope) {
  return rope.Number("factor", 1, kMaxFactor);
}

double RequiredFactor(const JsonObject& rope) {
  return rope.Require(Factor(rope), "factor", "a number from 1 to 1e+06");
}

YarnScaling ReadYarn(const JsonObject& rope, const RopeContext& context, int64_t original) {
  YarnScaling y;
  // transformers 5 takes max / original where the factor is null; 4.57 refuses.
  const auto factor = Factor(rope);
  if (!factor && !(original > 0 && context.max_position > original)) RequiredFactor(rope);
  y.factor = factor ? *factor : double(context.max_position) / double(original);
  y.beta_fast = rope.Number("beta_fast", 1e-3, 1e6).value_or(32);
  y.beta_slow = rope.Number("beta_slow", 1e-3, 1e6).value_or(1);
  if (y.beta_fast < y.beta_slow) {
    throw Error(ErrorCode::kInvalidConfig,
                fmt::format("{}: beta_fast is {} and beta_slow {}; beta_fast must not be smaller, "
                            "are they swapped?",
                            rope.where(), y.beta_fast, y.beta_slow));
  }
  y.truncate = rope.Bool("truncate").value_or(true);
  y.attention_factor = rope.Number("attention_factor", 1e-6, 1e6);
  // Zero means "not given" in every implementation.
  const auto given = [](std::optional<double> v) { return v && *v != 0 ? v : std::nullopt; };
  y.mscale = given(rope.Number("mscale", 0, 1e3));
  y.mscale_all_dim = given(rope.Number("mscale_all_dim", 0, 1e3));
  if (const auto attn = rope.Number("attn_factor", 1e-6, 1e6)) {
    // A multiplier of the default, unlike attention_factor, which replaces it.
    if (y.attention_factor) {
      throw Error(ErrorCode::kInvalidConfig,
                  fmt::format("{}: attn_factor ({}) multiplies the default amplitude and "
                              "attention_factor ({}) replaces it; remove one",
                              rope.where(), *attn, *y.attention_factor));
    }
    const auto g = [&](double m) { return 0.1 * m * std::log(y.factor) + 1; };
    const bool ratio = y.mscale && y.mscale_all_dim;
    y.attention_factor = *attn * (ratio ? g(*y.mscale) / g(*y.mscale_all_dim) : g(1));
  }
  return y;
}

LongRopeScaling ReadLongRope(const JsonObject& rope, const RopeContext& context, int64_t original) {
  LongRopeScaling s;
  const char* kList = "an array with a divisor for each pair";
  s.short_factor = rope.Require(rope.Numbers("short_factor", 1e-6, 1e9), "short_factor", kList);
  s.long_factor = rope.Require(rope.Numbers("long_factor", 1e-6, 1e9), "long_factor", kList);
  s.attention_factor = rope.Number("attention_factor", 1e-6, 1e6);
  s.factor = Factor(rope);
  if (!s.factor && original > 0 && context.max_position >= original) {
    s.factor = double(context.max_position) / double(original);
  }
  if (!s.factor && !s.attention_factor) RequiredFactor(rope);
  return s;
}

Llama3Scaling ReadLlama3(const JsonObject& rope) {
  Llama3Scaling s;
  const char* kNumber = "a positive number";
  s.factor = RequiredFactor(rope);
  s.low_freq_factor =
      rope.Require(rope.Number("low_freq_factor", 1e-6, 1e6), "low_freq_factor", kNumber);
  s.high_freq_factor =
      rope.Require(rope.Number("high_freq_factor", 1e-6, 1e6), "high_freq_factor", kNumber);
  if (s.low_freq_factor >= s.high_freq_factor) {
    throw Error(ErrorCode::kInvalidConfig,
                fmt::format("{}: low_freq_factor ({}) must be smaller than high_freq_factor ({})",
                            rope.where(), s.low_freq_factor, s.high_freq_factor));
  }
  return s;
}

}  // namespace

RopeDictionary ParseRope(const JsonObject& rope, const RopeContext& context) {
  RopeDictionary out;
  const TypeRow& type = ReadType(rope, context);
  out.type = type.canonical;
  CheckKeys(rope, type, context.allow_unknown, out.notes);
  out.theta = rope.Number("rope_theta", 1, 1e18);
  out.partial = rope.Number("partial_rotary_factor", 0, 1);
  out.original = rope.Int("original_max_position_embeddings", 1, (int64_t{1} << 31) - 1);
  if (out.original && context.original && *out.original != *context.original) {
    throw Error(ErrorCode::kInvalidConfig,
                fmt::format("{}: original_max_position_embeddings is {} here and {} at top level; "
                            "remove the wrong one",
                            rope.where(), *out.original, *context.original));
  }
  const int64_t original =
      out.original ? *out.original : context.original.value_or(context.max_position);
  switch (type.bit) {
    case kLinear:
      out.scaling = LinearScaling{RequiredFactor(rope)};
      break;
    case kDynamic:
      out.scaling = DynamicNtkScaling{RequiredFactor(rope)};
      break;
    case kYarn:
      out.scaling = ReadYarn(rope, context, original);
      break;
    case kLongRope:
      out.scaling = ReadLongRope(rope, context, original);
      break;
    case kLlama3:
      out.scaling = ReadLlama3(rope);
      break;
    default:
      break;
  }
  return out;
}

int64_t RotaryDim(int64_t head_dim, double partial_rotary_factor, const std::string& where) {
  const auto dim = static_cast<int64_t>(static_cast<double>(head_dim) * partial_rotary_factor);
  if (dim < 2 || dim > head_dim || dim % 2 != 0) {
    throw Error(ErrorCode::kInvalidConfig,
                fmt::format("{}: partial_rotary_factor {} of head_dim {} rotates {} elements; "
                            "expected an even number from 2 to {}",
                            where, partial_rotary_factor, head_dim, dim, head_dim));
  }
  return dim;
}

}  // namespace ropewalk::internal
