#include "src/config/hf/positions_object.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ropewalk/base/error.h"
#include "src/config/hf/vendor.h"

namespace ropewalk::internal {
namespace {

using nlohmann::json;

struct Part {
  const char* key;
  void (*read)(const JsonObject& part, const PositionsContext& context, ModelConfig& c);
};

constexpr std::pair<const char*, QueryTemperature::Kind> kTemperatures[] = {
    {"log-n", QueryTemperature::Kind::kLogN},
    {"step-log", QueryTemperature::Kind::kStepLog},
    {"mscale", QueryTemperature::Kind::kMscale}};

void ReadTemperature(const JsonObject& part, const PositionsContext& /*context*/, ModelConfig& c) {
  const std::string type = part.Require(part.String("type"), "type", "the name of a temperature");
  std::vector<std::string_view> names;
  QueryTemperature temperature;
  bool known = false;
  for (const auto& [name, kind] : kTemperatures) {
    names.emplace_back(name);
    if (type == name) temperature.kind = kind, known = true;
  }
  if (!known) RefuseType(part, "type", type, names);
  temperature.beta = part.Number("beta", 0, 1e3).value_or(temperature.beta);
  temperature.period = part.Int("period", 1, kMaxTokens).value_or(temperature.period);
  temperature.offset = part.Int("offset", 0, kMaxTokens).value_or(temperature.offset);
  RefuseUnknownKeys(part);
  for (LayerPlan& layer : c.plan.layers) layer.temperature = temperature;
}

template <std::size_t Index = 0>
DistanceMap DefaultMap(std::size_t index) {
  if constexpr (Index + 1 < std::variant_size_v<DistanceMap>) {
    if (index != Index) return DefaultMap<Index + 1>(index);
  }
  return std::variant_alternative_t<Index, DistanceMap>();
}

// Settings that are absent have the defaults of the map's struct.
void ReadMap(const JsonObject& part, const PositionsContext& /*context*/, ModelConfig& c) {
  const std::string type = part.Require(part.String("type"), "type", "the name of a distance map");
  const std::vector<MapInfo>& maps = DistanceMaps();
  std::vector<std::string_view> names;
  names.reserve(maps.size());
  for (const MapInfo& map : maps) names.emplace_back(map.name);
  const auto found = std::find(names.begin(), names.end(), type);
  if (found == names.end()) RefuseType(part, "type", type, names);
  DistanceMap map = DefaultMap(static_cast<std::size_t>(found - names.begin()));
  std::visit(
      [&]<class M>(M& m) {
        VisitFields<M>([&](const auto& field) {
          m.*field.member = part.Int(field.name, 0, kMaxTokens).value_or(m.*field.member);
        });
      },
      map);
  RefuseUnknownKeys(part);
  for (LayerPlan& layer : c.plan.layers) layer.map = map;
}

// In the order in which they are read.
constexpr Part kParts[] = {
    {"absolute", ReadAbsolutePart},
    {"recurrent_layer", ReadRecurrentLayerPart},
    {"rotation", ReadRotationPart},
    {"bias", ReadBiasPart},
    {"map", ReadMap},
    {"temperature", ReadTemperature},
};

// The twin that attends in both directions, a masked language model.
void ReadTwin(const HfSource& source, ModelConfig& c) {
  for (const LayerPlan& layer : c.plan.layers) {
    const bool decays = layer.rotation && layer.rotation->xpos;
    if (layer.rotates_values) {
      throw Error(
          ErrorCode::kUnsupported,
          source.top.where() +
              ": bidirectional is true: the encoder does not rotate values; take \"values\" "
              "out of rotation");
    }
    if (!layer.map && !decays) continue;
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{}: bidirectional is true: {} is of attention to earlier tokens alone",
                            source.top.where(), decays ? "xPos decay" : Describe(*layer.map)));
  }
  if (const auto mask = source.top.Int("mask_token_id", 0, std::max<int64_t>(c.vocab - 1, 0))) {
    c.mask_id = static_cast<int32_t>(*mask);
  }
  EncoderSpec spec;
  spec.tensors = EncoderSpec::Tensors::kRopewalk;
  spec.plain_head = true;
  c.encoder = std::make_shared<const EncoderSpec>(spec);
  c.not_runnable =
      "a ropewalk model whose attention is bidirectional predicts no next token; ropewalk "
      "perplexity computes its pseudo-perplexity, ropewalk embed its states";
}

}  // namespace

const char* TemperatureName(QueryTemperature::Kind kind) {
  for (const auto& [name, other] : kTemperatures) {
    if (other == kind) return name;
  }
  return "";
}

void RefuseUnknownKeys(const JsonObject& object) {
  const std::vector<std::string_view> known(object.asked().begin(), object.asked().end());
  for (const auto& [key, value] : object.value().items()) {
    if (object.asked().contains(key)) continue;
    throw Error(ErrorCode::kInvalidConfig,
                fmt::format("{}: unknown key {} = {}{}; there {} {}", object.where(),
                            Shown(json(key)), Shown(value), DidYouMean(key, known),
                            known.size() == 1 ? "is" : "are", fmt::join(known, ", ")));
  }
}

void RefuseType(const JsonObject& part, const char* key, const std::string& type,
                const std::vector<std::string_view>& names) {
  throw Error(ErrorCode::kInvalidConfig,
              fmt::format("{}: {}: unknown type {}{}; there are {}", part.where(), key,
                          Shown(json(type)), DidYouMean(type, names), fmt::join(names, ", ")));
}

void ReadPositionsObject(const HfSource& source, ModelConfig& c) {
  c.encoding_tensors = true;
  c.plan.layers.resize(c.layers);
  RopeContext lengths;
  ReadLengths(source, lengths, c.plan);
  PositionsContext context;
  context.causal = !source.top.Bool("bidirectional").value_or(false);
  context.allow_unknown = source.allow_unknown;
  const json* value = source.top.Find("positions");
  if (value == nullptr) source.top.Fail("positions", "an object; {} is a model without positions");
  const JsonObject object(*value, source.top.where() + ": positions");
  for (const Part& part : kParts) {
    const json* found = object.Find(part.key);
    if (found == nullptr) continue;
    part.read(JsonObject(*found, fmt::format("{}.{}", object.where(), part.key)), context, c);
  }
  RefuseUnknownKeys(object);
  RefuseCombinations(object.where(), c);
  if (!context.causal) ReadTwin(source, c);
  if (value->empty()) c.plan.other = OtherEncoding::kNoPositions;
  Resolve(c.plan, std::max<int64_t>(c.plan.trained_length, 1));  // refuses here
}

}  // namespace ropewalk::internal
