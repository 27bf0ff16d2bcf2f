// Sweeps with known numbers, for tests of what is said about them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ropewalk/eval/recommend.h"
#include "ropewalk/eval/results.h"

namespace ropewalk::testing {

// A cell trained at 256 tokens whose windows all have loss `nll`, with `spread` added to and taken
// from every other one (the same way in every cell, so that paired differences have no noise), and
// `noise` a different amount per method and window.
struct CellSpec {
  std::string method;
  double factor = 1;
  int64_t length = 256;
  double perplexity = 20;
  int64_t hits = -1;  // of 20 answers of passkey; -1: not measured
  double noise = 0;
  int64_t windows = 8;
};
Cell MakeCell(const CellSpec& spec);

// Adds a task with one prompt to a cell: of `answers` questions the first `right` are answered, so
// that of two cells the one with fewer right answers has none that the other has not.
void AddTask(Cell& cell, const std::string& name, int64_t right, int64_t answers);

Cell WithTask(Cell cell, int64_t right, const std::string& name = "kv", int64_t answers = 40);

// With key tokens of these losses, nats, in each window.
Cell WithKeys(Cell cell, const std::vector<std::vector<double>>& windows);

// With no scaling in front: perplexity 20 at 256 tokens and all passkeys, 90 at 1024 and none.
std::vector<Cell> WithBaseline(std::vector<Cell> cells);

const MethodVerdict& VerdictOf(const Recommendation& recommendation, const std::string& method);

// Eight methods at 128 to 2048 tokens, as a small trained model behaves.
SweepResults MakeSweep(const std::string& model_name);

}  // namespace ropewalk::testing
