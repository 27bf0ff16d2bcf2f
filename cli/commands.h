// One function a command: declares its options and what runs once the command line is read.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace ropewalk::cli {

void AddInspectCommand(CLI::App& app);
void AddSweepCommand(CLI::App& app);
void AddPerplexityCommand(CLI::App& app);
void AddPasskeyCommand(CLI::App& app);
void AddGenerateCommand(CLI::App& app);
void AddTokenizeCommand(CLI::App& app);
void AddEmbedCommand(CLI::App& app);
void AddExtendCommand(CLI::App& app);
void AddConvertCommand(CLI::App& app);
void AddInfoCommand(CLI::App& app);

// The command line as typed, quoted for a shell.
const std::string& CommandLine();
std::string Quoted(const std::string& argument);  // for a shell, where it needs that

}  // namespace ropewalk::cli
