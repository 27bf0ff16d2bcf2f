// What --help prints, and what it shares with the manual.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/rows.h"

namespace ropewalk::cli {

inline constexpr char kProgramTitle[] =
    "Measures a transformer under the ways to extend its context: perplexity and passkey "
    "retrieval against length, and which setting to use.";
// What an exit code means.
const std::vector<std::pair<const char*, const char*>>& ExitCodes();

std::string ProgramHelp();
std::string CommandHelp(const Command& command);

// The headings of lists of commands, in their order.
std::vector<std::string> Groups();
// "ropewalk convert MODEL -o PATH [options]".
std::string Usage(const Command& command);
// "-o, --output PATH".
std::string OptionHead(const OptionRow& option);
// Help, and the default.
std::string OptionText(const OptionRow& option);

}  // namespace ropewalk::cli
