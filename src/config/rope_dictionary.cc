#include "src/config/rope_dictionary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "ropewalk/base/error.h"
#include "src/config/family.h"

namespace ropewalk::internal {
namespace {

using nlohmann::json;

// Which types give a key a meaning; one letter a type.
enum TypeBit : unsigned {
  kDefault = 1,
  kLinear = 2,
  kDynamic = 4,
  kYarn = 8,
  kLongRope = 16,
  kLlama3 = 32,
  kProportional = 64,
  kXdrope = 128,
  kNtk = 256,
  kAll = 511
};

struct TypeRow {
  const char* name;
  TypeBit bit;
};
constexpr TypeRow kTypes[] = {
    {"default", kDefault},
    {"linear", kLinear},
    {"dynamic", kDynamic},
    {"yarn", kYarn},
    {"llama3", kLlama3},
    {"longrope", kLongRope},
    {"su", kLongRope},  // Phi-3's first name
    {"proportional", kProportional},
    {"mrope", kDefault},       // Qwen2-VL's first name: the sections say it
    {"xdrope", kXdrope},       // HunYuan-VL
    {"ntk", kNtk},             // vLLM
    {"deepseek_yarn", kYarn},  // what vLLM makes of DeepSeek's "yarn"
    {"gptj", kDefault},        // MLC: consecutive elements, no scaling
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
    {"max_position_embeddings", kAll},
    {"mrope_section", kAll},
    {"mrope_interleaved", kAll},
    {"interleaved", kAll},  // Qwen3-Omni says it twice
    {"llama_4_scaling_beta", kAll},
    {"xdrope_section", kXdrope | kDynamic},
    {"alpha", kXdrope | kDynamic},
    {"factor", kAll & ~kDefault},
    {"attention_factor", kYarn | kLongRope},
    {"attn_factor", kYarn},
    {"beta_fast", kYarn},
    {"beta_slow", kYarn},
    {"mscale", kYarn},
    {"mscale_all_dim", kYarn},
    {"truncate", kYarn},
    {"short_factor", kLongRope},
    {"long_factor", kLongRope},
    {"short_mscale", kLongRope},
    {"long_mscale", kLongRope},
    {"low_freq_factor", kLlama3},
    {"high_freq_factor", kLlama3},
    {"mixed_b", kNtk},
    {"finetuned", 0, true},  // says how the model was made
};
// Tencent's files with a fixed alpha carry YaRN's keys too; no implementation reads them there.
constexpr const char* kBesideAlpha[] = {"beta_fast", "beta_slow", "mscale", "mscale_all_dim"};

std::string TypeNames(unsigned bits) {
  std::string s;
  for (const TypeRow& t : kTypes) {
    if ((t.bit & bits) == 0) continue;
    if (!s.empty()) s += ", ";
    s += t.name;
  }
  return s;
}

const TypeRow& FindType(const JsonObject& rope, const char* key, const std::string& name,
                        const std::string& further) {
  for (const TypeRow& t : kTypes) {
    if (name == t.name) return t;
  }
  std::vector<std::string_view> names;
  for (const TypeRow& t : kTypes) names.push_back(t.name);
  throw Error(ErrorCode::kUnsupported,
              fmt::format("{}: {}: unknown type {}{}; known are {}{}", rope.where(), key,
                          Shown(json(name)), DidYouMean(name, names), TypeNames(kAll), further));
}

const TypeRow& ReadType(const JsonObject& rope, const RopeContext& context) {
  const auto a = rope.String("rope_type"), b = rope.String("type");
  if (!a && !b) {
    if (!context.type_required) return kTypes[0];
    throw Error(ErrorCode::kInvalidConfig,
                fmt::format("{}: it has neither rope_type nor type; add \"rope_type\", one of {}",
                            rope.where(), TypeNames(kAll)));
  }
  const TypeRow& type =
      FindType(rope, a ? "rope_type" : "type", a ? *a : *b, context.further_types);
  if (!a || !b) return type;
  const TypeRow& other = FindType(rope, "type", *b, context.further_types);
  // transformers writes "dynamic" beside Tencent's "xdrope", and both are one fixed alpha.
  const unsigned both = type.bit | other.bit;
  if (other.bit != type.bit && !(both == (kXdrope | kDynamic) && rope.Has("alpha"))) {
    throw Error(ErrorCode::kInvalidConfig,
                fmt::format("{}: rope_type is \"{}\" but type is \"{}\"; remove the wrong one",
                            rope.where(), *a, *b));
  }
  return type;
}

void CheckKeys(const JsonObject& rope, const TypeRow& type, bool allow_unknown,
               RopeDictionary& out) {
  for (const auto& [key, value] : rope.value().items()) {
    if (value.is_null()) continue;
    const auto row = std::find_if(std::begin(kKeys), std::end(kKeys),
                                  [&key = key](const KeyRow& k) { return key == k.name; });
    if (row != std::end(kKeys) && (row->harmless || (row->types & type.bit) != 0)) continue;
    if (key == "factor" && value == 1) continue;  // nothing is scaled
    if (rope.Has("alpha") && std::find(std::begin(kBesideAlpha), std::end(kBesideAlpha), key) !=
                                 std::end(kBesideAlpha)) {
      out.notes.push_back(fmt::format("{}: {} has no effect beside alpha", rope.where(), key));
      continue;
    }
    std::string message;
    if (row != std::end(kKeys)) {
      message = fmt::format("{}: {} = {} has no meaning for type \"{}\", only for {}", rope.where(),
                            key, Shown(value), type.name, TypeNames(row->types));
    } else {
      std::vector<std::string_view> names;
      for (const KeyRow& k : kKeys) {
        if (k.harmless || (k.types & type.bit) != 0) names.push_back(k.name);
      }
      message = fmt::format("{}: unknown key {} = {}{}", rope.where(), Shown(json(key)),
                            Shown(value), DidYouMean(key, names));
    }
    if (!allow_unknown) {
      throw Error(
          ErrorCode::kInvalidConfig,
          message +
              "; it may change positions: remove it, or allow unknown keys (--allow-unknown)");
    }
    out.ignored.push_back(message + "; ignored");
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
    y.attn_factor = *attn;
  }
  return y;
}

// Phi-3-small and Phi-3.5-MoE give the amplitude outright, one for each list.
void ReadMscales(const JsonObject& rope, LongRopeScaling& s) {
  s.short_mscale = rope.Number("short_mscale", 1e-6, 1e6);
  s.long_mscale = rope.Number("long_mscale", 1e-6, 1e6);
  if (s.short_mscale.has_value() == s.long_mscale.has_value()) return;
  rope.Fail(s.short_mscale ? "long_mscale" : "short_mscale",
            "a number, because the amplitude of the other list is given");
}

LongRopeScaling ReadLongRope(const JsonObject& rope, const RopeContext& context, int64_t original) {
  LongRopeScaling s;
  const char* kList = "an array with a divisor for each pair";
  s.short_factor = rope.Require(rope.Numbers("short_factor", 1e-6, 1e9), "short_factor", kList);
  s.long_factor = rope.Require(rope.Numbers("long_factor", 1e-6, 1e9), "long_factor", kList);
  s.attention_factor = rope.Number("attention_factor", 1e-6, 1e6);
  ReadMscales(rope, s);
  s.factor = Factor(rope);
  if (!s.factor && original > 0 && context.max_position >= original) {
    s.factor = double(context.max_position) / double(original);
  }
  if (!s.factor && !s.attention_factor && !s.long_mscale) RequiredFactor(rope);
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
  // Equal ones are a step, as Llama 4 Scout has it.
  if (s.low_freq_factor > s.high_freq_factor) {
    throw Error(ErrorCode::kInvalidConfig,
                fmt::format("{}: low_freq_factor ({}) must not be above high_freq_factor ({})",
                            rope.where(), s.low_freq_factor, s.high_freq_factor));
  }
  return s;
}

// A fixed alpha (HunYuan): NTK-aware with s = alpha, whatever the length.
Scaling ReadDynamic(const JsonObject& rope, const TypeRow& type) {
  const auto alpha = rope.Number("alpha", 1, kMaxFactor);
  if (!alpha) {
    if (type.bit == kXdrope) rope.Fail("alpha", "a number from 1 to 1e+06");
    return DynamicNtkScaling{RequiredFactor(rope)};
  }
  if (const auto factor = Factor(rope); factor && *factor != 1) {
    throw Error(ErrorCode::kInvalidConfig,
                fmt::format("{}: alpha is {} and factor {}; alpha alone is used where it is given: "
                            "remove one",
                            rope.where(), *alpha, *factor));
  }
  return NtkScaling{*alpha};
}

Scaling ReadNtk(const JsonObject& rope) {
  const double factor = RequiredFactor(rope);
  if (const auto b = rope.Number("mixed_b", 1e-3, 1e3)) return NtkMixedScaling{factor, *b};
  return NtkFixedScaling{factor};
}

Scaling ReadScaling(const JsonObject& rope, const TypeRow& type, const RopeContext& context,
                    int64_t original, std::optional<double> partial) {
  switch (type.bit) {
    case kLinear:
      return LinearScaling{RequiredFactor(rope)};
    case kDynamic:
    case kXdrope:
      return ReadDynamic(rope, type);
    case kYarn:
      return ReadYarn(rope, context, original);
    case kLongRope:
      return ReadLongRope(rope, context, original);
    case kLlama3:
      return ReadLlama3(rope);
    case kProportional:
      return ProportionalScaling{partial.value_or(1), Factor(rope).value_or(1)};
    case kNtk:
      return ReadNtk(rope);
    default:
      return NoScaling{};
  }
}

std::vector<int64_t> ReadSections(const JsonObject& rope) {
  const auto read = [&](const char* key) {
    std::vector<int64_t> sections;
    for (const double d : rope.Numbers(key, 0, 65536).value_or(std::vector<double>())) {
      if (d != std::floor(d)) rope.Fail(key, "an array of integers");
      sections.push_back(static_cast<int64_t>(d));
    }
    if (sections.size() > 4) rope.Fail(key, "an array of at most 4 integers, one per axis");
    return sections;
  };
  const std::vector<int64_t> m = read("mrope_section"), x = read("xdrope_section");
  if (!m.empty() && !x.empty() && m != x) {
    throw Error(ErrorCode::kInvalidConfig,
                fmt::format("{}: mrope_section is [{}] and xdrope_section [{}]; remove the wrong "
                            "one",
                            rope.where(), fmt::join(m, ", "), fmt::join(x, ", ")));
  }
  return m.empty() ? x : m;
}

// What the model has beside a scaling.
std::string ReadOthers(const JsonObject& rope, const TypeRow& type) {
  nlohmann::ordered_json others;
  for (const char* key : {"partial_rotary_factor", "mrope_section", "xdrope_section",
                          "mrope_interleaved", "llama_4_scaling_beta"}) {
    const bool scaling =
        type.bit == kProportional && key == std::string_view("partial_rotary_factor");
    if (const json* value = rope.Find(key); value != nullptr && !scaling) others[key] = *value;
  }
  return others.is_null() ? "" : others.dump();
}

// The key that says a field of a scaling, where it is called otherwise.
const char* KeyOf(const Scaling& scaling, const char* field) {
  if (std::holds_alternative<NtkScaling>(scaling)) return "alpha";
  if (std::holds_alternative<NtkMixedScaling>(scaling) && field == std::string_view("exponent")) {
    return "mixed_b";
  }
  const bool proportional = std::holds_alternative<ProportionalScaling>(scaling);
  return proportional && field == std::string_view("fraction") ? "partial_rotary_factor" : field;
}

template <class T>
std::string Values(const T& a, const T& b) {
  return fmt::format("{} and {}", a, b);
}
template <class T>
std::string Values(const std::optional<T>& a, const std::optional<T>& b) {
  const auto text = [](const std::optional<T>& x) {
    return x ? fmt::format("{}", *x) : std::string("absent");
  };
  return text(a) + " and " + text(b);
}
template <class T>
std::string Values(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return fmt::format("a list of {} and of {}", a.size(), b.size());
  const auto [x, y] = std::mismatch(a.begin(), a.end(), b.begin());
  return fmt::format("{} and {} at entry {}", *x, *y, x - a.begin());
}

template <class T>
std::string Differs(const char* key, const T& a, const T& b) {
  return a == b ? std::string() : fmt::format("{} is {}", key, Values(a, b));
}

std::string ScalingDifference(const Scaling& a, const Scaling& b) {
  if (a.index() != b.index()) {
    return fmt::format("rope_type is that of {} and of {}", InfoOf(a).name, InfoOf(b).name);
  }
  std::string out;
  std::visit(
      [&]<class S>(const S& s) {
        const S& t = std::get<S>(b);
        VisitFields<S>([&](const auto& field) {
          if (!out.empty()) return;
          out = Differs(KeyOf(a, field.name), s.*field.member, t.*field.member);
        });
      },
      a);
  return out;
}

}  // namespace

std::string Difference(const RopeDictionary& old, const RopeDictionary& now) {
  std::string out = ScalingDifference(old.scaling, now.scaling);
  const auto check = [&](const char* key, const auto& a, const auto& b) {
    if (out.empty()) out = Differs(key, a, b);
  };
  check("original_max_position_embeddings", old.original, now.original);
  check("mrope_section", old.sections, now.sections);
  if (old.theta) check("rope_theta", old.theta, now.theta);
  if (old.partial) check("partial_rotary_factor", old.partial, now.partial);
  if (old.max_position) check("max_position_embeddings", old.max_position, now.max_position);
  if (old.interleaved) check("mrope_interleaved", old.interleaved, now.interleaved);
  if (old.query_beta) check("llama_4_scaling_beta", old.query_beta, now.query_beta);
  return out;
}

bool IsRopeType(std::string_view name) {
  return std::any_of(std::begin(kTypes), std::end(kTypes),
                     [&](const TypeRow& t) { return name == t.name; });
}

bool IsRopeKey(std::string_view name) {
  return std::any_of(std::begin(kKeys), std::end(kKeys),
                     [&](const KeyRow& k) { return name == k.name; });
}

RopeDictionary ParseRope(const JsonObject& rope, const RopeContext& context) {
  RopeDictionary out;
  const TypeRow& type = ReadType(rope, context);
  out.type = type.name;
  CheckKeys(rope, type, context.allow_unknown, out);
  out.theta = rope.Number("rope_theta", 1, 1e18);
  out.partial = rope.Number("partial_rotary_factor", 0, 1);
  out.original = rope.Int("original_max_position_embeddings", 1, kMaxTokens);
  out.max_position = rope.Int("max_position_embeddings", 1, kMaxTokens);
  out.sections = ReadSections(rope);
  out.interleaved = rope.Bool("mrope_interleaved");
  if (const auto again = rope.Bool("interleaved")) {
    if (out.interleaved && *out.interleaved != *again) {
      throw Error(ErrorCode::kInvalidConfig,
                  fmt::format("{}: mrope_interleaved is {} but interleaved is {}; remove the wrong "
                              "one",
                              rope.where(), *out.interleaved, *again));
    }
    out.interleaved = again;
  }
  out.query_beta = rope.Number("llama_4_scaling_beta", 0, 1e3);
  out.others = ReadOthers(rope, type);
  const auto agree = [&](const char* key, std::optional<int64_t> inner, int64_t outer) {
    if (!inner || outer == 0 || *inner == outer) return;
    throw Error(ErrorCode::kInvalidConfig,
                fmt::format("{}: {} is {} here and {} at top level; remove the wrong one",
                            rope.where(), key, *inner, outer));
  };
  agree("original_max_position_embeddings", out.original, context.original.value_or(0));
  agree("max_position_embeddings", out.max_position, context.max_position);
  const int64_t original =
      out.original ? *out.original : context.original.value_or(context.max_position);
  out.scaling = ReadScaling(rope, type, context, original, out.partial);
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
