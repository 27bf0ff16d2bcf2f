// Rope dictionaries and the keys around them, made into the rotation of each layer.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ropewalk/base/error.h"
#include "src/config/hf/config.h"
#include "src/config/hf/vendor.h"
#include "src/config/shipped.h"

namespace ropewalk::internal {
namespace {

using nlohmann::json;

constexpr double kGemmaLocalBase = 10000;

// A value that may stand in the dictionary and at top level: both must agree.
std::optional<double> Agree(const HfSource& source, const char* key, std::optional<double> outer,
                            std::optional<double> inner) {
  if (outer && inner && *outer != *inner) {
    throw Error(ErrorCode::kInvalidConfig,
                fmt::format("{}: {} is {} at top level and {} in the rope dictionary; remove the "
                            "wrong one",
                            source.top.where(), key, *outer, *inner));
  }
  return outer ? outer : inner;
}

class SpecMaker {
 public:
  SpecMaker(const HfSource& source, const RopeContext& lengths, ModelConfig& c)
      : source_(source), lengths_(lengths), c_(c) {
    outer_theta_ = source.Number("rope_theta", 1, 1e18);
    outer_partial_ = source.Number("partial_rotary_factor", 0, 1);
    if (source.family.Takes("rotary_dim")) {
      rotary_dim_ = source.top.Int("rotary_dim", 2, kMaxHeadDim);
      if (!rotary_dim_ && source.top.value().contains("rotary_dim")) rotary_dim_ = c.head_dim;
    }
    if (source.family.Has(kLocalBase)) {
      local_base_ = source.top.Number("rope_local_base_freq", 1, 1e18);
    }
    layout_ = source.family.layout;
    ReadLayout();
    vendor_ = ReadVendorRope(source, c);
  }

  RotarySpec Make(const RopeDictionary& rope, const std::string& type, int64_t head_dim) {
    RotarySpec spec(layout_);
    spec.head_dim = head_dim;
    if (rope.type == "gptj" && layout_ != PairLayout::kInterleaved) {
      throw Error(ErrorCode::kInvalidConfig,
                  fmt::format("{}: the rope type \"gptj\" rotates consecutive elements; a {} model "
                              "rotates halves",
                              Where(), source_.family.name));
    }
    SetDims(rope, spec);
    SetBase(rope, type, spec);
    SetScaling(rope, type, spec);
    SetAxes(rope, spec);
    return spec;
  }

 private:
  const std::string& Where() const { return source_.top.where(); }
  static void AddOnce(const std::string& text, std::vector<std::string>& list) {
    if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(text);
  }
  void NoteOnce(const std::string& note) { AddOnce(note, c_.plan.notes); }

  void ReadLayout() {
    const JsonObject& top = source_.top;
    if (source_.family.Takes("rope_interleave") && !top.Bool("rope_interleave").value_or(true)) {
      layout_ = PairLayout::kHalf;
    }
    if (top.Bool("rope_interleaved").value_or(false) && layout_ == PairLayout::kHalf) {
      throw Error(ErrorCode::kUnsupported,
                  Where() +
                      ": rope_interleaved: expected false; transformers' models of these "
                      "types rotate halves");
    }
  }

  // Of the dictionary; at top level WithoutUnread has seen to it.
  std::optional<double> ReadPartial(const RopeDictionary& rope) {
    const Family& family = source_.family;
    const bool reads = rope.type == "proportional" || family.Reads("partial_rotary_factor") ||
                       source_.NamesOf("partial_rotary_factor").size() > 1;
    if (reads || !rope.partial || *rope.partial == 1) return rope.partial;
    const std::string message = fmt::format(
        "{}: partial_rotary_factor = {} in the rope dictionary: transformers reads none "
        "in a {} model",
        Where(), *rope.partial, family.name);
    if (!source_.allow_unknown) {
      throw Error(ErrorCode::kInvalidConfig,
                  message + "; remove it, or allow unknown keys (--allow-unknown)");
    }
    AddOnce(message + "; ignored", c_.not_honoured);
    return std::nullopt;
  }

