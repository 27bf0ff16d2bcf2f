// The program: what is behind `main`, and behind ropewalk._core.main of the Python package.
#pragma once

#include <string>
#include <vector>

namespace ropewalk::cli {

// Runs the command line and returns the exit code. From then on SIGINT is the program's and SIGPIPE
// and SIGXFSZ are ignored (cli/progress.h): who goes on with something else puts them back.
//
// At a barrier libgomp's threads spin for milliseconds before they sleep, which on a busy machine
// takes time from the very thread they wait for. How long is read from the environment when the
// runtime is loaded, so commands with threads set GOMP_SPINCOUNT and replace the process by the
// command line `restart`, a file and its arguments, unless that variable or OMP_WAIT_POLICY is
// given or `restart` is empty.
int RunProgram(int argc, char** argv, std::vector<std::string> restart);

}  // namespace ropewalk::cli
