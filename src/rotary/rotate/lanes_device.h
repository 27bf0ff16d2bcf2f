// The bodies of the rotation's threads, which CPU tests run too.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "src/rotary/rotate/device.h"

namespace ropewalk::internal {

// Of a number that is not negative: below 2^31 by a multiplication (divisor.h), since a GPU has no
// instruction that divides.
ROPEWALK_HD inline int64_t Quotient(int64_t n, const Divisor& d) {
  return n >> 31 == 0 ? d.Of(static_cast<uint32_t>(n)) : n / d.divisor;
}

// Where the row of a thread lies: its tensor, its heads, where it reads and writes, its token's
// position on each axis. kAxes: the most there can be.
template <class T, class Angles, int kAxes>
struct DeviceRow {
  ROPEWALK_HD DeviceRow(const RotateDeviceParams& params, int64_t row, bool reports) : p(params) {
    const int64_t index = Quotient(row, p.by_rows);
    auto group = static_cast<int32_t>(row - index * p.rows_of_token);
    int k = 0;
    for (; k + 1 < p.num_operands && group >= p.operands[k].rows; ++k) group -= p.operands[k].rows;
    const DeviceOperand& mine = p.operands[k];
    o = &mine;
    first_head = group * p.heads_per_row;
    const int32_t left = mine.heads - first_head;
    heads = left < p.heads_per_row ? left : p.heads_per_row;
    const int64_t batch = index < p.tokens ? 0 : index / p.tokens;
    const int64_t token = index - batch * p.tokens;
    in = static_cast<const T*>(mine.in) + batch * mine.in_strides[0] + token * mine.in_strides[1] +
         first_head * mine.in_strides[2];
    FindOut(batch, token, index, reports);
    for (int a = 0; a < kAxes; ++a) {
      if (kAxes > 1 && a >= p.axes) break;
      position[a] = internal::PositionOf(p.positions, batch, token, index, a);
      if (Holds(position[a])) continue;
      if (reports && o->rotated_heads > 0) {
        ReportFault(p.faults, CudaFaults::kPosition, position[a]);
      }
      position[a] = -1;
    }
  }

  ROPEWALK_HD bool Holds(int64_t n) const {
    if constexpr (std::is_same_v<Angles, TableAngles>) {
      return n >= p.first_position && n - p.first_position < p.num_positions;
    } else {
      return n >= 0 && n < int64_t{1} << 31;
    }
  }

  ROPEWALK_HD void FindOut(int64_t batch, int64_t token, int64_t index, bool reports) {
    int64_t block = batch, slot = token;
    if (o->to_slots) {
      const int64_t given = p.slots[index];
      if (given < 0 || given >= p.cache_slots) {
        if (reports && given != -1) ReportFault(p.faults, CudaFaults::kSlot, given);
        heads = 0;
        return;
      }
      block = given / p.block_slots;
      slot = given - block * p.block_slots;
    }
    out = block * o->out_strides[0] + slot * o->out_strides[1] + first_head * o->out_strides[2];
  }

  // Of the axis that rotates the pair; -1 where there is no angle for it.
  ROPEWALK_HD int64_t PositionOf(int64_t pair) const {
    if constexpr (kAxes > 1) {
      if (p.axes > 1) {
        const int a = p.axis[pair];
        return a == 0 ? position[0] : a == 1 ? position[1] : a == 2 ? position[2] : position[3];
      }
    }
    return position[0];
  }

