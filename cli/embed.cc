// ropewalk embed: sentence vectors of a text encoder.
#include <fmt/format.h>

#include "cli/input.h"
#include "cli/json_text.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "ropewalk/base/error.h"
#include "ropewalk/model/encoder.h"

namespace ropewalk::cli {
namespace {

using Json = nlohmann::ordered_json;

// The shortest decimal that reads back as the same float.
double Shortest(float x) { return std::stod(fmt::format("{}", x)); }

Json Numbers(std::span<const float> values) {
  Json list = Json::array();
  for (const float x : values) list.push_back(Shortest(x));
  return list;
}

EncoderStates WhichStates(const Options& options) {
  return options.states == "mask-decoder" ? EncoderStates::kMaskDecoder : EncoderStates::kLast;
}

// The vector of the text, or with --states one per token.
Json VectorOf(const Encoder& encoder, const SentencePooling& pooling, const Options& options,
              const std::vector<int32_t>& ids) {
  const int64_t dim = encoder.config().hidden;
  std::vector<float> hidden(ids.size() * dim);
  encoder.Forward(ids, hidden.data(), {}, WhichStates(options));
  if (options.states.empty()) {
    return {{"tokens", ids.size()}, {"vector", Numbers(SentenceVector(pooling, hidden, dim))}};
  }
  Json rows = Json::array();
  for (std::size_t t = 0; t < ids.size(); ++t) {
    rows.push_back(Numbers(std::span(hidden).subspan(t * dim, dim)));
  }
  return {{"tokens", ids.size()}, {"states", std::move(rows)}};
}

// The vectors, and how they were computed.
Json Output(const Encoder& encoder, const SentencePooling& pooling, const Options& options,
            const std::optional<double>& alpha, Json vectors) {
  const ModelConfig& c = encoder.config();
  const int64_t most = encoder.max_tokens(WhichStates(options));
  Json json = {{"architecture", c.architecture}, {"dim", c.hidden}};
  if (options.states.empty()) {
    json["pooling"] = Name(pooling.kind);
    json["normalized"] = pooling.normalize;
    json["pooling_source"] = pooling.source;
  } else {
    json["states"] = options.states;
  }
  json["positions"] = alpha ? fmt::format("hierarchical, alpha {}", *alpha) : "model";
  json["max_tokens"] = most == INT64_MAX ? Json() : Json(most);
  json["compute"] = options.compute;
  json["vectors"] = std::move(vectors);
  return json;
}

// The ids of --text with the special tokens that the model was trained with.
std::vector<int32_t> FramedText(const Options& options, const ModelFiles& files) {
  if (files.config.encoder && files.config.encoder->tensors == EncoderSpec::Tensors::kXlnet) {
    throw Error(
        ErrorCode::kUnsupported,
        files.path +
            ": XLNet's tokenizer puts <cls> into a segment of its own, but only one segment "
            "is supported here; give the ids of one segment with --ids");
  }
  const Tokenizer& tokenizer = RequireTokenizer(files);
  if (tokenizer.front().empty() && tokenizer.back().empty()) {
    throw Error(ErrorCode::kUnsupported,
                files.path +
                    ": the special tokens around a text are unknown, because there is no "
                    "post_processor in a tokenizer.json; tokenize elsewhere and give the ids with "
                    "--ids");
  }
  std::vector<int32_t> ids = tokenizer.front();
  const std::vector<int32_t> text = tokenizer.Encode(ReadText(options.text), {options.special});
  ids.insert(ids.end(), text.begin(), text.end());
  ids.insert(ids.end(), tokenizer.back().begin(), tokenizer.back().end());
  return ids;
}

}  // namespace

void RunEmbed(const Options& options) {
  const std::optional<double> alpha = HierarchicalAlphaOf(options);
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
  const auto encoder = Encoder::Load(
      files,
      {.compute = ComputeOf(options), .weights = WeightsOf(options), .hierarchical_alpha = alpha});
  Json vectors = Json::array();
  int64_t beyond = 0;
  InterruptScope scope;
  for (const std::vector<int32_t>& ids : texts) {
    vectors.push_back(VectorOf(*encoder, pooling, options, ids));
    const auto tokens = static_cast<int64_t>(ids.size());
    beyond += pooling.trained_tokens > 0 && tokens > pooling.trained_tokens ? 1 : 0;
    if (IsInterrupted()) throw Interrupted();
  }
  if (beyond > 0) {
    Message(
        fmt::format("ropewalk: {} of {} texts are longer than the {} tokens at which "
                    "sentence-transformers truncates them for this model; here they are not "
                    "truncated",
                    beyond, texts.size(), pooling.trained_tokens));
  }
  fmt::print("{}\n", JsonLine(Output(*encoder, pooling, options, alpha, std::move(vectors))));
}

}  // namespace ropewalk::cli
