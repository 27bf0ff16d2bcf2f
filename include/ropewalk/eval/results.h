// A sweep on disk: results.jsonl with a header line, then one line per finished cell. The format is
// documented in docs/results-format.md.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ropewalk/eval/eval.h"

namespace ropewalk {

std::string Version();  // "0.1.0"

// The first line of results.jsonl.
struct SweepHeader {
  // The fields that all rows share; result fields are empty. Compared when a sweep is resumed.
  Cell common;
  // For display only.
  std::string model_path, model_name, text_path, command;
  int64_t text_tokens = 0;
  std::vector<std::string> notes;  // of the plan and the program, for the reader
};

struct SweepResults {
  SweepHeader header;
  std::vector<Cell> cells;
  int64_t dropped_bytes = 0;  // of an incomplete last line
};

// Reads FOLDER/results.jsonl; of rows with one identity the last. An incomplete last line (no newline, or no JSON) is dropped and its
// bytes are counted if it begins like a row. Throws Error(kIo) without the file, kInvalidFile with
// the line number for any other fault.
SweepResults ReadResults(const std::string& folder);

// A row and the header of results.jsonl as a JSON object; docs/results-format.md lists the keys. On
// one line, or with `indent` spaces for each level. NaN becomes null, bytes that are not UTF-8
// become U+FFFD.
std::string ToJson(const Cell& cell, int indent = -1);
std::string ToJson(const SweepHeader& header, int indent = -1);

// What a sweep runs on. The tokenizer decodes what tasks generate; null where none does.
struct SweepInputs {
  const ScoringEngine* engine = nullptr;
  const Tokenizer* tokenizer = nullptr;
  const TokenText* text = nullptr;
  std::string model_hash;
};

// Computes one task. Loss by position is measured where the protocol scores every position or the
// length is the longest. Cell::seconds is wall time.
Cell RunCell(const SweepTask& task, const SweepSpec& spec, const SweepInputs& inputs,
             const Cell& common, const ProgressFn& progress,
             std::vector<ScoredToken>* tokens = nullptr);

// The fields that all rows of a sweep share.
Cell CommonFields(const SweepSpec& spec, const SweepInputs& inputs, int64_t longest_length);

// The work of one cell in tokens and floating-point operations, for estimates; shared prefixes of
// prompts are counted for each prompt.
struct CellCost {
  int64_t tokens = 0;
  double flops = 0;
};
CellCost CostOf(const SweepTask& task, const SweepSpec& spec, const SweepInputs& inputs,
                int64_t longest_length);

// Floating-point operations of a forward pass over `tokens` tokens from an empty cache, without the
// output head.
double ForwardFlops(const EngineFacts& engine, const PositionPlan& plan, double tokens);

struct SweepEvents {
  std::function<void(const std::string& line)> message;  // for the user
  // Before, during and after a cell; `index` counts the tasks. False interrupts.
  std::function<bool(size_t index, int64_t done_tokens, int64_t all_tokens)> progress;
  std::function<void(size_t index, const Cell& cell, bool resumed)> finished;
  std::function<void(size_t index, const RaceExit& exit)> left;  // a method left the race
};

// For each task, whether `folder` already holds its row; all false without results. A row that left
// a race is finished only where `race`. Throws Error(kMismatch) as RunSweep does. Writes nothing.
std::vector<bool> FinishedTasks(const std::vector<SweepTask>& tasks, const SweepHeader& header,
                                const std::string& folder, bool race);

// Runs the tasks whose rows `folder` does not hold yet and returns the rows of `tasks` in their
// order. Windows and tasks that are measured are written to units.jsonl and synced at once, rows
// when their cell is done: an interrupted sweep repeats nothing. Creates the folder. Throws
// Error(kMismatch) if the folder holds results of other settings (both values are shown) or another
// sweep writes to it, Error as ReadResults does, Error(kIo) if it cannot be written, and
// Interrupted; rows written before stay intact.
std::vector<Cell> RunSweep(const std::vector<SweepTask>& tasks, const SweepSpec& spec,
                           const SweepInputs& inputs, const SweepHeader& header,
                           const std::string& folder, const SweepEvents& events);

}  // namespace ropewalk
