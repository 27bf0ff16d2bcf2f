// A sweep on disk: results.jsonl with a header line, then one line per finished cell. The format is
// documented in docs/results-format.md.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "ropewalk/eval/cost.h"
#include "ropewalk/eval/eval.h"
#include "ropewalk/eval/shard.h"

namespace ropewalk {

std::string Version();  // major.minor.patch

// The first line of results.jsonl.
struct SweepHeader {
  // The fields that all rows share; result fields are empty. Compared when a sweep is resumed.
  Cell common;
  // For display only.
  std::string model_path, model_name, text_path, command;
  std::string family = {};  // "llama"; empty: the engine or an older file does not say
  int64_t text_tokens = 0;
  std::vector<std::string> notes;  // of the plan and the program, for the reader
};

struct SweepResults {
  SweepHeader header;
  std::vector<Cell> cells;
  int64_t dropped_bytes = 0;  // of an incomplete last line
};

// Reads FOLDER/results.jsonl and the files of shards beside it (results.3-of-16.jsonl): rows by length, of
// those with one identity in a file the last, in several files the one that measured most. The header
// is that of the first file. An incomplete last line (no newline, or no JSON) is dropped and its bytes
// are counted if it begins like a row, or is of a shard, which may be writing it. Throws Error(kIo)
// without any of these files, kInvalidFile with the line number for any other fault, kMismatch for
// files of different sweeps.
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

// Every prompt of the tasks of a sweep, by length and task, as lines of WritePrompts
// (ropewalk/eval/task.h): `prompt` and `question` are those of the answers in rows. Where a task is
// asked behind the windows of perplexity, these are its contexts.
void WritePrompts(std::ostream& out, const std::vector<SweepTask>& tasks, const SweepSpec& spec,
                  const TokenText& text, const Tokenizer& tokenizer);

// Computes one task. Loss by position is measured where the protocol scores every position or the
// length is the longest. Cell::seconds is wall time.
Cell RunCell(const SweepTask& task, const SweepSpec& spec, const SweepInputs& inputs,
             const Cell& common, const ProgressFn& progress,
             std::vector<ScoredToken>* tokens = nullptr);

// The fields that all rows of a sweep share.
Cell CommonFields(const SweepSpec& spec, const SweepInputs& inputs, int64_t longest_length);

// How fast the engine is under every plan of a sweep and that of the model, at the longest length.
// Throws Error where the engine cannot be timed (Pace::Measure).
Pace MeasurePace(const std::vector<SweepTask>& tasks, const SweepSpec& spec,
                 const SweepInputs& inputs, const PositionPlan& model_plan);

// The work of one cell: of the calls that measuring it makes.
CellCost CostOf(const SweepTask& task, const SweepSpec& spec, const SweepInputs& inputs,
                int64_t longest_length);

// What a sweep still measures of a cell.
struct CellLeft {
  bool finished = false;  // its row is there; one that left a race counts where there is a race
  int64_t asked = 0;      // windows in all
  int64_t windows = 0, others = 0;           // parts that are missing: windows, tasks
  CellCost of_windows = {}, of_others = {};  // all of them
};
// For each task, from what `folder` holds; everything without results. Throws Error as RunSweep does.
// Writes nothing.
std::vector<CellLeft> WhatIsLeft(const std::vector<SweepTask>& tasks, const SweepSpec& spec,
                                 const SweepInputs& inputs, const SweepHeader& header,
                                 const std::string& folder);

struct SweepProgress {
  size_t index = 0;                         // of the task whose cell is measured
  int64_t done_tokens = 0, all_tokens = 0;  // of the part of the cell that runs
  double seconds_left = 0;                  // of everything, as far as the budget goes
};

// What a budget left out of a length.
struct LeftOut {
  int64_t length = 0;        // tokens
  KvType kv = KvType::kF32;  // of the KV cache
  int64_t windows = 0;       // that each method still in has; 0: the length has no rows
  int64_t asked = 0;         // windows
  double seconds = 0;        // that the rest takes, about
  bool open = false;         // whether it may decide which method is recommended
};

struct SweepEvents {
  std::function<void(const std::string& line)> message;         // for the user
  std::function<bool(const SweepProgress& progress)> progress;  // false interrupts
  // A cell is done; `resumed`: its row was there.
  std::function<void(size_t index, const Cell& cell, bool resumed)> finished;
  std::function<void(size_t index, const RaceExit& exit)> left;  // a method left the race
  std::function<void(const LeftOut& left_out)> left_out;         // at the end
  WaitFn waiting;                                                // another shard has what is left
};

// How long a sweep may take.
struct SweepBudget {
  double seconds = std::numeric_limits<double>::infinity();  // of wall time
  Pace pace = {};                      // by which parts are expected to take their time
  std::function<double()> clock = {};  // seconds; empty: the steady clock
  // Where nothing that is missing fits, a part of it is measured all the same: a run for each budget
  // then comes to an end of the sweep, however short the budget is.
  bool begins = false;
};

// Measures what `folder` does not hold yet of the tasks, and returns the rows of `tasks` that are
// there, in their order. What decides most comes first: no scaling at the trained length; then
// length by length, the shortest first, a round of windows of every method and the tasks of those
// still in; then more rounds, first beyond the trained length where the best are not told apart.
// What does not fit into the budget is left out, from the longest length down; the same call goes on
// from there, and its rows are those of a sweep without a budget. A part that has begun is ended: a
// round of windows of one method, or one task.
// Windows and tasks that are measured are written to units.jsonl and synced at once, rows when their
// length is done or the budget ends: an interrupted sweep repeats nothing. Creates the folder. Throws
// Error(kMismatch) if the folder holds results of other settings (both values are shown) or another
// sweep writes to it, Error as ReadResults does, Error(kIo) if it cannot be written, and
// Interrupted; rows written before stay intact.
// With a shard it measures what no other shard is measuring, of which it reads what they have: the
// rows are those of one undisturbed process. It returns when all is measured, by whomever, or its own
// budget ends, of whose seconds it takes the others to work as long. A shard with other methods, lengths
// or rules of the race than one that is at work is an Error(kMismatch); so is a process without a shard
// beside one with, and the other way around.
std::vector<Cell> RunSweep(const std::vector<SweepTask>& tasks, const SweepSpec& spec,
                           const SweepInputs& inputs, const SweepHeader& header,
                           const std::string& folder, const SweepEvents& events,
                           const SweepBudget& budget = {}, const std::optional<Shard>& shard = {});

// RunSweep of `tasks`, then of what AddCosts adds to them; `costs_seconds` of the budget are kept for
// that, at most a quarter. Of what comes second events name what was added alone. Returns what was
// left out, instead of telling events; where that is everything nothing is added.
std::vector<LeftOut> RunSweepAndCosts(std::vector<SweepTask>& tasks, const SweepSpec& spec,
                                      const PositionPlan& model_plan, const SweepInputs& inputs,
                                      const SweepHeader& header, const std::string& folder,
                                      const SweepEvents& events, const SweepBudget& budget = {},
                                      double costs_seconds = 0,
                                      const std::optional<Shard>& shard = {});

}  // namespace ropewalk
