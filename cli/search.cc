#include "cli/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <numbers>

#include "cli/progress.h"
#include "ropewalk/base/error.h"
#include "ropewalk/engines/settings.h"
#include "ropewalk/eval/search.h"
#include "ropewalk/eval/task.h"

namespace ropewalk::cli {
namespace {

using Json = nlohmann::ordered_json;

// What a search lowers, of the cell of a trial.
struct Goal {
  SearchBy by;
  std::string Text(double loss) const {
    if (by == SearchBy::kPerplexity) return fmt::format("perplexity {:.4g}", std::exp(loss));
    return fmt::format("{} nats per token of the {}", fmt::format("{:.4g}", loss),
                       by == SearchBy::kNeedles ? "answers" : "key tokens");
  }
  // Infinite where nothing finite was measured.
  double Loss(const Cell& cell) const {
    double nats = by == SearchBy::kPerplexity ? cell.mean_nll : 0, tokens = 0;
    if (by != SearchBy::kPerplexity) {
      for (const TaskResult& task : cell.tasks) {
        for (const TaskAnswer& answer : task.answers) {
          nats += answer.nll;
          tokens += answer.tokens;
        }
      }
      nats /= tokens;
    }
    return std::isfinite(nats) ? nats : std::numeric_limits<double>::infinity();
  }
};

class Search {
 public:
  Search(const SearchRequest& request, const SweepSpec& sweep, const SweepInputs& inputs,
         const ModelFiles& files, SweepHeader header)
      : request_(request),
        goal_{request.by},
        spec_(SearchSpec(sweep, request.by)),
        inputs_(inputs),
        files_(files),
        header_(std::move(header)),
        length_(header_.common.longest_length),
        rotation_(OnlyRotation(files.config.plan)) {
    header_.common = CommonFields(spec_, inputs_, length_);
    extension_ = static_cast<double>(length_) / static_cast<double>(spec_.trained_length);
    if (extension_ <= 1) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("--search: the longest length ({}) is within the trained one ({}), so "
                      "there is nothing to search for",
                      length_, spec_.trained_length));
    }
  }

  SweepMethod Run() {
    if (request_.kind == "base") return Best(SearchOverBase());
    if (request_.kind == "groups") return Best(SearchOverGroups());
    if (request_.kind == "mapped") return Best(SearchOverMapped());
    return Best(request_.kind == "critical" ? SearchOverCriticalPair() : SearchOverFactors());
  }

 private:
  struct Found {
    SweepMethod method;
    double loss = 0;
    std::size_t trials = 0;
    double first_loss = 0;  // of the first setting
  };

  SweepMethod MethodOf(const Json& dictionary) const {
    const std::string text = dictionary.dump();
    return FixedPlan{"search-" + request_.kind,
                     ParseRopeDictionary(text, "--search", files_.config.plan), text};
  }

  double LossOf(const SweepMethod& method) {
    const SweepTask task =
        MakeTask(method, extension_, length_, spec_.trained_length, files_.config.plan);
    const std::string name =
        fmt::format("[{}/{}] {}", ++number_, request_.trials, "search-" + request_.kind);
    ProgressLine progress;
    SweepEvents events;
    events.message = [](const std::string& line) { Message("ropewalk: " + line); };
    events.progress = [&](const SweepProgress& now) {
      progress.Update(name, now.done_tokens, now.all_tokens);
      return !IsInterrupted();
    };
    events.finished = [&](std::size_t, const Cell& cell, bool resumed) {
      progress.Finish(name, goal_.Text(goal_.Loss(cell)), !resumed);
    };
    InterruptScope scope;
    const std::string folder = request_.output + "/search-" + request_.kind;
    return goal_.Loss(RunSweep({task}, spec_, inputs_, header_, folder, events).front());
  }

  // The trial of lowest loss, as a method.
  template <class Trial, class MethodOfTrial>
  static Found BestOf(const std::vector<Trial>& trials, MethodOfTrial method_of) {
    const auto best = std::min_element(
        trials.begin(), trials.end(), [](const auto& a, const auto& b) { return a.loss < b.loss; });
    return {method_of(*best), best->loss, trials.size(), trials.front().loss};
  }

  SweepMethod BaseMethod(double base) const {
    return MethodOf({{"rope_type", "default"}, {"rope_theta", base}});
  }
  // In LongRoPE's form: plain up to the trained length; beyond it the divisors and its amplitude.
  SweepMethod FactorMethod(const std::vector<double>& factors) const {
    return MethodOf({{"rope_type", "longrope"},
                     {"factor", extension_},
                     {"original_max_position_embeddings", spec_.trained_length},
                     {"short_factor", std::vector<double>(factors.size(), 1.0)},
                     {"long_factor", factors}});
  }
  static SweepMethod GroupMethod(const std::vector<int64_t>& groups) {
    std::string name = "dpe:";
    for (std::size_t i = 0; i < groups.size(); ++i) {
      name += fmt::format("{}group{}={}", i > 0 ? "," : "", i + 1, groups[i]);
    }
    return PositionMethod::Parse(name);
  }

  // From the model's own base to that of NTK-aware scaling for twice the extension and more.
  Found SearchOverBase() {
    const auto d = static_cast<double>(rotation_.rotary_dim);
    const double high = rotation_.base * std::pow(extension_, 2.5 * d / (d - 2));
    const auto trials = SearchGolden(rotation_.base, high, request_.trials,
                                     [&](double base) { return LossOf(BaseMethod(base)); });
    return BestOf(trials, [&](const GoldenTrial& t) { return BaseMethod(t.value); });
  }

