// ropewalk/eval: the sweep, its results and its report.
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cli/report.h"
#include "python/src/eval.h"
#include "python/src/register.h"
#include "ropewalk/base/threads.h"
#include "ropewalk/eval/key_tokens.h"
#include "ropewalk/eval/prepare.h"
#include "ropewalk/eval/results.h"
#include "ropewalk/eval/shard.h"
#include "ropewalk/eval/tasks.h"
#include "ropewalk/tokenizer/utf8_text.h"

namespace ropewalk::python {
namespace {

struct PySweep {
  PositionPlan plan;
  TokenText text;
  const Tokenizer* tokenizer = nullptr;
  std::string bytes;        // of the text, where key tokens are asked for
  bool key_tokens = false;  // whether they are
  PreparedSweep prepared;
  SweepHeader header;

  // What the budget, in seconds, left out: (length, windows, asked, seconds, type of KV cache).
  nb::list Run(const ScoringEngine& engine, const std::string& model_hash,
               const std::string& folder, bool kept, double budget,
               const std::optional<std::string>& shard, const nb::callable& message,
               const nb::callable& progress, const nb::callable& finished);

 private:
  using Say = std::function<void(const std::string& line)>;
  void AddKeyTokens(const SweepInputs& inputs, const std::string& folder, double budget,
                    Signals& signals, const Say& say);
  KeySpans FindSpans(const SweepInputs& inputs, std::span<const ByteSpan> wanted, double budget,
                     Signals& signals, const Say& say) const;
};

// Seconds from now on.
class Clock {
 public:
  double Seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

std::string Joined(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

// The tasks besides perplexity; none without a tokenizer.
void AddTasks(const std::vector<std::string>& names, int64_t passkey_trials,
              std::optional<int64_t> samples, uint64_t seed, const Tokenizer* tokenizer,
              SweepSpec& spec) {
  if (passkey_trials < 1 || samples.value_or(1) < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                "passkey_trials, samples: expected at least 1, got " +
                    std::to_string(std::min(passkey_trials, samples.value_or(passkey_trials))));
  }
  if (tokenizer == nullptr) return;
  TaskSettings settings;
  const std::optional<int32_t> bos = spec.protocol.bos ? spec.bos_id : std::nullopt;
  settings.passkey = {.seed = seed, .bos_id = bos};
  settings.kv = {.seed = seed, .bos_id = bos};
  settings.ruler.bos_id = bos;
  for (std::unique_ptr<Task>& task : MakeTasks(names, settings, *tokenizer)) {
    const std::string name = task->Name();
    const bool ruler = name.starts_with("ruler:");
    const int64_t count = name == "passkey" ? passkey_trials : samples.value_or(ruler ? 10 : 1);
    spec.tasks.push_back(std::make_shared<SampledTask>(std::move(task), count, ruler));
  }
}

void MakeSweep(PySweep* self, const nb::object& given_plan, const Tokenizer* tokenizer,
               const std::optional<nb::bytes>& text, const std::optional<nb::object>& ids,
               const std::vector<std::string>& methods,
               const std::vector<std::string>& dictionaries, std::vector<int64_t> lengths,
               std::vector<double> factors, int64_t trained_length, const std::string& protocol,
               std::optional<int64_t> anchors, uint64_t seed, std::optional<bool> bos,
               std::vector<std::string> tasks, int64_t passkey_trials,
               std::optional<int64_t> samples, bool share, bool race, const std::string& angles,
               const std::vector<std::string>& kv, bool allow_unknown) {
  const PyPlan& plan = PlanOf(given_plan);
  SweepSpec spec;
  spec.methods = ParseMethods(methods, plan.plan);
  std::vector<std::string> notes;
  for (const std::string& dictionary : dictionaries) {
    for (std::string& note :
         AddDictionary(dictionary, "methods", plan.plan, allow_unknown, spec.methods)) {
      notes.push_back(std::move(note));
    }
  }
  spec.lengths = std::move(lengths);
  spec.factors = std::move(factors);
  spec.trained_length = trained_length > 0 ? trained_length : plan.plan.trained_length;
  spec.protocol = Protocol::Parse(protocol);
  if (anchors) {
    if (*anchors < (spec.protocol.kind == Protocol::Kind::kAligned ? 1 : 0)) {
      throw Error(ErrorCode::kInvalidArgument,
                  "anchors: expected at least 1, got " + std::to_string(*anchors));
    }
    spec.protocol.anchors = *anchors;
  }
  spec.protocol.seed = seed;
  spec.protocol.bos = bos.value_or(tokenizer != nullptr && tokenizer->adds_bos());
  if (spec.protocol.bos && (tokenizer == nullptr || !tokenizer->bos_id())) {
    throw Error(ErrorCode::kUnsupported, "bos=True: the tokenizer names no BOS token");
  }
  if (tokenizer != nullptr) spec.bos_id = tokenizer->bos_id();
  spec.share = share;
  if (race) spec.race = RaceRule{.margin = kRaceMargin};
  if (std::erase(tasks, "perplexity") == 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "tasks: expected perplexity among them, by which methods are compared");
  }
  const bool key_tokens = std::erase(tasks, std::string(kKeyTokensTask)) > 0;
  if (key_tokens && spec.protocol.kind != Protocol::Kind::kAligned) {
    throw Error(ErrorCode::kInvalidArgument,
                "tasks: key-tokens are compared over the same tokens at every length, which only "
                "the protocol aligned scores");
  }
  spec.angles = AnglesOf(angles);
  spec.kv = ParseKvTypes(kv);

