// ropewalk key-tokens: finds the key tokens of a text, and measures their loss.
#include "cli/key_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>

#include "cli/input.h"
#include "cli/json_text.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "ropewalk/base/error.h"
#include "ropewalk/eval/decoder_engine.h"
#include "ropewalk/eval/key_tokens.h"

namespace ropewalk::cli {
namespace {

// What is measured, but for the key tokens.
struct Exam {
  std::string text;
  TokenText tokens;
  SweepSpec spec;
  int64_t length = 0;
  std::vector<EvalWindow> windows = {};
  std::vector<ByteSpan> wanted = {};  // empty: the whole text
};

struct Found {
  KeySpans keys;
  int64_t fed_tokens = 0;
  bool read = false;  // from a file
};

RunOptions WithProgress(const SweepSpec& spec, ProgressLine& line, const std::string& what) {
  RunOptions run;
  run.angles = spec.angles;
  run.bos_id = spec.bos_id;
  run.progress = [&line, what](int64_t done, int64_t all) {
    line.Update(what, done, all);
    return !IsInterrupted();
  };
  return run;
}

Exam ExamOf(const Options& options, const ModelFiles& files) {
  Exam exam;
  const Tokenizer& tokenizer = RequireTokenizer(files);
  if (options.text.empty()) throw UsageError("give a text with --text FILE");
  exam.text = ReadText(options.text);
  exam.tokens = TokenizeText(tokenizer, exam.text, {options.special});
  if (exam.tokens.ids.empty()) {
    throw Error(ErrorCode::kInvalidFile, options.text + ": the text is empty");
  }
  exam.spec = SpecOf(options, files);
  exam.spec.protocol = Protocol::Parse("windows");
  exam.spec.protocol.anchors = options.anchors.value_or(0);
  exam.spec.protocol.bos = options.bos.value_or(false) && WantsBos(options, files);
  const auto all = static_cast<int64_t>(exam.tokens.ids.size()) + (exam.spec.protocol.bos ? 1 : 0);
  if (exam.spec.lengths.size() > 1) throw UsageError("give one length with --length N");
  if (exam.spec.lengths.empty() && exam.spec.trained_length == 0) {
    throw UsageError("the trained length of the model is unknown; give --length N");
  }
  exam.length =
      exam.spec.lengths.empty() ? std::min(all, exam.spec.trained_length) : exam.spec.lengths[0];
  exam.windows =
      MakeWindows(exam.tokens, exam.spec.protocol, exam.length, exam.length, exam.spec.bos_id);
  if (exam.spec.protocol.anchors > 0) {
    exam.wanted = ScoredSpans(exam.tokens, exam.windows, exam.spec.protocol.bos);
  }
  return exam;
}

int64_t ShortContext(const Options& options) {
  return options.short_context.empty() ? 0 : ParseLength(options.short_context);
}

// Who finds the key tokens: the model itself without scaling, or --evaluator under its own plan.
struct Evaluator {
  ModelFiles files = {};  // of --evaluator, with what runs it
  std::unique_ptr<Decoder> decoder = {};
  std::unique_ptr<ScoringEngine> engine = {};
  KeyTokenFinder finder = {};
};

Evaluator EvaluatorOf(const Options& options, const Exam& exam, const ModelFiles& files,
                      const ScoringEngine& engine) {
  Evaluator evaluator;
  const bool other = !options.evaluator.empty();
  if (other) {
    Options own = options;
    own.model = options.evaluator;
    evaluator.files = OpenRunnable(own);
    evaluator.decoder = LoadDecoder(options, evaluator.files);
    evaluator.engine = std::make_unique<DecoderEngine>(*evaluator.decoder);
  }
  const ModelFiles& its = other ? evaluator.files : files;
  const PositionPlan& plan = its.config.plan;
  const int64_t trained = other ? plan.trained_length : exam.spec.trained_length;
  evaluator.finder = {.engine = other ? evaluator.engine.get() : &engine,
                      .plan = other ? plan : PositionMethod().Apply(plan, 1, trained),
                      .trained_length = trained,
                      .tokenizer = &RequireTokenizer(its),
                      .name = ModelName(its.path),
                      .model_hash = its.Hash(),
                      .short_context = ShortContext(options),
                      .encoding = {options.special}};
  return evaluator;
}

Found Find(const Options& options, const Exam& exam, const KeyTokenFinder& finder) {
  ProgressLine line;
  const KeyTokens found =
      FindKeyTokens(finder, exam.text, exam.wanted, WithProgress(exam.spec, line, "key tokens"));
  if (!options.spans.empty()) WriteKeySpans(options.spans, found.spans);
  return {found.spans, found.fed_tokens};
}

bool HasSpans(const Options& options) {
  std::error_code ignored;
  return !options.spans.empty() && std::filesystem::exists(options.spans, ignored);
}

KeySpans ReadSpans(const Options& options, const Exam& exam) {
  KeySpans keys = ReadKeySpans(options.spans, exam.text);
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::kMismatch, options.spans + ": " + why + "; give another file");
  };
  const int64_t k = ShortContext(options);
  if (k > 0 && k != keys.settings.short_context) {
    refuse(fmt::format("found with a short context of {} tokens, asked for is {}",
                       keys.settings.short_context, k));
  }
  if (!options.evaluator.empty()) {
    Options other = options;
    other.model = options.evaluator;
    if (OpenRunnable(other).Hash() != keys.evaluator.model_hash) {
      refuse("found by the evaluator " + keys.evaluator.name + ", not by " + options.evaluator);
    }
  }
  const ByteSpan whole[] = {{0, static_cast<int64_t>(exam.text.size())}};
  if (!Covers(keys, exam.wanted.empty() ? whole : std::span<const ByteSpan>(exam.wanted))) {
    refuse("only a part of the text was searched, not all that is scored");
  }
  return keys;
}