  const RotateDeviceParams& p;
  const DeviceOperand* o;
  int32_t first_head, heads;  // 0: nothing to do
  const T* in;
  int64_t out = 0;  // elements from o->out
  int64_t position[kAxes];
};

// cos and sin of one pair as a table has them.
template <class Row>
ROPEWALK_HD void AnglesOf(const Row& r, const TableAngles&, int64_t pair, float* c, float* s) {
  const int64_t position = r.PositionOf(pair);
  if (position < 0) {
    *c = *s = std::numeric_limits<float>::quiet_NaN();
    return;
  }
  const float* row = r.p.table + (position - r.p.first_position) * 2 * r.p.pairs;
  *c = row[pair];
  *s = row[r.p.pairs + pair];
}
template <class Row>
ROPEWALK_HD void AnglesOf(const Row& r, const TurnAngles& angles, int64_t pair, float* c,
                          float* s) {
  const int64_t position = r.PositionOf(pair);
  if (position < 0) {
    *c = *s = std::numeric_limits<float>::quiet_NaN();
    return;
  }
  ExactCosSin(angles.turns[pair], position, angles.amplitude, c, s);
}

template <class Row>
ROPEWALK_HD double DecayOf(const Row& r, const TableAngles&, int64_t pair) {
  return r.p.log_decay[pair];
}
template <class Row>
ROPEWALK_HD double DecayOf(const Row&, const TurnAngles& angles, int64_t pair) {
  return angles.log_decay[pair];
}

// Vectors of the table where all pairs of the unit have one position.
template <int kPairs>
ROPEWALK_HD void LoadRow(const float* row, int64_t pairs, float* c, float* s) {
  constexpr int kWidth = kPairs % 4 == 0 ? 4 : kPairs % 2 == 0 ? 2 : 1;
  using Vector = DeviceVector<float, kWidth>;
  for (int i = 0; i < kPairs; i += kWidth) {
    const Vector vc = *reinterpret_cast<const Vector*>(row + i);
    const Vector vs = *reinterpret_cast<const Vector*>(row + pairs + i);
    for (int j = 0; j < kWidth; ++j) {
      c[i + j] = vc.at[j];
      s[i + j] = vs.at[j];
    }
  }
}

// Whether kPairs pairs rotate by one axis; `axis` is aligned to as many bytes.
template <int kPairs>
ROPEWALK_HD bool OneAxis(const uint8_t* axis) {
  if constexpr (kPairs == 8 || kPairs == 4) {  // one load instead of as many
    std::conditional_t<kPairs == 8, uint64_t, uint32_t> all;
    std::memcpy(&all, __builtin_assume_aligned(axis, kPairs), kPairs);
    return all == (all & 255) * static_cast<decltype(all)>(0x0101010101010101);
  }
  bool one = true;
  for (int j = 1; j < kPairs; ++j) one = one && axis[j] == axis[0];
  return one;
}

// kDecays: whether there can be xPos, whose exponentials are much code.
template <class C, int kPairs, bool kDecays, class Row, class Angles>
ROPEWALK_HD PairFactors<C, kPairs> FactorsOf(const Row& r, const Angles& angles, int64_t unit) {
  const RotateDeviceParams& p = r.p;
  const int64_t first = unit * kPairs;
  float c[kPairs], s[kPairs];
  const bool together =
      std::is_same_v<Angles, TableAngles> && (p.axes == 1 || OneAxis<kPairs>(p.axis + first));
  const int64_t position = r.PositionOf(first);
  if (together && position >= 0) {
    LoadRow<kPairs>(p.table + (position - p.first_position) * 2 * p.pairs + first, p.pairs, c, s);
  } else {
    for (int j = 0; j < kPairs; ++j) AnglesOf(r, angles, first + j, &c[j], &s[j]);
  }
  if (kDecays && p.decays && r.o->decay != 0) {
    const double n =
        r.o->decay * p.decay_sign * (static_cast<double>(r.position[0]) - p.decay_centre);
    for (int j = 0; j < kPairs; ++j) {
      const double factor = ::exp(DecayOf(r, angles, first + j) * n);
      c[j] = static_cast<float>(c[j] * factor);
      s[j] = static_cast<float>(s[j] * factor);
    }
  }
  PairFactors<C, kPairs> f;
  for (int j = 0; j < kPairs; ++j) {
    f.c[j] = c[j];
    f.s[j] = p.negate_sin ? -s[j] : s[j];
  }
  if (p.scale != 1) {
    const C scale = static_cast<C>(p.scale);
    for (int j = 0; j < kPairs; ++j) {
      f.c[j] *= scale;
      f.s[j] *= scale;
    }
  }
  return f;
}

// The first element of a rest unit.
ROPEWALK_HD inline int64_t RestElement(const RotateDeviceParams& p, int64_t unit, int width) {
  const int64_t e = (unit - p.rotated_units) * width;
  return e < p.first_dim ? e : e + 2 * p.pairs;
}

// The common case: rows of the table, no norm, the same type behind as in front.
template <class T, PairLayout kLayout, int V, int kAxes>
struct PlainLane {
  using Shape = UnitShape<T, kLayout, V>;
  using Unit = LoadedUnit<T, kLayout, V>;
  using Factors = PairFactors<typename Shape::Compute, Shape::kPairs>;
  using Row = DeviceRow<T, TableAngles, kAxes>;
  static constexpr int kInFlight = 4;  // heads whose loads are under way at once
  // Blocks of 256 threads that a multiprocessor is to hold, by which registers are given: more when
  // a thread has one vector of a head, and half as many loads under way (measured on an H200).
  static constexpr int kBlocks = Shape::kOneVector ? 3 : 2;

