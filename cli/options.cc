// The options of the program, one row each, so that an option means the same in every command. Those
// of what is measured are in options_measured.cc.
#include "cli/options.h"

#include <charconv>
#include <iterator>
#include <limits>
#include <vector>

#include "cli/rows.h"

namespace ropewalk::cli {
namespace {

using O = Options;

constexpr OptionRow kInput[] = {
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
    {.names = "ACTION",
     .value = "ACTION",
     .field = &O::action,
     .help = "add or list",
     .takes = Takes::kOneOf,
     .choices = "add,list"},
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
    {.names = "--bases,--base",
     .value = "B,...",
     .field = &O::bases,
     .help = "Bases of the frequencies, numbers from 1 to 1e30, separated by commas; default: "
             "10,10000,500000"},
    {.names = "--dim",
     .value = "N",
     .field = &O::dim,
     .help = "Number of rotated dimensions, even, 2 to 1024"},
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
};

constexpr OptionRow kOutput[] = {
    // ---- what is written
    {.names = "--atlas",
     .value = "DIR",
     .field = &O::atlas,
     .help = "The folder of the atlas",
     .takes = Takes::kFile},
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
    {.names = "--prompts",
     .value = "FILE",
     .field = &O::prompts,
     .help = "Also write every prompt of the tasks with its answer, text and ids, as JSON lines: "
             "what answers in rows name by prompt and question",
     .takes = Takes::kFile},
    {.names = "--prompts-only",
     .value = "",
     .field = &O::prompts_only,
     .help = "Write --prompts FILE and end: no model runs"},
    {.names = "--pieces",
     .value = "",
     .field = &O::pieces,
     .help = "Show each id with its piece of text"},

    // ---- how it is computed
    {.names = "--compute",
     .value = "TYPE",
     .field = &O::compute,
     .help = "Arithmetic of products: float32, or bf16 (of linear layers and, on a CPU with "
             "AMX or AMD's avx512_bf16, of attention; sums and all else in float32)",
     .takes = Takes::kOneOf,
     .choices = "float32,bf16"},
    {.names = "--weights",
     .value = "FORM",
     .field = &O::weights,
     .help = "Weights while the model runs: unpacked (in memory, converted once), packed (in the "
             "mapped file, decoded as they are needed), or auto: unpacked where that takes at most "
             "half of the memory that is left",
     .takes = Takes::kOneOf,
     .choices = "auto,packed,unpacked"},
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
    {.names = "--shard",
     .value = "N/COUNT",
     .field = &O::shard,
     .help = "Measure together with other processes that share the folder of -o: 3/16 is the third "
             "of sixteen; auto: as SLURM (array or srun), mpirun or torchrun say. Each measures "
             "what no other one is measuring and what dead ones left (docs/many-machines.md)",
     .takes = Takes::kSuggest,
     .choices = "auto"},
    {.names = "--slurm",
     .value = "",
     .field = &O::slurm,
     .help =
         "Print a script for sbatch with this sweep as a job array, with the time and memory of "
         "--dry-run",
     .excludes = "--dry-run --json --prompts-only"},
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

std::span<const OptionRow> OptionRows() {
  static const std::vector<OptionRow> kRows = [] {
    std::vector<OptionRow> rows(std::begin(kInput), std::end(kInput));
    const std::span<const OptionRow> measured = MeasuredOptionRows();
    rows.insert(rows.end(), measured.begin(), measured.end());
    rows.insert(rows.end(), std::begin(kOutput), std::end(kOutput));
    return rows;
  }();
  return kRows;
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