nlohmann::ordered_json ResultJson(const Options& options, const ModelFiles& files, const Exam& exam,
                                  const SweepTask& task, const Found& found,
                                  const PerplexityResult& all, const KeyTokenResult& key,
                                  const EngineFacts& facts) {
  const KeySpans& keys = found.keys;
  return {{"model_name", ModelName(options.model)},
          {"model_hash", files.Hash()},
          {"method", task.method},
          {"factor", task.factor},
          {"scaling", task.scaling},
          {"plan_hash", task.plan_hash},
          {"length", exam.length},
          {"bos", exam.spec.protocol.bos},
          {"windows", all.windows},
          {"scored_tokens", key.scored_tokens},
          {"perplexity", all.perplexity},
          {"mean_nll", all.mean_nll},
          {"standard_error", all.standard_error},
          {"key_tokens", key.key_tokens},
          {"longppl", key.longppl},
          {"key_nll", key.mean_nll},
          {"key_standard_error", key.standard_error},
          {"window_keys", key.window_keys},
          {"window_key_nll", key.window_nll},
          {"protocol", keys.settings.Name()},
          {"spans_hash", keys.Hash()},
          {"spans", keys.spans.size()},
          {"evaluator",
           {{"name", keys.evaluator.name},
            {"model_hash", keys.evaluator.model_hash},
            {"tokenizer", keys.evaluator.tokenizer},
            {"tokenizer_hash", keys.evaluator.tokenizer_hash}}},
          {"evaluator_tokens", found.fed_tokens},
          {"text_hash", keys.text_hash},
          {"tokenizer", exam.tokens.tokenizer},
          {"tokenizer_hash", exam.tokens.tokenizer_hash},
          {"kv", Name(task.kv)},
          {"compute", facts.compute},
          {"angles", options.angles},
          {"threads", facts.threads},
          {"version", Version()}};
}

void PrintLoss(const char* name, double perplexity, double nll, double standard_error) {
  fmt::print("{:<14} {:.4f} ({:.5f} nats per token", name, perplexity, nll);
  if (std::isfinite(standard_error)) fmt::print(", standard error {:.5f}", standard_error);
  fmt::print(")\n");
}

void Print(const Options& options, const Exam& exam, const SweepTask& task, const Found& found,
           const PerplexityResult& all, const KeyTokenResult& key) {
  const KeySpans& keys = found.keys;
  if (key.key_tokens > 0) {
    PrintLoss("LongPPL", key.longppl, key.mean_nll, key.standard_error);
  } else {
    fmt::print("LongPPL        none: no key token is scored\n");
  }
  PrintLoss("perplexity", all.perplexity, all.mean_nll, all.standard_error);
  fmt::print("key tokens     {} of {} scored, in {} windows of {}, {}\n", key.key_tokens,
             key.scored_tokens, all.windows, exam.length,
             exam.spec.protocol.bos ? "BOS" : "no BOS");
  fmt::print("found          by {} {}, {}: {} spans, hash {}\n", keys.evaluator.name,
             keys.evaluator.model_hash, keys.settings.Name(), keys.spans.size(), keys.Hash());
  if (!options.spans.empty()) {
    fmt::print("spans          {} {}\n", found.read ? "read from" : "written to", options.spans);
  }
  fmt::print("scaling        {}, plan {}\n", task.scaling, task.plan_hash);
  if (task.kv != KvType::kF32) fmt::print("KV cache       {}\n", Name(task.kv));
}

