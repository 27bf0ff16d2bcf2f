#include "tests/report/synthetic.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>

#include "ropewalk/base/hash.h"
#include "ropewalk/eval/task.h"
#include "ropewalk/rotary/frequencies.h"
#include "ropewalk/rotary/spec.h"

namespace ropewalk::testing {
namespace {

constexpr int64_t kTrained = 256;

// Loss by position: falls with context, and rises past the trained length by `excess` nats.
void FillBuckets(Cell& cell, double excess) {
  for (int64_t edge = 0; edge <= cell.length; edge += cell.length / 32) {
    cell.bucket_edges.push_back(edge);
  }
  for (size_t i = 0; i + 1 < cell.bucket_edges.size(); ++i) {
    const double x = 0.5 * (cell.bucket_edges[i] + cell.bucket_edges[i + 1]);
    const double past = std::max(0.0, std::log2(x / kTrained)) / 3;
    cell.bucket_nll.push_back(3.2 + 2.2 / std::sqrt(1 + x / 8) + excess * past);
  }
}

void FillFrequencies(Cell& cell) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = 32;
  spec.trained_length = kTrained;
  for (const MethodInfo& m : Methods()) {
    if (cell.method == m.name) spec.scaling = m.make(cell.factor);
  }
  const Frequencies f = Resolve(spec, cell.length);
  for (const DoubleDouble& x : f.inv_freq) cell.inv_freq.push_back(x.hi);
  cell.amplitude = f.amplitude;
  cell.rope_base = spec.base;
  cell.rotary_dim = spec.rotary_dim;
  cell.scaling = Describe(spec.scaling);
  Hasher hasher;
  hasher.Update(f.inv_freq_f32.data(), f.inv_freq_f32.size() * sizeof(float));
  hasher.UpdateValue(f.amplitude);
  cell.plan_hash = hasher.Hex();
}

}  // namespace

void AddTask(Cell& cell, const std::string& name, int64_t right, int64_t answers) {
  TaskResult& result = cell.tasks.emplace_back();
  result.task = name;
  result.protocol = "made up";
  result.prompts = 1;
  for (int64_t i = 0; i < answers; ++i) {
    TaskAnswer& answer = result.answers.emplace_back();
    answer.question = static_cast<int32_t>(i);
    answer.depth = 1 - (static_cast<double>(i) + 0.5) / static_cast<double>(answers);
    answer.nll = i < right ? 0.1 : 4;
    answer.tokens = 4;
    answer.exact = i < right;
  }
  Summarise(result);
}

Cell MakeCell(const CellSpec& spec) {
  Cell c;
  c.method = spec.method;
  c.factor = spec.factor;
  c.length = spec.length;
  c.trained_length = kTrained;
  c.longest_length = 2048;
  c.windows = spec.windows;
  c.scored_tokens = 128 * spec.windows;
  const double phase = static_cast<double>(std::hash<std::string>()(spec.method) % 97);
  for (int64_t w = 0; w < spec.windows; ++w) {
    const double shared = w % 2 == 0 ? 0.2 : -0.2;
    // Sums to zero over the windows, so that the mean is what the test asked for.
    const double own = std::sin(2 * std::numbers::pi * w / spec.windows + phase);
    c.window_nll.push_back(std::log(spec.perplexity) + (spec.windows > 1 ? shared : 0) +
                           (spec.windows > 1 ? spec.noise * own : 0));
  }
  c.mean_nll = 0;
  for (const double x : c.window_nll) c.mean_nll += x / static_cast<double>(spec.windows);
  double squares = 0;
  for (const double x : c.window_nll) squares += (x - c.mean_nll) * (x - c.mean_nll);
  c.standard_error = spec.windows > 1 ? std::sqrt(squares / (spec.windows - 1) / spec.windows)
                                      : std::numeric_limits<double>::quiet_NaN();
  c.perplexity = std::exp(c.mean_nll);
  c.bits_per_byte = c.mean_nll / std::numbers::ln2 / 3.1;
  if (spec.hits >= 0) AddTask(c, "passkey", spec.hits, 20);
  c.model_hash = "5f0c1e0d9a8b7c6d5e4f3a2b1c0d9e8f";
  c.text_hash = "0123456789abcdef0123456789abcdef";
  c.tokenizer_hash = "fedcba9876543210fedcba9876543210";
  c.tokenizer = "byte-level BPE";
  c.protocol = "aligned:128";
  if (!c.tasks.empty()) c.tasks_protocol = "passkey: made up, 1 prompt";
  c.bos = "no";
  c.compute = "f32";
  c.angles = "exact";
  c.version = Version();
  c.threads = 2;
  c.seed = 1;
  c.anchors = spec.windows;
  c.seconds = static_cast<double>(spec.length) / 700;
  FillFrequencies(c);
  return c;
}