  void SetDims(const RopeDictionary& rope, RotarySpec& spec) {
    const auto given = Agree(source_, "partial_rotary_factor", outer_partial_, ReadPartial(rope));
    if (rope.type == "proportional") {  // a share of the pairs, in the scaling
      spec.rotary_dim = spec.head_dim;
      return;
    }
    const double partial = given.value_or(source_.family.default_partial);
    const auto by_share = [&] { return RotaryDim(spec.head_dim, partial, Where()); };
    if (source_.family.Has(kMla)) {
      spec.rotary_dim = *source_.top.Int("qk_rope_head_dim", 2, kMaxHeadDim);
      spec.first_dim = spec.head_dim - spec.rotary_dim;
      if (given && *given != 1 && by_share() != spec.rotary_dim) {
        Contradiction(Where(), "partial_rotary_factor", fmt::format("{}", *given),
                      "qk_rope_head_dim", fmt::format("{}", spec.rotary_dim));
      }
      return;
    }
    spec.rotary_dim = rotary_dim_ ? *rotary_dim_ : by_share();
    if (rotary_dim_ && given && by_share() != *rotary_dim_) {
      Contradiction(Where(), "rotary_dim", fmt::format("{}", *rotary_dim_), "partial_rotary_factor",
                    fmt::format("{}", *given));
    }
    if (!given && !rotary_dim_ && partial != 1) {
      NoteOnce(fmt::format("partial_rotary_factor is absent: {}, the default of {}", partial,
                           source_.family.name));
    }
  }

  // Gemma 3 and 4: two bases; the outer rope_theta is that of the full layers.
  void SetBase(const RopeDictionary& rope, const std::string& type, RotarySpec& spec) {
    const Family& family = source_.family;
    const bool two_bases = family.Has(kLocalBase) || family.Has(kGlobalHeadDim);
    const bool local = two_bases && type == kSliding;
    const char* key = local && family.Has(kLocalBase) ? "rope_local_base_freq" : "rope_theta";
    auto outer = local ? local_base_ : outer_theta_;
    if (vendor_.theta) outer = Agree(source_, "rope_theta", outer, vendor_.theta);
    const auto theta = Agree(source_, key, outer, rope.theta);
    double fallback = family.default_theta;
    if (local) fallback = kGemmaLocalBase;
    if (!theta && fallback == 0) {
      source_.top.Fail("rope_theta", fmt::format("a number, since versions 4 and 5 of transformers "
                                                 "take different ones for a {} model without it",
                                                 family.name));
    }
    spec.base = theta.value_or(fallback) * vendor_.base_factor;
    if (!theta) {
      NoteOnce(fmt::format("{} is absent: {:g}, the default of {}", key, fallback, family.name));
    }
  }

  void SetScaling(const RopeDictionary& rope, const std::string& type, RotarySpec& spec) {
    const Family& family = source_.family;
    const bool unscaled =
        type == kSliding && (family.Has(kLocalUnscaled) || family.Has(kLocalBase)) && flat_;
    if (!unscaled) spec.scaling = rope.scaling;
    SetTrainedLength(rope, spec);
    if (!std::holds_alternative<NoScaling>(vendor_.scaling)) {
      if (!std::holds_alternative<NoScaling>(spec.scaling)) {
        Contradiction(Where(), vendor_.source, Describe(vendor_.scaling), "the rope dictionary",
                      Describe(spec.scaling));
      }
      spec.scaling = vendor_.scaling;
    }
    if (auto* yarn = std::get_if<YarnScaling>(&spec.scaling); yarn && family.Has(kSoftmaxMscale)) {
      yarn->softmax_mscale = yarn->mscale_all_dim.has_value();
    }
  }

  // Each dictionary has an original length of its own. Dynamic NTK has none: transformers, vLLM and
  // the authors' code count from max_position_embeddings.
  void SetTrainedLength(const RopeDictionary& rope, RotarySpec& spec) {
    spec.trained_length = c_.plan.trained_length;
    if (std::holds_alternative<DynamicNtkScaling>(spec.scaling)) {
      const auto original = rope.original ? rope.original : lengths_.original;
      if (lengths_.max_position == 0 || (flat_ && !original)) return;
      spec.trained_length = lengths_.max_position;
      if (!original || *original == lengths_.max_position) return;
      AddOnce(fmt::format("{}: original_max_position_embeddings = {}: transformers does not read "
                          "it for dynamic scaling, which counts from max_position_embeddings, {}; "
                          "ignored",
                          Where(), *original, lengths_.max_position),
              c_.not_honoured);
    } else if (!flat_ && InfoOf(spec.scaling).needs_trained_length) {
      spec.trained_length =
          rope.original.value_or(lengths_.original.value_or(lengths_.max_position));
    }
  }

