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
// In the order in which they are read: a map needs the rotation.
constexpr Part kParts[] = {
    {"rotation", ReadRotationPart},
    {"bias", ReadBiasPart},
};

}  // namespace

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
  if (value->empty()) c.plan.other = OtherEncoding::kNoPositions;
  Resolve(c.plan, std::max<int64_t>(c.plan.trained_length, 1));  // refuses here
}

}  // namespace ropewalk::internal
