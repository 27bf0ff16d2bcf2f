// ropewalk/eval: engines that score tokens, the sweep with them, its results and its report.
#include <nanobind/ndarray.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>
#include <nanobind/trampoline.h>

#include <chrono>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/report.h"
#include "python/src/plan.h"
#include "python/src/register.h"
#include "ropewalk/base/error.h"
#include "ropewalk/base/hash.h"
#include "ropewalk/eval/decoder_engine.h"
#include "ropewalk/eval/prepare.h"
#include "ropewalk/eval/results.h"
#include "ropewalk/model/model.h"
#include "ropewalk/tokenizer/utf8_text.h"

namespace ropewalk::python {
namespace {

template <class T>
using Ids = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class T>
std::vector<T> VectorOf(const Ids<T>& ids) {
  return {ids.data(), ids.data() + ids.size()};
}

// A numpy array of its own.
template <class T>
nb::object ArrayOf(std::vector<T> values) {
  auto* kept = new std::vector<T>(std::move(values));
  const nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(kept->data(), {kept->size()}, owner));
}

// What numpy makes of anything that holds numbers.
template <class T>
Ids<T> AsArray(nb::handle given, const char* type) {
  return nb::cast<Ids<T>>(nb::module_::import_("numpy").attr("ascontiguousarray")(given, type));
}

// ropewalk.Plan, which holds its PyPlan as _core.
nb::object PlanObject(const PyPlan& plan) {
  return nb::module_::import_("ropewalk._plan").attr("Plan")(nb::cast(plan));
}
const PyPlan& PlanOf(const nb::object& plan) {
  return nb::cast<const PyPlan&>(nb::getattr(plan, "_core", plan));
}

// Looks for Ctrl-C now and then in work that runs without the GIL: what Python's handler raises ends
// the work.
class Signals {
 public:
  void Check() {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::milliseconds(50)) return;
    last_ = now;
    const nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }

 private:
  std::chrono::steady_clock::time_point last_ = {};
};

// ---- Engines

// A request that owns its numbers.
struct OwnedRequest {
  std::vector<int32_t> prefix, ids;
  std::vector<int64_t> positions, entropy_queries;

