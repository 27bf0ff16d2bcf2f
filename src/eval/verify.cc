#include "ropewalk/eval/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ropewalk/base/error.h"

namespace ropewalk {
namespace {

// The nearest candidate is clearly nearer than another one if its distance is at most one half of
// the other's, or by this many standard errors.
constexpr double kTwice = 2, kStandardErrors = 4;
// Candidates nearer to each other than this are the same for any use, nats.
constexpr double kSameNats = 0.01;

// The window, or its last tokens where the candidate sees no more; where they begin in it.
std::span<const int32_t> Seen(const VerifyCandidate& candidate, std::span<const int32_t> context) {
  const auto kept = static_cast<std::size_t>(candidate.last_tokens);
  return kept > 0 && kept < context.size() ? context.last(kept) : context;
}

// Several tokens behind one context: each is a sequence of its own behind a shared prefix.
void AddIds(std::span<const int32_t> context, const std::vector<int32_t>& ids,
            std::vector<ScoreRequest>& requests) {
  for (const int32_t& id : ids) {
    requests.push_back({.prefix = context,
                        .ids = std::span(&id, 1),
                        .positions = {static_cast<int64_t>(context.size())}});
  }
}

bool AsksItsOwnToken(const std::vector<int32_t>& window, const VerifyQuestion& question) {
  const auto at = static_cast<std::size_t>(question.position);
  return question.ids.size() == 1 && at < window.size() && window[at] == question.ids[0];
}

double MeanDifference(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::abs(static_cast<double>(a[i]) - b[i]);
  return sum / static_cast<double>(a.size());
}

// Of the ids asked, with the rest of the vocabulary as one more.
double Divergence(const std::vector<float>& a, const std::vector<float>& b) {
  constexpr double kLeast = 1e-12;  // of the rest: the ids asked may be all there is
  double kl = 0, rest_a = 1, rest_b = 1;
  for (std::size_t i = 0; i < a.size(); ++i) {
    kl += std::exp(a[i]) * (static_cast<double>(a[i]) - b[i]);
    rest_a -= std::exp(a[i]);
    rest_b -= std::exp(b[i]);
  }
  rest_a = std::max(rest_a, kLeast);
  rest_b = std::max(rest_b, kLeast);
  return kl + rest_a * std::log(rest_a / rest_b);
}

void CheckPair(const std::vector<float>& a, const std::vector<float>& b) {
  const auto finite = [](float x) { return std::isfinite(x); };
  if (a.size() != b.size() || a.empty()) {
    throw Error(ErrorCode::kMismatch,
                fmt::format("{} log-probabilities are compared with {}", a.size(), b.size()));
  }
  if (std::all_of(a.begin(), a.end(), finite) && std::all_of(b.begin(), b.end(), finite)) return;
  throw Error(ErrorCode::kMismatch, "a log-probability is not a finite number");
}

// By how many standard errors, over questions, `other` is further from the server than `nearest`.
double Lead(const VerifyAnswers& server, const VerifyAnswers& nearest, const VerifyAnswers& other) {
  const auto n = static_cast<double>(server.size());
  double sum = 0, squares = 0;
  for (std::size_t q = 0; q < server.size(); ++q) {
    const double lead = MeanDifference(server[q], other[q]) - MeanDifference(server[q], nearest[q]);
    sum += lead;
    squares += lead * lead;
  }
  const double mean = sum / n;
  const double variance = n > 1 ? std::max(0.0, squares / n - mean * mean) / (n - 1) : 0;
  if (mean <= 0 || n < 2) return 0;
  return variance > 0 ? mean / std::sqrt(variance) : std::numeric_limits<double>::infinity();
}

// Whether the server's answers tell the two candidates apart: one is clearly nearer, and they lie
// further from each other than the server from the nearest.
bool ToldApart(const VerifyAnswers& server, const VerifyAnswers& nearest,
               const VerifyAnswers& other) {
  const double residual = Distance(server, nearest).mean;
  if (Distance(nearest, other).mean <= residual) return false;
  return Distance(server, other).mean >= kTwice * residual ||
         Lead(server, nearest, other) > kStandardErrors;
}

std::string Names(std::span<const VerifyCandidate> candidates, const std::vector<int64_t>& which) {
  std::string names;
  for (const int64_t i : which) {
    names += (names.empty() ? "" : ", ") + candidates[static_cast<std::size_t>(i)].name;
  }
  return names;
}

// The candidates that it may be as well as what was asked, which are the same for any use.
std::string SameAsAsked(std::span<const VerifyCandidate> candidates, const VerifyVerdict& v) {
  std::vector<int64_t> others = v.alike;
  if (v.nearest != 0) others.push_back(v.nearest);
  std::erase(others, 0);
  if (others.empty()) return "";
  return " These answers do not tell it from: " + Names(candidates, others) + ".";
}

// The text behind the verdict; the server is its subject.
std::string Say(std::span<const VerifyCandidate> candidates, const VerifyVerdict& v) {
  const VerifyCandidate& nearest = candidates[static_cast<std::size_t>(v.nearest)];
  const double distance = v.distances[static_cast<std::size_t>(v.nearest)].mean;
  const std::string also =
      v.alike.empty() ? ""
                      : " These answers do not tell it from: " + Names(candidates, v.alike) + ".";
  switch (v.verdict) {
    case Verified::kAsked:
      return fmt::format("The server {}.{}", candidates[0].sentence, SameAsAsked(candidates, v));
    case Verified::kOther:
      return fmt::format("The server {}; it does not run what you asked for.{}", nearest.sentence,
                         also);
    case Verified::kUndecided:
      return fmt::format(
          "Undecided: the nearest is that the server {}, but these answers do not "
          "tell it from {}. More --tokens or a greater --length may.",
          nearest.sentence, Names(candidates, v.alike));
    case Verified::kNone:
      return fmt::format(
          "None of these: the nearest, that the server {}, is {:.3g} nats away, and "
          "{:.3g} are allowed.",
          nearest.sentence, distance, v.tolerance);
    case Verified::kOtherModel:
      return fmt::format(
          "The server has another model, or a heavily quantised one: behind a "
          "single token, where no position setting matters, it is {:.3g} nats "
          "away, and {:.3g} are allowed.",
          v.noise, kVerifyMostNoise);
  }
  return "";
}

// What was asked holds where it is the nearest, or not told from it, and every other candidate that
// these answers allow is the same for any use, or nearer to it than the server's own noise.
Verified Decide(const VerifyVerdict& v, std::span<const VerifyAnswers> engine) {
  const double residual = v.distances[static_cast<std::size_t>(v.nearest)].mean;
  if (v.noise > kVerifyMostNoise) return Verified::kOtherModel;
  if (residual > v.tolerance) return Verified::kNone;
  std::vector<int64_t> allowed = v.alike;
  allowed.push_back(v.nearest);
  if (std::find(allowed.begin(), allowed.end(), 0) == allowed.end()) return Verified::kOther;
  const double same = std::max(kSameNats, residual);
  const bool all = std::all_of(allowed.begin(), allowed.end(), [&](int64_t i) {
    return Distance(engine[0], engine[static_cast<std::size_t>(i)]).mean <= same;
  });
  return all ? Verified::kAsked : Verified::kUndecided;
}

}  // namespace

const char* Name(Verified verdict) {
  switch (verdict) {
    case Verified::kAsked:
      return "asked";
    case Verified::kOther:
      return "other";
    case Verified::kUndecided:
      return "undecided";
    case Verified::kNone:
      return "none";
    case Verified::kOtherModel:
      return "other-model";
  }
  return "";
}

VerifyAnswers AskEngine(const ScoringEngine& engine, const VerifyCandidate& candidate,
                        std::span<const std::vector<int32_t>> windows,
                        std::span<const VerifyQuestion> questions, AnglePrecision angles,
                        const std::function<void(int64_t tokens)>& tick) {
  std::vector<ScoreRequest> requests;
  std::size_t longest = 2;
  for (const VerifyQuestion& question : questions) {
    const std::vector<int32_t>& window = windows[static_cast<std::size_t>(question.window)];
    const auto context = std::span(window).first(static_cast<std::size_t>(question.position));
    longest = std::max({longest, window.size(), context.size() + 1});
    const auto seen = Seen(candidate, context);
    if (!AsksItsOwnToken(window, question) || seen.size() < context.size()) {
      AddIds(seen, question.ids, requests);
    } else if (!requests.empty() && requests.back().ids.data() == window.data() &&
               requests.back().positions.back() < question.position) {
      requests.back().positions.push_back(question.position);
    } else {
      requests.push_back({.ids = window, .positions = {question.position}});
    }
  }
  const EngineCall call = {
      .plan = &candidate.plan,
      .final_length = std::max<int64_t>(candidate.final_length, static_cast<int64_t>(longest)),
      .angles = angles,
      .reuse = PrefixReuse::kWhole,
      .tick = tick};
  const Scores scores = engine.Score(call, requests);
  std::vector<float> flat;
  for (const auto& tokens : scores.tokens) {
    for (const TokenScore& token : tokens) flat.push_back(token.log_prob);
  }
  VerifyAnswers answers;
  std::size_t at = 0;
  for (const VerifyQuestion& question : questions) {
    const auto begin = flat.begin() + static_cast<std::ptrdiff_t>(at);
    at += question.ids.size();
    answers.emplace_back(begin, flat.begin() + static_cast<std::ptrdiff_t>(at));
  }
  return answers;
}

VerifyDistance Distance(const VerifyAnswers& a, const VerifyAnswers& b) {
  if (a.size() != b.size() || a.empty()) {
    throw Error(ErrorCode::kMismatch,
                fmt::format("{} answers are compared with {}", a.size(), b.size()));
  }
  VerifyDistance d;
  double ids = 0, kl = 0;
  bool tops = true;
  for (std::size_t q = 0; q < a.size(); ++q) {
    CheckPair(a[q], b[q]);
    const auto n = static_cast<double>(a[q].size());
    d.mean += MeanDifference(a[q], b[q]) * n;
    ids += n;
    tops = tops && a[q].size() > 1;
    kl += Divergence(a[q], b[q]);
    for (std::size_t i = 0; i < a[q].size(); ++i) {
      d.largest = std::max(d.largest, std::abs(static_cast<double>(a[q][i]) - b[q][i]));
    }
  }
  d.mean /= ids;
  if (tops) d.kl = kl / static_cast<double>(a.size());
  return d;
}

VerifyVerdict Judge(std::span<const VerifyCandidate> candidates, const VerifyAnswers& server,
                    std::span<const VerifyAnswers> engine, const VerifyDistance& noise) {
  if (candidates.empty() || candidates.size() != engine.size() || server.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("a verdict needs questions, and the engine's answers under each of the "
                            "candidates; got {} questions, {} candidates, {} answers",
                            server.size(), candidates.size(), engine.size()));
  }
  VerifyVerdict v;
  v.noise = noise.mean;
  v.tolerance = std::max(kVerifyFloor, kVerifyNoiseFactor * noise.mean);
  for (const VerifyAnswers& answers : engine) v.distances.push_back(Distance(server, answers));
  const auto nearest =
      std::min_element(v.distances.begin(), v.distances.end(),
                       [](const auto& a, const auto& b) { return a.mean < b.mean; });
  v.nearest = nearest - v.distances.begin();
  const VerifyAnswers& best = engine[static_cast<std::size_t>(v.nearest)];
  for (std::size_t i = 0; i < engine.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    if (index == v.nearest || ToldApart(server, best, engine[i])) continue;
    v.alike.push_back(index);
  }
  v.verdict = Decide(v, engine);
  v.text = Say(candidates, v);
  return v;
}

}  // namespace ropewalk