  // `lane` of `lanes` threads of row `row`.
  static ROPEWALK_HD void Run(const RotateDeviceParams& p, int64_t row, int lane, int lanes) {
    const Row r(p, row, lane == 0);
    T* const out = static_cast<T*>(r.o->out) + r.out;
    if (r.heads == 0) return;
    for (int u = lane; u < p.units; u += lanes) {
      if (u >= p.rotated_units) {
        CopyRest(r, out, RestElement(p, u, V));
        continue;
      }
      Factors f = {};
      if (r.first_head < r.o->rotated_heads) {
        f = FactorsOf<typename Shape::Compute, Shape::kPairs, false>(r, TableAngles(), u);
      }
      const int64_t e = p.first_dim + Shape::First(u);
      const T* from = r.in + e;
      T* to = out + e;
      int32_t h = 0, rotated = r.o->rotated_heads - r.first_head;
      for (; h + kInFlight <= r.heads; h += kInFlight) {
        Heads<kInFlight>(r, from, to, rotated, f);
        from += kInFlight * r.o->in_strides[2];
        to += kInFlight * r.o->out_strides[2];
        rotated -= kInFlight;
      }
      for (; h < r.heads; ++h) {
        Heads<1>(r, from, to, rotated, f);
        from += r.o->in_strides[2];
        to += r.o->out_strides[2];
        --rotated;
      }
    }
  }

  // The first `rotated` of kHeads heads are rotated, the others copied.
  template <int kHeads>
  static ROPEWALK_HD void Heads(const Row& r, const T* from, T* to, int32_t rotated,
                                const Factors& f) {
    Unit unit[kHeads];
    const int64_t second = Shape::Second(r.p.pairs);
    ROPEWALK_UNROLL
    for (int i = 0; i < kHeads; ++i, from += r.o->in_strides[2]) unit[i].Load(from, second);
    ROPEWALK_UNROLL
    for (int i = 0; i < kHeads; ++i, to += r.o->out_strides[2]) {
      if (i < rotated) unit[i].Rotate(f);
      unit[i].Store(to, second);
    }
  }

  static ROPEWALK_HD void CopyRest(const Row& r, T* out, int64_t e) {
    if (!r.o->copies) return;
    using Vector = DeviceVector<T, V>;
    for (int32_t h = 0; h < r.heads; ++h) {
      *reinterpret_cast<Vector*>(out + h * r.o->out_strides[2] + e) =
          *reinterpret_cast<const Vector*>(r.in + h * r.o->in_strides[2] + e);
    }
  }
};

// Everything else: a norm in front, another type behind, angles on the fly, xPos. The lanes of a
// row, a power of two within a warp, go through its heads together, kInFlight at a time: Load,
// Prepare once, the sum of all lanes' SumOfSquares if it normalises, Finish. In full vectors each
// lane has at most one unit, which stays in registers meanwhile; narrower units are loaded twice,
// and can be many. kAsInput: the same type behind as in front, and no xPos.
template <class T, PairLayout kLayout, int V, class Angles, bool kAsInput>
class GeneralLane {
 public:
  using Shape = UnitShape<T, kLayout, V>;
  using Unit = LoadedUnit<T, kLayout, V>;
  using C = typename Shape::Compute;
  using Factors = PairFactors<C, Shape::kPairs>;
  static constexpr bool kOneUnit = V * sizeof(T) == 16;
  // Few loads of a thread, and so registers for many threads: a norm waits for all lanes of a head.
  static constexpr int kInFlight = kOneUnit && Shape::kOneVector ? 2 : 1;
  static constexpr int kBlocks = kAsInput ? 4 : 2;

  ROPEWALK_HD GeneralLane(const RotateDeviceParams& p, const Angles& angles, int64_t row, int lane,
                          int lanes)
      : r_(p, row, lane == 0), angles_(angles), lane_(lane), lanes_(lanes) {}

  ROPEWALK_HD int32_t heads() const { return r_.heads; }  // of the row
  ROPEWALK_HD bool normalises() const { return r_.o->norm_weight != nullptr; }

  // The h-th head of the row into place i.
  ROPEWALK_HD void Load(int32_t h, int i) {
    if (kOneUnit && lane_ < r_.p.units) units_[i] = UnitOf(h, lane_);
  }

