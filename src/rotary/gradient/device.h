// The sums of FrequencyGradient on a GPU: what the launches are told, and the bodies of their
// threads, which CPU tests run too.
//
// An item is a token's group of heads. Items are cut into parts, a block each; in a block, rows of
// threads take turns at the items, and the lanes of a row share out the units of a head. What each
// thread added up is added over the rows of the block, and a second kernel adds up the parts. How
// items are cut depends on the shape alone, and everything is added in a fixed order: no bit
// depends on the GPU or on its scheduling.
//
// A column is one of the numbers that a thread adds up: dL / d inv_freq of each of its pairs,
// <g, v>, dL / d base. Workspace: [columns of a unit, units, parts].
#pragma once

#include <cstdint>
#include <span>

#include "ropewalk/rotary/gradient.h"
#include "src/base/host_device.h"
#include "src/rotary/positions/device.h"
#include "src/rotary/rotate/unit_device.h"

namespace ropewalk::internal {

inline constexpr int kGradientThreads = 256;         // of a block, at most
inline constexpr int64_t kGradientHeads = 8;         // of an item, at most
inline constexpr int64_t kMostGradientParts = 4096;  // several waves of blocks on any GPU
// Of frequencies on several axes and of derivatives by the base, which travel with the launch.
inline constexpr int64_t kMostGradientPairs = 256;

struct GradientParams {
  const void* value;
  const void* gradient;
  int64_t value_strides[3];  // batch, token, head; in elements
  int64_t gradient_strides[3];
  DevicePositions positions;
  int64_t first_dim;
  int64_t pairs;
  int64_t heads;
  int64_t groups;  // of heads, per token
  int64_t items;
  int64_t parts;
  int32_t units;  // of a head
  int32_t unit_pairs;
  int32_t lanes;       // of a row
  int32_t rows;        // of a block
  int64_t row_tokens;  // p.rows items, as tokens
  int64_t row_groups;  // and groups
  double amplitude;
  double* workspace;
  double* out;
  int32_t axes;    // that positions differ on
  bool with_base;  // whether dL / d base is computed
  uint8_t axis[kMostGradientPairs];
  double base_derivative[kMostGradientPairs];
};

struct GradientItem {
  int64_t index, batch, token;  // token `index` of batch * tokens
  int64_t group;
};
ROPEWALK_HD inline GradientItem ItemAt(const GradientParams& p, int64_t item) {
  GradientItem it;
  it.index = item / p.groups;
  it.group = item - it.index * p.groups;
  it.batch = it.index / p.positions.tokens;
  it.token = it.index - it.batch * p.positions.tokens;
  return it;
}
// The next one of a row of threads: p.rows further, divided only where a sequence ends.
ROPEWALK_HD inline void NextOfRow(const GradientParams& p, GradientItem& it) {
  int64_t step = p.row_tokens;
  it.group += p.row_groups;
  if (it.group >= p.groups) {
    it.group -= p.groups;
    ++step;
  }
  it.index += step;
  it.token += step;
  if (it.token < p.positions.tokens) return;
  it.batch = it.index / p.positions.tokens;
  it.token = it.index - it.batch * p.positions.tokens;
}
ROPEWALK_HD inline int64_t HeadsOf(const GradientParams& p, const GradientItem& it) {
  const int64_t left = p.heads - it.group * kGradientHeads;
  return left < kGradientHeads ? left : kGradientHeads;
}

// Of the first head of an item, in elements.
ROPEWALK_HD inline int64_t OffsetOf(const int64_t* strides, const GradientItem& it) {
  return it.batch * strides[0] + it.token * strides[1] + it.group * kGradientHeads * strides[2];
}

struct ItemRange {
  int64_t begin, end;
};
ROPEWALK_HD inline ItemRange ItemsOf(const GradientParams& p, int64_t part) {
  return {p.items * part / p.parts, p.items * (part + 1) / p.parts};
}

template <class T, PairLayout kLayout, int V>
struct GradientLane {
  using Shape = UnitShape<T, kLayout, V>;
  using Unit = LoadedUnit<T, kLayout, V>;
  static constexpr int kPairs = Shape::kPairs;
  static constexpr int kColumns = kPairs + 2;
  static constexpr int kInFlight = 2;  // heads whose loads are under way at once

  struct Sums {
    double g_jv[kPairs];  // <g, J v>, of one token
    double frequency[kPairs];
    double dot;
  };

  // The items of one thread of part `part`, into shared [columns, threads]. `chunk`: of units.
  static ROPEWALK_HD void Accumulate(const GradientParams& p, int64_t part, int64_t chunk,
                                     int thread, double* shared) {
    const int row = thread / p.lanes;
    const int64_t unit = chunk * p.lanes + (thread - row * p.lanes);
    if (unit >= p.units) return;
    Sums sums{};
    const ItemRange items = ItemsOf(p, part);
    GradientItem it = ItemAt(p, items.begin + row);
    for (int64_t i = items.begin + row; i < items.end; i += p.rows) {
      AddItem(p, it, unit, sums);
      NextOfRow(p, it);
    }
    double base = 0;
    if (p.with_base) {
      for (int j = 0; j < kPairs; ++j) {
        base += p.base_derivative[unit * kPairs + j] * sums.frequency[j];
      }
    }
    const int threads = p.lanes * p.rows;
    for (int j = 0; j < kPairs; ++j) shared[j * threads + thread] = sums.frequency[j];
    shared[kPairs * threads + thread] = sums.dot;
    shared[(kPairs + 1) * threads + thread] = base;
  }

