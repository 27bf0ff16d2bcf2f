// The commands of the program, one row each: a new one is its file and its row here.
#include "cli/rows.h"

namespace ropewalk::cli {

void RunCompletion(const Options& options);
void RunConvert(const Options& options);
void RunEmbed(const Options& options);
void RunExtend(const Options& options);
void RunGenerate(const Options& options);
void RunInfo(const Options& options);
void RunInspect(const Options& options);
void RunManual(const Options& options);
void RunPasskey(const Options& options);
void RunPerplexity(const Options& options);
void RunReport(const Options& options);
void RunSweep(const Options& options);
void RunTokenize(const Options& options);

namespace {

constexpr char kLook[] = "Look at a model", kMeasure[] = "Measure it", kWrite[] = "Write it",
               kProgram[] = "About the program";

constexpr Command kCommands[] = {
    {.name = "inspect",
     .title = "What a model does with positions: pairs, limits, errors, what engines make of it, "
              "warnings",
     .group = kLook,
     .required = "",
     .options =
         "MODEL --lengths --trained --rope-scaling --dialect --engine --methods --factors --text "
         "--ids --special --diff --html --json --output --allow-unknown --threads "
         "--oversubscribe",
     .about = "Works on a lone config.json, and without weights or tokenizer, unless --text asks "
              "how much each frequency contributes to the scores. --methods and --factors are the "
              "lines of the decay chart. docs/inspect-format.md describes --json.",
     .examples = "ropewalk inspect ./SmolLM2-135M\n"
                 "ropewalk inspect model.gguf --length 32k --html -o model.html\n"
                 "ropewalk inspect --diff ./base ./fine-tuned",
     .run = RunInspect},
    {.name = "tokenize",
     .title = "The token ids of a text, as a JSON array",
     .group = kLook,
     .required = "MODEL",
     .options = "--text --ids --pieces --decode --bos --special --allow-unknown --json",
     .about = "Without --text reads standard input. The ids are those of the text alone, so that "
              "--ids takes them as they are; --bos puts a BOS in front.",
     .examples = "ropewalk tokenize ./model --text book.txt > ids.json",
     .run = RunTokenize},
    {.name = "generate",
     .title = "Goes on from a prompt, greedily: is the model read right?",
     .group = kLook,
     .required = "MODEL",
     .options = "--prompt --max-tokens --methods --rope-scaling --factors --trained --angles "
                "--compute --bos --special --threads --oversubscribe --allow-unknown --json",
     .about = "Without --method: as-shipped.",
     .examples = "ropewalk generate ./SmolLM2-135M --prompt \"The capital of France is\"",
     .run = RunGenerate},
    {.name = "embed",
     .title = "Sentence vectors of a text encoder, as JSON (BERT, RoBERTa, T5, DeBERTa v2 and v3, "
              "XLNet)",
     .group = kLook,
     .required = "MODEL",
     .options = "--text --ids --special --positions --states --compute --threads --oversubscribe "
                "--allow-unknown",
     .about = "--text takes one text and puts round it what tokenizer.json says ([CLS] and [SEP], "
              "<s> and </s>, </s> behind it). --ids takes one, [101, 7592, 102], or many, [[101, "
              "7592, 102], [101, 102]], with the special tokens that the model was trained with. "
              "Pooling is what modules.json says (the mean or the first token, normalised or not); "
              "without it the mean.\n"
              "A BERT of 512 positions reads longer texts with --positions hierarchical: position "
              "i n + j is made of the learned ones of i and j, and positions below n stay as they "
              "were.\n"
              "--states mask-decoder is for DeBERTa v2 and v3 with the original checkpoint's "
              "absolute positions, which its layers do not read.",
     .examples = "ropewalk embed ./all-MiniLM-L6-v2 --text book.txt --positions hierarchical",
     .run = RunEmbed},

    {.name = "sweep",
     .title = "Perplexity and passkey against length for every method; the main job",
     .group = kMeasure,
     .required = "MODEL",
     .options = "--text --ids --output --methods --rope-scaling --lengths --factors --trained "
                "--protocol --anchors --seed --passkey-trials --passkey-filler --depths "
                "--no-passkey --angles --compute --bos --special --threads --oversubscribe "
                "--allow-unknown --json --dry-run --search --budget --yes --engine",
     .about =
         "The result is a folder, ropewalk-results without -o, with results.jsonl and report.html "
         "(docs/results-format.md).\n"
         "Without --lengths: half the trained length, the trained length, 2, 4 and 8 times it, as "
         "far as the text goes.\n"
         "Each method is measured once at each length: beyond the trained length with factor "
         "length / trained, up to it with the largest of these factors. For the recommendation, "
         "none at the trained length is added, and what the recommended settings cost there.\n"
         "The estimate comes first. Above an hour nothing starts without --yes (exit code 2) or a "
         "yes at the terminal.\n"
         "Interrupted (Ctrl-C, kill, power)? The same command goes on; what is finished is not "
         "done again.",
     .examples = "ropewalk sweep ./SmolLM2-135M --text book.txt -o smollm2-sweep\n"
                 "ropewalk sweep model.gguf --text book.txt --methods none,yarn --lengths 8k,32k "
                 "--dry-run",
     .run = RunSweep},
    {.name = "report",
     .title = "Render the report of a sweep again, or compare several sweeps in one",
     .group = kMeasure,
     .required = "DIR",
     .options = "--output --engine --html --csv --markdown --json",
     .about = "The page, --html, goes to DIR/report.html without -o, for several DIRs to "
              "./report.html; --csv, --markdown and --json go to standard output.",
     .examples = "ropewalk report smollm2-sweep --markdown\n"
                 "ropewalk report sweep-a sweep-b -o both.html",
     .run = RunReport},
    {.name = "perplexity",
     .title = "One cell: perplexity at one length under one method",
     .group = kMeasure,
     .required = "MODEL",
     .options = "--text --ids --lengths --methods --rope-scaling --factors --trained --protocol "
                "--anchors --seed --per-token --angles --compute --bos --special --threads "
                "--oversubscribe --allow-unknown --json --dry-run",
     .about = "Without --method: as-shipped. docs/results-format.md describes --json.",
     .examples = "ropewalk perplexity model.gguf --text book.txt --length 512 --protocol half",
     .run = RunPerplexity},
    {.name = "passkey",
     .title = "One cell: can the model find a number hidden in a prompt of one length?",
     .group = kMeasure,
     .required = "MODEL",
     .options = "--passkey-filler --text --lengths --methods --rope-scaling --factors --trained "
                "--seed --passkey-trials --depths --angles --compute --bos --special --threads "
                "--oversubscribe --allow-unknown --json --dry-run",
     .about = "--text is read for --passkey-filler text alone. Without --method: as-shipped. "
              "docs/results-format.md describes --json.",
     .examples = "ropewalk passkey model.gguf --length 16k --method yarn --factor 2",
     .run = RunPasskey},

    {.name = "extend",
     .title = "Writes the model with a position setting in it; the weights are not touched",
     .group = kWrite,
     .required = "MODEL --output",
     .options = "--methods --rope-scaling --factors --lengths --trained --engine --allow-unknown "
                "--json --link",
     .about =
         "The result is a folder for a folder and a .gguf file for a GGUF file; nothing may be "
         "there. A folder gets config.json rewritten and copies of everything else, which "
         "need no room where the file system can share blocks; a GGUF file is copied with "
         "other keys (and the tensor rope_freqs where llama.cpp needs it). The result is read "
         "back, and its plan compared with what was asked for, before it gets its name.",
     .examples = "ropewalk extend ./SmolLM2-135M --method yarn --factor 4 -o SmolLM2-yarn4",
     .run = RunExtend},
    {.name = "convert",
     .title = "Hugging Face folder to GGUF and back; q and k between the pair layouts",
     .group = kWrite,
     .required = "MODEL --output",
     .options = "--type --layout --head-dim --rotary-dim --no-tokenizer --no-verify --threads "
                "--oversubscribe --allow-unknown --json",
     .about =
         "To a GGUF file where the name of the result ends in .gguf, else to a folder; nothing "
         "may be there. The result is read back: positions, tokenizer and the logits of a "
         "probe are compared with the source before it gets its name.",
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
     .title = "What a shell completes, as a script for it",
     .group = kProgram,
     .required = "SHELL",
     .options = "--output",
     .about = "make install puts them where shells look for them. Without that, a line for "
              "~/.bashrc is among the examples; in zsh the file is _ropewalk in a folder of fpath, "
              "in fish ropewalk.fish in ~/.config/fish/completions.",
     .examples = "source <(ropewalk completion bash)\n"
                 "ropewalk completion zsh -o ~/.zfunc/_ropewalk",
     .run = RunCompletion},
    {.name = "manual",
     .title = "A page of the manual, for man -l",
     .group = kProgram,
     .required = "",
     .options = "COMMAND --output",
     .about =
         "Without COMMAND the page of the program; with -o a folder of that name with every page, "
         "as make install installs them.",
     .examples = "ropewalk manual sweep | man -l -",
     .run = RunManual},
};

}  // namespace

std::span<const Command> Commands() { return kCommands; }

}  // namespace ropewalk::cli
