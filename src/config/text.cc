#include "src/config/text.h"

#include <utility>

namespace ropewalk::internal {

ModelConfig ParseConfigText(std::string_view text, const std::string& file, bool allow_unknown) {
  if (IsMegatronText(text)) return ParseMegatronText(text, file, allow_unknown);
  const nlohmann::json value = ParseJsonObject(text, file);
  const JsonObject top(value, file);
  if (IsParamsJson(top)) return ParseParamsJson(top, allow_unknown);
  if (IsMegatronJson(top)) return ParseMegatronJson(top, allow_unknown);
  return ParseHfConfig(std::string(text), file, allow_unknown);
}

}  // namespace ropewalk::internal

ropewalk::ModelConfig ropewalk::ParseConfig(const std::string& text, const std::string& file,
                                            bool allow_unknown) {
  return internal::ParseConfigText(text, file, allow_unknown);
}
