#include "cli/rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "ropewalk/plan/method.h"

namespace ropewalk::cli {
namespace {

std::vector<std::string> MethodNames() {
  std::vector<std::string> names;
  for (const MethodInfo& method : Methods()) names.emplace_back(method.name);
  for (const MethodPart& part : MethodParts()) names.emplace_back(part.name);
  names.emplace_back(kAsShipped);
  return names;
}

// The default values are those of the fields.
struct DefaultText {
  std::string operator()(bool) const { return ""; }
  std::string operator()(const std::string& value) const { return value; }
  std::string operator()(const std::vector<std::string>& values) const {
    return fmt::format("{}", fmt::join(values, ","));
  }
  std::string operator()(const std::vector<double>& values) const {
    return fmt::format("{}", fmt::join(values, ","));
  }
  template <class T>
  std::string operator()(const std::optional<T>& value) const {
    return value ? (*this)(*value) : "";
  }
  template <class Integer>
  std::string operator()(Integer value) const {
    return value == 0 ? "" : std::to_string(value);
  }
};

}  // namespace

std::vector<std::string> SplitWords(std::string_view text, char separator) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    if (end > 0) words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

const OptionRow& FindOption(std::string_view name) {
  for (const OptionRow& option : OptionRows()) {
    if (MainName(option) == name) return option;
  }
  throw std::logic_error(
      fmt::format("cli/commands.cc names the option {}, which has no row", name));
}

const Command* FindCommand(std::string_view name) {
  for (const Command& command : Commands()) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

std::vector<const OptionRow*> OptionsOf(const Command& command) {
  std::vector<const OptionRow*> options;
  for (const char* list : {command.required, command.options}) {
    for (const std::string& name : SplitWords(list, ' ')) options.push_back(&FindOption(name));
  }
  return options;
}

bool IsRequired(const Command& command, const OptionRow& option) {
  const std::vector<std::string> names = SplitWords(command.required, ' ');
  return std::find(names.begin(), names.end(), MainName(option)) != names.end();
}

bool IsPositional(const OptionRow& option) { return option.names[0] != '-'; }

bool IsFlag(const OptionRow& option) { return option.value[0] == '\0'; }

bool IsList(const OptionRow& option) {
  const bool several = std::holds_alternative<std::vector<std::string> Options::*>(option.field) ||
                       std::holds_alternative<std::vector<double> Options::*>(option.field);
  return several && option.several == Several::kCommas;
}

std::vector<std::string> NamesOf(const OptionRow& option) {
  std::vector<std::string> names = SplitWords(option.names, ',');
  for (std::string& name : names) {
    if (name.starts_with('!')) name.erase(0, 1);
  }
  return names;
}

std::string MainName(const OptionRow& option) {
  for (const std::string& name : NamesOf(option)) {
    if (name.starts_with("--") || IsPositional(option)) return name;
  }
  return option.names;
}

std::vector<std::string> ChoicesOf(const OptionRow& option) {
  if (option.takes == Takes::kMethods) return MethodNames();
  if (option.takes == Takes::kCommands) {
    std::vector<std::string> names;
    for (const Command& command : Commands()) names.emplace_back(command.name);
    return names;
  }
  return SplitWords(option.choices, ',');
}

std::string HelpOf(const OptionRow& option) {
  constexpr std::string_view kMethods = "{methods}";
  std::string help = option.help;
  const std::size_t at = help.find(kMethods);
  if (at != std::string::npos) {
    help.replace(at, kMethods.size(), fmt::format("{}", fmt::join(MethodNames(), ", ")));
  }
  return help;
}

std::string DefaultOf(const OptionRow& option) {
  const Options defaults;
  return std::visit([&](auto field) { return DefaultText()(defaults.*field); }, option.field);
}

}  // namespace ropewalk::cli
