// ropewalk: which context-extension setting for this model, and what does it cost?
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <new>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "ropewalk/base/error.h"
#include "ropewalk/eval/results.h"
#include "src/base/did_you_mean.h"

namespace ropewalk::cli {
namespace {

constexpr int kDone = 0, kFailed = 1, kWrongUsage = 2, kInterrupted = 130;

constexpr const char* kFooter = R"(Examples:
  ropewalk inspect ./SmolLM2-135M
  ropewalk sweep ./SmolLM2-135M --text book.txt -o smollm2-sweep
  ropewalk sweep model.gguf --text book.txt --methods none,yarn --lengths 8k,32k --dry-run
  ropewalk perplexity model.gguf --text book.txt --length 512 --protocol half
  ropewalk passkey model.gguf --length 16k --method yarn --factor 2
  ropewalk generate ./SmolLM2-135M --prompt "The capital of France is"
  ropewalk embed ./all-MiniLM-L6-v2 --ids ids.json --positions hierarchical
  ropewalk extend ./SmolLM2-135M --method yarn --factor 4 -o SmolLM2-yarn4
  ropewalk convert ./SmolLM2-135M -o smollm2.gguf --type q8_0

Results go to stdout, progress and messages to stderr.
Exit codes: 0 done, 1 failed, 2 wrong usage (or a sweep of more than an hour without --yes),
130 interrupted.)";

std::string& CommandLineText() {
  static std::string text;
  return text;
}

int Fail(int code, const std::string& message) {
  std::string line = message;
  for (char& c : line) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  Message("ropewalk: error: " + line);
  return code;
}

// CLI11's message; for a command or option that does not exist, which was meant.
std::string Explain(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<const CLI::App*> chosen =
      app.get_subcommands([](const CLI::App* c) { return c->parsed(); });
  const std::vector<std::string> rest = app.remaining(true);
  std::vector<std::string> known;
  if (chosen.empty()) {
    if (rest.empty() || rest[0].starts_with("-")) return error.what();
    std::string names;
    for (const CLI::App* c : app.get_subcommands([](const CLI::App*) { return true; })) {
      known.push_back(c->get_name());
      names += (names.empty() ? "" : ", ") + known.back();
    }
    return "unknown command \"" + rest[0] + "\"" +
           internal::DidYouMean(rest[0], {known.begin(), known.end()}) + ", expected one of " +
           names;
  }
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr) return error.what();
  for (const CLI::Option* option : chosen[0]->get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  for (const std::string& word : rest) {
    if (!word.starts_with("--")) continue;
    const std::string name = word.substr(0, word.find('='));
    return "unknown option " + name + internal::DidYouMean(name, {known.begin(), known.end()});
  }
  return error.what();
}

int Run(int argc, char** argv) {
  CLI::App app{
      "Measures a transformer under the ways to extend its context: perplexity and passkey "
      "retrieval against length, and which setting to use.",
      "ropewalk"};
  app.footer(kFooter);
  app.set_version_flag("--version", "ropewalk " + Version());
  app.require_subcommand(1);
  AddInspectCommand(app);
  AddSweepCommand(app);
  AddPerplexityCommand(app);
  AddPasskeyCommand(app);
  AddGenerateCommand(app);
  AddTokenizeCommand(app);
  AddEmbedCommand(app);
  AddReportCommand(app);
  AddExtendCommand(app);
  AddConvertCommand(app);
  AddInfoCommand(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(e);
    return Fail(kWrongUsage, Explain(app, e) + " (ropewalk --help, ropewalk COMMAND --help)");
  } catch (const UsageError& e) {
    return Fail(kWrongUsage, e.what());
  }
  return kDone;
}

int RunGuarded(int argc, char** argv) {
  try {
    return Run(argc, argv);
  } catch (const Interrupted&) {
    Message("ropewalk: interrupted");
    return kInterrupted;
  } catch (const std::bad_alloc&) {
    return Fail(kFailed, "not enough memory; --dry-run says how much a sweep needs");
  } catch (const std::exception& e) {
    if (std::ferror(stdout) != 0) return kFailed;  // Main says so
    if (dynamic_cast<const Error*>(&e) != nullptr) return Fail(kFailed, e.what());
    // Of a library below: whoever threw it did not say where.
    return Fail(kFailed,
                fmt::format("{}: an error that nobody expected ({}); please report it with "
                            "this command line",
                            argc > 1 ? argv[1] : "ropewalk", e.what()));
  }
}

}  // namespace

const std::string& CommandLine() { return CommandLineText(); }

std::string Quoted(const std::string& argument) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./,:=+@%";
  if (!argument.empty() && argument.find_first_not_of(kPlain) == std::string::npos) {
    return argument;
  }
  std::string quoted = "'";
  for (const char c : argument) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

int Main(int argc, char** argv) {
  OpenStandardFiles();
  InstallInterruptHandler();
  CommandLineText() = "ropewalk";
  for (int i = 1; i < argc; ++i) CommandLineText() += " " + Quoted(argv[i]);
  int code = RunGuarded(argc, argv);
  // A result that did not reach its reader is no result.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    code = Fail(kFailed, "cannot write to stdout");
  }
  return code;
}

}  // namespace ropewalk::cli

int main(int argc, char** argv) { return ropewalk::cli::Main(argc, argv); }
