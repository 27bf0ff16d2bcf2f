// ropewalk tokenize: text to ids and back.
#include <fmt/format.h>

#include <cstdio>

#include "cli/commands.h"
#include "cli/input.h"
#include "cli/options.h"
#include "src/eval/cell_json.h"

namespace ropewalk::cli {
namespace {

void Run(const Options& options) {
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
  if (options.json) fmt::print("{}\n", internal::Line(rows));
}

}  // namespace

void AddTokenizeCommand(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("tokenize", "The token ids of a text, as a JSON array");
  AddOptions(*command, *options,
             {Opt::kModel, Opt::kText, Opt::kIds, Opt::kPieces, Opt::kDecode, Opt::kBos,
              Opt::kSpecial, Opt::kAllowUnknown, Opt::kJson});
  command->footer(
      "Without --text reads standard input. The ids are those of the text alone, so that --ids "
      "takes "
      "them as they are; --bos puts a BOS in front.\n\nExample: ropewalk tokenize ./model --text "
      "book.txt > ids.json");
  command->callback([options] { Run(*options); });
}

}  // namespace ropewalk::cli
