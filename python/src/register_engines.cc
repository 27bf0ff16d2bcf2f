// ropewalk/eval: engines that score tokens, in C++ and in Python.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <nanobind/trampoline.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/src/arrays.h"
#include "python/src/eval.h"
#include "python/src/register.h"
#include "ropewalk/eval/decoder_engine.h"
#include "ropewalk/eval/eval.h"
#include "ropewalk/eval/prepare.h"
#include "ropewalk/model/model.h"

namespace ropewalk::python {
namespace {

// A request that owns its numbers.
struct OwnedRequest {
  std::vector<int32_t> prefix, ids;
  std::vector<int64_t> positions, entropy_queries;
  int64_t continue_tokens = 0;
  std::vector<int32_t> stop;

  ScoreRequest View() const {
    return {.prefix = prefix,
            .ids = ids,
            .positions = positions,
            .entropy_queries = entropy_queries,
            .continue_tokens = continue_tokens,
            .stop = stop};
  }
};
struct OwnedPrompt {
  std::vector<int32_t> prefix, ids, stop;
  int64_t max_tokens = 0;

  GenerateRequest View() const {
    return {.prefix = prefix, .ids = ids, .max_tokens = max_tokens, .stop = stop};
  }
};

// What an engine in Python is told about a call. Valid during the call.
struct Call {
  const EngineCall* call = nullptr;
  PyPlan plan;

  void Tick(int64_t tokens) const {
    try {
      const nb::gil_scoped_release no_gil;
      if (call->tick) call->tick(tokens);
    } catch (const Interrupted&) {  // of the program, whose Ctrl-C it is
      PyErr_SetNone(PyExc_KeyboardInterrupt);
      throw nb::python_error();
    }
  }
};

template <class T>
std::vector<T> Copy(std::span<const T> values) {
  return {values.begin(), values.end()};
}

// [requests] of (ids, stopped).
std::vector<Continuation> ContinuationsOf(const nb::object& answer) {
  std::vector<Continuation> made;
  for (const nb::handle item : nb::list(answer)) {
    made.push_back({VectorOf(AsArray<int32_t>(item[0], "int32")), nb::cast<bool>(item[1])});
  }
  return made;
}

nb::list ListOf(const std::vector<Continuation>& made) {
  nb::list out;
  for (const Continuation& c : made) out.append(nb::make_tuple(ArrayOf(c.ids), c.stopped));
  return out;
}

// [requests] of (log_probs, top), or Scores.
Scores ScoresOf(const nb::object& answer) {
  Scores scores;
  nb::object tokens = answer;
  if (nb::hasattr(answer, "tokens")) {
    tokens = answer.attr("tokens");
    for (const auto& [nats, share] :
         nb::cast<std::vector<std::pair<double, double>>>(answer.attr("entropy"))) {
      scores.entropy.push_back({.nats = nats, .share = share});
    }
    scores.continuations = ContinuationsOf(answer.attr("continuations"));
    scores.fed_tokens = nb::cast<int64_t>(answer.attr("fed_tokens"));
  }
  for (const nb::handle item : nb::list(tokens)) {
    const auto log_probs = AsArray<float>(item[0], "float32");
    const auto top = AsArray<int32_t>(item[1], "int32");
    std::vector<TokenScore>& row = scores.tokens.emplace_back();
    if (log_probs.size() != top.size()) {
      throw Error(ErrorCode::kMismatch, "the engine answered " + std::to_string(log_probs.size()) +
                                            " log-probabilities and " + std::to_string(top.size()) +
                                            " most probable tokens for one request");
    }
    for (size_t i = 0; i < top.size(); ++i) row.push_back({log_probs.data()[i], top.data()[i]});
  }
  return scores;
}

// An engine in Python: a class that overrides facts, memory_bytes, do_score and, where it generates,
// do_generate.
class PythonEngine final : public ScoringEngine {
 public:
  NB_TRAMPOLINE(ScoringEngine);

  EngineFacts Facts() const override {
    const Ticket ticket(*this, "facts", true);
    return nb::cast<EngineFacts>(ticket.Method()());
  }
  int64_t MemoryBytes(const PositionPlan& plan, int64_t length) const override {
    const Ticket ticket(*this, "memory_bytes", true);
    return nb::cast<int64_t>(ticket.Method()(PlanObject(PyPlan(plan, length)), length));
  }