  void SetAxes(const RopeDictionary& rope, RotarySpec& spec) {
    const Family& family = source_.family;
    std::vector<int64_t> sections = rope.sections;
    if (family.axes == Family::Axes::kOne) {
      if (sections.empty() && rope.type != "mrope" && !rope.interleaved) return;
      throw Error(
          ErrorCode::kInvalidConfig,
          fmt::format("{}: mrope_section: the tokens of a {} model have positions on one axis",
                      Where(), family.name));
    }
    if (sections.empty() && family.sections[0] > 0) {
      sections.assign(family.sections.begin(), family.sections.end());
      NoteOnce(fmt::format("mrope_section is absent: [{}], the default of {}",
                           fmt::join(sections, ", "), family.name));
    }
    if (sections.empty()) return;  // text alone
    const bool interleaved = family.axes == Family::Axes::kInterleaved;
    if (rope.interleaved && *rope.interleaved != interleaved) {
      Contradiction(Where(), "mrope_interleaved", fmt::format("{}", *rope.interleaved),
                    "model_type", family.name);
    }
    const int64_t sum = std::accumulate(sections.begin(), sections.end(), int64_t{0});
    if (sum != spec.rotary_dim / 2) {
      Contradiction(Where(), "the sum of mrope_section's pairs", fmt::format("{}", sum),
                    "the number of rotated pairs", fmt::format("{}", spec.rotary_dim / 2));
    }
    spec.axes.order = interleaved ? AxisOrder::kInterleaved : AxisOrder::kChunked;
    if (family.axes == Family::Axes::kErnie) {
      if (sections.size() != 3) {
        throw Error(
            ErrorCode::kInvalidConfig,
            fmt::format("{}: mrope_section: expected 3 axes, got {}", Where(), sections.size()));
      }
      // The file's order is height, width, time; the spec's time, height, width.
      std::rotate(sections.begin(), sections.begin() + 2, sections.end());
      spec.axes.order = AxisOrder::kErnie;
    }
    if (sections.size() == 4) {
      NoteOnce(
          "four axes: pairs in chunks, as vLLM and llama.cpp have it; transformers chunks the "
          "elements of a head, which is the same for text and no rotation for image tokens");
    }
    spec.axes.sections = std::move(sections);
  }

  const HfSource& source_;
  const RopeContext& lengths_;  // those outside of the dictionaries
  ModelConfig& c_;
  std::optional<double> outer_theta_, outer_partial_, local_base_;
  std::optional<int64_t> rotary_dim_;
  PairLayout layout_ = PairLayout::kHalf;
  VendorRope vendor_;

