// Rerotate against the scalar reference in double: keys rotated for one position and moved must be
// what keys rotated for the other position are.
#include "ropewalk/rotary/rerotate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "reference/rotary.h"
#include "ropewalk/base/error.h"
#include "ropewalk/rotary/rotate.h"
#include "src/rotary/rotate/cpu.h"
#include "tests/rotary/rerotate/q8.h"
#include "tests/support/targets.h"
#include "tests/support/tolerances.h"
#include "tests/support/values.h"

namespace ropewalk {
namespace rerotate_rerotate_test {

constexpr int64_t kFar[] = {0,    1,    255,  256,    257,     2047,      2048,
                            2049, 8192, 9000, 131071, 1048575, 2000000000};

Frequencies FrequenciesOf(int64_t rotary_dim, const Scaling& scaling = NoScaling{}) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = rotary_dim;
  spec.trained_length = 2048;
  spec.scaling = scaling;
  return Resolve(spec, 2048);
}

// Three axes, interleaved over the pairs.
Frequencies ThreeAxes(int64_t rotary_dim, const Scaling& scaling = NoScaling{}) {
  Frequencies f = FrequenciesOf(rotary_dim, scaling);
  f.axes = 3;
  for (std::size_t i = 0; i < f.inv_freq.size(); ++i) {
    f.axis.push_back(static_cast<uint8_t>(i % 3));
  }
  return f;
}

// Of a pair's length: the roundings of cos and sin and of the arithmetic, or of the type.
template <class T>
double Tolerance() {
  if (sizeof(T) >= 4) return tolerances::kRotateF32 * 0x1p-24;
  return tolerances::kRotate16 * (std::is_same_v<T, Float16> ? 0x1p-11 : 0x1p-8);
}

std::vector<double> Rotated(const std::vector<double>& x, const Frequencies& f,
                            std::span<const int64_t> positions, PairLayout layout,
                            int64_t first_dim) {
  std::vector<double> y = x;
  reference::RotateHead(y.data(), f, positions, layout == PairLayout::kInterleaved, first_dim);
  return y;
}

// Keys of every far position, moved to every other one (forwards and backwards), a head each.
template <class T>
void CheckMoves(PairLayout layout, const Frequencies& f, int64_t head_dim, int64_t first_dim) {
  std::vector<int64_t> from[3], to[3];
  for (const int64_t a : kFar) {
    for (const int64_t b : kFar) {
      for (int axis = 0; axis < 3; ++axis) {  // other axes stand elsewhere
        from[axis].push_back(a / (axis + 1));
        to[axis].push_back(b / (axis + 1));
      }
    }
  }
  const int64_t tokens = static_cast<int64_t>(from[0].size());
  std::vector<int64_t> deltas;
  for (int axis = 0; axis < f.axes; ++axis) {
    for (int64_t t = 0; t < tokens; ++t) {
      deltas.push_back(to[axis][static_cast<std::size_t>(t)] -
                       from[axis][static_cast<std::size_t>(t)]);
    }
  }
  std::vector<T> keys;
  std::vector<std::vector<double>> before, want;
  for (std::size_t t = 0; t < from[0].size(); ++t) {
    const int64_t at[] = {from[0][t], from[1][t], from[2][t]};
    const int64_t then[] = {to[0][t], to[1][t], to[2][t]};
    const std::vector<double> x = RandomValues<double>(static_cast<std::size_t>(head_dim), t);
    const std::vector<double> cached = Rotated(x, f, at, layout, first_dim);
    // What was cached is rounded; undo that in the expectation by rotating the rounded key.
    std::vector<double> rounded;
    for (const double v : cached) {
      keys.push_back(FromDouble<T>(v));
      rounded.push_back(ToDouble(keys.back()));
    }
    before.push_back(rounded);
    Frequencies pure = f;
    pure.amplitude = 1;
    reference::RotateHead(rounded.data(), pure, at, layout == PairLayout::kInterleaved, first_dim,
                          -1);
    want.push_back(Rotated(rounded, pure, then, layout, first_dim));
  }
  Rerotate({.frequencies = &f,
            .layout = layout,
            .moves = Moves::Tokens(deltas),
            .keys = TensorView::Of(keys.data(), {tokens, 1, head_dim}),
            .first_dim = first_dim});
  const int64_t pairs = static_cast<int64_t>(f.inv_freq.size());
  for (std::size_t t = 0; t < want.size(); ++t) {
    for (int64_t i = 0; i < head_dim; ++i) {
      const double got =
          ToDouble(keys[t * static_cast<std::size_t>(head_dim) + static_cast<std::size_t>(i)]);
      const int64_t j = i - first_dim;
      const std::size_t at = static_cast<std::size_t>(i);
      if (j < 0 || j >= 2 * pairs) {
        EXPECT_EQ(got, before[t][at]);
        continue;
      }
      const int64_t partner = layout == PairLayout::kInterleaved ? j ^ 1
                              : j < pairs                        ? j + pairs
                                                                 : j - pairs;
      const double length =
          std::hypot(before[t][at], before[t][static_cast<std::size_t>(first_dim + partner)]);
      EXPECT_NEAR(got, want[t][at], Tolerance<T>() * length)
          << Name(DTypeOf<T>::value) << " from " << from[0][t] << " to " << to[0][t] << " element "
          << i;
    }
  }
}

template <class T>
void CheckAllMoves() {
  for (const PairLayout layout : {PairLayout::kHalf, PairLayout::kInterleaved}) {
    CheckMoves<T>(layout, FrequenciesOf(64), 64, 0);
    // The amplitude of YaRN, 1.1386, must not enter.
    CheckMoves<T>(layout, FrequenciesOf(26, YarnScaling{4}), 40, 7);
    CheckMoves<T>(layout, ThreeAxes(32, LinearScaling{2}), 32, 0);
  }
}

TEST(Rerotate, MovedKeysAreThoseOfTheNewPositionOnEveryTarget) {
  ForEachTarget(internal::RotatePlainTarget, [](const char*) {
    CheckAllMoves<double>();
    CheckAllMoves<float>();
    CheckAllMoves<Float16>();
    CheckAllMoves<BFloat16>();
  });
}

// llama.cpp's K-shift multiplies by YaRN's 1.1386 at every shift: 1.6809 in all after three.
TEST(Rerotate, KeepsTheLengthOfKeysHoweverOftenTheyMove) {
  const Frequencies f = FrequenciesOf(64, YarnScaling{4});
  EXPECT_NEAR(f.amplitude, 1.1386294, 1e-7);
  std::vector<float> keys = RandomValues<float>(64, 1);
  double before = 0, after = 0;
  for (const float x : keys) before += double{x} * x;
  for (int i = 0; i < 3; ++i) {
    Rerotate({.frequencies = &f,
              .layout = PairLayout::kHalf,
              .moves = Moves::All(-256),
              .keys = TensorView::Of(keys.data(), {1, 1, 64})});
  }
  for (const float x : keys) after += double{x} * x;
  EXPECT_NEAR(std::sqrt(after / before), 1, 1e-6);
}

// All ways of saying the same moves, over strides and a batch: the same bits.
TEST(Rerotate, EveryKindOfMove) {
  const int64_t batch = 3, tokens = 5, heads = 2, dim = 32;
  for (const bool axes : {false, true}) {
    const Frequencies f = axes ? ThreeAxes(dim) : FrequenciesOf(dim);
    const int64_t rows = axes ? 3 : 1;
    const auto moved = [&](const Moves& moves, int64_t gap) {
      const std::vector<float> x =
          RandomValues<float>(static_cast<std::size_t>(batch * tokens * heads * dim), 2);
      std::vector<float> wide(static_cast<std::size_t>(batch * tokens * (heads * dim + gap)), 7.0f);
      TensorView keys = TensorView::Of(wide.data(), {batch, tokens, heads, dim});
      keys.strides[1] += gap;
      keys.strides[0] = tokens * keys.strides[1];
      const auto copy = [&](bool in, std::vector<float>& packed) {
        for (int64_t t = 0; t < batch * tokens; ++t) {
          float* a = packed.data() + t * heads * dim;
          float* b = wide.data() + t * keys.strides[1];
          std::copy_n(in ? a : b, heads * dim, in ? b : a);
          for (int64_t i = 0; i < gap && !in; ++i) EXPECT_EQ(b[heads * dim + i], 7.0f);
        }
      };
      std::vector<float> out = x;
      copy(true, out);
      Rerotate({.frequencies = &f, .layout = PairLayout::kHalf, .moves = moves, .keys = keys});
      copy(false, out);
      return out;
    };
    const std::vector<int64_t> same(static_cast<std::size_t>(rows * batch * tokens), -300);
    const std::vector<int64_t> sequences(static_cast<std::size_t>(rows * batch), -300);
    std::vector<int64_t> old_positions, new_positions;
    for (int64_t i = 0; i < rows * batch * tokens; ++i) {
      old_positions.push_back(1000 + 17 * i);
      new_positions.push_back(700 + 17 * i);
    }
    const std::vector<float> all = moved(Moves::All(-300), 0);
    EXPECT_EQ(all, moved(Moves::All(-300), 3));
    EXPECT_EQ(all, moved(Moves::Sequences(sequences), 0));
    EXPECT_EQ(all, moved(Moves::Tokens(same), 5));
    EXPECT_EQ(all, moved(Moves::FromTo(old_positions, new_positions), 0));
    EXPECT_NE(all, moved(Moves::All(-301), 0));
  }
}

// From one method to another: what the new method would have written, with or without its
// amplitude.
TEST(Rerotate, ChangesTheMethod) {
  const int64_t dim = 64, tokens = 12;
  const Frequencies old_f = FrequenciesOf(dim, DynamicNtkScaling{2});
  const Frequencies new_f = FrequenciesOf(dim, YarnScaling{4});
  const int64_t from[] = {0, 1, 255, 256, 257, 2047, 2048, 2049, 8192, 131071, 1048575, 5};
  const int64_t to[] = {0, 1, 256, 255, 0, 2047, 100, 2049, 131071, 8192, 1048575, 1048575};
  for (const AmplitudeChange change : {AmplitudeChange::kKeep, AmplitudeChange::kRatio}) {
    const double amplitude = change == AmplitudeChange::kRatio ? new_f.amplitude : 1;
    std::vector<float> keys;
    std::vector<double> want;
    for (int64_t t = 0; t < tokens; ++t) {
      const std::vector<double> x = RandomValues<double>(64, static_cast<uint64_t>(t) + 40);
      std::vector<double> a = x, b = x;
      reference::RotateHead(a.data(), old_f, from[t], false);
      reference::RotateHead(b.data(), new_f, to[t], false);
      keys.insert(keys.end(), a.begin(), a.end());
      for (const double v : b) want.push_back(v / new_f.amplitude * amplitude);
    }
    Rerotate({.frequencies = &new_f,
              .layout = PairLayout::kHalf,
              .moves = Moves::FromTo(from, to),
              .keys = TensorView::Of(keys.data(), {tokens, 1, dim}),
              .from = &old_f,
              .amplitude = change});
    for (std::size_t i = 0; i < keys.size(); ++i) {
      EXPECT_NEAR(keys[i], want[i], 6 * 0x1p-24 * 5) << i;
    }
  }
}

// One move of Q8_0: each element within a step of the new block of the exact value; blocks without
// rotated elements and tokens that stay keep their bits; strides with gaps.
TEST(Rerotate, Q8Keys) {
  const int64_t batch = 2, tokens = 70, heads = 2, dim = 128, pairs = 20, first_dim = 40;
  const Frequencies f = FrequenciesOf(2 * pairs);
  const std::size_t head_blocks = dim / 32;
  const std::vector<q8::Block> before = q8::Quantised(
      RandomValues<double>(static_cast<std::size_t>(batch * tokens * heads * dim), 8));
  std::vector<int64_t> deltas;
  for (int64_t t = 0; t < batch * tokens; ++t) deltas.push_back(t % 5 == 0 ? 0 : 1000 - 31 * t);
  for (const PairLayout layout : {PairLayout::kHalf, PairLayout::kInterleaved}) {
    const int64_t head_bytes = static_cast<int64_t>(head_blocks) * 34 + 5;  // odd: any alignment
    std::vector<char> memory(static_cast<std::size_t>(batch * tokens * heads * head_bytes), 99);
    Q8KeysView view = Q8KeysView::Contiguous(memory.data(), batch, tokens, heads, dim);
    view.strides_bytes[2] = head_bytes;
    view.strides_bytes[1] = heads * head_bytes;
    view.strides_bytes[0] = tokens * heads * head_bytes;
    const auto head_at = [&](std::size_t h) {
      return memory.data() + static_cast<int64_t>(h) * head_bytes;
    };
    const std::size_t all_heads = static_cast<std::size_t>(batch * tokens * heads);
    for (std::size_t h = 0; h < all_heads; ++h) {
      std::memcpy(head_at(h), &before[h * head_blocks], head_blocks * sizeof(q8::Block));
    }
    Rerotate({.frequencies = &f,
              .layout = layout,
              .moves = Moves::Tokens(deltas),
              .q8_keys = view,
              .first_dim = first_dim});
    for (std::size_t h = 0; h < all_heads; ++h) {
      std::vector<q8::Block> got(head_blocks),
          was(&before[h * head_blocks], &before[(h + 1) * head_blocks]);
      std::memcpy(got.data(), head_at(h), head_blocks * sizeof(q8::Block));
      for (int i = 0; i < 5; ++i)
        EXPECT_EQ(head_at(h)[head_blocks * 34 + static_cast<std::size_t>(i)], 99);
      const int64_t delta = deltas[h / heads];
      if (delta == 0) {
        EXPECT_EQ(std::memcmp(got.data(), was.data(), head_blocks * sizeof(q8::Block)), 0);
        continue;
      }
      // Elements 40 .. 79 rotate: blocks 0 and 3 are not touched.
      EXPECT_EQ(std::memcmp(&got[0], &was[0], sizeof(q8::Block)), 0);
      EXPECT_EQ(std::memcmp(&got[3], &was[3], sizeof(q8::Block)), 0);
      std::vector<double> want = q8::Values(was);
      reference::RotateHead(want.data(), f, std::abs(delta), layout == PairLayout::kInterleaved,
                            first_dim, delta < 0 ? -1 : 1);
      const std::vector<double> values = q8::Values(got);
      for (std::size_t i = 0; i < values.size(); ++i) {
        // Half a step; the largest element is clipped by less where the scale was rounded down.
        const double step = ToFloat(Float16{got[i / 32].scale});
        EXPECT_NEAR(values[i], want[i], 0.501 * step) << "head " << h << " element " << i;
      }
    }
  }
}

class RerotateBadInput : public ::testing::Test {
 protected:
  void ExpectRefused(const char* says, const std::function<void(RerotateArgs&)>& change) {
    RerotateArgs args{.frequencies = &f_,
                      .layout = PairLayout::kHalf,
                      .moves = Moves::All(3),
                      .keys = TensorView::Of(keys_.data(), {4, 1, 8})};
    change(args);
    try {
      Rerotate(args);
      ADD_FAILURE() << "accepted; expected: " << says;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), ::testing::HasSubstr(says));
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    }
    EXPECT_EQ(keys_, std::vector<float>(32, 1.0f)) << "written before: " << says;
  }
  Frequencies f_ = FrequenciesOf(8), other_ = FrequenciesOf(8, LinearScaling{2});
  std::vector<float> keys_ = std::vector<float>(32, 1.0f);
  std::vector<int64_t> three_ = std::vector<int64_t>(3, 1), four_ = std::vector<int64_t>(4, 1);
};

