// ropewalk perplexity: a cell, or one at each of several lengths.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "cli/input.h"
#include "cli/json_text.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/pseudo_perplexity.h"
#include "cli/ranks.h"
#include "cli/single_cell.h"
#include "ropewalk/base/error.h"
#include "ropewalk/eval/encoder_decoder_engine.h"
#include "ropewalk/eval/statistics.h"

namespace ropewalk::cli {
void WriteTokens(const std::string& path, const std::vector<ScoredToken>& tokens) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  for (const ScoredToken& t : tokens) {
    file << fmt::format("{{\"window\":{},\"position\":{},\"id\":{},\"nll\":{}}}\n", t.window,
                        t.position, t.id, t.nll);
  }
  file.close();
  if (!file) throw Error(ErrorCode::kIo, path + ": cannot be written (--per-token)");
}

namespace {

// What scores a model: its decoder, or an encoder and a decoder.
struct Scorer {
  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<EncoderDecoder> both;
  std::unique_ptr<ScoringEngine> engine;
};

Scorer LoadScorer(const Options& options, const ModelFiles& files) {
  Scorer scorer;
  if (files.config.decoder == nullptr) {
    scorer.decoder = LoadDecoder(options, files);
    scorer.engine = EngineOf(*scorer.decoder);
    return scorer;
  }
  RefuseRanks("an encoder-decoder, whose encoder reads a prefix whole,");
  scorer.both =
      EncoderDecoder::Load(files, {.compute = ComputeOf(options), .weights = WeightsOf(options)});
  scorer.engine = std::make_unique<EncoderDecoderEngine>(*scorer.both, options.prefix);
  return scorer;
}

// Before anything is loaded: whether the options can mean anything for an encoder-decoder.
void CheckEncoderDecoder(const Options& options, const ModelFiles& files) {
  if (options.prefix == 0) {
    throw UsageError(
        fmt::format("{}: a {} model has an encoder and a decoder: give --prefix N, the tokens of "
                    "each window that go through the encoder; the decoder scores those behind them",
                    files.path, files.config.architecture));
  }
  if (options.bos.value_or(false)) {
    throw UsageError(
        "--bos: the decoder of an encoder-decoder begins with decoder_start_token_id, and no other "
        "token stands in front of the text; leave --bos out");
  }
}

// Lengths and protocol, which are options of these models alike.
SweepSpec PerplexitySpec(const Options& options, const ModelFiles& files) {
  SweepSpec spec = SpecOf(options, files);
  std::vector<int64_t>& lengths = spec.lengths;
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  if (lengths.empty()) OneLength(spec);
  if (lengths.front() < 4) throw UsageError("--length: expected at least 4 tokens");
  if (lengths.size() > 1 && (options.dry_run || !options.per_token.empty())) {
    throw UsageError(fmt::format("{}: give one length with --length N",
                                 options.dry_run ? "--dry-run" : "--per-token"));
  }
  RefuseInput(options, "--per-token", options.per_token);
  const bool both = files.config.decoder != nullptr;
  spec.protocol.prefix = options.prefix;
  spec.protocol.prefix_encoded = both;
  if (both) spec.protocol.bos = false;
  if (options.protocol == "aligned") SettleProtocol(lengths.front(), spec);
  return spec;
}

void PrintCell(const Options& options, const Cell& cell) {
  fmt::print("perplexity     {:.4f} per token ({:.5f} nats", cell.perplexity, cell.mean_nll);
  if (std::isfinite(cell.standard_error)) {
    fmt::print(", standard error {:.5f}", cell.standard_error);
  }
  fmt::print(")\n");
  if (std::isfinite(cell.bits_per_byte)) fmt::print("bits per byte  {:.4f}\n", cell.bits_per_byte);
  if (std::isfinite(cell.entropy)) {
    fmt::print(
        "entropy        {:.4f} nats of attention at the end of a window, {:.1f} % of uniform\n",
        cell.entropy, 100 * cell.entropy_share);
  }
  fmt::print("protocol       {}: {} tokens scored in {} windows of {}, seed {}, BOS {}\n",
             cell.protocol, cell.scored_tokens, cell.windows, cell.length, cell.seed, cell.bos);
  PrintProvenance(options, cell);
}

// Where windows score the same tokens at every length, the loss is compared window by window.
std::string Difference(const Cell& cell, const Cell& first) {
  if (!cell.protocol.starts_with("aligned")) return "-";
  std::vector<double> differences;
  for (size_t w = 0; w < cell.window_nll.size(); ++w) {
    differences.push_back(cell.window_nll[w] - first.window_nll[w]);
  }
  const PairedTest test = TestPaired(differences);
  return fmt::format("{:+.5f} ± {:.5f}", test.mean, test.standard_error);
}

void PrintCells(const Options& options, const std::vector<Cell>& cells) {
  const Cell& first = cells.front();
  fmt::print("protocol       {}: seed {}, BOS {}\n", first.protocol, first.seed, first.bos);
  Cell all = first;
  for (size_t i = 1; i < cells.size(); ++i) all.seconds += cells[i].seconds;
  PrintProvenance(options, all);
  fmt::print("{:>9}  {:>12}  {:>14}  {:>14}  {:>13}  {:>13}  {}\n", "length", "perplexity",
             "nats per token", "standard error", "bits per byte", "scored tokens",
             fmt::format("nats more than at {}", first.length));
  for (const Cell& cell : cells) {
    fmt::print("{:>9}  {:>12.4f}  {:>14.5f}  {:>14.5f}  {:>13}  {:>13}  {}\n", cell.length,
               cell.perplexity, cell.mean_nll, cell.standard_error,
               std::isfinite(cell.bits_per_byte) ? fmt::format("{:.4f}", cell.bits_per_byte) : "-",
               cell.scored_tokens, Difference(cell, first));
  }
}

void Print(const Options& options, const std::vector<Cell>& cells) {
  if (!options.json)
    return cells.size() == 1 ? PrintCell(options, cells[0]) : PrintCells(options, cells);
  std::string rows;
  for (const Cell& cell : cells) rows += (rows.empty() ? "" : ",\n") + ToJson(cell, 2);
  fmt::print("{}\n", cells.size() == 1 ? rows : "[" + rows + "]");
}

}  // namespace

