// Absolute encodings: rows of all positions and their gradient beside a copy of as many bytes, in
// interleaved rounds, and the row of one more position.
//   absolute_bench [--rounds N] [--only TEXT] [--json FILE]
// 4096 tokens of 768 elements, float32, one thread; the convolutions as wav2vec 2.0 (128 taps, 16
// groups) and CPE (3 x 3, depthwise) have them, generators of 64 elements. JSON lines are appended.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "ropewalk/absolute/combine.h"
#include "ropewalk/absolute/complex_order.h"
#include "ropewalk/absolute/convolutional.h"
#include "ropewalk/absolute/digits.h"
#include "ropewalk/absolute/floater.h"
#include "ropewalk/absolute/hierarchical.h"
#include "ropewalk/absolute/learned.h"
#include "ropewalk/absolute/recurrent.h"
#include "ropewalk/absolute/sinusoidal.h"
#include "ropewalk/base/threads.h"

namespace {

using namespace ropewalk;
using Floats = std::vector<float>;
using Doubles = std::vector<double>;

constexpr int64_t kTokens = 4096, kDim = 768, kSmall = 64;

double Milliseconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return 1e3 * std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

Floats Random(int64_t count, float size = 1) {
  static std::minstd_rand random(7);
  Floats out(static_cast<size_t>(count));
  for (float& x : out) x = (static_cast<float>(random() % 2001) / 1000.0f - 1.0f) * size;
  return out;
}

struct Encoding {
  std::string name;
  std::function<void()> forward, backward, one;  // `one`: the next position alone; null: none
  int64_t elements = kTokens * kDim;
  std::vector<double> forward_ms, backward_ms, one_ms;
};

struct Bench {
  std::vector<int64_t> positions = std::vector<int64_t>(kTokens), words = positions;
  const std::vector<int64_t> next = {kTokens};
  Floats x = Random(kTokens * kDim), dy = Random(kTokens * kDim), y = x, im = x, dx = x;
  Floats row = Floats(2 * kDim);
  Doubles sums = Doubles(static_cast<size_t>(2 * kTokens * kDim));
  Floats table = Random(kTokens * kDim);
  Sinusoidal sinusoidal{[] {
    SinusoidalSpec s(SinusoidalLayout::kInterleaved);
    s.dim = kDim;
    return s;
  }()};
  const HierarchicalSpec hierarchical{.rows = 512, .dim = kDim};
  Floats hierarchical_table = Random(512 * kDim);
  const ComplexOrderSpec complex{.words = 64, .dim = kDim};
  Floats amplitude = Random(64 * kDim), frequency = Random(64 * kDim), phase = Random(64 * kDim);
  const DigitSpec digits{.base = 10, .digits = 5};
  Floats digit_weight = Random(kDim * 5);
  PositionConvolutionSpec wave, grid;
  Floats wave_weight = Random(kDim * (kDim / 16) * 128, 0.01f), grid_weight = Random(kDim * 9);
  Floats start = Random(kSmall), cell = Random(kSmall * kSmall, 0.05f), bias = Random(kSmall, 0.1f);
  TanhField field{kSmall, kSmall, Random(static_cast<int64_t>(FieldSize()), 0.1f)};
  Floats small = Random(kTokens * kSmall);

  static size_t FieldSize() { return kSmall * (kSmall + 1) + kSmall + kSmall * kSmall + kSmall; }

  Bench() {
    std::iota(positions.begin(), positions.end(), 0);
    for (size_t t = 0; t < words.size(); ++t) words[t] = static_cast<int64_t>(t * 7 % 64);
    wave = {.sizes = {kTokens}, .kernel = {128}, .channels = kDim, .groups = 16, .gelu = true};
    grid = {.sizes = {64, 64}, .kernel = {3, 3}, .channels = kDim, .groups = kDim};
  }

  std::span<float> Row() { return {row.data(), static_cast<size_t>(kDim)}; }
  std::span<double> Sums(size_t count, size_t from = 0) { return {sums.data() + from, count}; }

  void Convolve(const PositionConvolutionSpec& s, const Floats& w) {
    PositionConvolution(s, x, 1, w, {}, y);
  }
  void ConvolveBack(const PositionConvolutionSpec& s, const Floats& w) {
    PositionConvolutionBackward(s, x, 1, w, {}, dy, dx, Sums(w.size()), {});
  }

