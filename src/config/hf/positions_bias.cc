// What is added to the scores.
#include <fmt/format.h>

#include "ropewalk/base/error.h"
#include "src/config/hf/positions_object.h"

namespace ropewalk::internal {
namespace {

using Read = LayerBias (*)(const JsonObject& part, const PositionsContext& context, ModelConfig& c);

LayerBias ReadAlibi(const JsonObject& /*part*/, const PositionsContext& context, ModelConfig& c) {
  AlibiBias alibi;
  if (!context.causal) alibi.ahead = AlibiAhead::kSymmetric;
  return {c.heads, alibi};
}

struct Row {
  const char* type;
  Read read;
};
constexpr Row kRows[] = {{"alibi", ReadAlibi}};

}  // namespace

void ReadBiasPart(const JsonObject& part, const PositionsContext& context, ModelConfig& c) {
  const std::string type = part.Require(part.String("type"), "type", "the name of a bias");
  std::vector<std::string_view> names;
  for (const Row& row : kRows) {
    names.emplace_back(row.type);
    if (type != row.type) continue;
    const LayerBias bias = row.read(part, context, c);
    RefuseUnknownKeys(part);
    for (LayerPlan& layer : c.plan.layers) layer.bias = bias;
    return;
  }
  RefuseType(part, "type", type, names);
}

}  // namespace ropewalk::internal