  PySweep sweep;
  sweep.plan = plan.plan;
  sweep.header.family = plan.family;
  sweep.tokenizer = tokenizer;
  std::optional<std::vector<int32_t>> given;
  if (ids) given = VectorOf(AsArray<int32_t>(*ids, "int32"));
  const std::string_view bytes = text ? std::string_view(text->c_str(), text->size()) : "";
  {
    const nb::gil_scoped_release no_gil;
    if (given) {
      sweep.text = TextOfIds(std::move(*given));
    } else {
      const Utf8Text taken = TakeUtf8(bytes, "text");
      notes.insert(notes.end(), taken.notes.begin(), taken.notes.end());
      sweep.text = TokenizeText(*tokenizer, taken.text);
      sweep.key_tokens = key_tokens;
      if (key_tokens) sweep.bytes = taken.text;
    }
    if (sweep.text.ids.empty()) {
      throw Error(ErrorCode::kInvalidArgument, "text: expected at least one token, got none");
    }
    AddTasks(tasks, passkey_trials, samples, seed, text ? tokenizer : nullptr, spec);
    sweep.prepared = PrepareSweep(std::move(spec), protocol == "aligned", plan.plan, sweep.text);
  }
  if (!text && key_tokens) tasks.emplace_back(kKeyTokensTask);
  if (!text && !tasks.empty()) {
    sweep.prepared.notes.emplace_back(Joined(tasks) +
                                      " is left out: it needs a text, not token ids");
  }
  sweep.header.notes = sweep.prepared.notes;
  sweep.prepared.notes.insert(sweep.prepared.notes.begin(), notes.begin(), notes.end());
  sweep.header.text_tokens = static_cast<int64_t>(sweep.text.ids.size());
  new (self) PySweep(std::move(sweep));
}

KeySpans PySweep::FindSpans(const SweepInputs& inputs, std::span<const ByteSpan> wanted,
                            double budget, Signals& signals, const Say& say) const {
  const int64_t trained = prepared.spec.trained_length;
  const KeyTokenFinder finder{.engine = inputs.engine,
                              .plan = PositionMethod().Apply(plan, 1, trained),
                              .trained_length = trained,
                              .tokenizer = tokenizer,
                              .name = header.model_name,
                              .model_hash = inputs.model_hash};
  RunOptions options;
  options.angles = prepared.spec.angles;
  options.progress = [&](int64_t, int64_t) {
    signals.Check();
    return true;
  };
  const CellCost cost = CostOfKeyTokens(finder, bytes, wanted, options);
  say("the key tokens are found first: " + std::to_string(cost.tokens) +
      " tokens through the model");
  if (std::isfinite(budget)) {
    const Pace pace = Pace::Measure(*inputs.engine, {&finder.plan}, trained, text, options.angles);
    if (pace.Seconds(cost, finder.plan) > budget) {
      throw Error(ErrorCode::kInvalidArgument,
                  "budget: nothing can be measured within it, since finding the key tokens takes "
                  "longer");
    }
  }
  return FindKeyTokens(finder, bytes, wanted, options).spans;
}

// Those of FOLDER/key-tokens.json, or those that the model finds without scaling, written there.
void PySweep::AddKeyTokens(const SweepInputs& inputs, const std::string& folder, double budget,
                           Signals& signals, const Say& say) {
  const Protocol& protocol = prepared.spec.protocol;
  const std::vector<EvalWindow> windows =
      MakeWindows(text, protocol, prepared.longest, prepared.longest, prepared.spec.bos_id);
  const std::vector<ByteSpan> wanted = ScoredSpans(text, windows, protocol.bos);
  const std::string path = folder + "/key-tokens.json";
  KeySpans keys;
  if (std::filesystem::exists(path)) {
    keys = ReadKeySpans(path, bytes);
    if (!Covers(keys, wanted)) {
      throw Error(ErrorCode::kMismatch,
                  path +
                      ": only a part of the text was searched, not all that is scored; give "
                      "another folder as output");
    }
  } else {
    keys = FindSpans(inputs, wanted, budget, signals, say);
    std::filesystem::create_directories(folder);
    WriteKeySpans(path, keys);
  }
  prepared.spec.key_tokens = KeyTokenTaskOf(keys, bytes, text, windows, protocol.bos);
  int64_t scored = 0;
  for (const EvalWindow& window : windows) {
    scored += static_cast<int64_t>(window.ids.size()) - window.score_begin;
  }
  header.notes.push_back(std::to_string(prepared.spec.key_tokens->tokens.size()) + " of the " +
                         std::to_string(scored) + " scored tokens are key tokens; spans in " +
                         path);
  say(header.notes.back());
}

nb::list PySweep::Run(const ScoringEngine& engine, const std::string& model_hash,
                      const std::string& folder, bool kept, double budget,
                      const std::optional<std::string>& shard_name, const nb::callable& message,
                      const nb::callable& progress, const nb::callable& finished) {
  const Clock clock;
  std::optional<Shard> shard;
  if (shard_name) shard = ParseShard(*shard_name, std::getenv);
  const SweepInputs inputs{&engine, tokenizer, &text, model_hash};
  Signals signals;
  SweepEvents events;
  events.message = [&](const std::string& line) {
    const nb::gil_scoped_acquire gil;
    message(line);
  };
  auto last = std::chrono::steady_clock::time_point();
  events.progress = [&](const SweepProgress& now_at) {
    signals.Check();
    const auto now = std::chrono::steady_clock::now();
    if (now - last < std::chrono::milliseconds(100)) return true;
    last = now;
    const nb::gil_scoped_acquire gil;
    progress(now_at.index, now_at.done_tokens, now_at.all_tokens);
    return true;
  };
  events.finished = [&](size_t index, const Cell& cell, bool resumed) {
    const nb::gil_scoped_acquire gil;
    finished(index, ToJson(cell), resumed);
  };
  events.waiting = [&](const std::string&) {
    signals.Check();
    return true;
  };
  std::vector<LeftOut> left_out;
  {
    const nb::gil_scoped_release no_gil;
    const SweepSpec& spec = prepared.spec;
    for (const KvType kv : spec.kv) engine.CheckKv(kv);  // before key tokens are found
    const auto find = [&] { AddKeyTokens(inputs, folder, budget, signals, events.message); };
    if (key_tokens && shard) {
      OneAfterTheOther(folder, *shard, "key-tokens", events.waiting, find);
    } else if (key_tokens) {
      find();
    }
    header.common = CommonFields(spec, inputs, prepared.longest);
    SweepBudget limit{.begins = kept};
    double costs = 0;
    if (std::isfinite(budget)) {
      const std::vector<CellLeft> left = WhatIsLeft(prepared.tasks, spec, inputs, header, folder);
      if (std::any_of(left.begin(), left.end(), [](const CellLeft& c) { return !c.finished; })) {
        limit.pace = MeasurePace(prepared.tasks, spec, inputs, plan);
      }
      for (const SweepTask& task : PossibleCosts(prepared.tasks, spec)) {
        costs += limit.pace.Seconds(CostOf(task, spec, inputs, prepared.longest), task.plan);
      }
      if (shard) costs /= static_cast<double>(shard->count);
      limit.seconds = budget - clock.Seconds();
    }
    left_out = RunSweepAndCosts(prepared.tasks, spec, plan, inputs, header, folder, events, limit,
                                costs, shard);
    if (!left_out.empty() && ReadResults(folder).cells.empty()) {
      throw Error(ErrorCode::kInvalidArgument,
                  kept ? "budget: no row can be finished within it; a part is measured, from which "
                         "the same call goes on"
                       : "budget: nothing can be measured within it");
    }
  }
  nb::list out;
  for (const LeftOut& l : left_out) {
    out.append(nb::make_tuple(l.length, l.windows, l.asked, l.seconds, Name(l.kv)));
  }
  return out;
}

}  // namespace

void RegisterSweep(nb::module_& m) {
  nb::class_<PySweep>(m, "Sweep")
      .def("__init__", &MakeSweep, nb::arg("plan"), nb::arg("tokenizer").none(),
           nb::arg("text").none(), nb::arg("ids").none(), nb::arg("methods"),
           nb::arg("dictionaries"), nb::arg("lengths"), nb::arg("factors"),
           nb::arg("trained_length"), nb::arg("protocol"), nb::arg("anchors").none(),
           nb::arg("seed"), nb::arg("bos").none(), nb::arg("tasks"), nb::arg("passkey_trials"),
           nb::arg("samples").none(), nb::arg("share"), nb::arg("race"), nb::arg("angles"),
           nb::arg("kv"), nb::arg("allow_unknown"), nb::keep_alive<1, 3>())
      .def_prop_ro("notes", [](const PySweep& s) { return s.prepared.notes; })
      .def_prop_ro("protocol", [](const PySweep& s) { return s.prepared.spec.protocol.Name(); })
      .def_prop_ro("longest", [](const PySweep& s) { return s.prepared.longest; })
      .def_prop_ro(
          "tasks",
          [](const PySweep& s) {
            nb::list tasks;
            for (const SweepTask& t : s.prepared.tasks) {
              tasks.append(nb::make_tuple(t.method, t.factor, t.length, t.shares >= 0, Name(t.kv)));
            }
            return tasks;
          })
      .def("describe",
           [](PySweep& s, std::string model_path, std::string model_name, std::string text_path,
              std::string command) {
             s.header.model_path = std::move(model_path);
             s.header.model_name = std::move(model_name);
             s.header.text_path = std::move(text_path);
             s.header.command = std::move(command);
           })
      .def("run", &PySweep::Run, nb::arg("engine"), nb::arg("model_hash"), nb::arg("folder"),
           nb::arg("kept"), nb::arg("budget"), nb::arg("shard").none(), nb::arg("message"),
           nb::arg("progress"), nb::arg("finished"));

  m.def("threads_of_rank", [] { return ThreadsOfRank(NumThreads(), std::getenv); });
  m.def("report_json", [](const std::vector<std::string>& folders) {
    const nlohmann::ordered_json json = cli::ReportJson(cli::LoadSweeps(folders));
    return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  });
  m.def("report_text", [](const std::string& folder) {
    return cli::SummaryText(cli::LoadSweeps({folder}).front());
  });
  m.def("write_report", [](const std::vector<std::string>& folders, const std::string& path) {
    return cli::WriteReport(folders, path);
  });
}

}  // namespace ropewalk::python