// The key tokens of an exam, from the file of --spans or found.
Found KeysOf(const Options& options, const Exam& exam, const ModelFiles& files,
             const ScoringEngine& engine) {
  if (HasSpans(options)) return {.keys = ReadSpans(options, exam), .read = true};
  return Find(options, exam, EvaluatorOf(options, exam, files, engine).finder);
}

// What finding them will take.
Price PriceOf(const KeyTokenFinder& finder, const Exam& exam) {
  RunOptions run;
  run.angles = exam.spec.angles;
  const CellCost cost = CostOfKeyTokens(finder, exam.text, exam.wanted, run);
  const double seconds = Pace::Measure(*finder.engine, {&finder.plan}, finder.trained_length,
                                       exam.tokens, exam.spec.angles)
                             .Seconds(cost, finder.plan);
  return {cost.tokens, cost.tokens, seconds, seconds};
}

// Those of a sweep that are in no file yet; counts the time against the budget.
KeySpans FindForSweep(const Options& options, const Exam& exam, const KeyTokenFinder& finder,
                      const Price& price, double& budget) {
  Message(
      fmt::format("ropewalk: the key tokens are found first: {} tokens through the model, about {}",
                  price.tokens, Duration(price.seconds)));
  if (price.seconds > budget) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("nothing can be measured within the budget of {}: finding the key "
                            "tokens takes about {}",
                            Duration(budget), Duration(price.seconds)));
  }
  const auto folder = std::filesystem::path(options.spans).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder);
  const auto begin = std::chrono::steady_clock::now();
  InterruptScope scope;
  KeySpans keys = Find(options, exam, finder).keys;
  budget -= std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return keys;
}

}  // namespace

void AddKeyTokens(const Options& given, const ScoringEngine& engine, Sweep& sweep, double& budget) {
  const Protocol& protocol = sweep.spec.protocol;
  if (protocol.kind != Protocol::Kind::kAligned) {
    throw UsageError(
        "--tasks key-tokens: their loss is compared over the same tokens at every length, which "
        "only --protocol aligned scores");
  }
  Options options = given;
  if (options.spans.empty()) options.spans = options.output + "/key-tokens.json";
  Exam exam{.text = sweep.bytes, .tokens = sweep.text, .spec = sweep.spec};
  exam.windows = MakeWindows(exam.tokens, protocol, sweep.longest, sweep.longest, exam.spec.bos_id);
  exam.wanted = ScoredSpans(exam.tokens, exam.windows, protocol.bos);
  KeySpans keys;
  if (HasSpans(options)) {
    keys = ReadSpans(options, exam);
  } else {
    const Evaluator evaluator = EvaluatorOf(options, exam, sweep.files, engine);
    const Price price = PriceOf(evaluator.finder, exam);
    if (options.dry_run || options.slurm) {
      sweep.key_tokens_price = price;
      sweep.spec.key_tokens.emplace();  // which they are is not known yet
      return;
    }
    keys = FindForSweep(options, exam, evaluator.finder, price, budget);
  }
  sweep.spec.key_tokens = KeyTokenTaskOf(keys, exam.text, exam.tokens, exam.windows, protocol.bos);
  int64_t scored = 0;
  for (const EvalWindow& window : exam.windows) {
    scored += static_cast<int64_t>(window.ids.size()) - window.score_begin;
  }
  sweep.notes.push_back(fmt::format("{} of the {} scored tokens are key tokens; spans in {}",
                                    sweep.spec.key_tokens->tokens.size(), scored, options.spans));
  Message("ropewalk: " + sweep.notes.back());
}

void RunKeyTokens(const Options& options) {
  const ModelFiles files = OpenRunnable(options);
  const Exam exam = ExamOf(options, files);
  const SweepTask task = SingleTask(options, files, exam.spec, exam.length);
  InterruptScope scope;
  const std::unique_ptr<Decoder> decoder = LoadDecoder(options, files);
  const DecoderEngine engine(*decoder);
  engine.CheckKv(task.kv);
  const Found found = KeysOf(options, exam, files, engine);
  const bool bos = exam.spec.protocol.bos;
  PerplexityResult all;
  {
    ProgressLine line;
    RunOptions run = WithProgress(exam.spec, line, task.method);
    run.kv = task.kv;  // of what is measured; key tokens are found with f32
    all = MeasurePerplexity(engine, task.plan, exam.tokens, exam.spec.protocol, exam.length,
                            exam.length, run);
  }
  const KeyTokenResult key =
      ScoreKeyTokens(all, exam.windows, bos, KeyTokenIndices(exam.text, exam.tokens, found.keys));
  if (options.json) {
    fmt::print("{}\n",
               JsonText(ResultJson(options, files, exam, task, found, all, key, engine.Facts())));
  } else {
    Print(options, exam, task, found, all, key);
  }
}

}  // namespace ropewalk::cli