  // What all heads have in common, while those of the first Load are on their way.
  ROPEWALK_HD void Prepare() {
    norm_eps_ = static_cast<C>(r_.o->norm_eps);
    if (!kOneUnit || r_.heads == 0) return;
    if (lane_ < r_.p.rotated_units && r_.first_head < r_.o->rotated_heads) {
      own_ = FactorsOf<C, Shape::kPairs, !kAsInput>(r_, angles_, lane_);
    }
  }

  ROPEWALK_HD C SumOfSquares(int32_t h, int i) const {
    C sum = 0;
    if constexpr (kOneUnit) {
      if (lane_ < r_.p.units) sum = Squares(units_[i], lane_);
    } else {
      for (int u = lane_; u < r_.p.units; u += lanes_) sum += Squares(UnitOf(h, u), u);
    }
    return sum;
  }

  // `sum`: of squares of the whole head, if it is normalised.
  ROPEWALK_HD void Finish(int32_t h, int i, C sum) const {
    C scale = 1;
    if (normalises()) scale = ScaleOf(sum);
    if constexpr (kOneUnit) {
      if (lane_ < r_.p.units) FinishUnit(units_[i], own_, h, lane_, scale);
    } else {
      for (int u = lane_; u < r_.p.units; u += lanes_) {
        Factors f = {};
        if (u < r_.p.rotated_units && r_.first_head + h < r_.o->rotated_heads) {
          f = FactorsOf<C, Shape::kPairs, !kAsInput>(r_, angles_, u);
        }
        FinishUnit(UnitOf(h, u), f, h, u, scale);
      }
    }
  }

 private:
  // Of the head whose sum of squares it is.
  ROPEWALK_HD C ScaleOf(C sum) const {
    if constexpr (std::is_same_v<C, double>) {
      return 1 / std::sqrt(sum / static_cast<C>(r_.p.head_dim) + norm_eps_);
    } else {
      const float x = std::fma(sum, r_.p.inverse_head_dim, norm_eps_);
#ifdef __CUDA_ARCH__
      // The approximation is off by two units in the last place; a step of Newton's mends that.
      const float y = rsqrtf(x);
      return fmaf(y, 0.5f * fmaf(-x * y, y, 1.0f), y);
#else
      return 1 / std::sqrt(x);
#endif
    }
  }

  ROPEWALK_HD Unit UnitOf(int32_t h, int u) const {
    const T* in = r_.in + h * r_.o->in_strides[2];
    Unit unit;
    if (u < r_.p.rotated_units) {
      unit.Load(in + r_.p.first_dim + Shape::First(u), Shape::Second(r_.p.pairs));
    } else {
      unit.at[0] = *reinterpret_cast<const DeviceVector<T, V>*>(in + RestElement(r_.p, u, V));
    }
    return unit;
  }

  ROPEWALK_HD C Squares(const Unit& unit, int u) const {
    C sum = 0;
    const int vectors = u < r_.p.rotated_units ? Unit::kVectors : 1;
    for (int k = 0; k < Unit::kVectors; ++k) {
      if (k >= vectors) break;
      for (int j = 0; j < V; ++j) {
        const C x = ToFloatHD(unit.at[k].at[j]);
        sum = std::fma(x, x, sum);
      }
    }
    return sum;
  }

  ROPEWALK_HD void FinishUnit(const Unit& unit, const Factors& f, int32_t h, int u, C scale) const {
    const RotateDeviceParams& p = r_.p;
    const int64_t out = r_.out + h * r_.o->out_strides[2];
    if (u >= p.rotated_units) {
      if (r_.o->copies) FinishRest(unit, out, RestElement(p, u, V), scale);
      return;
    }
    C x1[Shape::kPairs], x2[Shape::kPairs];
    unit.Unpack(x1, x2);
    const int64_t e = p.first_dim + Shape::First(u), second = Shape::Second(p.pairs);
    if (normalises()) Weigh(e, second, scale, x1, x2);
    if (r_.first_head + h < r_.o->rotated_heads) {
      for (int j = 0; j < Shape::kPairs; ++j) {
        const C a = x1[j], b = x2[j];
        RotatePair(a, b, f.c[j], f.s[j], &x1[j], &x2[j]);
      }
    }
    if constexpr (Shape::kOneVector) {
      C x[V];
      for (int j = 0; j < Shape::kPairs; ++j) {
        x[2 * j] = x1[j];
        x[2 * j + 1] = x2[j];
      }
      StoreVector(out + e, x);
    } else {
      StoreVector(out + e, x1);
      StoreVector(out + e + second, x2);
    }
  }

