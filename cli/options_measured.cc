// The options that say what is measured, one row each.
#include "cli/options.h"
#include "cli/rows.h"

namespace ropewalk::cli {
namespace {

using O = Options;

constexpr OptionRow kMeasured[] = {
    {.names = "--protocol",
     .value = "HOW",
     .field = &O::protocol,
     .help = "Which tokens are scored. aligned:K: the same K tokens after each anchor at every "
             "length (K is half the shortest length, at most 1024); windows: all but "
             "the first token of each window; half: the second half of each window, as in "
             "llama.cpp; sliding:STRIDE: windows that advance by STRIDE tokens, of which the last "
             "STRIDE are scored, as in papers. Of a text encoder masked:K, K tokens of each span "
             "(32), or masked, all of them",
     .takes = Takes::kSuggest,
     .choices = "aligned,windows,half,sliding:,masked"},
    {.names = "--anchors",
     .value = "N",
     .field = &O::anchors,
     .help =
         "Number of anchors of aligned (4; with a K below 512 6, below 256 8); largest number of "
         "windows of the others (all); of a text encoder number of spans (8)",
     .range = {0, 1000000}},
    {.names = "--kv",
     .value = "TYPE,...",
     .field = &O::kv,
     .help = "What the KV cache holds: f32 (default), bf16, or q8_0, ggml's blocks of 32 as in "
             "llama.cpp. In a sweep several, each of which every method is measured with, so that "
             "the report tells what the cache costs from what the method costs. (The task kv, of "
             "JSON keys and values, is something else.)",
     .takes = Takes::kOneOf,
     .choices = "f32,bf16,q8_0"},
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
     .help =
         "First search for a setting at the longest length, and measure the best as a further "
         "method: base (golden section over log base), factors (LongRoPE's evolutionary search "
         "over one divisor per pair), critical (LongRoPE2's, over the pair from which divisors "
         "exceed the factor, NTK below it), groups (DPE's groups), mapped (the length into which "
         "LaMPE squeezes positions)",
     .takes = Takes::kOneOf,
     .choices = "base,factors,critical,groups,mapped"},
    {.names = "--search-by",
     .value = "WHAT",
     .field = &O::search_by,
     .help =
         "What --search lowers: needles (loss of the answers of the sweep's tasks), key-tokens, "
         "or perplexity; default: perplexity for base and factors, else needles, as in the papers",
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
     .help =
         "How long the sweep may take, such as 90s, 30m or 2h; none: until everything is "
         "measured. What decides most comes first, the longest lengths are left out; the same "
         "command goes on from there, a part at least of what comes next, however short the time",
     .takes = Takes::kSuggest,
     .choices = "none,10m,1h"},
    {.names = "--max-tokens",
     .value = "N",
     .field = &O::max_tokens,
     .help = "Stop after N tokens",
     .range = {1, kBillion}},
    {.names = "--prefix",
     .value = "N",
     .field = &O::prefix,
     .help = "Score only what stands behind the first N tokens of each window (BOS among them). Of "
             "an encoder-decoder model (T5), which needs it, these go through the encoder",
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
};

}  // namespace

std::span<const OptionRow> MeasuredOptionRows() { return kMeasured; }

}  // namespace ropewalk::cli
