// ropewalk verify: what positions a running server computes.
#include "ropewalk/eval/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cli/input.h"
#include "cli/json_text.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/server.h"
#include "ropewalk/base/error.h"
#include "ropewalk/eval/decoder_engine.h"

namespace ropewalk::cli {
namespace {

constexpr int64_t kNoisePrompts = 16;  // of a single token
constexpr int64_t kTokensPerPrompt =
    4;  // of --tokens, where each prompt tells ten log-probabilities

// What is asked, and what the server answers.
struct Asked {
  std::vector<std::vector<int32_t>> windows;
  std::vector<VerifyQuestion> questions;
  VerifyAnswers server;
};

// Tokens of a text behind a BOS where the model wants one.
std::vector<int32_t> WindowOf(const TokenText& text, const SweepSpec& spec, int64_t length) {
  std::vector<int32_t> window;
  if (spec.protocol.bos) window.push_back(*spec.bos_id);
  for (std::size_t i = 0; static_cast<int64_t>(window.size()) < length; ++i) {
    window.push_back(text.ids[i]);
  }
  return window;
}

// `count` numbers from first to last, as even as they can be.
std::vector<int64_t> Spread(int64_t first, int64_t last, int64_t count) {
  count = std::min(count, last - first + 1);
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < count; ++i) {
    numbers.push_back(count > 1 ? first + (last - first) * i / (count - 1) : last);
  }
  return numbers;
}

// The length to ask at. Beyond the trained length the position of at least some queries is new.
int64_t LengthOf(const Options& options, const SweepSpec& spec, const TokenText& text,
                 const ServedModel& served) {
  const int64_t trained = spec.trained_length;
  if (spec.lengths.size() > 1) throw UsageError("give one length with --length N");
  if (trained < 1) {
    throw UsageError("the trained length of the model is unknown; give it with --trained N");
  }
  const auto tokens = static_cast<int64_t>(text.ids.size()) + (spec.protocol.bos ? 1 : 0);
  int64_t length = spec.lengths.empty() ? 2 * trained : spec.lengths[0];
  if (spec.lengths.empty()) {
    length = std::min(length, tokens);
    if (served.max_length > 0) length = std::min(length, served.max_length - 1);
  }
  const int64_t least = trained + 1 + options.tokens;
  const std::string needs = fmt::format(
      "{} tokens beyond the trained length, {}, need prompts of {} tokens (--tokens, --length)",
      options.tokens, trained, least);
  if (served.max_length > 0 && std::max(length, least) >= served.max_length) {
    throw Error(ErrorCode::kMismatch, fmt::format("the server takes at most {} tokens of prompt "
                                                  "and answer; {}",
                                                  served.max_length, needs));
  }
  if (tokens < std::max(length, least)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the text has {} tokens; {}", tokens, needs));
  }
  if (length < least) throw UsageError(fmt::format("--length {}: {}", length, needs));
  return length;
}

void CheckIds(const Asked& asked, int64_t vocab, const char* whose) {
  for (const std::vector<int32_t>& window : asked.windows) {
    for (const int32_t id : window) {
      if (id >= 0 && (vocab == 0 || id < vocab)) continue;
      throw Error(ErrorCode::kMismatch,
                  fmt::format("the text has token {}, and {} vocabulary {} tokens: another "
                              "tokenizer or model",
                              id, whose, vocab));
    }
  }
}

// Single tokens, each with the one behind it: attention to one key is 1, so no plan matters.
std::vector<std::vector<int32_t>> SingleTokens(const TokenText& text) {
  std::vector<std::vector<int32_t>> pairs;
  const auto last = static_cast<int64_t>(text.ids.size()) - 2;
  for (const int64_t at : Spread(0, last, 4 * kNoisePrompts)) {
    const auto i = static_cast<std::size_t>(at);
    const bool known = std::any_of(pairs.begin(), pairs.end(),
                                   [&](const auto& pair) { return pair[0] == text.ids[i]; });
    if (!known) pairs.push_back({text.ids[i], text.ids[i + 1]});
    if (static_cast<int64_t>(pairs.size()) == kNoisePrompts) break;
  }
  return pairs;
}

// Each prompt once; the answers are those at `positions` of each.
void AskServer(const ModelServer& server, const std::vector<int64_t>& positions, int32_t window,
               Asked& asked) {
  const std::vector<int32_t>& ids = asked.windows[static_cast<std::size_t>(window)];
  if (server.way() == ServerWay::kEcho) {
    const std::vector<float> echoed = server.Echo(ids);
    for (const int64_t at : positions) {
      const auto i = static_cast<std::size_t>(at);
      asked.questions.push_back({.window = window, .position = at, .ids = {ids[i]}});
      asked.server.push_back({echoed[i - 1]});
    }
    return;
  }
  for (const int64_t at : positions) {
    NextTokens next = server.Next(std::span(ids).first(static_cast<std::size_t>(at)));
    asked.questions.push_back({.window = window, .position = at, .ids = std::move(next.ids)});
    asked.server.push_back(std::move(next.log_probs));
  }
}

Asked AskNoise(const ModelServer& server, const TokenText& text) {
  Asked asked;
  asked.windows = SingleTokens(text);
  CheckIds(asked, server.model().vocab, "the server's");
  for (std::size_t i = 0; i < asked.windows.size(); ++i) {
    AskServer(server, {1}, static_cast<int32_t>(i), asked);
  }
  return asked;
}

Asked AskBeyond(const ModelServer& server, std::vector<int32_t> window, int64_t trained,
                int64_t tokens) {
  Asked asked;
  const auto length = static_cast<int64_t>(window.size());
  asked.windows.push_back(std::move(window));
  CheckIds(asked, server.model().vocab, "the server's");
  // The query of a token is the one in front of it.
  const bool echo = server.way() == ServerWay::kEcho;
  const std::vector<int64_t> positions =
      Spread(trained + 1, echo ? length - 1 : length, echo ? tokens : tokens / kTokensPerPrompt);
  AskServer(server, positions, 0, asked);
  return asked;
}

VerifyVerdict JudgeServer(const ScoringEngine& engine, const SweepSpec& spec,
                          const std::vector<VerifyCandidate>& candidates, const Asked& noise,
                          const Asked& beyond) {
  const VerifyAnswers quiet =
      AskEngine(engine, candidates[0], noise.windows, noise.questions, spec.angles);
  ProgressLine progress;
  std::vector<VerifyAnswers> answers;
  for (const VerifyCandidate& candidate : candidates) {
    const auto done = static_cast<int64_t>(answers.size());
    progress.Update(candidate.name, done, static_cast<int64_t>(candidates.size()));
    answers.push_back(AskEngine(engine, candidate, beyond.windows, beyond.questions, spec.angles));
  }
  return Judge(candidates, beyond.server, answers, Distance(noise.server, quiet));
}

// What is printed, as text or JSON.
struct Report {
  const ModelServer& server;
  const SweepTask& task;
  const std::vector<VerifyCandidate>& candidates;
  const Asked& beyond;
  const VerifyVerdict& verdict;
};

// Nearest first.
std::vector<std::size_t> ByDistance(const VerifyVerdict& verdict) {
  std::vector<std::size_t> order(verdict.distances.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return verdict.distances[a].mean < verdict.distances[b].mean;
  });
  return order;
}

