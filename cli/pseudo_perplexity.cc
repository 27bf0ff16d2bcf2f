#include "cli/pseudo_perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "cli/input.h"
#include "cli/json_text.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/rows.h"
#include "cli/single_cell.h"
#include "ropewalk/base/error.h"
#include "ropewalk/eval/encoder_engine.h"

namespace ropewalk::cli {
namespace {

using Json = nlohmann::ordered_json;

// Of perplexity, and without a meaning here.
constexpr const char* kOfDecoders[] = {"--methods", "--rope-scaling", "--factors",
                                       "--trained", "--kv",           "--angles",
                                       "--bos",     "--dry-run",      "--prefix"};

bool WasGiven(const Options& options, std::string_view name) {
  return std::any_of(options.given.begin(), options.given.end(),
                     [&](const Given& given) { return MainName(*given.option) == name; });
}

// K of masked:K, 0 of masked; 32 unless given.
int64_t ScoredPerSpan(const Options& options) {
  const std::string kMasked = "masked";
  const std::string& text = options.protocol;
  if (!WasGiven(options, "--protocol")) return 32;
  if (text == kMasked) return 0;
  int64_t k = 0;
  if (text.starts_with(kMasked + ":")) {
    const char* end = text.data() + text.size();
    const auto [p, error] = std::from_chars(text.data() + kMasked.size() + 1, end, k);
    if (error == std::errc() && p == end && k > 0) return k;
  }
  throw UsageError(
      "--protocol: of a text encoder expected masked or masked:K (K tokens of a span), "
      "got '" +
      text + "'");
}

PseudoPerplexitySpec SpecOf(const Options& options) {
  for (const char* name : kOfDecoders) {
    if (!WasGiven(options, name)) continue;
    throw UsageError(fmt::format(
        "{} is for decoders; this model is a text encoder, whose pseudo-perplexity takes "
        "--positions, --protocol masked:K, --anchors and --lengths",
        name));
  }
  PseudoPerplexitySpec spec;
  for (const std::string& length : options.lengths) spec.lengths.push_back(ParseLength(length));
  std::sort(spec.lengths.begin(), spec.lengths.end());
  spec.lengths.erase(std::unique(spec.lengths.begin(), spec.lengths.end()), spec.lengths.end());
  if (spec.lengths.empty()) throw UsageError("give lengths with --lengths N,..");
  spec.spans = options.anchors.value_or(8);
  if (spec.spans < 1) throw UsageError("--anchors: expected 1 or more");
  spec.scored_per_span = ScoredPerSpan(options);
  spec.seed = options.seed;
  return spec;
}

// null where it cannot be told.
Json Finite(double x) { return std::isfinite(x) ? Json(x) : Json(); }

Json LengthsJson(const PseudoPerplexityResult& result) {
  Json list = Json::array();
  for (const PseudoPerplexity& p : result.lengths) {
    list.push_back({{"length", p.length},
                    {"pseudo_perplexity", p.perplexity},
                    {"mean_nll", p.mean_nll},
                    {"standard_error", Finite(p.standard_error)},
                    {"difference", p.difference},
                    {"difference_error", Finite(p.difference_error)},
                    {"scored_tokens", p.tokens.size()}});
  }
  return list;
}

// How it was computed, as JSON and as a line.
struct How {
  std::string positions;
  Json json;
};
How HowOf(const Options& options, const ModelFiles& files, const std::optional<double>& alpha,
          const TokenText& text, const MaskedFrame& frame) {
  const std::string positions = alpha ? fmt::format("hierarchical, alpha {}", *alpha) : "model";
  return {positions,
          {{"architecture", files.config.architecture},
           {"positions", positions},
           {"protocol", WasGiven(options, "--protocol") ? options.protocol : "masked:32"},
           {"seed", options.seed},
           {"special_tokens", frame.special_tokens()},
           {"compute", options.compute},
           {"model_hash", files.Hash()},
           {"text_hash", text.hash}}};
}

void Print(const PseudoPerplexityResult& result, const How& how) {
  fmt::print(
      "pseudo-perplexity of {} tokens: {} spans of the text, {} tokens of each masked one at a "
      "time, seed {}; positions: {}\n",
      result.lengths[0].tokens.size(), result.spans, result.scored_per_span,
      how.json.at("seed").get<uint64_t>(), how.positions);
  fmt::print("{:>9}  {:>17}  {:>14}  {:>14}  {}\n", "length", "pseudo-perplexity", "nats per token",
             "standard error", fmt::format("nats more than at {}", result.lengths[0].length));
  for (const PseudoPerplexity& p : result.lengths) {
    fmt::print("{:>9}  {:>17.4f}  {:>14.5f}  {:>14.5f}  {:+.5f} ± {:.5f}\n", p.length, p.perplexity,
               p.mean_nll, p.standard_error, p.difference, p.difference_error);
  }
}

}  // namespace

void RefuseEncoderOptions(const Options& options) {
  if (!WasGiven(options, "--positions")) return;
  throw UsageError(
      "--positions is for text encoders; this model is a decoder, whose positions "
      "--method changes");
}

void RunPseudoPerplexity(const Options& options, const ModelFiles& files) {
  const PseudoPerplexitySpec spec = SpecOf(options);
  if (!options.per_token.empty() && spec.lengths.size() > 1) {
    throw UsageError("--per-token: give one length with --length N");
  }
  RefuseInput(options, "--per-token", options.per_token);
  const std::optional<double> alpha = HierarchicalAlphaOf(options);
  const TokenText text = ReadTokenText(options, files);
  const auto encoder = Encoder::Load(files, {.compute = ComputeOf(options),
                                             .weights = WeightsOf(options),
                                             .hierarchical_alpha = alpha,
                                             .masked_head = true});
  if (files.tokenizer == nullptr) {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("{} has no tokenizer that can be read ({}), which says what the mask and "
                    "the special tokens are: put tokenizer.json there",
                    files.path, files.tokenizer_error));
  }
  const MaskedFrame frame = MaskedFrameOf(*files.tokenizer, files.config.mask_id);
  ProgressLine progress;
  InterruptScope scope;
  const PseudoPerplexityResult result = ComputePseudoPerplexity(
      EncoderEngine(*encoder), text.ids, frame, spec, [&](int64_t done, int64_t all) {
        progress.Update("pseudo-perplexity", done, all);
        return !IsInterrupted();
      });
  if (!options.per_token.empty()) WriteTokens(options.per_token, result.lengths[0].tokens);
  How how = HowOf(options, files, alpha, text, frame);
  if (!options.json) return Print(result, how);
  how.json["spans"] = result.spans;
  how.json["scored_per_span"] = result.scored_per_span;
  how.json["lengths"] = LengthsJson(result);
  fmt::print("{}\n", JsonText(how.json));
}

}  // namespace ropewalk::cli