  // After all threads of the block.
  static ROPEWALK_HD void AddRows(const GradientParams& p, int64_t part, int64_t chunk, int thread,
                                  const double* shared) {
    const int threads = p.lanes * p.rows;
    for (int i = thread; i < kColumns * p.lanes; i += threads) {
      const int column = i / p.lanes, lane = i - column * p.lanes;
      const int64_t unit = chunk * p.lanes + lane;
      if (unit >= p.units) continue;
      double sum = 0;
      for (int row = 0; row < p.rows; ++row) {
        sum += shared[column * threads + row * p.lanes + lane];
      }
      p.workspace[(column * int64_t{p.units} + unit) * p.parts + part] = sum;
    }
  }

 private:
  static ROPEWALK_HD void AddItem(const GradientParams& p, const GradientItem& it, int64_t unit,
                                  Sums& sums) {
    const int64_t e = p.first_dim + Shape::First(unit);
    const int64_t* vs = p.value_strides;
    const int64_t* gs = p.gradient_strides;
    const T* v = static_cast<const T*>(p.value) + OffsetOf(vs, it) + e;
    const T* g = static_cast<const T*>(p.gradient) + OffsetOf(gs, it) + e;
    for (int j = 0; j < kPairs; ++j) sums.g_jv[j] = 0;
    const int64_t heads = HeadsOf(p, it);
    int64_t h = 0;
    for (; h + kInFlight <= heads; h += kInFlight) {
      AddHeads<kInFlight>(p, v + h * vs[2], g + h * gs[2], sums);
    }
    for (; h < heads; ++h) AddHeads<1>(p, v + h * vs[2], g + h * gs[2], sums);
    int64_t position = PositionOf(p.positions, it.batch, it.token, it.index, 0);
    for (int j = 0; j < kPairs; ++j) {
      if (p.axes > 1) {
        position = PositionOf(p.positions, it.batch, it.token, it.index, p.axis[unit * kPairs + j]);
      }
      sums.frequency[j] = ::fma(static_cast<double>(position), sums.g_jv[j], sums.frequency[j]);
    }
  }

  template <int kHeads>
  static ROPEWALK_HD void AddHeads(const GradientParams& p, const T* v, const T* g, Sums& sums) {
    const int64_t second = Shape::Second(p.pairs);
    Unit value[kHeads], gradient[kHeads];
    for (int i = 0; i < kHeads; ++i) {
      value[i].Load(v + i * p.value_strides[2], second);
      gradient[i].Load(g + i * p.gradient_strides[2], second);
    }
    for (int i = 0; i < kHeads; ++i) {
      typename Shape::Compute v1[kPairs], v2[kPairs], g1[kPairs], g2[kPairs];
      value[i].Unpack(v1, v2);
      gradient[i].Unpack(g1, g2);
      for (int j = 0; j < kPairs; ++j) {
        const double a1 = static_cast<double>(v1[j]), a2 = static_cast<double>(v2[j]);
        const double b1 = static_cast<double>(g1[j]), b2 = static_cast<double>(g2[j]);
        sums.g_jv[j] = ::fma(-b1, a2, ::fma(b2, a1, sums.g_jv[j]));
        sums.dot = ::fma(b2, a2, ::fma(b1, a1, sums.dot));
      }
    }
  }
};

// The second kernel: a block an output, all of it in three steps, after each of which the threads
// wait for each other. `sums`: [kGradientThreads + kGradientFan], shared.
inline constexpr int kGradientFan = 16;
static_assert(kGradientFan * kGradientFan == kGradientThreads);

ROPEWALK_HD inline void AddParts(const GradientParams& p, int64_t output, int thread,
                                 double* sums) {
  const int64_t pair_columns = int64_t{p.unit_pairs} * p.units * p.parts;
  const int64_t others = p.units * p.parts;
  const bool of_pair = output < p.pairs;
  const int64_t unit = output / p.unit_pairs;
  const int64_t column = output - unit * p.unit_pairs;
  const int64_t begin =
      of_pair ? (column * p.units + unit) * p.parts : pair_columns + (output - p.pairs) * others;
  const int64_t count = of_pair ? p.parts : others;
  double sum = 0;
  for (int64_t i = thread; i < count; i += kGradientThreads) sum += p.workspace[begin + i];
  sums[thread] = sum;
}

ROPEWALK_HD inline void AddThreads(int thread, double* sums) {
  if (thread >= kGradientFan) return;
  double sum = 0;
  for (int i = 0; i < kGradientFan; ++i) sum += sums[thread * kGradientFan + i];
  sums[kGradientThreads + thread] = sum;
}

ROPEWALK_HD inline void WriteSum(const GradientParams& p, int64_t output, int thread,
                                 const double* sums) {
  if (thread != 0) return;
  double sum = 0;
  for (int i = 0; i < kGradientFan; ++i) sum += sums[kGradientThreads + i];
  p.out[output] = output == p.pairs ? sum / p.amplitude : sum;
}

// Both launches. No parts: there are no items, and the sums are zero.
struct GradientLaunch {
  DType dtype = DType::kF32;
  PairLayout layout = PairLayout::kHalf;
  int width = 1;   // V
  int chunks = 1;  // of units
  int64_t outputs = 0;
  int64_t workspace_bytes = 0;
  GradientParams params = {};
};

// Checks the arguments, whose tensors lie on a GPU, and plans. workspace and out are the caller's
// to set.
GradientLaunch PlanGradient(const RotaryGradientArgs& args,
                            std::span<const double> base_derivative);

// Puts both on the stream; Error (kUnsupported) where there is no CUDA.
void LaunchGradient(const GradientLaunch& launch, void* stream);

}  // namespace ropewalk::internal
