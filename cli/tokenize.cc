// ropewalk tokenize: text to ids and back.
#include <fmt/format.h>

#include <cstdio>

#include "cli/input.h"
#include "cli/json_text.h"
#include "cli/options.h"

namespace ropewalk::cli {
void RunTokenize(const Options& options) {
  const ModelFiles files = OpenModelFor(options, false);
  const Tokenizer& tokenizer = RequireTokenizer(files);
  if (options.decode) {
    if (!options.text.empty()) throw UsageError("--decode reads ids: use --ids FILE, not --text");
    const std::string text = tokenizer.Decode(ReadIds(options.ids.empty() ? "-" : options.ids));
    std::fwrite(text.data(), 1, text.size(), stdout);
    return;
  }
  if (!options.ids.empty()) throw UsageError("--ids goes with --decode; give --text FILE");
  const std::string text = ReadText(options.text.empty() ? "-" : options.text);
  std::vector<int32_t> ids = tokenizer.Encode(text, {options.special});
  if (options.bos.value_or(false)) {
    WantsBos(options, files);  // throws where there is none
    ids.insert(ids.begin(), *tokenizer.bos_id());
  }
  if (!options.pieces) {
    fmt::print("{}\n", nlohmann::json(ids).dump());
    return;
  }
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const int32_t id : ids) {
    rows.push_back({{"id", id}, {"piece", tokenizer.Piece(id)}});
    if (!options.json) fmt::print("{:>8}  {}\n", id, tokenizer.Piece(id));
  }
  if (options.json) fmt::print("{}\n", JsonLine(rows));
}

}  // namespace ropewalk::cli