 private:
  // Holds the GIL.
  class Ticket {
   public:
    Ticket(const PythonEngine& engine, const char* name, bool pure)
        : engine_(engine), ticket_(engine.nb_trampoline, name, nb::detail::str_hash(name), pure) {}
    bool overridden() const { return ticket_.key.is_valid(); }
    nb::object Method() const { return engine_.nb_trampoline.base().attr(ticket_.key); }

   private:
    const PythonEngine& engine_;
    nb::detail::ticket ticket_;
  };

  Scores DoScore(const EngineCall& call, std::span<const ScoreRequest> requests) const override {
    const Ticket ticket(*this, "do_score", true);
    nb::list list;
    for (const ScoreRequest& r : requests) {
      list.append(nb::cast(OwnedRequest{Copy(r.prefix), Copy(r.ids), r.positions, r.entropy_queries,
                                        r.continue_tokens, Copy(r.stop)}));
    }
    return ScoresOf(ticket.Method()(Call{&call, PyPlan(*call.plan, call.final_length)}, list));
  }

  std::vector<Continuation> DoGenerate(const EngineCall& call,
                                       std::span<const GenerateRequest> requests) const override {
    const Ticket ticket(*this, "do_generate", false);
    if (!ticket.overridden()) {
      throw Error(ErrorCode::kUnsupported,
                  "the engine '" + Facts().name + "' does not generate text");
    }
    nb::list list;
    for (const GenerateRequest& r : requests) {
      list.append(nb::cast(OwnedPrompt{Copy(r.prefix), Copy(r.ids), Copy(r.stop), r.max_tokens}));
    }
    return ContinuationsOf(
        ticket.Method()(Call{&call, PyPlan(*call.plan, call.final_length)}, list));
  }
};

// The answer of an engine as Python sees it.
struct PyScores {
  nb::list tokens;              // (log_probs float32, top int32) for each request
  nb::list entropy = {};        // (nats, share) of each request, where the engine measures it
  nb::list continuations = {};  // (ids int32, stopped) for each request, where any asks for one
  int64_t fed_tokens = 0;
};

using Tick = std::optional<nb::callable>;

// Runs `work(call)` without the GIL; Ctrl-C and what `tick` raises end it.
template <class Work>
auto WithCall(const nb::object& given_plan, int64_t final_length, const std::string& angles,
              bool whole_reuse, const Tick& tick, Work&& work) {
  const PyPlan& plan = PlanOf(given_plan);
  EngineCall call{.plan = &plan.plan,
                  .final_length = final_length > 0 ? final_length : plan.resolved.length,
                  .angles = AnglesOf(angles),
                  .reuse = whole_reuse ? PrefixReuse::kWhole : PrefixReuse::kSameBits};
  Signals signals;
  call.tick = [&](int64_t tokens) {
    signals.Check();
    if (!tick) return;
    const nb::gil_scoped_acquire gil;
    (*tick)(tokens);
  };
  const nb::gil_scoped_release no_gil;
  return work(call);
}

PyScores Score(const ScoringEngine& engine, const nb::object& plan,
               const std::vector<OwnedRequest>& given, int64_t final_length,
               const std::string& angles, bool whole_reuse, const Tick& tick) {
  std::vector<ScoreRequest> requests;
  requests.reserve(given.size());
  for (const OwnedRequest& request : given) requests.push_back(request.View());
  const Scores scores =
      WithCall(plan, final_length, angles, whole_reuse, tick,
               [&](const EngineCall& call) { return engine.Score(call, requests); });
  nb::list tokens;
  for (const std::vector<TokenScore>& row : scores.tokens) {
    std::vector<float> log_probs;
    std::vector<int32_t> top;
    for (const TokenScore& score : row) {
      log_probs.push_back(score.log_prob);
      top.push_back(score.top);
    }
    tokens.append(nb::make_tuple(ArrayOf(std::move(log_probs)), ArrayOf(std::move(top))));
  }
  nb::list entropy;
  for (const MeanEntropy& e : scores.entropy) entropy.append(nb::make_tuple(e.nats, e.share));
  return {std::move(tokens), std::move(entropy), ListOf(scores.continuations), scores.fed_tokens};
}

nb::list Generate(const ScoringEngine& engine, const nb::object& plan,
                  const std::vector<OwnedPrompt>& given, int64_t final_length,
                  const std::string& angles, bool whole_reuse, const Tick& tick) {
  std::vector<GenerateRequest> requests;
  requests.reserve(given.size());
  for (const OwnedPrompt& prompt : given) requests.push_back(prompt.View());
  return ListOf(WithCall(plan, final_length, angles, whole_reuse, tick,
                         [&](const EngineCall& call) { return engine.Generate(call, requests); }));
}

[[noreturn]] void Private() {
  throw Error(ErrorCode::kUnsupported,
              "do_score and do_generate are what a subclass overrides; call score and generate");
}

}  // namespace

void RegisterEngines(nb::module_& m) {
  nb::class_<EngineFacts>(m, "EngineFacts",
                          "What is known of an engine and its model without running it.")
      .def(
          "__init__",
          [](EngineFacts* self, std::string name, int64_t vocab, std::string compute, int threads,
             double token_flops, double pair_flops, double head_flops, std::string angles,
             int lanes) {
            new (self) EngineFacts{.name = std::move(name),
                                   .vocab = vocab,
                                   .compute = std::move(compute),
                                   .threads = threads,
                                   .lanes = lanes,
                                   .token_flops = token_flops,
                                   .pair_flops = pair_flops,
                                   .head_flops = head_flops,
                                   .angles = std::move(angles)};
          },
          nb::arg("name"), nb::arg("vocab"), nb::arg("compute"), nb::arg("threads") = 1,
          nb::arg("token_flops") = 0.0, nb::arg("pair_flops") = 0.0, nb::arg("head_flops") = 0.0,
          nb::arg("angles") = "", nb::arg("lanes") = 1)
      .def_ro("name", &EngineFacts::name)
      .def_ro("vocab", &EngineFacts::vocab)
      .def_ro("compute", &EngineFacts::compute,
              "recorded with every row; rows of others are refused")
      .def_ro("threads", &EngineFacts::threads)
      .def_ro("lanes", &EngineFacts::lanes, "sequences of a call that run side by side at most")
      .def_ro("token_flops", &EngineFacts::token_flops,
              "floating-point operations of a token in all layers, by which time is estimated")
      .def_ro("pair_flops", &EngineFacts::pair_flops, "of a query and a key in one layer")
      .def_ro("head_flops", &EngineFacts::head_flops, "of the logits of a position")
      .def_ro("angles", &EngineFacts::angles,
              "how it computes angles, recorded with every row; empty: as a call asks");

  nb::class_<OwnedRequest>(
      m, "ScoreRequest", "One sequence, `prefix` followed by `ids`, and the tokens of it to score.")
      .def(
          "__init__",
          [](OwnedRequest* self, const nb::object& ids, const nb::object& positions,
             const nb::object& prefix, const nb::object& entropy_queries, int64_t continue_tokens,
             const nb::object& stop) {
            new (self) OwnedRequest{VectorOf(AsArray<int32_t>(prefix, "int32")),
                                    VectorOf(AsArray<int32_t>(ids, "int32")),
                                    VectorOf(AsArray<int64_t>(positions, "int64")),
                                    VectorOf(AsArray<int64_t>(entropy_queries, "int64")),
                                    continue_tokens,
                                    VectorOf(AsArray<int32_t>(stop, "int32"))};
          },
          nb::arg("ids"), nb::arg("positions"), nb::arg("prefix") = nb::make_tuple(),
          nb::arg("entropy_queries") = nb::make_tuple(), nb::arg("continue_tokens") = 0,
          nb::arg("stop") = nb::make_tuple())
      .def_prop_ro("ids", [](const OwnedRequest& r) { return ArrayOf(r.ids); })
      .def_prop_ro("prefix", [](const OwnedRequest& r) { return ArrayOf(r.prefix); })
      .def_prop_ro("positions", [](const OwnedRequest& r) { return ArrayOf(r.positions); })
      .def_prop_ro("entropy_queries",
                   [](const OwnedRequest& r) { return ArrayOf(r.entropy_queries); })
      .def_prop_ro("stop", [](const OwnedRequest& r) { return ArrayOf(r.stop); })
      .def_ro("continue_tokens", &OwnedRequest::continue_tokens,
              "above 0: the sequence is also continued greedily by at most as many tokens");

  nb::class_<OwnedPrompt>(m, "GenerateRequest",
                          "A prompt, `prefix` followed by `ids`, to be continued greedily.")
      .def(
          "__init__",
          [](OwnedPrompt* self, const nb::object& ids, int64_t max_tokens, const nb::object& prefix,
             const nb::object& stop) {
            new (self) OwnedPrompt{VectorOf(AsArray<int32_t>(prefix, "int32")),
                                   VectorOf(AsArray<int32_t>(ids, "int32")),
                                   VectorOf(AsArray<int32_t>(stop, "int32")), max_tokens};
          },
          nb::arg("ids"), nb::arg("max_tokens"), nb::arg("prefix") = nb::make_tuple(),
          nb::arg("stop") = nb::make_tuple())
      .def_prop_ro("ids", [](const OwnedPrompt& r) { return ArrayOf(r.ids); })
      .def_prop_ro("prefix", [](const OwnedPrompt& r) { return ArrayOf(r.prefix); })
      .def_prop_ro("stop", [](const OwnedPrompt& r) { return ArrayOf(r.stop); })
      .def_ro("max_tokens", &OwnedPrompt::max_tokens);

  nb::class_<Call>(m, "EngineCall", "What the sequences of one call have in common.")
      .def_prop_ro(
          "plan", [](const Call& c) { return PlanObject(c.plan); }, "resolved at final_length")
      .def_prop_ro("final_length", [](const Call& c) { return c.call->final_length; })
      .def_prop_ro("angles",
                   [](const Call& c) {
                     return c.call->angles == AnglePrecision::kExact ? "exact" : "float32";
                   })
      .def_prop_ro("whole_reuse",
                   [](const Call& c) { return c.call->reuse == PrefixReuse::kWhole; })
      .def("tick", &Call::Tick, nb::arg("tokens"),
           "tells how many tokens are done since the last call");

  nb::class_<PyScores>(m, "Scores", "Scores of a call's requests.")
      .def(
          "__init__",
          [](PyScores* self, nb::list tokens, nb::list entropy, nb::list continuations,
             int64_t fed_tokens) {
            new (self) PyScores{std::move(tokens), std::move(entropy), std::move(continuations),
                                fed_tokens};
          },
          nb::arg("tokens"), nb::arg("entropy") = nb::list(), nb::arg("continuations") = nb::list(),
          nb::arg("fed_tokens") = 0)
      .def_ro("tokens", &PyScores::tokens,
              "(log_probs, top) of each request: float32 and int32, one for each position")
      .def_ro(
          "entropy", &PyScores::entropy,
          "of attention, of each request: nats, and relative to ln(unmasked keys), NaN where no "
          "query was asked; empty: not measured")
      .def_ro("continuations", &PyScores::continuations,
              "(ids, stopped) of each request; empty: none asked for one, or left to do_generate")
      .def_ro("fed_tokens", &PyScores::fed_tokens,
              "that went through the model, what is kept of a prefix once; 0: not counted");

  nb::class_<ScoringEngine, PythonEngine>(
      m, "ScoringEngine", "What a measurement asks of a language model; see ropewalk.engine.")
      .def(nb::init<>())
      .def("facts", &ScoringEngine::Facts, "EngineFacts")
      .def(
          "memory_bytes",
          [](const ScoringEngine& engine, const nb::object& plan, int64_t length,
             const std::string& kv) {
            return engine.MemoryBytesWith(ParseKvTypes({kv}).front(), PlanOf(plan).plan, length);
          },
          nb::arg("plan"), nb::arg("length"), nb::arg("kv") = "f32",
          "Estimate for weights, caches and scratch memory of a call with sequences of `length` "
          "tokens.")
      .def(
          "do_score", [](const ScoringEngine&, const nb::object&, const nb::object&) { Private(); },
          nb::arg("call"), nb::arg("requests"),
          "Scores of valid requests; for subclasses to override.")
      .def(
          "do_generate",
          [](const ScoringEngine&, const nb::object&, const nb::object&) { Private(); },
          nb::arg("call"), nb::arg("requests"),
          "[(ids, stopped)] of valid requests; for subclasses that generate.")
      .def("score", &Score, nb::arg("plan"), nb::arg("requests"), nb::arg("final_length") = 0,
           nb::arg("angles") = "exact", nb::arg("whole_reuse") = false,
           nb::arg("tick") = nb::none())
      .def("generate", &Generate, nb::arg("plan"), nb::arg("requests"), nb::arg("final_length") = 0,
           nb::arg("angles") = "exact", nb::arg("whole_reuse") = false,
           nb::arg("tick") = nb::none());

  nb::class_<Decoder>(m, "Decoder");
  nb::class_<DecoderEngine, ScoringEngine>(m, "DecoderEngine")
      .def(nb::init<const Decoder&>(), nb::arg("decoder"), nb::keep_alive<1, 2>());
}

}  // namespace ropewalk::python