TEST_F(RerotateBadInput, Methods) {
  ExpectRefused("frequencies: expected", [](RerotateArgs& a) { a.frequencies = nullptr; });
  ExpectRefused("FromTo", [&](RerotateArgs& a) { a.from = &other_; });
  ExpectRefused("needs `from`", [](RerotateArgs& a) { a.amplitude = AmplitudeChange::kRatio; });
  Frequencies xpos = f_;
  xpos.log_decay.assign(4, -0.1);
  ExpectRefused("xPos", [&](RerotateArgs& a) { a.frequencies = &xpos; });
  const Frequencies wide = FrequenciesOf(16);
  ExpectRefused("differ", [&](RerotateArgs& a) {
    a.from = &wide;
    a.moves = Moves::FromTo(four_, four_);
  });
  ExpectRefused("do not fit head_dim", [&](RerotateArgs& a) { a.frequencies = &wide; });
}

TEST_F(RerotateBadInput, Moves) {
  ExpectRefused("1 x 4 deltas, got 3", [&](RerotateArgs& a) { a.moves = Moves::Tokens(three_); });
  ExpectRefused("1 x 1 deltas, got 3",
                [&](RerotateArgs& a) { a.moves = Moves::Sequences(three_); });
  ExpectRefused("positions before",
                [&](RerotateArgs& a) { a.moves = Moves::FromTo(three_, four_); });
  const Frequencies axes = ThreeAxes(8);
  ExpectRefused("3 x 4 deltas, got 4", [&](RerotateArgs& a) {
    a.frequencies = &axes;
    a.moves = Moves::Tokens(four_);
  });
}

