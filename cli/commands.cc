// The commands of the program, one row each: a new one is its file and its row here.
#include "cli/rows.h"

namespace ropewalk::cli {

void RunAtlas(const Options& options);
void RunCompletion(const Options& options);
void RunConvert(const Options& options);
void RunCurves(const Options& options);
void RunEmbed(const Options& options);
void RunExtend(const Options& options);
void RunGenerate(const Options& options);
void RunInfo(const Options& options);
void RunInspect(const Options& options);
void RunKv(const Options& options);
void RunKeyTokens(const Options& options);
void RunManual(const Options& options);
void RunPasskey(const Options& options);
void RunPerplexity(const Options& options);
void RunPrompts(const Options& options);
void RunReport(const Options& options);
void RunRuler(const Options& options);
void RunSweep(const Options& options);
void RunTokenize(const Options& options);
void RunVerify(const Options& options);

namespace {

constexpr char kLook[] = "Look at a model", kMeasure[] = "Measure it", kWrite[] = "Write it",
               kProgram[] = "About the program";

constexpr Command kCommands[] = {
    {.name = "inspect",
     .title = "A model's position encoding: frequencies, limits, float32 errors, what engines "
              "compute, warnings",
     .group = kLook,
     .required = "",
     .options =
         "MODEL --lengths --trained --rope-scaling --dialect --engine --methods --factors --text "
         "--ids --special --weights --diff --html --json --output --allow-unknown --threads "
         "--oversubscribe",
     .about = "A config.json without weights or tokenizer is enough, except for --text, which "
              "measures where attention looks, by distance, and what each frequency adds to the "
              "scores, at each of --lengths. --methods and --factors "
              "choose the lines of the decay chart. docs/inspect-format.md describes --json.",
     .examples = "ropewalk inspect ./SmolLM2-135M\n"
                 "ropewalk inspect model.gguf --length 32k --html -o model.html\n"
                 "ropewalk inspect --diff ./base ./fine-tuned",
     .run = RunInspect},
    {.name = "tokenize",
     .title = "Prints the token ids of a text as a JSON array",
     .group = kLook,
     .required = "MODEL",
     .options = "--text --ids --pieces --decode --bos --special --allow-unknown --json",
     .about = "Without --text it reads standard input. The ids are those of the text alone, as "
              "--ids of other commands takes them; --bos prepends a BOS token.",
     .examples = "ropewalk tokenize ./model --text book.txt > ids.json",
     .run = RunTokenize},
    {.name = "generate",
     .title = "Continues a prompt greedily, to check that the model is read correctly",
     .group = kLook,
     .required = "MODEL",
     .options =
         "--prompt --max-tokens --methods --rope-scaling --factors --trained --angles "
         "--compute --weights --bos --special --threads --oversubscribe --allow-unknown --json",
     .about = "Without --method: as-shipped.",
     .examples = "ropewalk generate ./SmolLM2-135M --prompt \"The capital of France is\"",
     .run = RunGenerate},
    {.name = "embed",
     .title = "Sentence vectors of a text encoder, as JSON (BERT, RoBERTa, RoFormer, NEZHA, T5, "
              "DeBERTa, XLNet)",
     .group = kLook,
     .required = "MODEL",
     .options = "--text --ids --special --positions --states --compute --weights --threads "
                "--oversubscribe "
                "--allow-unknown",
     .about =
         "--text takes one text and adds the special tokens of tokenizer.json ([CLS] and "
         "[SEP], <s> and </s>, or </s> at its end). --ids takes one text, [101, 7592, 102], or "
         "many, [[101, 7592, 102], [101, 102]], with the special tokens that the model was "
         "trained with. Pooling is that of modules.json (the mean or the first token, "
         "normalised or not); without it the mean.\n"
         "A BERT of 512 positions reads longer texts with --positions hierarchical: position "
         "i n + j is composed of the learned positions i and j; positions below n do not "
         "change.\n"
         "--states mask-decoder is for DeBERTa v2 and v3 with the original checkpoint's "
         "absolute positions, which its layers do not read.",
     .examples = "ropewalk embed ./all-MiniLM-L6-v2 --text book.txt --positions hierarchical",
     .run = RunEmbed},
    {.name = "curves",
     .title = "Decay curves of plain RoPE without a model: mean score, bound, integral, smoothness",
     .group = kLook,
     .required = "",
     .options = "--dim --bases --lengths --html --json --output",
     .about = "--length is the largest distance (default: 128k). docs/curves.md says what each "
              "table has; --html writes an explorer with charts and a heat map.",
     .examples = "ropewalk curves --dim 128 --base 1,10,100,10000,500000\n"
                 "ropewalk curves --base 10000,500000 --length 32k --html -o curves.html",
     .run = RunCurves},

    {.name = "sweep",
     .title = "Perplexity and passkey retrieval against length for every method",
     .group = kMeasure,
     .required = "MODEL",
     .options =
         "--text --ids --output --methods --rope-scaling --lengths --factors --trained "
         "--kv --protocol --anchors --seed --passkey-trials --passkey-filler "
         "--share --spans --evaluator --short-context --tasks --samples --questions --generate "
         "--haystack --squad --hotpot "
         "--english-words --no-race --prompts --prompts-only --angles --compute --weights --bos "
         "--special "
         "--threads --oversubscribe --allow-unknown --json --dry-run --budget --search --search-by "
         "--search-trials --engine "
         "--device --dtype --shard --slurm",
     .about =
         "The result is a folder, ropewalk-results without -o, with results.jsonl and report.html "
         "(docs/results-format.md).\n"
         "Without --lengths: half the trained length, the trained length, 2, 4 and 8 times it, as "
         "far as the text is long enough.\n"
         "Each method is measured once at each length: beyond the trained length with factor "
         "length / trained, up to it with the largest of these factors. For the recommendations, "
         "none at the trained length is added, and the recommended settings at that length.\n"
         "An estimate of the time is printed first. A sweep takes an hour at most unless --budget "
         "says otherwise; what it leaves out is said with its price and the command that goes "
         "on.\n"
         "After an interruption (Ctrl-C, kill, power failure) the same command continues; what was "
         "measured is not measured again.\n"
         "On several machines: the same command with --shard on each, with one -o that all of them "
         "reach (docs/many-machines.md).\n"
         "torchrun -m ropewalk sweep MODEL --engine torch shares one model over its processes "
         "(docs/python-sweep.md).",
     .examples = "ropewalk sweep ./SmolLM2-135M --text book.txt -o smollm2-sweep\n"
                 "ropewalk sweep model.gguf --text book.txt --methods none,yarn --lengths 8k,32k "
                 "--dry-run\n"
                 "ropewalk sweep ./Llama-3.1-8B --text book.txt --engine torch --device cuda\n"
                 "ropewalk sweep ./Llama-3.1-8B --text book.txt -o out --slurm | sbatch\n"
                 "ropewalk sweep ./SmolLM2-135M --text book.txt -o out --shard 3/16",
     .run = RunSweep,
     .over_ranks = true},
    {.name = "report",
     .title = "Renders the report of a sweep again, or compares several sweeps in one",
     .group = kMeasure,
     .required = "DIR",
     .options = "--output --engine --html --csv --markdown --json",
     .about = "--html, the default, writes DIR/report.html, or ./report.html for several DIRs, "
              "unless -o is given; --csv, --markdown and --json go to standard output.",
     .examples = "ropewalk report smollm2-sweep --markdown\n"
                 "ropewalk report sweep-a sweep-b -o both.html",
     .run = RunReport},
    {.name = "atlas",
     .title = "Measured models on one page: method by length by task, protocols, settings to paste",
     .group = kMeasure,
     .required = "",
     .options = "ACTION DIR --atlas --output",
     .about =
         "add copies the results of a sweep into the folder of --atlas, under the name of DIR, and "
         "writes README.md there; list, the default, prints the page: of that folder, or of the "
         "DIRs. Rows stand in one table where model, text, protocol and arithmetic are the same, "
         "and nowhere else. Besides sweeps a DIR may be docs/results/zoo, or one like it. "
         "docs/atlas is such a page.",
     .examples = "ropewalk atlas add smollm2-sweep\n"
                 "ropewalk atlas list sweep-a sweep-b -o both.md",
     .run = RunAtlas},
    {.name = "perplexity",
     .title = "Perplexity under one method, at one length or the same tokens at several; of a text "
              "encoder, pseudo-perplexity",
     .group = kMeasure,
     .required = "MODEL",
     .options =
         "--text --ids --lengths --methods --rope-scaling --factors --trained --kv --protocol "
         "--anchors --seed --prefix --per-token --positions --angles --compute --weights --bos "
         "--special "
         "--threads --oversubscribe --allow-unknown --json --dry-run",
     .about =
         "Without --method: as-shipped. docs/results-format.md describes --json, which is an array "
         "where several --lengths are given.\n"
         "mpirun -n N computes each window over N ranks (docs/ranks.md).\n"
         "T5, mT5 and UMT5: the first --prefix tokens of each window go through the encoder, "
         "with its end token behind, and the decoder scores what follows "
         "(docs/tasks/prefix.md).\n"
         "BERT, RoBERTa, RoFormer and NEZHA with the head of their masked language model: "
         "pseudo-perplexity, each scored token masked in turn, at every one of --lengths, the same "
         "tokens at each (docs/tasks/pseudo-perplexity.md). --protocol masked:K masks K tokens of "
         "each of --anchors spans of the text (32 of 8), masked every one; --positions "
         "hierarchical "
         "reads beyond the learned positions.",
     .examples = "ropewalk perplexity model.gguf --text book.txt --length 512 --protocol half\n"
                 "ropewalk perplexity ./t5-base-lm-adapt --text book.txt --prefix 128 "
                 "--lengths 256,512,1k,2k\n"
                 "ropewalk perplexity ./bert-base-uncased --text book.txt --lengths 512,1k,2k "
                 "--positions hierarchical",
     .run = RunPerplexity,
     .over_ranks = true},
    {.name = "passkey",
     .title = "One cell: retrieval of numbers hidden in prompts of one length",
     .group = kMeasure,
     .required = "MODEL",
     .options =
         "--passkey-filler --text --lengths --methods --rope-scaling --factors --trained "
         "--kv --seed --passkey-trials --angles --compute --weights --bos --special --threads "
         "--oversubscribe --allow-unknown --json --dry-run",
     .about = "--text is read only for --passkey-filler text. Without --method: as-shipped. "
              "docs/tasks/passkey.md describes the task, docs/results-format.md --json.",
     .examples = "ropewalk passkey model.gguf --length 16k --method yarn --factor 2",
     .run = RunPasskey,
     .over_ranks = true},
    {.name = "kv",
     .title = "One cell: retrieval of a value among JSON key-value pairs",
     .group = kMeasure,
     .required = "MODEL",
     .options =
         "--lengths --methods --rope-scaling --factors --trained --kv --seed --samples "
         "--questions --generate --angles --compute --weights --bos --threads --oversubscribe "
         "--allow-unknown --json --dry-run",
     .about =
         "Every question of a prompt is asked behind the same keys and values, which are "
         "computed once. --kv is no part of the task: it says what the model's KV cache holds. "
         "docs/tasks/kv.md describes the task, docs/results-format.md --json.",
     .examples = "ropewalk kv model.gguf --length 16k --method yarn --factor 2",
     .run = RunKv,
     .over_ranks = true},
    {.name = "ruler",
     .title = "One cell: the tasks of RULER",
     .group = kMeasure,
     .required = "MODEL",
     .options =
         "--tasks --lengths --methods --rope-scaling --factors --trained --kv --seed --samples "
         "--questions --generate --haystack --squad --hotpot --english-words --angles "
         "--compute --weights --bos --threads --oversubscribe --allow-unknown --json --dry-run",
     .about = "Without --tasks every task that needs no file, or has its file. "
              "docs/tasks/ruler.md describes the tasks, docs/results-format.md --json.",
     .examples = "ropewalk ruler ./SmolLM2-135M --tasks vt,cwe --length 4k --samples 20",
     .run = RunRuler,
     .over_ranks = true},
    {.name = "prompts",
     .title = "Prints what tasks ask, and their answers, as JSON lines; runs no model",
     .group = kMeasure,
     .required = "MODEL --tasks --lengths",
     .options = "--samples --questions --passkey-trials --passkey-filler --text --seed --haystack "
                "--squad --hotpot --english-words --bos "
                "--output --threads --oversubscribe --allow-unknown",
     .about = "A tokenizer is enough, without weights. docs/tasks/ruler.md describes the tasks and "
              "the lines.",
     .examples =
         "ropewalk prompts ./SmolLM2-135M --tasks ruler:vt,cwe --length 4k -o prompts.jsonl",
     .run = RunPrompts},
    {.name = "key-tokens",
     .title = "LongPPL: perplexity of the tokens that need the long context, beside that of all",
     .group = kMeasure,
     .required = "MODEL --text",
     .options = "--spans --evaluator --short-context --lengths --methods --rope-scaling --factors "
                "--trained --kv --anchors --angles --compute --weights --bos --special --threads "
                "--oversubscribe "
                "--allow-unknown --json",
     .about =
         "Key tokens are those that the evaluator predicts more than 2 nats better behind all of a "
         "document, of its trained length, than behind a short context, and with a probability "
         "above exp(-2). They are fixed once for a text: --spans keeps them.\n"
         "Without --length: the trained length, or all of a shorter text. The text is scored in "
         "windows of that length, which do not overlap; as LongPPL has it without BOS unless "
         "--bos. Without --method: as-shipped. docs/tasks/key-tokens.md has the definition.",
     .examples = "ropewalk key-tokens ./SmolLM2-135M --text book.txt --spans book.spans.json\n"
                 "ropewalk key-tokens ./SmolLM2-135M --text book.txt --spans book.spans.json "
                 "--length 16k --method yarn",
     .run = RunKeyTokens},
    {.name = "verify",
     .title = "Asks a running server which position setting it really runs",
     .group = kMeasure,
     .required = "URL --model",
     .options = "--text --ids --methods --rope-scaling --factors --lengths --trained --tokens "
                "--served-model --timeout --angles --compute --weights --bos --special --threads "
                "--oversubscribe --allow-unknown --json",
     .about =
         "Compares the server's log-probabilities beyond the trained length with those computed "
         "here under the setting that you ask for and under what servers run by mistake: no "
         "scaling, no attention factor, another factor, another rounding, and more. Without "
         "--method: as-shipped. Without --length: twice the trained length, or what the server "
         "takes. Exit code 0: it runs what you ask for. docs/verify.md says what an answer means.",
     .examples = "ropewalk verify http://localhost:8000 --model ./SmolLM2-135M --text book.txt "
                 "--method yarn --factor 4",
     .run = RunVerify},

    {.name = "extend",
     .title = "Writes the model with another position setting; the weights do not change",
     .group = kWrite,
     .required = "MODEL --output",
     .options = "--methods --rope-scaling --factors --lengths --trained --engine --allow-unknown "
                "--json --link",
     .about =
         "A folder gives a folder, a GGUF file a .gguf file; the output must not exist. For a "
         "folder config.json is rewritten and everything else copied, without using disk space "
         "where the file system can share blocks; a GGUF file is copied with other keys (and the "
         "tensor rope_freqs where llama.cpp needs it). The result is read back and its plan "
         "compared with the requested one before it is renamed to the output.",
     .examples = "ropewalk extend ./SmolLM2-135M --method yarn --factor 4 -o SmolLM2-yarn4",
     .run = RunExtend},
    {.name = "convert",
     .title = "Converts a Hugging Face folder to GGUF and back, or q and k between pair layouts",
     .group = kWrite,
     .required = "MODEL --output",
     .options =
         "--type --layout --head-dim --rotary-dim --no-tokenizer --no-verify --weights --threads "
         "--oversubscribe --allow-unknown --json",
     .about =
         "To a GGUF file if the output ends in .gguf, else to a folder; the output must not "
         "exist. The result is read back, and its positions, tokenizer and the logits of a probe "
         "text are compared with the source, before it is renamed to the output.",
     .examples = "ropewalk convert ./SmolLM2-135M -o smollm2.gguf --type q8_0\n"
                 "ropewalk convert model.gguf -o model-hf\n"
                 "ropewalk convert adapter_model.safetensors --layout interleaved --head-dim 64 -o "
                 "out.st",
     .run = RunConvert},

    {.name = "info",
     .title = "Version, build, SIMD target in use, bf16 instructions, threads, GPUs, libraries",
     .group = kProgram,
     .required = "",
     .options = "--threads --oversubscribe --json",
     .about = "For bug reports.",
     .examples = "ropewalk info",
     .run = RunInfo},
    {.name = "completion",
     .title = "Prints the completion script of a shell",
     .group = kProgram,
     .required = "SHELL",
     .options = "--output",
     .about =
         "make install puts the scripts where shells look for them. Otherwise: in bash add the "
         "first example to ~/.bashrc; in zsh save it as _ropewalk in a folder of fpath; in "
         "fish as ropewalk.fish in ~/.config/fish/completions.",
     .examples = "source <(ropewalk completion bash)\n"
                 "ropewalk completion zsh -o ~/.zfunc/_ropewalk",
     .run = RunCompletion},
    {.name = "manual",
     .title = "Prints a page of the manual, for man -l",
     .group = kProgram,
     .required = "",
     .options = "COMMAND --output",
     .about =
         "Without COMMAND it prints the page of the program; with -o it writes a folder with every "
         "page, as make install does.",
     .examples = "ropewalk manual sweep | man -l -",
     .run = RunManual},
};

}  // namespace

std::span<const Command> Commands() { return kCommands; }

}  // namespace ropewalk::cli
