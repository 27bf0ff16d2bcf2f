// ropewalk perplexity: one cell.
#include <fmt/format.h>

#include <cmath>
#include <fstream>

#include "cli/input.h"
#include "cli/json_text.h"
#include "cli/options.h"
#include "cli/pseudo_perplexity.h"
#include "cli/single_cell.h"
#include "ropewalk/base/error.h"
#include "ropewalk/eval/decoder_engine.h"

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

void RunPerplexity(const Options& options) {
  const ModelFiles files = OpenModelFor(options, true);
  if (files.config.encoder != nullptr) return RunPseudoPerplexity(options, files);
  RequireRunnable(files);
  RefuseEncoderOptions(options);
  const TokenText text = ReadTokenText(options, files);
  SweepSpec spec = SpecOf(options, files);
  const int64_t length = OneLength(spec);
  if (options.protocol == "aligned") SettleProtocol(length, spec);
  const SweepTask task = SingleTask(options, files, spec, length);
  MakeWindows(text, spec.protocol, length, length, spec.bos_id);  // too short? before loading
  const std::unique_ptr<Decoder> decoder = LoadDecoder(options, files);
  const DecoderEngine engine(*decoder);
  SweepInputs inputs;
  inputs.engine = &engine;
  inputs.tokenizer = files.tokenizer.get();
  inputs.text = &text;
  engine.CheckKv(task.kv);
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