void RunPerplexity(const Options& options) {
  const ModelFiles files = OpenModelFor(options, true);
  const bool both = files.config.decoder != nullptr;
  if (files.config.encoder != nullptr && !both) {
    RefuseRanks("pseudo-perplexity of a text encoder");
    return RunPseudoPerplexity(options, files);
  }
  both ? CheckEncoderDecoder(options, files) : RequireRunnable(files);
  RefuseEncoderOptions(options);
  const TokenText text = ReadTokenText(options, files);
  const SweepSpec spec = PerplexitySpec(options, files);
  const int64_t longest = spec.lengths.back();
  std::vector<SweepTask> tasks;
  tasks.reserve(spec.lengths.size());
  for (const int64_t length : spec.lengths) {
    tasks.push_back(SingleTask(options, files, spec, length));
    MakeWindows(text, spec.protocol, length, longest, spec.bos_id);  // too short? before loading
  }
  const Scorer scorer = LoadScorer(options, files);
  SweepInputs inputs;
  inputs.engine = scorer.engine.get();
  inputs.tokenizer = files.tokenizer.get();
  inputs.text = &text;
  scorer.engine->CheckKv(tasks.front().kv);
  if (options.dry_run) return DryRunCell(options, tasks.front(), spec, inputs);
  inputs.model_hash = files.Hash();
  std::vector<ScoredToken> tokens;
  std::vector<Cell> cells;
  cells.reserve(tasks.size());
  for (const SweepTask& task : tasks) {
    cells.push_back(ComputeCell(task, spec, inputs, longest, &tokens));
  }
  if (!options.per_token.empty()) WriteTokens(options.per_token, tokens);
  Print(options, cells);
}

}  // namespace ropewalk::cli