Cell WithTask(Cell cell, int64_t right, const std::string& name, int64_t answers) {
  AddTask(cell, name, right, answers);
  return cell;
}

Cell WithKeys(Cell cell, const std::vector<std::vector<double>>& windows) {
  TaskResult& result = cell.tasks.emplace_back();
  result.task = kKeyTokensTask;
  result.protocol = "made up";
  result.prompts = static_cast<int64_t>(windows.size());
  for (std::size_t w = 0; w < windows.size(); ++w) {
    for (std::size_t i = 0; i < windows[w].size(); ++i) {
      result.answers.push_back({.prompt = static_cast<int32_t>(w),
                                .question = static_cast<int32_t>(i),
                                .nll = windows[w][i],
                                .tokens = 1});
    }
  }
  Summarise(result);
  return cell;
}

std::vector<Cell> WithBaseline(std::vector<Cell> cells) {
  cells.insert(cells.begin(), MakeCell({"none", 1, 256, 20, 20}));
  cells.insert(cells.begin() + 1, MakeCell({"none", 1, 1024, 90, 0}));
  return cells;
}

const MethodVerdict& VerdictOf(const Recommendation& recommendation, const std::string& method) {
  for (const MethodVerdict& v : recommendation.methods) {
    if (v.method == method) return v;
  }
  throw std::runtime_error(method + " is not judged");
}

SweepResults MakeSweep(const std::string& model_name) {
  struct Row {
    const char* method;
    double perplexity[3];  // at 512, 1024, 2048 with the matching factor
    int64_t hits[3];
    double cost;  // nats at the trained length and factor 8
  };
  const Row rows[] = {
      {"linear", {45.4, 82.2, 95.5}, {0, 0, 0}, 1.1},
      {"ntk", {26.7, 29.4, 56.6}, {19, 10, 1}, 0.05},
      {"dynamic", {26.9, 29.0, 51.2}, {19, 11, 1}, 0},
      {"by-parts", {27.2, 28.6, 31.7}, {16, 1, 0}, 0.11},
      {"by-parts-repo", {26.4, 28.4, 31.0}, {18, 9, 3}, 0.06},
      {"yarn", {26.3, 28.1, 29.8}, {20, 17, 10}, 0.09},
      {"llama3", {26.0, 26.7, 28.7}, {20, 18, 16}, 0.03},
  };
  SweepResults out;
  const double none[] = {27.4, 25.9, 29.4, 67.7, 107.5};
  const int64_t none_hits[] = {20, 20, 12, 0, 0};
  for (int i = 0; i < 5; ++i) {
    out.cells.push_back(MakeCell({"none", 1, int64_t{128} << i, none[i], none_hits[i], 0.02}));
    if (i == 4) FillBuckets(out.cells.back(), std::log(none[i] / 25.9));
  }
  for (const Row& row : rows) {
    for (int i = 0; i < 3; ++i) {
      const double factor = 2 << i;
      const double cost = row.cost * (i + 1) / 3;
      out.cells.push_back(MakeCell({row.method, factor, 128, 27.4 * std::exp(cost), 20, 0.01}));
      out.cells.push_back(MakeCell({row.method, factor, 256, 25.9 * std::exp(cost), 20, 0.01}));
      out.cells.push_back(
          MakeCell({row.method, factor, int64_t{512} << i, row.perplexity[i], row.hits[i], 0.02}));
      if (i == 2) FillBuckets(out.cells.back(), std::log(row.perplexity[i] / 25.9));
    }
  }
  out.header.common = out.cells.front();
  out.header.model_path = "models/" + model_name;
  out.header.model_name = model_name;
  out.header.text_path = "heldout.txt";
  out.header.text_tokens = 61234;
  out.header.command = "ropewalk sweep models/" + model_name + " --text heldout.txt -o results";
  out.header.notes = {"4 layers, all with rotary positions, half layout"};
  return out;
}

}  // namespace ropewalk::testing
