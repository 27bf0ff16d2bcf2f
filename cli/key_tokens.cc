// ropewalk key-tokens: finds the key tokens of a text, and measures their loss.
#include "cli/key_tokens.h"

#include <fmt/format.h>

#include <algorithm>
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

Found Find(const Options& options, const Exam& exam, const ModelFiles& files,
           const ScoringEngine& engine, const PositionPlan& plan, int64_t trained_length) {
  const Tokenizer& tokenizer = RequireTokenizer(files);
  if (trained_length == 0) {
    throw Error(ErrorCode::kUnsupported,
                files.path + ": the trained length of the evaluator is unknown");
  }
  KeyTokenSettings settings = KeyTokenSettings::For(trained_length, ShortContext(options));
  settings.bos = tokenizer.adds_bos();
  ProgressLine line;
  RunOptions run = WithProgress(exam.spec, line, "key tokens");
  run.bos_id = tokenizer.bos_id();
  const KeyTokens found = FindKeyTokens(
      engine, plan, exam.text, TokenizeText(tokenizer, exam.text, {options.special}), settings,
      {ModelName(files.path), files.Hash(), tokenizer.kind(), tokenizer.hash()}, exam.wanted, run);
  if (!options.spans.empty()) WriteKeySpans(options.spans, found.spans);
  return {found.spans, found.fed_tokens};
}

// By --evaluator under its own plan.
Found FindByEvaluator(const Options& options, const Exam& exam) {
  Options other = options;
  other.model = options.evaluator;
  const ModelFiles files = OpenRunnable(other);
  const std::unique_ptr<Decoder> decoder = LoadDecoder(options, files);
  const PositionPlan& plan = files.config.plan;
  return Find(options, exam, files, DecoderEngine(*decoder), plan, plan.trained_length);
}

// By the model itself without scaling.
Found FindByItself(const Options& options, const Exam& exam, const ModelFiles& files,
                   const ScoringEngine& engine) {
  const int64_t trained = exam.spec.trained_length;
  const PositionPlan plan = PositionMethod().Apply(files.config.plan, 1, trained);
  return Find(options, exam, files, engine, plan, trained);
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
}

// The key tokens of an exam, from the file of --spans or found.
Found KeysOf(const Options& options, const Exam& exam, const ModelFiles& files,
             const ScoringEngine& engine) {
  if (HasSpans(options)) return {.keys = ReadSpans(options, exam), .read = true};
  if (!options.evaluator.empty()) return FindByEvaluator(options, exam);
  return FindByItself(options, exam, files, engine);
}

}  // namespace

void AddKeyTokens(const Options& given, const ScoringEngine& engine, Sweep& sweep) {
  const Protocol& protocol = sweep.spec.protocol;
  if (protocol.kind != Protocol::Kind::kAligned) {
    throw UsageError(
        "--tasks key-tokens: their loss is compared over the same tokens at every length, which "
        "only --protocol aligned scores");
  }
  Options options = given;
  if (options.spans.empty()) options.spans = options.output + "/key-tokens.json";
  if (options.dry_run && !HasSpans(options)) return;
  Exam exam{.text = sweep.bytes, .tokens = sweep.text, .spec = sweep.spec};
  exam.windows = MakeWindows(exam.tokens, protocol, sweep.longest, sweep.longest, exam.spec.bos_id);
  exam.wanted = ScoredSpans(exam.tokens, exam.windows, protocol.bos);
  if (!HasSpans(options)) {
    const auto folder = std::filesystem::path(options.spans).parent_path();
    if (!folder.empty()) std::filesystem::create_directories(folder);
  }
  InterruptScope scope;
  const KeySpans keys = KeysOf(options, exam, sweep.files, engine).keys;
  KeyTokenTask task{.protocol = fmt::format("{}, by {} {}", keys.settings.Name(),
                                            keys.evaluator.name, keys.evaluator.model_hash),
                    .data_hash = keys.Hash()};
  const std::vector<int64_t> all = KeyTokenIndices(exam.text, exam.tokens, keys);
  int64_t scored = 0;
  for (const EvalWindow& window : exam.windows) {
    const auto end =
        window.text_begin + static_cast<int64_t>(window.ids.size()) - (protocol.bos ? 1 : 0);
    const auto tokens = static_cast<int64_t>(window.ids.size()) - window.score_begin;
    scored += tokens;
    std::copy_if(all.begin(), all.end(), std::back_inserter(task.tokens),
                 [&](int64_t token) { return token >= end - tokens && token < end; });
  }
  std::sort(task.tokens.begin(), task.tokens.end());
  sweep.notes.push_back(fmt::format("{} of the {} scored tokens are key tokens; spans in {}",
                                    task.tokens.size(), scored, options.spans));
  Message("ropewalk: " + sweep.notes.back());
  sweep.spec.key_tokens = std::move(task);
}

void RunKeyTokens(const Options& options) {
  const ModelFiles files = OpenRunnable(options);
  const Exam exam = ExamOf(options, files);
  const SweepTask task = SingleTask(options, files, exam.spec, exam.length);
  InterruptScope scope;
  const std::unique_ptr<Decoder> decoder = LoadDecoder(options, files);
  const DecoderEngine engine(*decoder);
  const Found found = KeysOf(options, exam, files, engine);
  const bool bos = exam.spec.protocol.bos;
  PerplexityResult all;
  {
    ProgressLine line;
    all = MeasurePerplexity(engine, task.plan, exam.tokens, exam.spec.protocol, exam.length,
                            exam.length, WithProgress(exam.spec, line, task.method));
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