  ScoreRequest View() const {
    return {
        .prefix = prefix, .ids = ids, .positions = positions, .entropy_queries = entropy_queries};
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

// [requests] of (log_probs, top), or an object that has them as `tokens`, with `entropy`.
Scores ScoresOf(const nb::object& answer) {
  Scores scores;
  nb::object tokens = answer;
  if (nb::hasattr(answer, "tokens")) {
    tokens = answer.attr("tokens");
    scores.entropy = nb::cast<double>(answer.attr("entropy"));
    scores.entropy_share = nb::cast<double>(answer.attr("entropy_share"));
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
      list.append(
          nb::cast(OwnedRequest{Copy(r.prefix), Copy(r.ids), r.positions, r.entropy_queries}));
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
    std::vector<Continuation> made;
    const nb::object answer =
        ticket.Method()(Call{&call, PyPlan(*call.plan, call.final_length)}, list);
    for (const nb::handle item : nb::list(answer)) {
      made.push_back({VectorOf(AsArray<int32_t>(item[0], "int32")), nb::cast<bool>(item[1])});
    }
    return made;
  }
};

// The answer of an engine as Python sees it.
struct PyScores {
  nb::list tokens;  // (log_probs float32, top int32) for each request
  double entropy = std::numeric_limits<double>::quiet_NaN();
  double entropy_share = std::numeric_limits<double>::quiet_NaN();
};

AnglePrecision AnglesOf(const std::string& angles) {
  if (angles == "exact") return AnglePrecision::kExact;
  if (angles == "float32") return AnglePrecision::kFloat32;
  throw Error(ErrorCode::kInvalidArgument,
              "angles: expected \"exact\" or \"float32\", got \"" + angles + "\"");
}

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
  return {std::move(tokens), scores.entropy, scores.entropy_share};
}

nb::object Generate(const ScoringEngine& engine, const nb::object& plan,
                    const std::vector<OwnedPrompt>& given, int64_t final_length,
                    const std::string& angles, bool whole_reuse, const Tick& tick) {
  std::vector<GenerateRequest> requests;
  requests.reserve(given.size());
  for (const OwnedPrompt& prompt : given) requests.push_back(prompt.View());
  const std::vector<Continuation> made =
      WithCall(plan, final_length, angles, whole_reuse, tick,
               [&](const EngineCall& call) { return engine.Generate(call, requests); });
  nb::list out;
  for (const Continuation& c : made) out.append(nb::make_tuple(ArrayOf(c.ids), c.stopped));
  return out;
}

[[noreturn]] void Private() {
  throw Error(ErrorCode::kUnsupported,
              "do_score and do_generate are what a subclass overrides; call score and generate");
}

void RegisterEngines(nb::module_& m) {
  nb::class_<EngineFacts>(m, "EngineFacts",
                          "What is known of an engine and its model without running it.")
      .def(
          "__init__",
          [](EngineFacts* self, std::string name, int64_t vocab, std::string compute, int threads,
             double token_flops, double pair_flops, double head_flops) {
            new (self) EngineFacts{std::move(name), vocab,      std::move(compute), threads,
                                   token_flops,     pair_flops, head_flops};
          },
          nb::arg("name"), nb::arg("vocab"), nb::arg("compute"), nb::arg("threads") = 1,
          nb::arg("token_flops") = 0.0, nb::arg("pair_flops") = 0.0, nb::arg("head_flops") = 0.0)
      .def_ro("name", &EngineFacts::name)
      .def_ro("vocab", &EngineFacts::vocab)
      .def_ro("compute", &EngineFacts::compute,
              "recorded with every row; rows of others are refused")
      .def_ro("threads", &EngineFacts::threads);

  nb::class_<OwnedRequest>(
      m, "ScoreRequest", "One sequence, `prefix` followed by `ids`, and the tokens of it to score.")
      .def(
          "__init__",
          [](OwnedRequest* self, const nb::object& ids, const nb::object& positions,
             const nb::object& prefix, const nb::object& entropy_queries) {
            new (self) OwnedRequest{VectorOf(AsArray<int32_t>(prefix, "int32")),
                                    VectorOf(AsArray<int32_t>(ids, "int32")),
                                    VectorOf(AsArray<int64_t>(positions, "int64")),
                                    VectorOf(AsArray<int64_t>(entropy_queries, "int64"))};
          },
          nb::arg("ids"), nb::arg("positions"), nb::arg("prefix") = nb::make_tuple(),
          nb::arg("entropy_queries") = nb::make_tuple())
      .def_prop_ro("ids", [](const OwnedRequest& r) { return ArrayOf(r.ids); })
      .def_prop_ro("prefix", [](const OwnedRequest& r) { return ArrayOf(r.prefix); })
      .def_prop_ro("positions", [](const OwnedRequest& r) { return ArrayOf(r.positions); })
      .def_prop_ro("entropy_queries",
                   [](const OwnedRequest& r) { return ArrayOf(r.entropy_queries); });

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
          [](PyScores* self, nb::list tokens, double entropy, double entropy_share) {
            new (self) PyScores{std::move(tokens), entropy, entropy_share};
          },
          nb::arg("tokens"), nb::arg("entropy") = std::numeric_limits<double>::quiet_NaN(),
          nb::arg("entropy_share") = std::numeric_limits<double>::quiet_NaN())
      .def_ro("tokens", &PyScores::tokens,
              "(log_probs, top) of each request: float32 and int32, one for each position")
      .def_ro("entropy", &PyScores::entropy, "of attention, nats; NaN: not measured")
      .def_ro("entropy_share", &PyScores::entropy_share, "relative to ln(unmasked keys)");

  nb::class_<ScoringEngine, PythonEngine>(
      m, "ScoringEngine", "What a measurement asks of a language model; see ropewalk.engine.")
      .def(nb::init<>())
      .def("facts", &ScoringEngine::Facts, "EngineFacts")
      .def(
          "memory_bytes",
          [](const ScoringEngine& engine, const nb::object& plan, int64_t length) {
            return engine.MemoryBytes(PlanOf(plan).plan, length);
          },
          nb::arg("plan"), nb::arg("length"),
          "Estimate for weights, cache and scratch memory of one sequence of `length` tokens.")
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

// ---- Models and tokenizers

// A tokenizer in Python: `given` has encode(text) -> ids, decode(ids) -> bytes, piece(id) -> str and
// the attributes vocab_size, kind, hash, bos_id (or None) and adds_bos.
class PythonTokenizer final : public Tokenizer {
 public:
  explicit PythonTokenizer(nb::object given) : given_(std::move(given)) {
    kind_ = nb::cast<std::string>(given_.attr("kind"));
    hash_ = nb::cast<std::string>(given_.attr("hash"));
    bos_id_ = nb::cast<std::optional<int32_t>>(given_.attr("bos_id"));
    adds_bos_ = nb::cast<bool>(given_.attr("adds_bos"));
    vocab_size_ = nb::cast<int64_t>(given_.attr("vocab_size"));
  }

  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions&) const override {
    const nb::gil_scoped_acquire gil;
    const std::string valid = ValidUtf8(text);
    const nb::object ids = given_.attr("encode")(nb::str(valid.data(), valid.size()));
    return VectorOf(AsArray<int32_t>(ids, "int32"));
  }
  std::string Decode(std::span<const int32_t> ids) const override {
    const nb::gil_scoped_acquire gil;
    nb::list list;
    for (const int32_t id : ids) list.append(id);
    const auto bytes = nb::cast<nb::bytes>(given_.attr("decode")(list));
    return {bytes.c_str(), bytes.size()};
  }
  std::string Piece(int32_t id) const override {
    const nb::gil_scoped_acquire gil;
    return nb::cast<std::string>(given_.attr("piece")(id));
  }
  int64_t vocab_size() const override { return vocab_size_; }

