// How a command writes a model.
#pragma once

#include <functional>
#include <string>

namespace ropewalk::cli {

// Calls `write_and_prove` with a temporary path beside `output`, where it writes and verifies the
// result, and then renames that to `output`. An error, Ctrl-C or SIGTERM before that leaves nothing
// behind; a signal ends the program with exit code 130. Throws Error if `output` exists.
void WriteProven(const std::string& output,
                 const std::function<void(const std::string& path)>& write_and_prove);

}  // namespace ropewalk::cli
