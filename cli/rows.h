// Options and commands are rows of two tables. The parser (cli/parse.cc), --help (cli/help.cc),
// completions (cli/completion.cc) and manual pages (cli/manual.cc) are made from them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cli/options.h"

namespace ropewalk::cli {

// The field of Options that a value goes to; its type decides how a value is read and whether
// several are allowed.
using Field = std::variant<bool Options::*, std::optional<bool> Options::*, int Options::*,
                           int64_t Options::*, uint64_t Options::*,
                           std::optional<int64_t> Options::*, std::string Options::*,
                           std::vector<std::string> Options::*, std::vector<double> Options::*>;

// The kind of a value, for completions.
enum class Takes : uint8_t {
  kAnything,
  kFile,      // or a folder
  kOneOf,     // `choices`, and nothing else
  kSuggest,   // `choices`, and other forms that the command checks
  kMethods,   // methods by name
  kCommands,  // commands by name
};

// How several values are written.
enum class Several : uint8_t {
  kCommas,  // --lengths 4k,8k
  kEach,    // the option again for each
  kPair,    // two words
};

inline constexpr int64_t kBillion = int64_t{1} << 30;  // no count of an option is larger

struct OptionRow {
  const char* names;  // "-o,--output"; without dashes it is told by its place; ! before a "no"
  const char* value;  // what its value is called; empty: it takes none
  Field field;
  const char* help;
  Takes takes = Takes::kAnything;
  const char* choices = "";  // separated by commas
  struct Range {
    int64_t least = 1, most = 0;  // least > most: any number
  } range = {};
  Several several = Several::kCommas;
  const char* excludes = "";  // names of options that do not go with it
};

struct Command {
  const char* name;
  const char* title;     // one line
  const char* group;     // heading in lists of commands
  const char* required;  // the options that it needs, by name, separated by spaces
  const char* options;   // the others that it takes
  const char* about;     // paragraphs
  const char* examples;  // a line each
  void (*run)(const Options& options);
  bool over_ranks = false;  // processes that mpirun starts compute it together
};

std::span<const OptionRow> OptionRows();          // cli/options.cc
std::span<const OptionRow> MeasuredOptionRows();  // a part of these: cli/options_measured.cc
std::span<const Command> Commands();              // cli/commands.cc

// Words between separators, without empty ones.
std::vector<std::string> SplitWords(std::string_view text, char separator);
// With every `from` replaced by `to`.
std::string Replaced(std::string text, const std::string& from, const std::string& to);

// By the name that rows of commands have for it: "MODEL", or the first long name, "--output".
const OptionRow& FindOption(std::string_view name);
const Command* FindCommand(std::string_view name);  // null: there is none
// Required ones first.
std::vector<const OptionRow*> OptionsOf(const Command& command);
bool IsRequired(const Command& command, const OptionRow& option);

bool IsPositional(const OptionRow& option);
bool IsFlag(const OptionRow& option);
// "-o", "--output"; of a flag that can be denied its denial too ("--bos", "--no-bos").
std::vector<std::string> NamesOf(const OptionRow& option);
std::string MainName(const OptionRow& option);  // the one that FindOption takes
bool IsList(const OptionRow& option);           // several values between commas

// The values that `takes` names.
std::vector<std::string> ChoicesOf(const OptionRow& option);
// Its help, with the names of methods where it has {methods}.
std::string HelpOf(const OptionRow& option);
// The value that holds when it is not given, as typed; empty: none, or off.
std::string DefaultOf(const OptionRow& option);

}  // namespace ropewalk::cli
