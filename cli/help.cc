#include "cli/help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace ropewalk::cli {
namespace {

constexpr std::size_t kColumns = 100, kIndent = 26;

// Lines of at most kColumns; those behind the first are indented.
std::string Wrapped(const std::string& text, std::size_t used, std::size_t indent) {
  std::string out;
  for (const std::string& word : SplitWords(text, ' ')) {
    if (used > indent && used + 1 + word.size() > kColumns) {
      out += "\n" + std::string(indent, ' ');
      used = indent;
    } else if (used > indent) {
      out += " ";
      ++used;
    }
    out += word;
    used += word.size();
  }
  return out + "\n";
}

// "  head          text", the text below the head where that is long.
std::string Entry(const std::string& head, const std::string& text) {
  std::string line = "  " + head;
  if (line.size() + 2 > kIndent) {
    line += "\n" + std::string(kIndent, ' ');
  } else {
    line.resize(kIndent, ' ');
  }
  return line + Wrapped(text, kIndent, kIndent);
}

std::string Examples(const std::vector<std::string>& lines) {
  return fmt::format("\nExamples:\n  {}\n", fmt::join(lines, "\n  "));
}

}  // namespace

const std::vector<std::pair<const char*, const char*>>& ExitCodes() {
  static const std::vector<std::pair<const char*, const char*>> codes = {
      {"0", "done"}, {"1", "failed"}, {"2", "wrong usage"}, {"130", "interrupted"}};
  return codes;
}

std::vector<std::string> Groups() {
  std::vector<std::string> groups;
  for (const Command& command : Commands()) {
    if (std::find(groups.begin(), groups.end(), command.group) == groups.end()) {
      groups.emplace_back(command.group);
    }
  }
  return groups;
}

std::string Usage(const Command& command) {
  std::string usage = fmt::format("ropewalk {}", command.name);
  for (const OptionRow* option : OptionsOf(command)) {
    if (IsPositional(*option)) {
      const std::string word =
          fmt::format("{}{}", option->value, option->several == Several::kEach ? "..." : "");
      usage += IsRequired(command, *option) ? " " + word : " [" + word + "]";
    } else if (IsRequired(command, *option)) {
      usage += fmt::format(" {} {}", NamesOf(*option).front(), option->value);
    }
  }
  return usage + " [options]";
}

std::string OptionHead(const OptionRow& option) {
  std::string head = fmt::format("{}", fmt::join(NamesOf(option), ", "));
  if (!IsPositional(option) && !IsFlag(option)) head += fmt::format(" {}", option.value);
  return head;
}

std::string OptionText(const OptionRow& option) {
  const std::string value = DefaultOf(option);
  return HelpOf(option) + (value.empty() ? "" : " (default: " + value + ")");
}

std::string CommandHelp(const Command& command) {
  std::string help = Wrapped(command.title, 0, 0) + "\nUsage: " + Usage(command) + "\n\n";
  for (const OptionRow* option : OptionsOf(command)) {
    help += Entry(OptionHead(*option), OptionText(*option));
  }
  help += Entry("-h, --help", "Print this and exit");
  for (const std::string& paragraph : SplitWords(command.about, '\n')) {
    help += "\n" + Wrapped(paragraph, 0, 0);
  }
  return help + Examples(SplitWords(command.examples, '\n'));
}

std::string ProgramHelp() {
  std::string help = Wrapped(kProgramTitle, 0, 0) +
                     "\nUsage: ropewalk COMMAND [options]\n"
                     "       ropewalk COMMAND --help\n";
  std::vector<std::string> examples;
  for (const std::string& group : Groups()) {
    help += "\n" + group + ":\n";
    for (const Command& command : Commands()) {
      if (command.group == group) help += Entry(command.name, command.title);
    }
  }
  for (const Command& command : Commands()) {
    examples.push_back(SplitWords(command.examples, '\n').front());
  }
  help += "\n" + Entry("-h, --help", "Print this and exit") +
          Entry("--version", "Print the version and exit") + Examples(examples);
  std::vector<std::string> codes;
  for (const auto& [code, meaning] : ExitCodes())
    codes.push_back(fmt::format("{} {}", code, meaning));
  return help + "\nResults go to standard output, progress and messages to standard error.\n" +
         Wrapped(fmt::format("Exit codes: {}.", fmt::join(codes, ", ")), 0, 0);
}

}  // namespace ropewalk::cli