  std::vector<Encoding> Encodings() {
    std::vector<Encoding> all;
    const size_t size = x.size();
    const auto add = [&](const char* name, std::function<void()> forward,
                         std::function<void()> backward, std::function<void()> one,
                         int64_t elements = kTokens * kDim) {
      all.push_back(
          {name, std::move(forward), std::move(backward), std::move(one), elements, {}, {}, {}});
    };
    add(
        "copy", [this] { std::memcpy(y.data(), x.data(), x.size() * sizeof(float)); },
        [this] { std::memcpy(dx.data(), dy.data(), x.size() * sizeof(float)); },
        [this] { std::memcpy(row.data(), x.data(), kDim * sizeof(float)); });
    add(
        "sinusoidal, exact", [this] { sinusoidal.Rows(0, y); },
        [this] { sinusoidal.FrequencyGradient(dy, 1, 0, Sums(sinusoidal.frequencies().size())); },
        [this] { sinusoidal.Rows(kTokens, Row()); });
    add(
        "learned", [this] { LookUpRows(table, kDim, positions, y); },
        [this, size] { LookUpRowsBackward(dy, kDim, positions, Sums(size)); },
        [this] {
          LookUpRows(table, kDim, {positions.data(), 1}, Row());
        });
    add(
        "hierarchical",
        [this] { HierarchicalRows(hierarchical, hierarchical_table, positions, y); },
        [this] {
          HierarchicalRowsBackward(hierarchical, hierarchical_table, positions, dy,
                                   Sums(hierarchical_table.size()));
        },
        [this] { HierarchicalRows(hierarchical, hierarchical_table, next, Row()); });
    add(
        "multiplicative", [this] { MultiplyRows(y, 1, table); },
        [this, size] { MultiplyRowsBackward(x, dy, 1, table, dx, Sums(size)); },
        [this] {
          MultiplyRows(Row(), 1, {table.data(), static_cast<size_t>(kDim)});
        });
    add(
        "complex-order",
        [this] {
          ComplexOrder(complex, Tables(), words, positions, {y, im});
        },
        [this] {
          const size_t n = amplitude.size();
          ComplexOrderBackward(complex, Tables(), words, positions, {dy, x},
                               {Sums(n), Sums(n, n), Sums(n, 2 * n)});
        },
        [this] {
          ComplexOrder(complex, Tables(), {words.data(), 1}, next,
                       {Row(), std::span<float>(row.data() + kDim, kDim)});
        });
    add(
        "digits", [this] { ProjectDigits(digits, digit_weight, kDim, positions, y); },
        [this] { ProjectDigitsBackward(digits, kDim, positions, dy, Sums(digit_weight.size())); },
        [this] { ProjectDigits(digits, digit_weight, kDim, next, Row()); });
    add(
        "convolutional, wav2vec 2.0", [this] { Convolve(wave, wave_weight); },
        [this] { ConvolveBack(wave, wave_weight); }, nullptr);
    add(
        "convolutional, CPE", [this] { Convolve(grid, grid_weight); },
        [this] { ConvolveBack(grid, grid_weight); }, nullptr);
    const auto rows = [this](int64_t n) {
      return std::span<float>(y.data(), static_cast<size_t>(n * kSmall));
    };
    add(
        "recurrent", [=, this] { RecurrentRows(RecurrentCell::kTanh, Cell(), rows(kTokens)); },
        [this] {
          RecurrentRowsBackward(
              RecurrentCell::kTanh, Cell(), small,
              {Sums(kSmall), Sums(cell.size(), kSmall), Sums(kSmall, 8192), Sums(kSmall, 9000)});
        },
        nullptr, kTokens * kSmall);
    add(
        "FLOATER", [=, this] { FloaterRows(field, {}, start, rows(kTokens)); },
        [this] {
          FloaterRowsBackward(field, {}, start, small, Sums(kSmall),
                              Sums(static_cast<size_t>(field.parameters()), 64));
        },
        nullptr, kTokens * kSmall);
    return all;
  }

  ComplexOrderTables Tables() const { return {amplitude, frequency, phase}; }
  RecurrentParameters Cell() const { return {start, cell, bias, bias}; }
};

}  // namespace

int main(int argc, char** argv) {
  int rounds = 5;
  std::string json, only;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--rounds") rounds = std::max(1, std::atoi(argv[i + 1]));
    if (option == "--only") only = argv[i + 1];  // encodings whose names contain it
    if (option == "--json") json = argv[i + 1];
  }
  FILE* file = json.empty() ? nullptr : std::fopen(json.c_str(), "a");
  if (!json.empty() && file == nullptr) {
    std::fprintf(stderr, "absolute_bench: cannot write %s\n", json.c_str());
    return 1;
  }
  SetNumThreads(1);
  Bench bench;
  std::vector<Encoding> encodings = bench.Encodings();
  std::erase_if(encodings,
                [&](const Encoding& e) { return e.name.find(only) == std::string::npos; });
  for (int r = 0; r < rounds; ++r) {
    for (Encoding& e : encodings) {
      if (r == 0) e.forward();
      e.forward_ms.push_back(Milliseconds(e.forward));
      e.backward_ms.push_back(Milliseconds(e.backward));
      if (e.one) e.one_ms.push_back(Milliseconds(e.one));
    }
  }
  std::printf("%-28s %9s %12s %12s %9s %9s\n", "encoding", "ms", "ns/element", "backward ms",
              "x forward", "one, us");
  for (const Encoding& e : encodings) {
    const double ms = Median(e.forward_ms), back = Median(e.backward_ms);
    const double ns = 1e6 * ms / static_cast<double>(e.elements);
    const double one_us = e.one_ms.empty() ? 0 : 1e3 * Median(e.one_ms);
    std::printf("%-28s %9.2f %12.3f %12.2f %9.2f %9.2f\n", e.name.c_str(), ms, ns, back, back / ms,
                one_us);
    if (file != nullptr) {
      std::fprintf(file,
                   "{\"bench\":\"absolute\",\"encoding\":\"%s\",\"rounds\":%d,\"forward_ms\":%.4f,"
                   "\"ns_per_element\":%.4f,\"backward_ms\":%.4f,\"one_us\":%.3f}\n",
                   e.name.c_str(), rounds, ms, ns, back, one_us);
    }
  }
  if (file != nullptr) std::fclose(file);
  return 0;
}