int64_t Compared(const Asked& asked) {
  int64_t count = 0;
  for (const auto& answers : asked.server) count += static_cast<int64_t>(answers.size());
  return count;
}

void PrintText(const Report& r) {
  const ServedModel& model = r.server.model();
  fmt::print("server         {}, model {}{}\n", r.server.url(), model.name,
             model.max_length > 0 ? fmt::format(", at most {} tokens", model.max_length) : "");
  fmt::print("asked          {}, plan {} at {} tokens\n", r.task.scaling, r.task.plan_hash,
             r.task.length);
  fmt::print("compared       {} log-probabilities at {} positions from {} to {} ({})\n",
             Compared(r.beyond), r.beyond.questions.size(), r.beyond.questions.front().position,
             r.beyond.questions.back().position,
             r.server.way() == ServerWay::kEcho ? "of the prompt, by echo"
                                                : "the most probable next tokens; it has no echo");
  fmt::print("noise          {:.5f} nats behind single tokens; {:.5f} are allowed\n\n",
             r.verdict.noise, r.verdict.tolerance);
  const bool tops = std::isfinite(r.verdict.distances[0].kl);
  fmt::print("{:>9} {:>9}{}  the server ...\n", "mean", "largest", tops ? "        KL" : "");
  for (const std::size_t i : ByDistance(r.verdict)) {
    const VerifyDistance& d = r.verdict.distances[i];
    fmt::print("{:>9.5f} {:>9.4f}{}  {}\n", d.mean, d.largest,
               tops ? fmt::format(" {:>9.6f}", d.kl) : "", r.candidates[i].sentence);
  }
  fmt::print("\n{}\n", r.verdict.text);
}

