// The sweep on disk: results.jsonl, a header line and then one line a finished cell.
// docs/results-format.md is its documentation.
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
  // What all rows have in common; result fields are empty. These are compared when a sweep resumes.
  Cell common;
  // For display only.
  std::string model_path, model_name, text_path, command;
  int64_t text_tokens = 0;
  std::vector<std::string> notes;  // what the plan and the program want the reader to know
};

struct SweepResults {
  SweepHeader header;
  std::vector<Cell> cells;
  int64_t dropped_bytes = 0;  // of a torn last line
};

// Reads DIR/results.jsonl. A torn last line (no newline, or no JSON) is dropped and counted where
// it begins as a line of ours does. Throws Error(kIo) when there is none, kInvalidFile with the
// line number for anything else that is wrong.
SweepResults ReadResults(const std::string& folder);

// A row and the header of results.jsonl as a JSON object; docs/results-format.md lists the keys. On
// one line, or with `indent` spaces for each level. NaN becomes null, bytes that are not UTF-8
// become U+FFFD.
std::string ToJson(const Cell& cell, int indent = -1);
std::string ToJson(const SweepHeader& header, int indent = -1);

// What a sweep runs on. `tokenizer` null: passkey is left out.
struct SweepInputs {
  const ScoringEngine* engine = nullptr;
  const Tokenizer* tokenizer = nullptr;
  const TokenText* text = nullptr;
  std::string model_hash;
};

// Computes one task. by_position is on where the protocol scores every position or the length is
// the longest. The row's seconds are wall time.
Cell RunCell(const SweepTask& task, const SweepSpec& spec, const SweepInputs& inputs,
             const Cell& common, const ProgressFn& progress,
             std::vector<ScoredToken>* tokens = nullptr);

// The fields that all rows of a sweep share.
Cell CommonFields(const SweepSpec& spec, const SweepInputs& inputs, int64_t longest_length);

// Work of one cell in tokens, and in floating-point operations (for estimates), as if prompts
// shared nothing.
struct CellCost {
  int64_t tokens = 0;
  double flops = 0;
};
CellCost CostOf(const SweepTask& task, const SweepSpec& spec, const SweepInputs& inputs,
                int64_t longest_length);

// Floating-point operations of a forward pass over a new sequence of `tokens`, without the head.
double ForwardFlops(const EngineFacts& engine, const PositionPlan& plan, double tokens);

struct SweepEvents {
  std::function<void(const std::string& line)> message;  // what the user should know
  // Before, during and after a cell; `index` counts the tasks. False interrupts.
  std::function<bool(size_t index, int64_t done_tokens, int64_t all_tokens)> progress;
  std::function<void(size_t index, const Cell& cell, bool resumed)> finished;
};

// For each task whether `folder` holds its row already; none where it holds no results. Throws
// Error(kMismatch) as RunSweep does. Writes nothing.
std::vector<bool> FinishedTasks(const std::vector<SweepTask>& tasks, const SweepHeader& header,
                                const std::string& folder);

// Runs the tasks that `folder` does not hold yet, writing and syncing each row before the next
// begins, and returns the rows of `tasks` in their order. Creates the folder. Throws
// Error(kMismatch) when the folder holds results of something else (both values shown) or another
// sweep writes to it, as ReadResults does where results.jsonl is not ours, and Error(kIo) when it
// cannot be written; rows written before stay whole. Throws Interrupted.
std::vector<Cell> RunSweep(const std::vector<SweepTask>& tasks, const SweepSpec& spec,
                           const SweepInputs& inputs, const SweepHeader& header,
                           const std::string& folder, const SweepEvents& events);

}  // namespace ropewalk
