// What stands in front of the layers: an absolute encoding of the embeddings, a recurrent layer.
#include <fmt/format.h>

#include <type_traits>
#include <utility>

#include "ropewalk/base/error.h"
#include "src/config/hf/positions_object.h"
#include "src/plan/absolute_words.h"

namespace ropewalk::internal {
namespace {

void ReadSetting(const JsonObject& part, const char* key, int64_t& value) {
  value = part.Int(key, 1, kMaxTokens).value_or(value);
}
void ReadSetting(const JsonObject& part, const char* key, double& value) {
  value = part.Number(key, -1e9, 1e9).value_or(value);
}
void ReadSetting(const JsonObject& part, const char* key, bool& value) {
  value = part.Bool(key).value_or(value);
}
template <class E>
requires std::is_enum_v<E>
void ReadSetting(const JsonObject& part, const char* key, E& value) {
  const auto word = part.String(key);
  if (!word) return;
  const auto found = FindWord<E>(*word);
  if (!found) part.Fail(key, ExpectedWords<E>());
  value = *found;
}

template <class S>
void ReadSettings(const JsonObject& part, S& settings) {
  VisitFields<S>([&](const auto& field) { ReadSetting(part, field.name, settings.*field.member); });
}

template <std::size_t... Index>
AbsoluteEncoding DefaultOf(std::size_t wanted, const ModelConfig& c,
                           std::index_sequence<Index...> /*all*/) {
  AbsoluteEncoding encoding;
  ((Index == wanted ? static_cast<void>(encoding.emplace<Index>()) : void()), ...);
  // A row for each position of the trained length, a kernel for each channel.
  std::visit(
      [&](auto& e) {
        if constexpr (requires { e.rows; }) e.rows = c.plan.configured_length;
        if constexpr (requires { e.groups; }) e.groups = c.hidden;
      },
      encoding);
  return encoding;
}

void ReadLearned(const JsonObject& part, ModelConfig& c) {
  const int64_t rows = part.Int("rows", 1, kMaxTokens).value_or(c.plan.configured_length);
  if (rows < 1) part.Fail("rows", "an integer where max_position_embeddings is absent");
  c.plan.learned = LearnedPositions{rows, 0};
}

void CheckEncoding(const JsonObject& part, const AbsoluteEncoding& encoding, bool causal,
                   const ModelConfig& c) {
  try {
    Check(encoding, c.hidden);
  } catch (const Error& e) {
    throw Error(ErrorCode::kInvalidConfig, fmt::format("{}: {}", part.where(), e.what()));
  }
  const auto* convolution = std::get_if<ConvolutionalEmbedding>(&encoding);
  if (causal && convolution != nullptr && convolution->border == ConvolutionBorder::kCircular) {
    part.Fail("border",
              "\"zero\" in a decoder, which reads nothing ahead (\"circular\" reads the end)");
  }
  if (std::holds_alternative<ComplexOrderEmbedding>(encoding) && c.tied_head) {
    throw Error(ErrorCode::kInvalidConfig,
                fmt::format("{}: complex_order stands in place of the token embeddings, to which "
                            "the head cannot be tied: tie_word_embeddings must be false",
                            part.where()));
  }
}

}  // namespace

void ReadAbsolutePart(const JsonObject& part, const PositionsContext& context, ModelConfig& c) {
  const std::string type =
      part.Require(part.String("type"), "type", "the name of an absolute encoding");
  std::vector<std::string_view> names = {"learned"};
  names.insert(names.end(), kAbsoluteNames.begin(), kAbsoluteNames.end());
  const auto found = std::find(names.begin(), names.end(), type);
  if (found == names.end()) RefuseType(part, "type", type, names);
  if (found == names.begin()) {
    ReadLearned(part, c);
    RefuseUnknownKeys(part);
    return;
  }
  constexpr auto kAll = std::make_index_sequence<std::variant_size_v<AbsoluteEncoding>>();
  AbsoluteEncoding encoding =
      DefaultOf(static_cast<std::size_t>(found - names.begin() - 1), c, kAll);
  std::visit([&](auto& e) { ReadSettings(part, e); }, encoding);
  RefuseUnknownKeys(part);
  CheckEncoding(part, encoding, context.causal, c);
  c.plan.absolute = encoding;
}

void ReadRecurrentLayerPart(const JsonObject& part, const PositionsContext& /*context*/,
                            ModelConfig& c) {
  RecurrentLayer layer;
  ReadSettings(part, layer);
  RefuseUnknownKeys(part);
  c.plan.recurrent_layer = layer;
}

}  // namespace ropewalk::internal
