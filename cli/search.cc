#include "cli/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/progress.h"
#include "ropewalk/base/error.h"
#include "ropewalk/engines/settings.h"
#include "ropewalk/eval/search.h"

namespace ropewalk::cli {
namespace {

using Json = nlohmann::ordered_json;

class Search {
 public:
  Search(const SearchRequest& request, const SweepSpec& sweep, const SweepInputs& inputs,
         const ModelFiles& files, SweepHeader header)
      : request_(request),
        spec_(sweep),
        inputs_(inputs),
        files_(files),
        header_(std::move(header)),
        length_(header_.common.longest_length),
        rotation_(OnlyRotation(files.config.plan)) {
    spec_.tasks.clear();  // the search uses the loss; the sweep measures tasks of its result
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
    return Best(request_.kind == "base" ? SearchOverBase() : SearchOverFactors());
  }

 private:
  struct Found {
    Json dictionary;
    double loss = 0;
    std::size_t trials = 0;
    double first_loss = 0;  // of the first setting
  };

  SweepMethod MethodOf(const Json& dictionary) const {
    const std::string text = dictionary.dump();
    return FixedPlan{"search-" + request_.kind,
                     ParseRopeDictionary(text, "--search", files_.config.plan), text};
  }

  double LossOf(const Json& dictionary) {
    const SweepTask task =
        MakeTask(MethodOf(dictionary), 1, length_, spec_.trained_length, files_.config.plan);
    const std::string name =
        fmt::format("[{}/{}] {}", ++number_, request_.budget, "search-" + request_.kind);
    const double work = CostOf(task, spec_, inputs_, length_).flops;
    ProgressLine progress(work);
    SweepEvents events;
    events.message = [](const std::string& line) { Message("ropewalk: " + line); };
    events.progress = [&](std::size_t, int64_t done, int64_t all) {
      progress.Update(name, done, all, work);
      return !IsInterrupted();
    };
    events.finished = [&](std::size_t, const Cell& cell, bool resumed) {
      progress.Finish(name, fmt::format("perplexity {:.4g}", cell.perplexity), work, !resumed);
    };
    InterruptScope scope;
    const std::string folder = request_.output + "/search-" + request_.kind;
    return RunSweep({task}, spec_, inputs_, header_, folder, events).front().mean_nll;
  }

  Json BaseDictionary(double base) const {
    return {{"rope_type", "default"}, {"rope_theta", base}};
  }
  // In LongRoPE's form: plain up to the trained length; beyond it the divisors and its amplitude.
  Json FactorDictionary(const std::vector<double>& factors) const {
    return {{"rope_type", "longrope"},
            {"factor", extension_},
            {"original_max_position_embeddings", spec_.trained_length},
            {"short_factor", std::vector<double>(factors.size(), 1.0)},
            {"long_factor", factors}};
  }

  // From the model's own base to that of NTK-aware scaling for twice the extension and more.
  Found SearchOverBase() {
    const auto d = static_cast<double>(rotation_.rotary_dim);
    const double high = rotation_.base * std::pow(extension_, 2.5 * d / (d - 2));
    const auto trials = SearchBase(rotation_.base, high, request_.budget,
                                   [&](double base) { return LossOf(BaseDictionary(base)); });
    const auto best = std::min_element(
        trials.begin(), trials.end(), [](const auto& a, const auto& b) { return a.loss < b.loss; });
    return {BaseDictionary(best->base), best->loss, trials.size(), trials.front().loss};
  }

  Found SearchOverFactors() {
    RotarySpec spec = rotation_;
    spec.trained_length = spec_.trained_length;
    spec.scaling = NoScaling{};
    const Frequencies plain = Resolve(spec, length_);
    std::vector<std::vector<double>> start;
    for (const char* name : {"yarn", "ntk", "by-parts", "linear"}) {
      spec.scaling = FindMethod(name).make(extension_);
      const Frequencies scaled = Resolve(spec, length_);
      std::vector<double>& divisors = start.emplace_back();
      for (std::size_t i = 0; i < plain.inv_freq.size(); ++i) {
        divisors.push_back(plain.inv_freq[i].hi / scaled.inv_freq[i].hi);
      }
    }
    const auto trials =
        SearchFactors(start, extension_, request_.budget, spec_.protocol.seed,
                      [&](const std::vector<double>& f) { return LossOf(FactorDictionary(f)); });
    const auto best = std::min_element(
        trials.begin(), trials.end(), [](const auto& a, const auto& b) { return a.loss < b.loss; });
    return {FactorDictionary(best->factors), best->loss, trials.size(), trials.front().loss};
  }

  SweepMethod Best(const Found& found) const {
    Message(
        fmt::format("ropewalk: search over {}: perplexity {:.4g} at {} tokens, the best of {} "
                    "trials (the first had {:.4g}); the trials are in {}/search-{}",
                    request_.kind, std::exp(found.loss), length_, found.trials,
                    std::exp(found.first_loss), request_.output, request_.kind));
    Message("ropewalk: for config.json: \"rope_parameters\": " + found.dictionary.dump());
    return MethodOf(found.dictionary);
  }

  const SearchRequest& request_;
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

int64_t TrialsLeft(const SearchRequest& request) {
  const std::string folder = request.output + "/search-" + request.kind;
  if (!std::filesystem::exists(folder + "/results.jsonl")) return request.budget;
  const auto done = static_cast<int64_t>(ReadResults(folder).cells.size());
  return std::max<int64_t>(0, request.budget - done);
}

SweepMethod SearchSetting(const SearchRequest& request, const SweepSpec& sweep,
                          const SweepInputs& inputs, const ModelFiles& files, SweepHeader header) {
  return Search(request, sweep, inputs, files, std::move(header)).Run();
}

}  // namespace ropewalk::cli