nlohmann::ordered_json NumberOrNull(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
}

void PrintJson(const Report& r) {
  using Json = nlohmann::ordered_json;
  Json candidates = Json::array(), alike = Json::array();
  for (const std::size_t i : ByDistance(r.verdict)) {
    const VerifyDistance& d = r.verdict.distances[i];
    candidates.push_back({{"name", r.candidates[i].name},
                          {"sentence", r.candidates[i].sentence},
                          {"plan_hash", r.candidates[i].plan_hash},
                          {"mean", d.mean},
                          {"largest", d.largest},
                          {"kl", NumberOrNull(d.kl)}});
  }
  for (const int64_t i : r.verdict.alike) {
    alike.push_back(r.candidates[static_cast<std::size_t>(i)].name);
  }
  const ServedModel& model = r.server.model();
  const Json json = {
      {"verdict", Name(r.verdict.verdict)},
      {"text", r.verdict.text},
      {"nearest", r.candidates[static_cast<std::size_t>(r.verdict.nearest)].name},
      {"alike", alike},
      {"noise", r.verdict.noise},
      {"tolerance", r.verdict.tolerance},
      {"server", r.server.url()},
      {"served_model", model.name},
      {"served_length", model.max_length > 0 ? Json(model.max_length) : Json(nullptr)},
      {"way", Name(r.server.way())},
      {"asked", r.task.scaling},
      {"plan_hash", r.task.plan_hash},
      {"length", r.task.length},
      {"positions", r.beyond.questions.size()},
      {"compared", Compared(r.beyond)},
      {"candidates", candidates}};
  fmt::print("{}\n", JsonText(json));
}

}  // namespace

void RunVerify(const Options& options) {
  const ModelFiles files = OpenRunnable(options);
  const TokenText text = ReadTokenText(options, files);
  if (text.ids.size() < 2) throw Error(ErrorCode::kInvalidArgument, "the text has a single token");
  const SweepSpec spec = SpecOf(options, files);
  ModelServer server(options.url, options.timeout, files.config.vocab);
  server.Open(options.served_model, std::span(text.ids).first(2));
  const int64_t length = LengthOf(options, spec, text, server.model());
  const SweepTask task = SingleTask(options, files, spec, length);
  const std::vector<VerifyCandidate> candidates =
      VerifyCandidates({.model_plan = files.config.plan,
                        .asked = task.plan,
                        .asked_description = task.scaling,
                        .length = length,
                        .served_length = server.model().max_length,
                        .truncation = server.way() == ServerWay::kEcho});
  const Asked noise = AskNoise(server, text);
  const Asked beyond =
      AskBeyond(server, WindowOf(text, spec, length), spec.trained_length, options.tokens);
  const std::unique_ptr<Decoder> decoder = LoadDecoder(options, files);
  const VerifyVerdict verdict =
      JudgeServer(DecoderEngine(*decoder), spec, candidates, noise, beyond);
  const Report report = {server, task, candidates, beyond, verdict};
  options.json ? PrintJson(report) : PrintText(report);
  if (verdict.verdict == Verified::kAsked) return;
  throw Error(ErrorCode::kMismatch, server.url() + ": " + verdict.text);
}

}  // namespace ropewalk::cli