  Frequencies Scaled(const Scaling& scaling) const {
    RotarySpec spec = rotation_;
    spec.trained_length = spec_.trained_length;
    spec.scaling = scaling;
    return Resolve(spec, length_);
  }

  Found SearchOverFactors() {
    const Frequencies plain = Scaled(NoScaling{});
    std::vector<std::vector<double>> start;
    for (const char* name : {"yarn", "ntk", "by-parts", "linear"}) {
      const Frequencies scaled = Scaled(FindMethod(name).make(extension_));
      std::vector<double>& divisors = start.emplace_back();
      for (std::size_t i = 0; i < plain.inv_freq.size(); ++i) {
        divisors.push_back(plain.inv_freq[i].hi / scaled.inv_freq[i].hi);
      }
    }
    const auto trials =
        SearchFactors(start, extension_, request_.trials, spec_.protocol.seed,
                      [&](const std::vector<double>& f) { return LossOf(FactorMethod(f)); });
    return BestOf(trials, [&](const FactorTrial& t) { return FactorMethod(t.factors); });
  }

  Found SearchOverCriticalPair() {
    const Frequencies plain = Scaled(NoScaling{});
    // Pairs that complete a rotation within the trained length come first.
    const auto critical =
        std::count_if(plain.inv_freq.begin(), plain.inv_freq.end(), [&](const DoubleDouble& f) {
          return f.hi * static_cast<double>(spec_.trained_length) >= 2 * std::numbers::pi;
        });
    const auto trials = SearchCriticalPair(
        static_cast<int64_t>(plain.inv_freq.size()), critical, extension_, request_.trials,
        spec_.protocol.seed, [&](const std::vector<double>& f) { return LossOf(FactorMethod(f)); });
    return BestOf(trials, [&](const FactorTrial& t) { return FactorMethod(t.factors); });
  }

  Found SearchOverGroups() {
    // Twice the extension, as the paper has it, so that every share reaches the target.
    const auto largest = static_cast<int64_t>(std::ceil(2 * extension_));
    const auto trials =
        SearchGroups(Dpe::kShares, largest, request_.trials,
                     [&](const auto& groups) { return LossOf(GroupMethod(groups)); });
    return BestOf(trials, [](const GroupTrial& t) { return GroupMethod(t.groups); });
  }

  // LaMPE's S at this length, from a sixteenth of the trained length to all of it. A trial that rounds to
  // one that was measured costs nothing.
  Found SearchOverMapped() {
    const auto method = [](double mapped) -> SweepMethod {
      return PositionMethod::Parse(fmt::format("lampe:mapped={}", std::llround(mapped)));
    };
    const auto trained = static_cast<double>(spec_.trained_length);
    const auto trials = SearchGolden(std::max(1.0, trained / 16), trained, request_.trials,
                                     [&](double mapped) { return LossOf(method(mapped)); });
    return BestOf(trials, [&](const GoldenTrial& t) { return method(t.value); });
  }

  SweepMethod Best(const Found& found) const {
    Message(
        fmt::format("ropewalk: search over {}: {} at {} tokens, the best of {} trials (the first "
                    "had {}); the trials are in {}/search-{}",
                    request_.kind, goal_.Text(found.loss), length_, found.trials,
                    goal_.Text(found.first_loss), request_.output, request_.kind));
    const auto* fixed = std::get_if<FixedPlan>(&found.method);
    Message(fixed != nullptr
                ? "ropewalk: for config.json: \"rope_parameters\": " + fixed->dictionary
                : "ropewalk: as a method: " + NameOf(found.method));
    return found.method;
  }

  const SearchRequest& request_;
  Goal goal_;
  SweepSpec spec_;
  const SweepInputs& inputs_;
  const ModelFiles& files_;
  SweepHeader header_;
  int64_t length_;
  const RotarySpec& rotation_;
  double extension_ = 1;
  int64_t number_ = 0;
};

}  // namespace

SearchBy ParseSearchBy(const std::string& name, const std::string& kind) {
  if (name == "needles") return SearchBy::kNeedles;
  if (name == "key-tokens") return SearchBy::kKeyTokens;
  if (name == "perplexity") return SearchBy::kPerplexity;
  return kind == "base" || kind == "factors" ? SearchBy::kPerplexity : SearchBy::kNeedles;
}

SweepSpec SearchSpec(const SweepSpec& sweep, SearchBy by) {
  SweepSpec spec = sweep;
  spec.race.reset();
  if (by != SearchBy::kNeedles) spec.tasks.clear();
  if (by != SearchBy::kKeyTokens) spec.key_tokens.reset();
  if (by == SearchBy::kNeedles) {
    spec.perplexity = false;
    if (spec.tasks.empty()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "--search by needles: the sweep asks no questions; add --tasks passkey,kv, or "
                  "--search-by perplexity");
    }
  }
  if (by == SearchBy::kKeyTokens && !spec.key_tokens) {
    throw Error(ErrorCode::kInvalidArgument,
                "--search by key tokens: the sweep does not measure them; add --tasks "
                "perplexity,key-tokens");
  }
  return spec;
}

int64_t TrialsLeft(const SearchRequest& request) {
  const std::string folder = request.output + "/search-" + request.kind;
  if (!std::filesystem::exists(folder + "/results.jsonl")) return request.trials;
  const auto done = static_cast<int64_t>(ReadResults(folder).cells.size());
  return std::max<int64_t>(0, request.trials - done);
}

SweepMethod SearchSetting(const SearchRequest& request, const SweepSpec& sweep,
                          const SweepInputs& inputs, const ModelFiles& files, SweepHeader header) {
  return Search(request, sweep, inputs, files, std::move(header)).Run();
}

}  // namespace ropewalk::cli
