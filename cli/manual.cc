// ropewalk manual: a page of the manual (man(7)), made from the rows of commands and options.
#include <fmt/format.h>

#include <filesystem>

#include "cli/help.h"
#include "cli/output.h"
#include "cli/rows.h"
#include "ropewalk/base/error.h"
#include "ropewalk/eval/results.h"

namespace ropewalk::cli {
namespace {

// Text for roff: backslashes and dashes as they are, and no line that begins like a request.
std::string Roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
      out += c;
    }
  }
  return out;
}

std::string PageName(const Command* command) {
  return command == nullptr ? "ropewalk" : fmt::format("ropewalk-{}", command->name);
}

std::string Head(const Command* command, const std::string& title, const std::string& usage) {
  std::string name = PageName(command), upper = name;
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return fmt::format(
      ".TH {} 1 \"\" \"ropewalk {}\" \"User Commands\"\n"
      ".SH NAME\n{} \\- {}\n.SH SYNOPSIS\n.B {}\n.SH DESCRIPTION\n",
      Roff(upper), Version(), Roff(name), Roff(title), Roff(usage));
}

std::string Paragraphs(const char* text) {
  std::string out;
  for (const std::string& paragraph : SplitWords(text, '\n')) {
    out += (out.empty() ? "" : ".PP\n") + Roff(paragraph) + "\n";
  }
  return out;
}

std::string ManualEntry(const std::string& head, const std::string& text) {
  return fmt::format(".TP\n.B {}\n{}\n", Roff(head), Roff(text));
}

std::string ManualExamples(const std::vector<std::string>& lines) {
  std::string out = ".SH EXAMPLES\n.nf\n";
  for (const std::string& line : lines) out += Roff(line) + "\n";
  return out + ".fi\n";
}

std::string Tail(const Command* command) {
  std::string out = ".SH EXIT STATUS\n";
  for (const auto& [code, meaning] : ExitCodes()) out += ManualEntry(code, meaning);
  out += ".SH SEE ALSO\n";
  std::string pages = command == nullptr ? "" : ".BR ropewalk (1)";
  for (const Command& other : Commands()) {
    if (&other == command) continue;
    pages += fmt::format("{}.BR {} (1)", pages.empty() ? "" : ",\n", Roff(PageName(&other)));
  }
  return out + pages + "\n";
}

std::string CommandPage(const Command& command) {
  std::string page =
      Head(&command, command.title, Usage(command)) + Paragraphs(command.about) + ".SH OPTIONS\n";
  for (const OptionRow* option : OptionsOf(command)) {
    page += ManualEntry(OptionHead(*option), OptionText(*option));
  }
  return page + ManualEntry("-h, --help", "Print the options and exit") +
         ManualExamples(SplitWords(command.examples, '\n')) + Tail(&command);
}

std::string ProgramPage() {
  std::string page = Head(nullptr, "which context extension for this model, and what does it cost",
                          "ropewalk COMMAND [options]") +
                     Roff(kProgramTitle) + "\n";
  for (const std::string& group : Groups()) {
    page += fmt::format(".SS {}\n", Roff(group));
    for (const Command& command : Commands()) {
      if (command.group == group) page += ManualEntry(command.name, command.title);
    }
  }
  page += ".SH OPTIONS\n" + ManualEntry("-h, --help", "Print the commands and exit") +
          ManualEntry("--version", "Print the version and exit");
  std::vector<std::string> examples;
  for (const Command& command : Commands()) {
    examples.push_back(SplitWords(command.examples, '\n').front());
  }
  return page + ManualExamples(examples) + Tail(nullptr);
}

void WriteAll(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw Error(ErrorCode::kIo, folder + ": " + error.message());
  WriteWhole(fmt::format("{}/{}.1", folder, PageName(nullptr)), ProgramPage());
  for (const Command& command : Commands()) {
    WriteWhole(fmt::format("{}/{}.1", folder, PageName(&command)), CommandPage(command));
  }
}

}  // namespace

void RunManual(const Options& options) {
  if (options.page.empty() && !options.output.empty()) return WriteAll(options.output);
  const Command* command = FindCommand(options.page);
  if (command == nullptr && !options.page.empty()) {
    throw UsageError("there is no command " + options.page + " (ropewalk --help)");
  }
  WriteResult(options, command == nullptr ? ProgramPage() : CommandPage(*command));
}

}  // namespace ropewalk::cli