 public:
  bool flat_ = true;  // one dictionary for all layer types
};

// per_layer_config of transformers 5: what differs in one layer.
struct LayerOverride {
  std::optional<int64_t> head_dim;
  std::optional<int64_t> window_tokens;
  std::optional<RopeDictionary> rope;
};

std::map<int64_t, LayerOverride> ReadOverrides(const HfSource& source, const RopeContext& context,
                                               ModelConfig& c) {
  std::map<int64_t, LayerOverride> out;
  const json* all = source.top.Find("per_layer_config");
  if (all == nullptr) return out;
  const JsonObject object(*all, source.top.where() + ": per_layer_config");
  for (const auto& [key, value] : all->items()) {
    const JsonObject entry(value, object.where() + "." + key);
    const int64_t layer = IsIndex(key) ? std::stoll(key) : -1;
    if (layer < 0 || layer >= c.layers) {
      throw Error(ErrorCode::kInvalidConfig,
                  fmt::format("{}: expected the numbers of layers from 0 to {}, got {}",
                              object.where(), c.layers - 1, Shown(json(key))));
    }
    LayerOverride o;
    o.head_dim = entry.Int("head_dim", 2, kMaxHeadDim);
    o.window_tokens = entry.Int("sliding_window", 1, kMaxTokens);
    if (const json* rope = entry.Find("rope_parameters")) {
      o.rope = ParseRope(JsonObject(*rope, entry.where() + ".rope_parameters"), context);
      c.not_honoured.insert(c.not_honoured.end(), o.rope->ignored.begin(), o.rope->ignored.end());
    }
    entry.Find("num_key_value_heads");
    ModelConfig sorted;
    SortKeys(entry, source.family, context.allow_unknown, sorted);
    c.not_honoured.insert(c.not_honoured.end(), sorted.not_honoured.begin(),
                          sorted.not_honoured.end());
    for (const std::string& name : sorted.unknown_keys) {
      c.unknown_keys.push_back(fmt::format("per_layer_config.{}.{}", key, name));
    }
    out.emplace(layer, std::move(o));
  }
  return out;
}

// The dictionary whose original length is that of the model: of several the one of the full layers.
const RopeDictionary* LeadingDictionary(const RopeDictionaries& ropes) {
  const RopeDictionary* first = nullptr;
  for (const auto& [type, rope] : ropes) {
    if (!rope) continue;
    if (first == nullptr || type == kFull) first = &*rope;
  }
  return first;
}

}  // namespace

void ReadHfPlan(const HfSource& source, ModelConfig& c) {
  PositionPlan& plan = c.plan;
  plan.yarn_scales_scores = source.family.Has(kSoftmaxMscale);
  plan.local_unscaled = source.family.Has(kLocalUnscaled);
  RopeContext context;
  context.allow_unknown = source.allow_unknown;
  ReadLengths(source, context, plan);
  const RopeDictionaries ropes = ReadRopeDictionaries(source, context);
  const RopeDictionary* leading = LeadingDictionary(ropes);
  for (const auto& [type, rope] : ropes) {
    if (!rope) continue;
    ReadRopeNotes(source, *rope, plan);
    if (&*rope == leading) {
      ReadRopeLengths(*rope, context, plan);
      plan.place.original_inside =
          rope->original && !context.original && source.family.default_original == 0;
    }
    c.not_honoured.insert(c.not_honoured.end(), rope->ignored.begin(), rope->ignored.end());
  }
  for (const char* full : {"", kFull}) {
    if (const auto rope = ropes.find(full); rope != ropes.end() && rope->second) {
      plan.place.rope_keys = rope->second->others;
    }
  }
  const auto overrides = ReadOverrides(source, context, c);
  const std::vector<LayerFacts> facts = ReadHfLayers(source, c);
  const std::vector<std::optional<QueryTemperature>> temperatures =
      ReadTemperatures(source, ropes, facts, plan.trained_length);
  int64_t global_head_dim = 0;
  if (source.family.Has(kGlobalHeadDim) && !source.top.Has("per_layer_config")) {
    global_head_dim = source.top.Int("global_head_dim", 2, kMaxHeadDim).value_or(512);
  }
  SpecMaker maker(source, context, c);
  maker.flat_ = ropes.size() == 1;
  std::map<std::pair<std::string, int64_t>, RotarySpec> specs;
  plan.layers.resize(c.layers);
  for (int64_t l = 0; l < c.layers; ++l) {
    LayerPlan& layer = plan.layers[l];
    const auto o = overrides.find(l);
    const bool overridden = o != overrides.end();
    layer.window_tokens = facts[l].window_tokens;
    if (overridden && o->second.window_tokens) layer.window_tokens = *o->second.window_tokens;
    layer.chunk_tokens = facts[l].chunk_tokens;
    layer.temperature = temperatures[l];
    layer.recurrent = facts[l].recurrent;
    if (!facts[l].rotates) continue;
    const std::string& type = facts[l].type;
    auto rope = ropes.find(std::to_string(l));
    if (rope == ropes.end()) rope = ropes.find(type);
    if (rope == ropes.end()) rope = ropes.find("");
    const bool own = overridden && o->second.rope;
    if (rope == ropes.end() && !own) {
      throw Error(ErrorCode::kInvalidConfig,
                  fmt::format("{}: rope_parameters has nothing for \"{}\", the type of layer {}",
                              source.top.where(), type, l));
    }
    if (!own && !rope->second) continue;  // null: no rotation
    int64_t head_dim = global_head_dim > 0 && type == kFull ? global_head_dim : c.head_dim;
    if (overridden && o->second.head_dim) head_dim = *o->second.head_dim;
    const std::string name = own ? "layer " + std::to_string(l) : rope->first + "/" + type;
    auto spec = specs.find({name, head_dim});
    if (spec == specs.end()) {
      spec = specs
                 .emplace(std::pair{name, head_dim},
                          maker.Make(own ? *o->second.rope : *rope->second, type, head_dim))
                 .first;
      Resolve(spec->second, std::max<int64_t>(plan.trained_length, 1));  // refuses here
    }
    layer.rotation = spec->second;
  }
  NoteShipped(plan);
}

}  // namespace ropewalk::internal
