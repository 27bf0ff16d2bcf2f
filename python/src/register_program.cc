// The program: ropewalk._core.main, which python/ropewalk/_program.py calls.
#include <signal.h>

#include <array>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cli/program.h"
#include "cli/torch_engine.h"
#include "python/src/register.h"
#include "ropewalk/base/error.h"
#include "ropewalk/eval/eval.h"

namespace ropewalk::python {
namespace {

// Python's handlers of the signals that the program handles itself.
class KeptSignals {
 public:
  KeptSignals() {
    for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], nullptr, &before_[i]);
  }
  ~KeptSignals() {
    for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
  }
  KeptSignals(const KeptSignals&) = delete;
  KeptSignals& operator=(const KeptSignals&) = delete;

 private:
  static constexpr std::array<int, 3> kSignals = {SIGINT, SIGPIPE, SIGXFSZ};
  std::array<struct sigaction, kSignals.size()> before_;
};

// Arguments are bytes to the program, and files may have names that are no text.
using Strings = nb::typed<nb::list, nb::str>;
std::vector<std::string> Bytes(const Strings& strings) {
  std::vector<std::string> out;
  out.reserve(strings.size());
  for (const nb::handle item : strings) {
    const nb::object bytes = nb::steal(PyUnicode_EncodeFSDefault(item.ptr()));
    if (!bytes.is_valid()) throw nb::python_error();
    out.emplace_back(nb::borrow<nb::bytes>(bytes).c_str());
  }
  return out;
}

// Runs `work`, in Python: what it raises becomes an error of the program.
template <class Work>
auto InPython(Work&& work) {
  const nb::gil_scoped_acquire gil;
  try {
    return work();
  } catch (const nb::python_error& e) {
    if (e.matches(PyExc_KeyboardInterrupt)) throw Interrupted();
    const std::string text = nb::cast<std::string>(nb::str(e.value()));
    if (e.matches(nb::module_::import_("ropewalk").attr("Error"))) {
      throw Error(ErrorCode::kUnsupported, text);
    }
    throw Error(
        ErrorCode::kUnsupported,
        "PyTorch: " + nb::cast<std::string>(nb::str(e.type().attr("__name__"))) + ": " + text);
  }
}

// ropewalk.engine.TorchEngine as an engine of the program.
class TorchEngine final : public ScoringEngine {
 public:
  TorchEngine(const std::string& model, const std::string& device, const std::string& dtype) {
    InPython([&] {
      const auto given = [](const std::string& text) -> nb::object {
        return text.empty() ? nb::none() : nb::object(nb::str(text.c_str()));
      };
      object_ = nb::module_::import_("ropewalk.engine")
                    .attr("TorchEngine")(model.c_str(), nb::arg("device") = given(device),
                                         nb::arg("dtype") = given(dtype));
      engine_ = nb::cast<const ScoringEngine*>(object_);
    });
  }
  ~TorchEngine() override {
    const nb::gil_scoped_acquire gil;
    object_.reset();
  }
  EngineFacts Facts() const override {
    return InPython([&] { return engine_->Facts(); });
  }
  int64_t MemoryBytes(const PositionPlan& plan, int64_t length) const override {
    return InPython([&] { return engine_->MemoryBytes(plan, length); });
  }

 private:
  Scores DoScore(const EngineCall& call, std::span<const ScoreRequest> requests) const override {
    return InPython([&] { return engine_->Score(call, requests); });
  }

  nb::object object_;
  const ScoringEngine* engine_ = nullptr;
};

int RunMain(const Strings& argv, const Strings& restart) {
  std::vector<std::string> arguments = Bytes(argv);
  if (arguments.empty()) throw nb::value_error("argv: expected the program's name at least");
  std::vector<std::string> restart_line = Bytes(restart);
  std::vector<char*> pointers;
  pointers.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  std::clearerr(stdout);  // of an earlier call
  cli::SetTorchEngine([](const std::string& model, const std::string& device,
                         const std::string& dtype) -> std::unique_ptr<ScoringEngine> {
    return std::make_unique<TorchEngine>(model, device, dtype);
  });
  const KeptSignals kept;
  const nb::gil_scoped_release release;
  return cli::RunProgram(static_cast<int>(arguments.size()), pointers.data(),
                         std::move(restart_line));
}

}  // namespace

void RegisterProgram(nb::module_& m) {
  m.def("main", &RunMain, nb::arg("argv"), nb::arg("restart") = nb::list(),
        "Runs a command line of the program (argv[0] is its name) and returns the exit code. "
        "Commands with\n"
        "threads set GOMP_SPINCOUNT and replace the process by the command line `restart`, where "
        "it is given.\n"
        "Ctrl-C ends the process where the program does so.");
}

}  // namespace ropewalk::python
