// ropewalk perplexity, ropewalk passkey: one cell.
#include <fmt/format.h>

#include <cmath>
#include <fstream>

#include "cli/input.h"
#include "cli/json_text.h"
#include "cli/options.h"
#include "cli/single_cell.h"
#include "ropewalk/base/error.h"
#include "ropewalk/eval/decoder_engine.h"

namespace ropewalk::cli {
namespace {

// One JSON row per scored token.
void WriteTokens(const std::string& path, const std::vector<ScoredToken>& tokens) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  for (const ScoredToken& t : tokens) {
    file << fmt::format("{{\"window\":{},\"position\":{},\"id\":{},\"nll\":{}}}\n", t.window,
                        t.position, t.id, t.nll);
  }
  file.close();
  if (!file) throw Error(ErrorCode::kIo, path + ": cannot be written (--per-token)");
}

}  // namespace

void RunPasskey(const Options& options) {
  const ModelFiles files = OpenRunnable(options);
  const Tokenizer& tokenizer = RequireTokenizer(files);
  SweepSpec spec = SpecOf(options, files);
  if (spec.passkey_text_filler == options.text.empty()) {
    throw UsageError(
        options.text.empty()
            ? "--passkey-filler text: give the text with --text FILE"
            : "--text: the passkey is hidden in the built-in filler, which needs no "
              "text; add --passkey-filler text to hide it in this one, or leave --text "
              "out");
  }
  TokenText text;
  if (spec.passkey_text_filler) text = ReadTokenText(options, files);
  const int64_t length = OneLength(spec);
  spec.perplexity = false;
  const int64_t needed = MinPasskeyTokens(tokenizer, spec.passkey_options.bos);
  if (length < needed) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("a passkey prompt with this tokenizer needs at least {} tokens, the "
                            "length is {}",
                            needed, length));
  }
  const SweepTask task = SingleTask(options, files, spec, length);
  const std::unique_ptr<Decoder> decoder = LoadDecoder(options, files);
  const DecoderEngine engine(*decoder);
  SweepInputs inputs;
  inputs.engine = &engine;
  inputs.tokenizer = &tokenizer;
  inputs.text = spec.passkey_text_filler ? &text : nullptr;
  if (options.dry_run) return DryRunCell(options, task, spec, inputs);
  inputs.model_hash = files.Hash();
  const Cell cell = ComputeCell(task, spec, inputs, nullptr);
  if (options.json) {
    fmt::print("{}\n", ToJson(cell, 2));
    return;
  }
  fmt::print("passkey        {:.0f}% of {} prompts of {} tokens\n", 100 * cell.passkey_accuracy,
             cell.passkey_trials, cell.length);
  for (size_t i = 0; i < cell.passkey_depths.size(); ++i) {
    fmt::print("  depth {:<8} {:.0f}%\n", cell.passkey_depths[i], 100 * cell.passkey_by_depth[i]);
  }
  fmt::print("protocol       {}, seed {}, BOS {}\n", cell.passkey_protocol, cell.seed, cell.bos);
  PrintProvenance(options, cell);
}

void RunPerplexity(const Options& options) {
  const ModelFiles files = OpenRunnable(options);
  const TokenText text = ReadTokenText(options, files);
  SweepSpec spec = SpecOf(options, files);
  const int64_t length = OneLength(spec);
  if (options.protocol == "aligned") SettleProtocol(length, spec);
  spec.passkey = false;
  const SweepTask task = SingleTask(options, files, spec, length);
  MakeWindows(text, spec.protocol, length, length, spec.bos_id);  // too short? before loading
  const std::unique_ptr<Decoder> decoder = LoadDecoder(options, files);
  const DecoderEngine engine(*decoder);
  SweepInputs inputs;
  inputs.engine = &engine;
  inputs.tokenizer = files.tokenizer.get();
  inputs.text = &text;
  if (options.dry_run) return DryRunCell(options, task, spec, inputs);
  inputs.model_hash = files.Hash();
  std::vector<ScoredToken> tokens;
  const Cell cell = ComputeCell(task, spec, inputs, &tokens);
  if (!options.per_token.empty()) WriteTokens(options.per_token, tokens);
  if (options.json) {
    fmt::print("{}\n", ToJson(cell, 2));
    return;
  }
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

}  // namespace ropewalk::cli
