// The options of the program, one row each, so that an option means the same in every command.
#include "cli/options.h"

#include <charconv>
#include <limits>

#include "cli/rows.h"

namespace ropewalk::cli {
namespace {

using O = Options;
constexpr int64_t kBillion = int64_t{1} << 30;

constexpr OptionRow kOptions[] = {
    // ---- what to read
    {.names = "MODEL",
     .value = "MODEL",
     .field = &O::model,
     .help = "Hugging Face folder, .gguf file, or llama2.c .bin beside its tokenizer.bin",
     .takes = Takes::kFile},
    {.names = "URL",
     .value = "URL",
     .field = &O::url,
     .help = "A running server with OpenAI's completions API, such as http://localhost:8000; http "
             "or https, with or without /v1. A key is read from OPENAI_API_KEY"},
    {.names = "--model",
     .value = "MODEL",
     .field = &O::model,
     .help = "The model that it serves: Hugging Face folder, .gguf file, or llama2.c .bin",
     .takes = Takes::kFile},
    {.names = "--served-model",
     .value = "NAME",
     .field = &O::served_model,
     .help = "The server's name of the model, where it serves several"},
    {.names = "DIR",
     .value = "DIR",
     .field = &O::folders,
     .help = "Folders that hold a results.jsonl",
     .takes = Takes::kFile,
     .several = Several::kEach},
    {.names = "--text",
     .value = "FILE",
     .field = &O::text,
     .help = "Text file, UTF-8; - for standard input",
     .takes = Takes::kFile},
    {.names = "--ids",
     .value = "FILE",
     .field = &O::ids,
     .help = "JSON array of token ids instead of a text, for any tokenizer; - for standard input",
     .takes = Takes::kFile},
    {.names = "--special",
     .value = "",
     .field = &O::special,
     .help = "Recognise special tokens written out in the text, such as <|im_end|>"},
    {.names = "--bos,!--no-bos",
     .value = "",
     .field = &O::bos,
     .help = "Begin with a BOS token, or without; default: as the model's files say"},
    {.names = "--prompt", .value = "TEXT", .field = &O::prompt, .help = "Text to continue"},
    {.names = "--allow-unknown",
     .value = "",
     .field = &O::allow_unknown,
     .help =
         "Warn, instead of failing, about unknown keys of position settings and about keys that "
         "change results but are not implemented"},

    // ---- position settings
    {.names = "--methods,--method",
     .value = "METHOD,...",
     .field = &O::methods,
     .help = "{methods} (the model's own setting), separated by commas; combined by + "
             "(ntk+log-n), with settings after a colon (yarn:4, rerope:512, "
             "self-extend:window=512,group=8)",
     .takes = Takes::kMethods},
    {.names = "--rope-scaling",
     .value = "JSON",
     .field = &O::rope_scaling,
     .help = "A Hugging Face rope_scaling dictionary as one more method; repeatable",
     .several = Several::kEach},
    {.names = "--lengths,--length",
     .value = "N,...",
     .field = &O::lengths,
     .help = "Lengths in tokens, such as 8192, 8k or 1m, separated by commas"},
    {.names = "--factors,--factor",
     .value = "F,...",
     .field = &O::factors,
     .help = "Extension factors for every method; default: length / trained length for each length "
             "beyond the trained one"},
    {.names = "--trained",
     .value = "N",
     .field = &O::trained,
     .help = "Length in tokens that the model was trained at; default: as its files say"},
    {.names = "--angles",
     .value = "HOW",
     .field = &O::angles,
     .help = "exact, or float32: rounded as in Hugging Face transformers",
     .takes = Takes::kOneOf,
     .choices = "exact,float32"},
    {.names = "--dialect",
     .value = "NAME",
     .field = &O::dialect,
     .help = "Whose formula of the method: native, paper, hf, vllm, llamacpp, megatron, yarn_repo; "
             "default: native, as documented here",
     .takes = Takes::kSuggest,
     .choices = "native,paper,hf,vllm,llamacpp,megatron,yarn_repo"},
    {.names = "--engine",
     .value = "NAME[=VERSION]",
     .field = &O::engines,
     .help =
         "Show only this engine, optionally one version: transformers, vllm or llama.cpp (by "
         "date), such as vllm=0.10.2 or llama.cpp=2026-05-01; repeatable. In a sweep also torch: "
         "measure with PyTorch and transformers (program of the Python package)",
     .takes = Takes::kSuggest,
     .choices = "transformers,vllm,llama.cpp",
     .several = Several::kEach},
    {.names = "--diff",
     .value = "A B",
     .field = &O::diff,
     .help = "Compare the positions of two models or configurations",
     .takes = Takes::kFile,
     .several = Several::kPair},

    // ---- what is measured
    {.names = "--protocol",
     .value = "HOW",
     .field = &O::protocol,
     .help = "Which tokens are scored. aligned:K: the same K tokens after each anchor at every "
             "length (K is half the shortest length, at most 1024); windows: all but "
             "the first token of each window; half: the second half of each window, as in "
             "llama.cpp; sliding:STRIDE: windows that advance by STRIDE tokens, of which the last "
             "STRIDE are scored, as in papers",
     .takes = Takes::kSuggest,
     .choices = "aligned,windows,half,sliding:"},
    {.names = "--anchors",
     .value = "N",
     .field = &O::anchors,
     .help =
         "Number of anchors of aligned (4; with a K below 512 6, below 256 8); largest number of "
         "windows of the others (all)"},
    {.names = "--seed",
     .value = "N",
     .field = &O::seed,
     .help = "Random seed of anchors, passkeys and filler; of RULER's prompts 42 unless "
             "given"},
    {.names = "--tasks,--task",
     .value = "TASK,...",
     .field = &O::tasks,
     .help =
         "perplexity; passkey; key-tokens, in a sweep: LongPPL's, of the scored tokens; kv: JSON "
         "key-value pairs; ruler: every task of RULER that needs no file or has its file; "
         "ruler:vt,cwe: these. A sweep measures perplexity and passkey unless told otherwise; "
         "perplexity,passkey,kv,ruler:vt asks more",
     .takes = Takes::kSuggest,
     .choices = "perplexity,passkey,key-tokens,kv,ruler,ruler:niah_single_1,ruler:niah_single_2,"
                "ruler:niah_single_3,"
                "ruler:niah_multikey_1,ruler:niah_multikey_2,ruler:niah_multikey_3,"
                "ruler:niah_multivalue,ruler:niah_multiquery,ruler:vt,ruler:cwe,ruler:fwe,"
                "ruler:qa_1,ruler:qa_2"},
    {.names = "--samples",
     .value = "N",
     .field = &O::samples,
     .help =
         "Prompts of each task at each length, but of perplexity and passkey; default: 1 of kv, "
         "which asks many questions behind it, and 10 of others",
     .range = {1, 1000000}},
    {.names = "--questions",
     .value = "N",
     .field = &O::questions,
     .help = "Questions behind each context, where a task has several keys; default: 1 of RULER's "
             "tasks, as RULER has it; of kv as many as a fifth of the length holds, 4 to 50",
     .range = {1, 1000000}},
    {.names = "--generate,!--no-generate",
     .value = "",
     .field = &O::generate,
     .help = "Also continue greedily behind every question and search for the answers, or not; "
             "default: RULER's tasks alone, whose score that is"},
    {.names = "--no-race",
     .value = "",
     .field = &O::no_race,
     .help =
         "Measure every method whole. Without it the methods of a length are measured in rounds, "
         "of which those leave that are behind another by more than chance explains"},
    {.names = "--haystack",
     .value = "FILE",
     .field = &O::haystack,
     .help = "Text of RULER's essay tasks: RULER's PaulGrahamEssays.json, or any text",
     .takes = Takes::kFile},
    {.names = "--squad",
     .value = "FILE",
     .field = &O::squad,
     .help = "SQuAD v2 (dev-v2.0.json) for ruler:qa_1",
     .takes = Takes::kFile},
    {.names = "--hotpot",
     .value = "FILE",
     .field = &O::hotpot,
     .help = "HotpotQA (hotpot_dev_distractor_v1.json) for ruler:qa_2",
     .takes = Takes::kFile},
    {.names = "--english-words",
     .value = "FILE",
     .field = &O::english_words,
     .help = "RULER's english_words.json, of which ruler:cwe takes words from about 100k tokens on",
     .takes = Takes::kFile},
    {.names = "--passkey-trials",
     .value = "N",
     .field = &O::passkey_trials,
     .help =
         "Passkeys asked for at each length, or a few more: up to 9 stand in one prompt and are "
         "all asked for",
     .range = {1, 10000}},
    {.names = "--passkey-filler",
     .value = "WHAT",
     .field = &O::passkey_filler,
     .help = "What the passkeys are hidden in: builtin, one repeated sentence, the same for every "
             "text; or text, the text of --text",
     .takes = Takes::kOneOf,
     .choices = "builtin,text"},
    {.names = "--tokens",
     .value = "N",
     .field = &O::tokens,
     .help = "Number of tokens beyond the trained length whose log-probabilities are compared; a "
             "server without echo gets a quarter as many prompts, and is asked for ten each",
     .range = {8, 4096}},
    {.names = "--timeout",
     .value = "SECONDS",
     .field = &O::timeout,
     .help = "How long an answer may take",
     .range = {1, 86400}},
    {.names = "--share,!--no-share",
     .value = "",
     .field = &O::share,
     .help = "Ask for passkeys behind the windows of --protocol aligned, in whose context they are "
             "hidden, so that one prefill gives both (default), or behind prompts of their own"},
    {.names = "--spans",
     .value = "FILE",
     .field = &O::spans,
     .help = "Key tokens of the text: read if the file exists, else found and written",
     .takes = Takes::kFile},
    {.names = "--evaluator",
     .value = "MODEL",
     .field = &O::evaluator,
     .help = "Model that finds the key tokens; default: MODEL without scaling",
     .takes = Takes::kFile},
    {.names = "--short-context",
     .value = "N",
     .field = &O::short_context,
     .help = "Short context that finds key tokens, in tokens; default: an eighth of the "
             "evaluator's trained length, at most 4096, which is LongPPL's"},
    {.names = "--search",
     .value = "WHAT,...",
     .field = &O::search,
     .help = "First search for a setting at the longest length, and measure the best as a further "
             "method: base (golden section over log base), factors (LongRoPE's evolutionary search "
             "over one divisor per pair), critical (LongRoPE2's, over the pair from which divisors "
             "exceed the factor, NTK below it), groups (DPE's groups)",
     .takes = Takes::kOneOf,
     .choices = "base,factors,critical,groups"},
    {.names = "--search-by",
     .value = "WHAT",
     .field = &O::search_by,
     .help =
         "What --search lowers: needles (loss of the answers of the sweep's tasks), key-tokens, "
         "or perplexity; default: needles for critical and groups, as in their papers, else "
         "perplexity",
     .takes = Takes::kOneOf,
     .choices = "needles,key-tokens,perplexity"},
    {.names = "--search-trials",
     .value = "N",
     .field = &O::search_trials,
     .help = "Number of settings that each --search may try",
     .range = {2, 1000000}},
    {.names = "--budget",
     .value = "TIME",
     .field = &O::budget,
     .help = "How long the sweep may take, such as 90s, 30m or 2h; none: until everything is "
             "measured. What decides most comes first, the longest lengths are left out; the same "
             "command goes on from there",
     .takes = Takes::kSuggest,
     .choices = "none,10m,1h"},
    {.names = "--max-tokens",
     .value = "N",
     .field = &O::max_tokens,
     .help = "Stop after N tokens",
     .range = {1, kBillion}},
    {.names = "--positions",
     .value = "HOW",
     .field = &O::positions,
     .help = "model: the learned positions; hierarchical[:ALPHA]: n^2 positions composed of n "
             "learned ones (ALPHA is 0.4)",
     .takes = Takes::kSuggest,
     .choices = "model,hierarchical"},
    {.names = "--states",
     .value = "WHICH",
     .field = &O::states,
     .help =
         "Print the hidden states of all tokens instead of a vector per text: last: of the last "
         "layer; mask-decoder: those of DeBERTa's masked language model, with absolute positions",
     .takes = Takes::kOneOf,
     .choices = "last,mask-decoder"},
    {.names = "--decode",
     .value = "",
     .field = &O::decode,
     .help = "Convert ids (--ids FILE or standard input) to text"},

    // ---- what is written
    {.names = "--type",
     .value = "TYPE",
     .field = &O::type,
     .help = "Type of the matrices: f32, f16, bf16 or q8_0 (GGUF); default: unchanged where the "
             "format has it",
     .takes = Takes::kOneOf,
     .choices = "f32,f16,bf16,q8_0"},
    {.names = "--layout",
     .value = "LAYOUT",
     .field = &O::layout,
     .help = "Permute the rows of q and k to this pair layout: half or interleaved",
     .takes = Takes::kOneOf,
     .choices = "half,interleaved"},
    {.names = "--head-dim",
     .value = "N",
     .field = &O::head_dim,
     .help = "Elements per head, for --layout of one file",
     .range = {1, kBillion}},
    {.names = "--rotary-dim",
     .value = "N",
     .field = &O::rotary_dim,
     .help = "Elements per head that are rotated, for --layout of one file; default: all",
     .range = {1, kBillion}},
    {.names = "--no-tokenizer",
     .value = "",
     .field = &O::no_tokenizer,
     .help = "Convert only the weights"},
    {.names = "--no-verify",
     .value = "",
     .field = &O::no_verify,
     .help = "Do not run the model before and after to compare logits (the comparison needs the "
             "model's size in float32 as memory)"},
    {.names = "--link",
     .value = "",
     .field = &O::link,
     .help = "Share a folder's weights with the source by hard links instead of copying them"},

    // ---- where the result goes, and in what form
    {.names = "-o,--output",
     .value = "PATH",
     .field = &O::output,
     .help = "Where the result is written: a file, or a folder where the result is one",
     .takes = Takes::kFile},
    {.names = "--json",
     .value = "",
     .field = &O::json,
     .help = "Print the result as JSON",
     .excludes = "--html --csv --markdown"},
    {.names = "--html",
     .value = "",
     .field = &O::html,
     .help = "Write the result as one page with charts, which needs no network",
     .excludes = "--csv --markdown"},
    {.names = "--csv",
     .value = "",
     .field = &O::csv,
     .help = "Print the result as CSV, one line per cell",
     .excludes = "--markdown"},
    {.names = "--markdown",
     .value = "",
     .field = &O::markdown,
     .help = "Print the result as Markdown tables"},
    {.names = "--per-token",
     .value = "FILE",
     .field = &O::per_token,
     .help = "Also write one JSON row per scored token: window, position, id, nll",
     .takes = Takes::kFile},
    {.names = "--pieces",
     .value = "",
     .field = &O::pieces,
     .help = "Show each id with its piece of text"},

    // ---- how it is computed
    {.names = "--compute",
     .value = "TYPE",
     .field = &O::compute,
     .help = "Arithmetic of the linear layers: float32, or bf16 (their weights and inputs rounded "
             "to bf16, sums and all else in float32)",
     .takes = Takes::kOneOf,
     .choices = "float32,bf16"},
    {.names = "--device",
     .value = "DEVICE",
     .field = &O::device,
     .help =
         "Of --engine torch: cpu, cuda, cuda:1, mps, ..., or auto, which spreads the model over "
         "all devices; default: cpu",
     .takes = Takes::kSuggest,
     .choices = "cpu,cuda,auto"},
    {.names = "--dtype",
     .value = "TYPE",
     .field = &O::dtype,
     .help = "Of --engine torch: type of weights and arithmetic; default: float32 on a CPU, else "
             "that of the files",
     .takes = Takes::kOneOf,
     .choices = "float32,bfloat16,float16"},
    {.names = "--threads",
     .value = "N",
     .field = &O::threads,
     .help = "Number of threads; default: all cores (or OMP_NUM_THREADS)",
     .range = {1, 4096}},
    {.names = "--oversubscribe",
     .value = "",
     .field = &O::oversubscribe,
     .help = "Allow more threads than cores"},
    {.names = "--dry-run",
     .value = "",
     .field = &O::dry_run,
     .help = "Print only what would be done: cells, tokens, memory, time"},

    // ---- about the program
    {.names = "SHELL",
     .value = "SHELL",
     .field = &O::shell,
     .help = "bash, zsh or fish",
     .takes = Takes::kOneOf,
     .choices = "bash,zsh,fish"},
    {.names = "COMMAND",
     .value = "COMMAND",
     .field = &O::page,
     .help = "The command of the page; default: the page of the program",
     .takes = Takes::kCommands},
};

}  // namespace

std::span<const OptionRow> OptionRows() { return kOptions; }

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

double ParseBudget(const std::string& text) {
  if (text == "none") return std::numeric_limits<double>::infinity();
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [p, error] = std::from_chars(text.data(), end, value);
  const std::string_view unit(p, static_cast<std::size_t>(end - p));
  const double seconds = unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0;
  if (error == std::errc() && seconds > 0 && value >= 1 && value <= kBillion) {
    return static_cast<double>(value) * seconds;
  }
  throw UsageError("--budget: expected a time such as 90s, 30m or 2h, or none; got '" + text + "'");
}

}  // namespace ropewalk::cli
