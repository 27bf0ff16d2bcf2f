// The error after a thousand moves of cached keys, the contract of rotary/rerotate.h.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "reference/rotary.h"
#include "ropewalk/rotary/rerotate.h"
#include "tests/rotary/rerotate/q8.h"
#include "tests/support/tolerances.h"
#include "tests/support/values.h"

namespace ropewalk {
namespace rerotate_error_test {

Frequencies FrequenciesOf(int64_t rotary_dim, const Scaling& scaling = NoScaling{}) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = rotary_dim;
  spec.trained_length = 2048;
  spec.scaling = scaling;
  return Resolve(spec, 2048);
}

// Root mean square of the error after `moves` moves, relative to that of the keys.
template <class Move, class Read>
double ErrorAfter(const Frequencies& f, int moves, bool equal_moves, const Move& move,
                  const Read& read, int64_t equal_size = 1) {
  std::mt19937_64 random(5);
  std::uniform_int_distribution<int64_t> distance(-4096, 4096);
  const std::vector<double> start = read();
  const int64_t dim = 2 * static_cast<int64_t>(f.inv_freq.size());
  int64_t position = 0;
  for (int i = 0; i < moves; ++i) {
    const int64_t delta = equal_moves ? -equal_size : distance(random);
    position += delta;
    move(delta);
  }
  const std::vector<double> got = read();
  Frequencies pure = f;
  pure.amplitude = 1;
  double error = 0, size = 0;
  std::vector<double> want = start;
  for (std::size_t h = 0; h < start.size(); h += static_cast<std::size_t>(dim)) {
    // The reference turns forwards alone: backwards is the transpose.
    reference::RotateHead(want.data() + h, pure, std::abs(position), false, 0,
                          position < 0 ? -1 : 1);
  }
  for (std::size_t i = 0; i < start.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    size += start[i] * start[i];
  }
  return std::sqrt(error / size);
}

template <class T>
double ErrorOf(int moves, bool equal_moves) {
  const Frequencies f = FrequenciesOf(128, YarnScaling{4});
  std::vector<T> keys = RandomValues<T>(std::size_t{128} * 64, 3);
  return ErrorAfter(
      f, moves, equal_moves,
      [&](int64_t delta) {
        Rerotate({.frequencies = &f,
                  .layout = PairLayout::kHalf,
                  .moves = Moves::All(delta),
                  .keys = TensorView::Of(keys.data(), {64, 1, 128})});
      },
      [&] {
        std::vector<double> values;
        for (const T x : keys) values.push_back(ToDouble(x));
        return values;
      });
}

// What the header says.
TEST(Rerotate, ErrorAfterAThousandMoves) {
  constexpr int kMoves = 1000;
  const double root = std::sqrt(kMoves);
  for (const bool equal_moves : {false, true}) {
    const double f64 = ErrorOf<double>(kMoves, equal_moves);
    const double f32 = ErrorOf<float>(kMoves, equal_moves);
    EXPECT_LE(f64, kMoves * tolerances::kMoveF32);
    EXPECT_LE(f32, kMoves * tolerances::kMoveF32);
    GTEST_LOG_(INFO) << (equal_moves ? "equal" : "random") << " moves: f64 " << f64 << ", f32 "
                     << f32;
  }
  const double f16 = ErrorOf<Float16>(kMoves, false);
  const double bf16 = ErrorOf<BFloat16>(kMoves, false);
  EXPECT_LE(f16, root * tolerances::kMoveF16);
  EXPECT_LE(bf16, root * tolerances::kMoveBF16);
  GTEST_LOG_(INFO) << "random moves: f16 " << f16 << ", bf16 " << bf16;
}

// Why 16-bit keys should be moved by the sum: turns smaller than the rounding are lost.
TEST(Rerotate, SmallMovesOfSixteenBitKeysAreLostButTheirSumIsNot) {
  const double steps = ErrorOf<BFloat16>(1000, true);
  const Frequencies f = FrequenciesOf(128);
  std::vector<BFloat16> keys = RandomValues<BFloat16>(std::size_t{128} * 64, 3);
  const double sum = ErrorAfter(
      f, 1, true,
      [&](int64_t delta) {
        Rerotate({.frequencies = &f,
                  .layout = PairLayout::kHalf,
                  .moves = Moves::All(delta),
                  .keys = TensorView::Of(keys.data(), {64, 1, 128})});
      },
      [&] {
        std::vector<double> values;
        for (const BFloat16 x : keys) values.push_back(ToDouble(x));
        return values;
      },
      1000);
  EXPECT_GT(steps, 0.1);
  EXPECT_LE(sum, tolerances::kMoveBF16);
  GTEST_LOG_(INFO) << "bf16: a thousand moves by 1 " << steps << ", one by 1000 " << sum;
}

TEST(Rerotate, Q8KeysErrorAfterAThousandMoves) {
  const Frequencies f = FrequenciesOf(128);
  std::vector<q8::Block> keys = q8::Quantised(RandomValues<double>(std::size_t{128} * 64, 3));
  const double error = ErrorAfter(
      f, 1000, false,
      [&](int64_t delta) {
        Rerotate({.frequencies = &f,
                  .layout = PairLayout::kHalf,
                  .moves = Moves::All(delta),
                  .q8_keys = Q8KeysView::Contiguous(keys.data(), 1, 64, 1, 128)});
      },
      [&] { return q8::Values(keys); });
  EXPECT_LE(error, std::sqrt(1000) * tolerances::kMoveQ8);
  GTEST_LOG_(INFO) << "random moves: Q8_0 " << error;
}

}  // namespace rerotate_error_test
}  // namespace ropewalk
