// Where the text of a result goes.
#pragma once

#include <string>

#include "cli/options.h"

namespace ropewalk::cli {

// Writes beside the target and renames, so that the target is never incomplete. Throws Error(kIo).
void WriteWhole(const std::string& path, const std::string& text);

// UsageError where the file that `option` names, which would be replaced, is one that this command
// reads: by that name, another or a link.
void RefuseInput(const Options& options, const char* option, const std::string& path);

// To the file of -o, or to standard output without one.
void WriteResult(const Options& options, const std::string& text);

}  // namespace ropewalk::cli
