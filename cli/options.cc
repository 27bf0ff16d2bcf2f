#include "cli/options.h"

#include <charconv>

#include "cli/engines.h"
#include "ropewalk/plan/method.h"

namespace ropewalk::cli {
namespace {

std::string MethodHelp() {
  std::string help;
  for (const MethodInfo& method : Methods()) help += method.name + std::string(", ");
  for (const MethodPart& part : MethodParts()) help += part.name + std::string(", ");
  return help +
         "as-shipped (what the file itself says), separated by commas; combined by + "
         "(ntk+log-n), with settings behind a colon (rerope:512, self-extend:window=512,group=8)";
}

// CLI11 takes -1 for the largest number.
CLI::Validator NotNegative() {
  const auto check = [](const std::string& text) {
    uint64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [p, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc() && p == end) return std::string();
    return "expected a whole number from 0 to 18446744073709551615, got '" + text + "'";
  };
  return CLI::Validator(check, "");
}

void AddOne(CLI::App& c, Options& o, Opt which) {
  switch (which) {
    case Opt::kModel:
      c.add_option("MODEL", o.model,
                   "Hugging Face folder, .gguf file, or llama2.c .bin beside its tokenizer.bin")
          ->required();
      return;
    case Opt::kText:
      c.add_option("--text", o.text, "Text file to measure on, UTF-8; - for standard input");
      return;
    case Opt::kIds:
      c.add_option("--ids", o.ids,
                   "JSON array of token ids instead of a text, for any tokenizer; - for stdin");
      return;
    case Opt::kSpecial:
      c.add_flag("--special", o.special, "Special tokens written out in the text are special");
      return;
    case Opt::kMethods:
      c.add_option("--methods,--method", o.methods, MethodHelp())->delimiter(',');
      return;
    case Opt::kRopeScaling:
      c.add_option("--rope-scaling", o.rope_scaling,
                   "A Hugging Face rope_scaling dictionary (JSON) as one more method; repeatable")
          ->type_name("JSON")
          ->expected(1)
          ->take_all();
      return;
    case Opt::kLengths:
      c.add_option("--lengths,--length", o.lengths,
                   "Lengths in tokens, such as 8192, 8k or 1m, separated by commas")
          ->delimiter(',');
      return;
    case Opt::kFactors:
      c.add_option("--factors,--factor", o.factors,
                   "Factors for every method; without it each length beyond the trained one gets "
                   "length / trained")
          ->delimiter(',');
      return;
    case Opt::kTrained:
      c.add_option("--trained", o.trained,
                   "Length the model was trained at; without it what the file says");
      return;
    case Opt::kProtocol:
      c.add_option(
           "--protocol", o.protocol,
           "Which tokens are scored. aligned:K: the same K tokens behind each anchor at "
           "every length (K is 128, or half the shortest length where that is less); "
           "windows: all but the first of each window; half: the second half of each, as "
           "llama.cpp does; sliding:STRIDE: windows that advance by STRIDE tokens, of which "
           "the last STRIDE are scored, as papers do")
          ->capture_default_str();
      return;
    case Opt::kAnchors:
      c.add_option("--anchors", o.anchors,
                   "Anchors of aligned (8), or the most windows of the others (all)");
      return;
    case Opt::kSeed:
      c.add_option("--seed", o.seed, "Places anchors, passkeys and filler")
          ->capture_default_str()
          ->check(NotNegative());
      return;
    case Opt::kPasskeyTrials:
      c.add_option("--passkey-trials", o.passkey_trials, "Passkey prompts at each depth")
          ->capture_default_str()
          ->check(CLI::Range(int64_t{1}, int64_t{1000000}));
      return;
    case Opt::kPasskeyFiller:
      c.add_option("--passkey-filler", o.passkey_filler,
                   "What the passkey is hidden in: builtin, one sentence again and again, the same "
                   "for every text; or text, the running text of --text, in which it is harder to "
                   "find")
          ->capture_default_str()
          ->check(CLI::IsMember({"builtin", "text"}));
      return;
    case Opt::kDepths:
      c.add_option("--depths", o.depths,
                   "Where the passkey stands: 0 at the beginning, 1 before the question")
          ->delimiter(',')
          ->capture_default_str()
          ->check(CLI::Range(0.0, 1.0));
      return;
    case Opt::kNoPasskey:
      c.add_flag("--no-passkey", o.no_passkey, "Perplexity only");
      return;
    case Opt::kAngles:
      c.add_option("--angles", o.angles,
                   "exact, or float32: the rounding of Hugging Face transformers")
          ->capture_default_str()
          ->check(CLI::IsMember({"exact", "float32"}));
      return;
    case Opt::kPositions:
      c.add_option("--positions", o.positions,
                   "model: as it was trained; hierarchical[:ALPHA]: n^2 positions out of n learned "
                   "ones (ALPHA is 0.4)")
          ->capture_default_str();
      return;
    case Opt::kStates:
      c.add_option("--states", o.states,
                   "Instead of a vector a text, the states of its tokens: last: of the last layer; "
                   "mask-decoder: what DeBERTa's masked language model reads, with absolute "
                   "positions")
          ->check(CLI::IsMember({"last", "mask-decoder"}));
      return;
    case Opt::kCompute:
      c.add_option("--compute", o.compute,
                   "Arithmetic of the linear layers: float32, or bf16 (their weights and inputs "
                   "rounded to bf16, sums and all else in float32)")
          ->capture_default_str()
          ->check(CLI::IsMember({Name(ComputeType::kFloat32), Name(ComputeType::kBFloat16)}));
      return;
    case Opt::kBos:
      c.add_flag_function(
          "--bos,!--no-bos", [&o](int64_t count) { o.bos = count > 0; },
          "Begin every window with BOS, or with none; without either what the file says");
      return;
    case Opt::kThreads:
      c.add_option("--threads", o.threads, "Threads; without it all cores (or OMP_NUM_THREADS)")
          ->check(CLI::Range(1, 4096));
      c.add_flag("--oversubscribe", o.oversubscribe, "Let there be more threads than cores");
      return;
    case Opt::kAllowUnknown:
      c.add_flag("--allow-unknown", o.allow_unknown,
                 "Unknown keys of position settings, and keys that change numbers and are not "
                 "computed, are warnings, not errors");
      return;
    case Opt::kJson:
      c.add_flag("--json", o.json, "Result as JSON (docs/results-format.md)");
      return;
    case Opt::kDryRun:
      c.add_flag("--dry-run", o.dry_run, "Say what would be done: cells, tokens, memory, time");
      return;
    case Opt::kYes:
      c.add_flag("--yes", o.yes, "Start although it will take more than an hour");
      return;
    case Opt::kOutput:
      c.add_option("-o,--output", o.output,
                   "Folder for results.jsonl and report.html; the same "
                   "folder again resumes")
          ->capture_default_str();
      return;
    case Opt::kSearch:
      c.add_option("--search", o.search,
                   "Look for a setting first, at the longest length, and measure the best as one "
                   "more method: base (golden section over log base), factors (LongRoPE's "
                   "evolution over one divisor a pair), or both")
          ->delimiter(',')
          ->check(CLI::IsMember({"base", "factors"}));
      return;
    case Opt::kBudget:
      c.add_option("--budget", o.budget, "Cells that each --search may compute")
          ->capture_default_str()
          ->check(CLI::Range(int64_t{2}, int64_t{1000000}));
      return;
    case Opt::kPerToken:
      c.add_option("--per-token", o.per_token,
                   "File for one JSON row a scored token: window, position, id, nll");
      return;
    case Opt::kPrompt:
      c.add_option("--prompt", o.prompt, "Text to go on from");
      return;
    case Opt::kMaxTokens:
      c.add_option("--max-tokens", o.max_tokens, "Stop after so many tokens")
          ->capture_default_str()
          ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
      return;
    case Opt::kHtml:
      c.add_option("--html", o.html, "File for the same as one page, charts and an explorer in it");
      return;
    case Opt::kDiff:
      c.add_option("--diff", o.diff, "Two models or configurations: what their positions differ in")
          ->type_name("A B")
          ->expected(2);
      return;
    case Opt::kDialect:
      c.add_option(
          "--dialect", o.dialect,
          "Whose formulas: native, paper, hf, vllm, llamacpp, megatron, yarn_repo; without "
          "it the method's own (native)");
      return;
    case Opt::kEngines:
      AddEngineOption(c, o.engines);
      return;
    case Opt::kPieces:
      c.add_flag("--pieces", o.pieces, "Show each id with the piece of text it stands for");
      return;
    case Opt::kDecode:
      c.add_flag("--decode", o.decode, "The other way: ids (--ids FILE or stdin) to text");
      return;
  }
}

}  // namespace

void AddOptions(CLI::App& command, Options& options, std::initializer_list<Opt> which) {
  for (const Opt opt : which) AddOne(command, options, opt);
}

int64_t ParseLength(const std::string& text) {
  constexpr int64_t kLongest = int64_t{1} << 30;
  int64_t value = 0, unit = 1;
  const char* end = text.data() + text.size();
  const auto [p, error] = std::from_chars(text.data(), end, value);
  const std::string_view suffix(p, static_cast<std::size_t>(end - p));
  if (suffix == "k" || suffix == "K") unit = 1024;
  if (suffix == "m" || suffix == "M") unit = 1024 * 1024;
  const bool known = suffix.empty() || unit > 1;
  if (error == std::errc() && known && value >= 1 && value <= kLongest / unit) return value * unit;
  throw UsageError(
      "expected a length in tokens, a whole number from 1 to 1073741824 (2^30) such as 8192, 8k "
      "(8 x 1024) or 1m (1024 x 1024); got '" +
      text + "'");
}

}  // namespace ropewalk::cli