 private:
  nb::object given_;
  int64_t vocab_size_ = 0;
};

ModelFiles Open(const std::string& path, bool allow_unknown, bool weights) {
  const nb::gil_scoped_release no_gil;
  return OpenModel(path, {.allow_unknown = allow_unknown, .need_weights = weights});
}

std::unique_ptr<Decoder> Load(const ModelFiles& files, const std::string& compute) {
  if (!files.config.not_runnable.empty()) {
    throw Error(ErrorCode::kUnsupported, files.path + ": " + files.config.not_runnable);
  }
  const ComputeType type =
      compute == Name(ComputeType::kBFloat16) ? ComputeType::kBFloat16 : ComputeType::kFloat32;
  const nb::gil_scoped_release no_gil;
  return Decoder::Load(files, type);
}

void RegisterModels(nb::module_& m) {
  nb::class_<Tokenizer>(m, "Tokenizer")
      .def("encode",
           [](const Tokenizer& t, const std::string& text) { return ArrayOf(t.Encode(text)); })
      .def_prop_ro("kind", &Tokenizer::kind)
      .def_prop_ro("hash", &Tokenizer::hash)
      .def_prop_ro("bos_id", &Tokenizer::bos_id)
      .def_prop_ro("adds_bos", &Tokenizer::adds_bos);
  nb::class_<PythonTokenizer, Tokenizer>(m, "PythonTokenizer")
      .def(nb::init<nb::object>(), nb::arg("given"));
  nb::class_<ModelFiles>(m, "ModelFiles")
      .def(nb::new_(&Open), nb::arg("path"), nb::arg("allow_unknown") = false,
           nb::arg("weights") = true)
      .def_ro("path", &ModelFiles::path)
      .def_prop_ro(
          "tokenizer", [](const ModelFiles& f) { return f.tokenizer.get(); },
          nb::rv_policy::reference_internal)
      .def_ro("tokenizer_error", &ModelFiles::tokenizer_error)
      .def_prop_ro("warnings", [](const ModelFiles& f) { return f.config.not_honoured; })
      .def_prop_ro("plan",
                   [](const ModelFiles& f) {
                     const PositionPlan& plan = f.config.plan;
                     return PlanObject(PyPlan(plan, std::max<int64_t>(1, plan.configured_length),
                                              f.config.not_honoured));
                   })
      .def("hash", &ModelFiles::Hash, nb::call_guard<nb::gil_scoped_release>())
      .def("decoder", &Load, nb::arg("compute") = "float32");
  nb::class_<Hasher>(m, "Hasher")
      .def(nb::init<>())
      .def("update",
           [](Hasher& h, const nb::bytes& bytes) { h.Update(bytes.c_str(), bytes.size()); })
      .def("update",
           [](Hasher& h,
              const nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>& bytes) {
             h.Update(bytes.data(), bytes.size());
           })
      .def("hex", &Hasher::Hex);
}

// ---- The sweep

struct PySweep {
  PositionPlan plan;
  TokenText text;
  const Tokenizer* tokenizer = nullptr;
  PreparedSweep prepared;
  SweepHeader header;

  void Run(const ScoringEngine& engine, const std::string& model_hash, const std::string& folder,
           const nb::callable& message, const nb::callable& progress, const nb::callable& finished);
};