  // Of the norm, of `count` elements from e on. kAsInput: the launch has seen that they are aligned.
  template <int count>
  ROPEWALK_HD void LoadWeights(int64_t e, float* w) const {
    constexpr int kWidth = !kAsInput ? 1 : count % 4 == 0 ? 4 : count;
    using Vector = DeviceVector<float, kWidth>;
    for (int i = 0; i < count; i += kWidth) {
      const Vector v = *reinterpret_cast<const Vector*>(r_.o->norm_weight + e + i);
      for (int j = 0; j < kWidth; ++j) w[i + j] = v.at[j];
    }
  }

  // x scale weight, rounded as the CPU's norm is.
  ROPEWALK_HD void Weigh(int64_t e, int64_t second, C scale, C* x1, C* x2) const {
    if constexpr (Shape::kOneVector) {
      float w[V];
      LoadWeights<V>(e, w);
      for (int j = 0; j < Shape::kPairs; ++j) {
        x1[j] = x1[j] * scale * static_cast<C>(w[2 * j]);
        x2[j] = x2[j] * scale * static_cast<C>(w[2 * j + 1]);
      }
    } else {
      float w1[Shape::kPairs], w2[Shape::kPairs];
      LoadWeights<Shape::kPairs>(e, w1);
      LoadWeights<Shape::kPairs>(e + second, w2);
      for (int j = 0; j < Shape::kPairs; ++j) {
        x1[j] = x1[j] * scale * static_cast<C>(w1[j]);
        x2[j] = x2[j] * scale * static_cast<C>(w2[j]);
      }
    }
  }

  ROPEWALK_HD void FinishRest(const Unit& unit, int64_t out, int64_t e, C scale) const {
    C x[V];
    for (int j = 0; j < V; ++j) x[j] = ToFloatHD(unit.at[0].at[j]);
    if (normalises()) {
      float w[V];
      LoadWeights<V>(e, w);
      for (int j = 0; j < V; ++j) x[j] = x[j] * scale * static_cast<C>(w[j]);
    }
    StoreVector(out + e, x);
  }

  ROPEWALK_HD void StoreVector(int64_t at, const C* x) const {
    if constexpr (kAsInput) return StoreAs<T>(at, x, 1);
    switch (r_.o->out_dtype) {
      case DType::kF64:
        return StoreAs<double>(at, x, 1);
      case DType::kF32:
        return StoreAs<float>(at, x, 1);
      case DType::kF16:
        return StoreAs<Float16>(at, x, 1);
      case DType::kBF16:
        return StoreAs<BFloat16>(at, x, 1);
      case DType::kF8E4M3:
        return StoreAs<Float8E4M3>(at, x, r_.o->inverse_scale);
    }
  }
  template <class Out>
  ROPEWALK_HD void StoreAs(int64_t at, const C* x, float scale) const {
    DeviceVector<Out, V> v;
    if constexpr (std::is_same_v<ComputeOf<Out>, C> && sizeof(Out) > 1) {
      FromFloats<V>(x, v.at);
    } else {
      for (int j = 0; j < V; ++j) {
        if constexpr (std::is_same_v<Out, double>) {
          v.at[j] = x[j];
        } else if constexpr (std::is_same_v<Out, Float8E4M3>) {
          v.at[j] = FromFloat<Out>(static_cast<float>(x[j]) * scale);
        } else {
          v.at[j] = FromFloat<Out>(static_cast<float>(x[j]));
        }
      }
    }
    StoreWhole(static_cast<Out*>(r_.o->out) + at, v);
  }

  const DeviceRow<T, Angles, kMostAxes> r_;
  const Angles& angles_;
  const int lane_, lanes_;
  Factors own_;  // of the one unit
  C norm_eps_ = 0;
  Unit units_[kInFlight];
};

// Calls f.template operator()<T, kLayout, V>() for the launch's, T given. Two elements of 16 bits
// are for rotary dimensions like GPT-NeoX-20B's 24; angles on the fly do without.
template <class T, class F>
void VisitRotateKernel(const RotateLaunch& launch, F&& f) {
  constexpr int kFull = 16 / static_cast<int>(sizeof(T));
  const auto with_layout = [&]<int V>() {
    if (launch.layout == PairLayout::kHalf) {
      f.template operator()<T, PairLayout::kHalf, V>();
    } else {
      f.template operator()<T, PairLayout::kInterleaved, V>();
    }
  };
  if (launch.width == kFull) return with_layout.template operator()<kFull>();
  if constexpr (sizeof(T) == 2) {
    if (launch.width == 2) return with_layout.template operator()<2>();
  }
  with_layout.template operator()<1>();
}

}  // namespace ropewalk::internal
