// Where the text of a result goes.
#pragma once

#include <string>

#include "cli/options.h"

namespace ropewalk::cli {

// Writes beside the target and renames, so that the target is never incomplete. Throws Error(kIo).
void WriteWhole(const std::string& path, const std::string& text);

// To the file of -o, or to standard output without one.
void WriteResult(const Options& options, const std::string& text);

}  // namespace ropewalk::cli
