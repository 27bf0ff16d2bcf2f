// The command line.
#pragma once

#include <string>

#include "cli/rows.h"

namespace ropewalk::cli {

// Reads it into `options` and returns the command to run; null where help or the version was asked
// for and has been printed. Throws UsageError that says which name was meant, where one is near.
const Command* ParseCommandLine(int argc, char** argv, Options& options);

// As it was typed, quoted for a shell.
const std::string& CommandLine();
std::string Quoted(const std::string& argument);  // for a shell, where it needs that

}  // namespace ropewalk::cli
