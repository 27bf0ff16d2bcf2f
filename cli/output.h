// Where the text of a result goes.
#pragma once

#include <string>

#include "cli/options.h"

namespace ropewalk::cli {

// Whole or not at all: written beside the target, then renamed over it. Throws Error(kIo).
void WriteWhole(const std::string& path, const std::string& text);

// To the file of -o, or to standard output without one.
void WriteResult(const Options& options, const std::string& text);

}  // namespace ropewalk::cli
