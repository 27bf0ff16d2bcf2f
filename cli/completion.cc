// ropewalk completion: scripts by which shells complete commands, options and values, made from the
// rows of commands and options.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/output.h"
#include "cli/rows.h"

namespace ropewalk::cli {
namespace {

std::vector<std::string> CommandNames() {
  std::vector<std::string> names;
  for (const Command& command : Commands()) names.emplace_back(command.name);
  return names;
}

// "--json" and "-o", but not "MODEL".
std::vector<std::string> DashedNames(const Command& command) {
  std::vector<std::string> names = {"--help"};
  for (const OptionRow* option : OptionsOf(command)) {
    if (IsPositional(*option)) continue;
    for (const std::string& name : NamesOf(*option)) names.push_back(name);
  }
  return names;
}

// What stands at the command's first place without a name; null: nothing does.
const OptionRow* Positional(const Command& command) {
  for (const OptionRow* option : OptionsOf(command)) {
    if (IsPositional(*option)) return option;
  }
  return nullptr;
}

// ---- bash ---------------------------------------------------------------------------------------

// What completes a value, as a command of bash.
std::string BashValues(const OptionRow& option) {
  if (option.takes == Takes::kFile) return "_ropewalk_files";
  const std::vector<std::string> choices = ChoicesOf(option);
  if (choices.empty()) return ":";
  return fmt::format("{} '{}'", IsList(option) ? "_ropewalk_list" : "_ropewalk_words",
                     fmt::join(choices, " "));
}

std::string Bash() {
  std::string out = R"(# Completion of ropewalk for bash.
_ropewalk_words() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur"); }
_ropewalk_files() {
  compopt -o filenames 2> /dev/null
  mapfile -t COMPREPLY < <(compgen -f -- "$cur")
}
_ropewalk_list() {  # the last of several between commas
  local before=
  [[ $cur == *,* ]] && before=${cur%,*},
  compopt -o nospace 2> /dev/null
  mapfile -t COMPREPLY < <(compgen -P "$before" -W "$1" -- "${cur##*,}")
}
_ropewalk() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= options= word
  COMPREPLY=()
  if [[ $cur == = ]]; then  # --option=value is three words
    cur=
  elif [[ $prev == = ]]; then
    prev=${COMP_WORDS[COMP_CWORD-2]}
  fi
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    if [[ $word != -* ]]; then command=$word; break; fi
  done
)";
  out += fmt::format(
      "  if [[ -z $command ]]; then _ropewalk_words '{} --help --version'; return; fi\n",
      fmt::join(CommandNames(), " "));
  out += "  case $prev in\n";
  for (const OptionRow& option : OptionRows()) {
    if (IsPositional(option) || IsFlag(option)) continue;
    out +=
        fmt::format("    {}) {}; return ;;\n", fmt::join(NamesOf(option), "|"), BashValues(option));
  }
  out += "  esac\n  case $command in\n";
  for (const Command& command : Commands()) {
    const OptionRow* positional = Positional(command);
    out += fmt::format("    {})\n      options='{}'\n", command.name,
                       fmt::join(DashedNames(command), " "));
    if (positional != nullptr) {
      out += fmt::format("      [[ $cur != -* ]] && {{ {}; return; }}\n", BashValues(*positional));
    }
    out += "      ;;\n";
  }
  return out + "  esac\n  _ropewalk_words \"$options\"\n}\ncomplete -F _ropewalk ropewalk\n";
}

// ---- zsh ----------------------------------------------------------------------------------------

// Inside '..' of a specification of _arguments.
std::string ZshText(const std::string& text) {
  std::string out = Replaced(text, "\\", "\\\\");
  for (const char* special : {"[", "]", ":"})
    out = Replaced(out, special, std::string("\\") + special);
  return Replaced(out, "'", "'\\''");
}

// ":what it is called:what completes it"
std::string ZshValues(const OptionRow& option) {
  const std::vector<std::string> choices = ChoicesOf(option);
  std::string action = " ";
  if (option.takes == Takes::kFile) {
    action = "_files";
  } else if (!choices.empty() && IsList(option)) {
    action = fmt::format("_sequence compadd - {}", fmt::join(choices, " "));
  } else if (!choices.empty()) {
    action = ZshText(fmt::format("({})", fmt::join(choices, " ")));
  }
  const std::string value = fmt::format(":{}:{}", ZshText(option.value), action);
  return option.several == Several::kPair ? value + value : value;
}

std::string ZshOption(const OptionRow& option) {
  if (IsPositional(option)) {
    return fmt::format("'{}{}'", option.several == Several::kEach ? "*" : "", ZshValues(option));
  }
  const std::vector<std::string> names = NamesOf(option);
  const std::string repeat = option.several == Several::kEach ? "*" : "";
  std::vector<std::string> specifications;
  for (const std::string& name : names) {
    const std::string others =
        repeat.empty() && names.size() > 1 ? fmt::format("({})", fmt::join(names, " ")) : repeat;
    const std::string value = IsFlag(option) ? "" : ZshValues(option);
    const char* equals = IsFlag(option) || option.several == Several::kPair ? "" : "=";
    specifications.push_back(
        fmt::format("'{}{}{}[{}]{}'", others, name,
                    name.starts_with("--") ? equals : (IsFlag(option) ? "" : "+"),
                    ZshText(HelpOf(option)), value));
  }
  return fmt::format("{}", fmt::join(specifications, " \\\n        "));
}

std::string Zsh() {
  std::string out =
      "#compdef ropewalk\n"
      "# Completion of ropewalk for zsh.\n"
      "_ropewalk() {\n"
      "  local curcontext=$curcontext state line\n"
      "  local -a commands\n"
      "  commands=(\n";
  for (const Command& command : Commands()) {
    out += fmt::format("    '{}:{}'\n", command.name, ZshText(command.title));
  }
  out +=
      "  )\n"
      "  _arguments -C '(- *)'{-h,--help}'[Print the commands]' '(- *)--version[Print the "
      "version]' "
      "\\\n    '1: :->command' '*:: :->arguments'\n"
      "  case $state in\n"
      "  command) _describe -t commands command commands ;;\n"
      "  arguments)\n"
      "    case $words[1] in\n";
  for (const Command& command : Commands()) {
    out += fmt::format("    {})\n      _arguments -s '(- *)'{{-h,--help}}'[Print the options]'",
                       command.name);
    for (const OptionRow* option : OptionsOf(command)) {
      out += " \\\n        " + ZshOption(*option);
    }
    out += "\n      ;;\n";
  }
  return out +
         "    esac\n    ;;\n  esac\n}\n"
         "if [[ $funcstack[1] == _ropewalk ]]; then _ropewalk \"$@\"; else compdef _ropewalk "
         "ropewalk; fi\n";
}

// ---- fish ---------------------------------------------------------------------------------------

std::string FishText(const std::string& text) {
  return "'" + Replaced(Replaced(text, "\\", "\\\\"), "'", "\\'") + "'";
}

std::string FishValues(const OptionRow& option) {
  if (option.takes == Takes::kFile) return " -r -F";
  const std::vector<std::string> choices = ChoicesOf(option);
  if (choices.empty()) return " -x";
  const std::string list = fmt::format("{}", fmt::join(choices, " "));
  return " -x -a " + FishText(IsList(option)
                                  ? "(__fish_complete_list , 'string split \" \" \"" + list + "\"')"
                                  : list);
}

std::string FishOption(const std::string& condition, const OptionRow& option) {
  std::string line = "complete -c ropewalk " + condition;
  if (IsPositional(option)) {
    // What it is completes everywhere that no option's value does.
    return line +
           (option.takes == Takes::kFile
                ? " -F\n"
                : " -a " + FishText(fmt::format("{}", fmt::join(ChoicesOf(option), " "))) + "\n");
  }
  for (const std::string& name : NamesOf(option)) {
    line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  return line + (IsFlag(option) ? "" : FishValues(option)) + " -d " + FishText(HelpOf(option)) +
         "\n";
}

std::string Fish() {
  std::string out =
      "# Completion of ropewalk for fish.\n"
      "complete -c ropewalk -f\n"
      "complete -c ropewalk -s h -l help -d 'Print help'\n"
      "complete -c ropewalk -n __fish_use_subcommand -l version -d 'Print the version'\n";
  for (const Command& command : Commands()) {
    out += fmt::format("complete -c ropewalk -n __fish_use_subcommand -a {} -d {}\n", command.name,
                       FishText(command.title));
    const std::string condition = fmt::format("-n '__fish_seen_subcommand_from {}'", command.name);
    for (const OptionRow* option : OptionsOf(command)) out += FishOption(condition, *option);
  }
  return out;
}

}  // namespace

void RunCompletion(const Options& options) {
  WriteResult(options, options.shell == "bash" ? Bash() : options.shell == "zsh" ? Zsh() : Fish());
}

}  // namespace ropewalk::cli
