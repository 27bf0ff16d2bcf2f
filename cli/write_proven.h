// How a command writes a model.
#pragma once

#include <functional>
#include <string>

namespace ropewalk::cli {

// Calls `write_and_prove` with a path beside `output`, under which it writes and checks what it
// wrote; when it returns, the result gets the name `output`. Whatever ends it before, an error,
// Ctrl-C or SIGTERM, leaves nothing behind; a signal ends the program with exit code 130. Error
// when there is something under `output`.
void WriteProven(const std::string& output,
                 const std::function<void(const std::string& path)>& write_and_prove);

}  // namespace ropewalk::cli