void MakeSweep(PySweep* self, const nb::object& given_plan, const Tokenizer* tokenizer,
               const std::optional<nb::bytes>& text, const std::optional<nb::object>& ids,
               const std::vector<std::string>& methods,
               const std::vector<std::string>& dictionaries, std::vector<int64_t> lengths,
               std::vector<double> factors, int64_t trained_length, const std::string& protocol,
               std::optional<int64_t> anchors, uint64_t seed, std::optional<bool> bos, bool passkey,
               int64_t passkey_trials, const std::string& angles, bool allow_unknown) {
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
  spec.passkey = passkey && tokenizer != nullptr && text;
  if (passkey_trials < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                "passkey_trials: expected at least 1, got " + std::to_string(passkey_trials));
  }
  spec.passkey_options.trials = passkey_trials;
  spec.passkey_options.seed = seed;
  spec.passkey_options.bos = spec.protocol.bos;
  spec.angles = AnglesOf(angles);

  PySweep sweep;
  sweep.plan = plan.plan;
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
    }
    if (sweep.text.ids.empty()) {
      throw Error(ErrorCode::kInvalidArgument, "text: expected at least one token, got none");
    }
    sweep.prepared =
        PrepareSweep(std::move(spec), protocol == "aligned", plan.plan, sweep.text, tokenizer);
  }
  if (passkey && tokenizer != nullptr && !text) {
    sweep.prepared.notes.emplace_back("passkey is left out: it needs a text, not token ids");
  }
  sweep.header.notes = sweep.prepared.notes;
  sweep.prepared.notes.insert(sweep.prepared.notes.begin(), notes.begin(), notes.end());
  sweep.header.text_tokens = static_cast<int64_t>(sweep.text.ids.size());
  new (self) PySweep(std::move(sweep));
}

void PySweep::Run(const ScoringEngine& engine, const std::string& model_hash,
                  const std::string& folder, const nb::callable& message,
                  const nb::callable& progress, const nb::callable& finished) {
  const SweepInputs inputs{&engine, tokenizer, &text, model_hash};
  Signals signals;
  SweepEvents events;
  events.message = [&](const std::string& line) {
    const nb::gil_scoped_acquire gil;
    message(line);
  };
  auto last = std::chrono::steady_clock::time_point();
  events.progress = [&](size_t index, int64_t done, int64_t all) {
    signals.Check();
    const auto now = std::chrono::steady_clock::now();
    if (now - last < std::chrono::milliseconds(100)) return true;
    last = now;
    const nb::gil_scoped_acquire gil;
    progress(index, done, all);
    return true;
  };
  size_t first = 0;
  events.finished = [&](size_t index, const Cell& cell, bool resumed) {
    if (index < first) return;
    const nb::gil_scoped_acquire gil;
    finished(index, ToJson(cell), resumed);
  };
  const nb::gil_scoped_release no_gil;
  header.common = CommonFields(prepared.spec, inputs, prepared.longest);
  RunSweep(prepared.tasks, prepared.spec, inputs, header, folder, events);
  first = prepared.tasks.size();
  prepared.tasks =
      AddCosts(std::move(prepared.tasks), prepared.spec, plan, ReadResults(folder).cells);
  if (prepared.tasks.size() > first) {
    RunSweep(prepared.tasks, prepared.spec, inputs, header, folder, events);
  }
}

void RegisterSweep(nb::module_& m) {
  nb::class_<PySweep>(m, "Sweep")
      .def("__init__", &MakeSweep, nb::arg("plan"), nb::arg("tokenizer").none(),
           nb::arg("text").none(), nb::arg("ids").none(), nb::arg("methods"),
           nb::arg("dictionaries"), nb::arg("lengths"), nb::arg("factors"),
           nb::arg("trained_length"), nb::arg("protocol"), nb::arg("anchors").none(),
           nb::arg("seed"), nb::arg("bos").none(), nb::arg("passkey"), nb::arg("passkey_trials"),
           nb::arg("angles"), nb::arg("allow_unknown"), nb::keep_alive<1, 3>())
      .def_prop_ro("notes", [](const PySweep& s) { return s.prepared.notes; })
      .def_prop_ro("protocol", [](const PySweep& s) { return s.prepared.spec.protocol.Name(); })
      .def_prop_ro("longest", [](const PySweep& s) { return s.prepared.longest; })
      .def_prop_ro("tasks",
                   [](const PySweep& s) {
                     nb::list tasks;
                     for (const SweepTask& t : s.prepared.tasks) {
                       tasks.append(nb::make_tuple(t.method, t.factor, t.length, t.shares >= 0));
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
           nb::arg("message"), nb::arg("progress"), nb::arg("finished"));

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

}  // namespace

void RegisterEval(nb::module_& m) {
  RegisterEngines(m);
  RegisterModels(m);
  RegisterSweep(m);
}

}  // namespace ropewalk::python
