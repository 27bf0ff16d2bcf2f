// ropewalk embed: sentence vectors of a text encoder.
#include <fmt/format.h>

#include <charconv>

#include "cli/commands.h"
#include "cli/input.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "ropewalk/absolute/hierarchical.h"
#include "ropewalk/base/error.h"
#include "ropewalk/model/encoder.h"
#include "src/eval/cell_json.h"

namespace ropewalk::cli {
namespace {

using Json = nlohmann::ordered_json;

// "model", "hierarchical", "hierarchical:0.3".
std::optional<double> ReadPositions(const std::string& text) {
  const std::string kHierarchical = "hierarchical";
  if (text == "model") return std::nullopt;
  if (text == kHierarchical) return HierarchicalSpec().alpha;
  double alpha = 0;
  if (text.starts_with(kHierarchical + ":")) {
    const char* begin = text.data() + kHierarchical.size() + 1;
    const char* end = text.data() + text.size();
    const auto [p, error] = std::from_chars(begin, end, alpha);
    if (error == std::errc() && p == end && alpha > 0 && alpha < 1 && alpha != 0.5) return alpha;
  }
  throw UsageError(
      "--positions: expected model, hierarchical or hierarchical:ALPHA (0 to 1, not 0.5), got '" +
      text + "'");
}

// Digits that give the same float again, and no more.
double Shortest(float x) { return std::stod(fmt::format("{}", x)); }

Json VectorOf(const Encoder& encoder, const SentencePooling& pooling,
              const std::vector<int32_t>& ids) {
  const int64_t dim = encoder.config().hidden;
  std::vector<float> hidden(ids.size() * dim);
  encoder.Forward(ids, hidden.data());
  Json vector = Json::array();
  for (const float x : SentenceVector(pooling, hidden, dim)) vector.push_back(Shortest(x));
  return {{"tokens", ids.size()}, {"vector", std::move(vector)}};
}

// The ids of --text between those that the model was trained with.
std::vector<int32_t> FramedText(const Options& options, const ModelFiles& files) {
  const Tokenizer& tokenizer = RequireTokenizer(files);
  if (tokenizer.front().empty() && tokenizer.back().empty()) {
    throw Error(ErrorCode::kUnsupported,
                files.path +
                    ": which special tokens stand around a text is known of WordPiece "
                    "tokenizers alone; tokenize elsewhere and give the ids with --ids");
  }
  std::vector<int32_t> ids = tokenizer.front();
  const std::vector<int32_t> text = tokenizer.Encode(ReadFile(options.text), {options.special});
  ids.insert(ids.end(), text.begin(), text.end());
  ids.insert(ids.end(), tokenizer.back().begin(), tokenizer.back().end());
  return ids;
}

void Run(const Options& options) {
  const std::optional<double> alpha = ReadPositions(options.positions);
  if (options.ids.empty() == options.text.empty()) {
    throw UsageError(
        "give a text with --text FILE, or the ids of one text or more with --ids FILE");
  }
  const ModelFiles files = OpenModelFor(options, true);
  std::vector<std::vector<int32_t>> texts;
  if (options.ids.empty()) {
    texts.push_back(FramedText(options, files));
  } else {
    texts = ReadIdLists(options.ids);
  }
  const SentencePooling pooling = ReadSentencePooling(files.path);
  const auto encoder =
      Encoder::Load(files, {.compute = ComputeOf(options), .hierarchical_alpha = alpha});
  const ModelConfig& c = encoder->config();
  Json vectors = Json::array();
  int64_t beyond = 0;
  InterruptScope scope;
  for (const std::vector<int32_t>& ids : texts) {
    vectors.push_back(VectorOf(*encoder, pooling, ids));
    const auto tokens = static_cast<int64_t>(ids.size());
    beyond += pooling.trained_tokens > 0 && tokens > pooling.trained_tokens ? 1 : 0;
    if (IsInterrupted()) throw Interrupted();
  }
  if (beyond > 0) {
    Message(
        fmt::format("ropewalk: {} of {} texts are longer than the {} tokens at which "
                    "sentence-transformers cuts them for this model; here none is cut",
                    beyond, texts.size(), pooling.trained_tokens));
  }
  const bool endless = encoder->max_tokens() == INT64_MAX;
  const Json json = {{"architecture", c.architecture},
                     {"dim", c.hidden},
                     {"pooling", Name(pooling.kind)},
                     {"normalized", pooling.normalize},
                     {"pooling_source", pooling.source},
                     {"positions", alpha ? fmt::format("hierarchical, alpha {}", *alpha) : "model"},
                     {"max_tokens", endless ? Json() : Json(encoder->max_tokens())},
                     {"compute", options.compute},
                     {"vectors", std::move(vectors)}};
  fmt::print("{}\n", internal::Line(json));
}

}  // namespace

void AddEmbedCommand(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("embed",
                         "Sentence vectors of a text encoder, as JSON (BERT, RoBERTa, T5, "
                         "DeBERTa v2 and v3, XLNet)");
  AddOptions(*command, *options,
             {Opt::kModel, Opt::kText, Opt::kIds, Opt::kSpecial, Opt::kPositions, Opt::kCompute,
              Opt::kThreads, Opt::kAllowUnknown});
  command->footer(
      "--text takes one text, of models with a WordPiece tokenizer, and puts [CLS] and [SEP] "
      "round it. --ids takes one, [101, 7592, 102], or many, [[101, 7592, 102], [101, 102]], with "
      "the special tokens that the model was trained with. Pooling is what modules.json says (the "
      "mean or the first token, normalised or not); without it the mean.\n"
      "A BERT of 512 positions reads longer texts with --positions hierarchical: position i n + j "
      "is made of the learned ones of i and j, and positions below n stay as they were.\n\n"
      "Example: ropewalk embed ./all-MiniLM-L6-v2 --text book.txt --positions hierarchical");
  command->callback([options] { Run(*options); });
}

}  // namespace ropewalk::cli