TEST_F(RerotateBadInput, Keys) {
  ExpectRefused("either keys or q8_keys", [](RerotateArgs& a) { a.keys = {}; });
  ExpectRefused("[tokens, kv_heads, head_dim]", [](RerotateArgs& a) { a.keys.rank = 2; });
  ExpectRefused("last stride", [](RerotateArgs& a) { a.keys.strides[2] = 2; });
  const auto q8 = [&](int64_t head_dim, int64_t stride) {
    return [this, head_dim, stride](RerotateArgs& a) {
      a.keys = {};
      a.q8_keys = Q8KeysView::Contiguous(keys_.data(), 1, 1, 2, head_dim);
      if (stride != 0) a.q8_keys.strides_bytes[2] = stride;
    };
  };
  ExpectRefused("multiple of 32", q8(24, 0));
  ExpectRefused("overlap", q8(32, 20));
}

TEST(Rerotate, NothingToMove) {
  const Frequencies f = FrequenciesOf(8);
  Rerotate({.frequencies = &f,
            .layout = PairLayout::kHalf,
            .moves = Moves::All(3),
            .keys = TensorView::Contiguous(nullptr, DType::kF32, {0, 2, 8})});
  Rerotate({.frequencies = &f,
            .layout = PairLayout::kHalf,
            .moves = Moves::Tokens({}),
            .q8_keys = Q8KeysView::Contiguous(nullptr, 1, 0, 1, 32)});
}

}  // namespace rerotate_rerotate_test
}  // namespace ropewalk
