#include "cli/parse.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <type_traits>
#include <vector>

#include "cli/help.h"
#include "ropewalk/base/did_you_mean.h"
#include "ropewalk/eval/results.h"

namespace ropewalk::cli {
namespace {

std::string& CommandLineText() {
  static std::string text;
  return text;
}

// CLI11 takes -1 for the largest number.
CLI::Validator NotNegative() {
  const auto check = [](const std::string& text) {
    uint64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [p, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc() && p == end) return std::string();
    return "expected a whole number from 0 to 18446744073709551615, got '" + text + "'";
  };
  return CLI::Validator(check, "");
}

// The number of an option's type: of optional<T> and of vector<T> that of T; void where it has none.
template <class T>
struct NumberOf {
  using type = std::conditional_t<std::is_arithmetic_v<T>, T, void>;
};
template <class T>
struct NumberOf<std::optional<T>> : NumberOf<T> {};
template <class T>
struct NumberOf<std::vector<T>> : NumberOf<T> {};

// Declares one option; its value goes to a field of `options`.
class Declare {
 public:
  Declare(CLI::App& app, const OptionRow& row, Options& options)
      : app_(app), row_(row), options_(options) {}

  CLI::Option* operator()(bool Options::*field) const {
    return app_.add_flag(row_.names, options_.*field);
  }
  CLI::Option* operator()(std::optional<bool> Options::*field) const {
    std::optional<bool>* value = &(options_.*field);
    return app_.add_flag_function(row_.names, [value](int64_t count) { *value = count > 0; });
  }
  CLI::Option* operator()(uint64_t Options::*field) const {
    return app_.add_option(row_.names, options_.*field)->check(NotNegative());
  }
  template <class T>
  CLI::Option* operator()(std::vector<T> Options::*field) const {
    CLI::Option* option = Bounded<std::vector<T>>(app_.add_option(row_.names, options_.*field));
    if (IsList(row_)) return option->delimiter(',');
    if (row_.several == Several::kPair) return option->expected(2);
    return IsPositional(row_) ? option : option->expected(1)->take_all();
  }
  template <class T>
  CLI::Option* operator()(T Options::*field) const {
    return Bounded<T>(app_.add_option(row_.names, options_.*field));
  }

 private:
  template <class T>
  CLI::Option* Bounded(CLI::Option* option) const {
    using Number = typename NumberOf<T>::type;
    if constexpr (!std::is_void_v<Number>) {
      if (row_.range.least <= row_.range.most) {
        option->check(CLI::Range(static_cast<Number>(row_.range.least),
                                 static_cast<Number>(row_.range.most)));
      }
    }
    if (row_.takes == Takes::kOneOf) option->check(CLI::IsMember(ChoicesOf(row_)));
    return option;
  }

  CLI::App& app_;
  const OptionRow& row_;
  Options& options_;
};

// CLI11 takes the next word for the value of a list that is commas alone.
void RefuseEmptyLists(const std::vector<std::string>& words) {
  const auto empty = [](std::string_view list) {
    return !list.empty() && list.find_first_not_of(", ") == std::string_view::npos;
  };
  for (size_t i = 1; i < words.size(); ++i) {
    const size_t equal = words[i].find('=');
    const std::string name = words[i].substr(0, equal);
    if (!name.starts_with("-")) continue;
    const bool behind = equal == std::string::npos;
    if (behind && i + 1 == words.size()) return;
    const std::string value = behind ? words[i + 1] : words[i].substr(equal + 1);
    if (!empty(value)) continue;
    for (const OptionRow& row : OptionRows()) {
      const std::vector<std::string> names = NamesOf(row);
      if (!IsList(row) || std::ranges::find(names, name) == names.end()) continue;
      throw UsageError(fmt::format("{}: expected {}, got '{}'", name, row.value, value));
    }
  }
}

using Declared = std::vector<std::pair<const OptionRow*, CLI::Option*>>;

Declared AddOptions(CLI::App& app, const Command& command, Options& options) {
  Declared declared;
  for (const OptionRow* row : OptionsOf(command)) {
    CLI::Option* option = std::visit(Declare(app, *row, options), row->field);
    option->required(IsRequired(command, *row));
    declared.emplace_back(row, option);
  }
  for (const auto& [row, option] : declared) {
    const std::vector<std::string> excluded = SplitWords(row->excludes, ' ');
    for (const auto& [other, other_option] : declared) {
      const bool excludes =
          std::find(excluded.begin(), excluded.end(), MainName(*other)) != excluded.end();
      if (excludes) option->excludes(other_option);
    }
  }
  return declared;
}

// CLI11's message; for a command or option that does not exist, which was meant.
std::string Explain(const CLI::App& app, const Command* command, const CLI::ParseError& error) {
  const std::vector<std::string> rest = app.remaining(true);
  std::vector<std::string> known;
  if (command == nullptr) {
    if (rest.empty() || rest[0].starts_with("-")) return error.what();
    for (const Command& c : Commands()) known.emplace_back(c.name);
    return fmt::format("unknown command \"{}\"{}, expected one of {}", rest[0],
                       DidYouMean(rest[0], {known.begin(), known.end()}), fmt::join(known, ", "));
  }
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr) return error.what();
  known = {"--help"};
  for (const OptionRow* option : OptionsOf(*command)) {
    for (const std::string& name : NamesOf(*option)) {
      if (name.starts_with("--")) known.push_back(name);
    }
  }
  for (const std::string& word : rest) {
    if (!word.starts_with("--")) continue;
    const std::string name = word.substr(0, word.find('='));
    return "unknown option " + name + DidYouMean(name, {known.begin(), known.end()});
  }
  return error.what();
}

const Command* Chosen(const CLI::App& app) {
  for (const CLI::App* c : app.get_subcommands([](const CLI::App* s) { return s->parsed(); })) {
    return FindCommand(c->get_name());
  }
  return nullptr;
}

}  // namespace

const Command* ParseCommandLine(int argc, char** argv, Options& options) {
  CommandLineText() = "ropewalk";
  for (int i = 1; i < argc; ++i) CommandLineText() += " " + Quoted(argv[i]);
  RefuseEmptyLists({argv, argv + argc});
  CLI::App app{"", "ropewalk"};
  app.set_version_flag("--version", "ropewalk " + Version());
  app.require_subcommand(1);
  std::map<const Command*, Declared> declared;
  for (const Command& command : Commands()) {
    declared[&command] = AddOptions(*app.add_subcommand(command.name), command, options);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const Command* command = Chosen(app);
    fmt::print("{}", command == nullptr ? ProgramHelp() : CommandHelp(*command));
    return nullptr;
  } catch (const CLI::CallForVersion& version) {
    fmt::print("{}\n", version.what());
    return nullptr;
  } catch (const CLI::ParseError& error) {
    throw UsageError(Explain(app, Chosen(app), error) +
                     " (ropewalk --help, ropewalk COMMAND --help)");
  }
  const Command* command = Chosen(app);
  for (const auto& [row, option] : declared[command]) {
    if (option->count() > 0) options.given.push_back({row, option->results()});
  }
  return command;
}

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

}  // namespace ropewalk::cli
