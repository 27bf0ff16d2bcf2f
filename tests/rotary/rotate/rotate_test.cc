// Rotate against the scalar reference in double, at far positions, in every type, layout, direction
// and shape, on every SIMD target; and the identities that make it a rotation.
#include "ropewalk/rotary/rotate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "reference/rotary.h"
#include "ropewalk/base/threads.h"
#include "src/rotary/rotate/cpu.h"
#include "tests/support/targets.h"
#include "tests/support/tolerances.h"
#include "tests/support/values.h"

namespace ropewalk {
namespace rotate_rotate_test {

// One rounding of the type, and how much of it a rotated element may be off.
template <class T>
double Tolerance() {
  if (std::is_same_v<T, double>) return tolerances::kRotateF64 * 0x1p-24;  // the table is float32
  if (std::is_same_v<T, float>) return tolerances::kRotateF32 * 0x1p-24;
  return tolerances::kRotate16 * (std::is_same_v<T, Float16> ? 0x1p-11 : 0x1p-8);
}

Frequencies FrequenciesTrainedAt2048(int64_t rotary_dim, const Scaling& scaling = NoScaling{}) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = rotary_dim;
  spec.trained_length = 2048;
  spec.scaling = scaling;
  return Resolve(spec, 2048);
}

struct Case {
  int64_t head_dim, rotary_dim, first_dim;
};
// Full and partial heads, every kind of tail, rotary dims of real models, one beyond the stack row.
constexpr Case kCases[] = {{2, 2, 0},      {8, 8, 0},      {16, 10, 3},  {32, 32, 0},
                           {64, 64, 0},    {64, 32, 32},   {80, 32, 0},  {90, 74, 7},
                           {96, 96, 0},    {128, 128, 0},  {130, 66, 1}, {256, 256, 0},
                           {160, 128, 16}, {1100, 1088, 5}};
constexpr int64_t kFirst[] = {0, 254, 2046, 131070, 1048574};

template <class T>
void CheckAgainstReference(const Case& c, PairLayout layout, Direction direction, int64_t first) {
  const int64_t tokens = 3, heads = 2;
  const Frequencies f = FrequenciesTrainedAt2048(c.rotary_dim, YarnScaling{4});
  const CosSinTable table(f, first, tokens, AnglePrecision::kExact);
  std::vector<T> x = RandomValues<T>(static_cast<std::size_t>(tokens * heads * c.head_dim), 7);
  const std::vector<T> before = x;
  Rotate({&table,
          layout,
          Positions::From(first),
          TensorView::Of(x.data(), {tokens, heads, c.head_dim}),
          {},
          {},
          {},
          c.first_dim,
          direction});
  const double a = f.amplitude;
  // Forward a R, adjoint a R^T, inverse R^T / a.
  const double scale = direction == Direction::kInverse ? 1 / (a * a) : 1;
  const int sign = direction == Direction::kForward ? 1 : -1;
  for (int64_t row = 0; row < tokens * heads; ++row) {
    std::vector<double> want;
    for (int64_t i = 0; i < c.head_dim; ++i) {
      want.push_back(ToDouble(before[static_cast<std::size_t>(row * c.head_dim + i)]));
    }
    const std::vector<double> original = want;
    reference::RotateHead(want.data(), f, first + row / heads, layout == PairLayout::kInterleaved,
                          c.first_dim, sign);
    for (int64_t i = 0; i < c.head_dim; ++i) {
      const T got = x[static_cast<std::size_t>(row * c.head_dim + i)];
      const int64_t j = i - c.first_dim;
      if (j < 0 || j >= c.rotary_dim) {  // untouched, bit for bit
        EXPECT_EQ(
            std::memcmp(&got, &before[static_cast<std::size_t>(row * c.head_dim + i)], sizeof(T)),
            0);
        continue;
      }
      const int64_t half = c.rotary_dim / 2;
      const int64_t partner =
          layout == PairLayout::kHalf ? (j < half ? j + half : j - half) : j ^ 1;
      const double length = std::hypot(original[static_cast<std::size_t>(i)],
                                       original[static_cast<std::size_t>(c.first_dim + partner)]) *
                            a * scale;
      EXPECT_NEAR(ToDouble(got), scale * want[static_cast<std::size_t>(i)], Tolerance<T>() * length)
          << Name(DTypeOf<T>::value) << " head_dim " << c.head_dim << " rotary_dim " << c.rotary_dim
          << " position " << first + row / heads << " element " << i;
    }
  }
}

template <class T>
void CheckAll() {
  for (const PairLayout layout : {PairLayout::kHalf, PairLayout::kInterleaved}) {
    for (const Direction direction :
         {Direction::kForward, Direction::kAdjoint, Direction::kInverse}) {
      for (const Case& c : kCases) CheckAgainstReference<T>(c, layout, direction, 254);
    }
    for (const int64_t first : kFirst) {
      CheckAgainstReference<T>({128, 128, 0}, layout, Direction::kForward, first);
    }
  }
}

TEST(Rotate, MatchesTheReferenceOnEveryTarget) {
  ForEachTarget(internal::RotatePlainTarget, [](const char*) {
    CheckAll<double>();
    CheckAll<float>();
    CheckAll<Float16>();
    CheckAll<BFloat16>();
  });
}

// With cos = 1 and sin = 0 (position 0) an element passes through the conversions unchanged: every
// finite 16-bit value, subnormals and infinities must come back. Infinity times sin = 0 is NaN, so
// infinities are left out; NaN must stay NaN.
template <class T>
void CheckAllBitsPass(PairLayout layout) {
  const int64_t tokens = 1024, dim = 64;
  const Frequencies f = FrequenciesTrainedAt2048(dim);
  const CosSinTable table(f, 0, 1, AnglePrecision::kExact);
  const std::vector<int64_t> zeros(static_cast<std::size_t>(tokens), 0);
  std::vector<T> x;
  for (uint32_t bits = 0; bits < 65536; ++bits) x.push_back(T{static_cast<uint16_t>(bits)});
  const std::vector<T> before = x;
  Rotate({&table,
          layout,
          Positions::Each(std::span<const int64_t>(zeros)),
          TensorView::Of(x.data(), {tokens, 1, dim}),
          {},
          {},
          {}});
  const int64_t partner_xor = layout == PairLayout::kHalf ? 32 : 1;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float was = ToFloat(before[i]);
    const float other = ToFloat(before[i ^ static_cast<std::size_t>(partner_xor)]);
    if (!std::isfinite(was) || !std::isfinite(other)) {
      EXPECT_TRUE(std::isnan(ToFloat(x[i])) || (std::isinf(was) && ToFloat(x[i]) == was)) << i;
    } else if (was == 0) {
      EXPECT_EQ(ToFloat(x[i]), 0) << i;
    } else {
      EXPECT_EQ(x[i].bits, before[i].bits) << i;
    }
  }
}

TEST(Rotate, EverySixteenBitValueSurvivesPositionZeroOnEveryTarget) {
  ForEachTarget(internal::RotatePlainTarget, [](const char*) {
    for (const PairLayout layout : {PairLayout::kHalf, PairLayout::kInterleaved}) {
      CheckAllBitsPass<Float16>(layout);
      CheckAllBitsPass<BFloat16>(layout);
    }
  });
}

// The rounding at the end is to nearest, ties to even: products that fall on ties and next to them,
// made by an amplitude on an otherwise unrotated element.
template <class T>
void CheckRounding(PairLayout layout) {
  const int64_t dim = 64;
  for (const double amplitude : {1.5, 1.25, 1.0078125, 1.00390625, 0.99609375, 1.1, 1e-3, 3e4}) {
    Frequencies f = FrequenciesTrainedAt2048(dim);
    f.amplitude = amplitude;
    const CosSinTable table(f, 0, 1, AnglePrecision::kExact);
    std::vector<T> x;
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      const T value{static_cast<uint16_t>(bits)};
      x.push_back(std::isfinite(ToFloat(value)) ? value : T{0});
    }
    const std::vector<T> before = x;
    const std::vector<int32_t> zeros(1024, 0);
    Rotate({&table,
            layout,
            Positions::Each(std::span<const int32_t>(zeros)),
            TensorView::Of(x.data(), {1024, 1, dim}),
            {},
            {},
            {}});
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float product = ToFloat(before[i]) * static_cast<float>(amplitude);
      const T want = FromDouble<T>(product);
      if (product == 0) continue;  // the sign of zero is that of a sum
      EXPECT_EQ(x[i].bits, want.bits) << ToFloat(before[i]) << " * " << amplitude;
    }
  }
}

TEST(Rotate, RoundsToNearestEvenOnEveryTarget) {
  ForEachTarget(internal::RotatePlainTarget, [](const char*) {
    for (const PairLayout layout : {PairLayout::kHalf, PairLayout::kInterleaved}) {
      CheckRounding<Float16>(layout);
      CheckRounding<BFloat16>(layout);
    }
  });
}

std::vector<double> Rotated(std::vector<double> x, int64_t position, const Frequencies& f,
                            Direction direction = Direction::kForward) {
  const CosSinTable table(f, position, 1, AnglePrecision::kExact);
  const int64_t n = static_cast<int64_t>(x.size());
  Rotate({&table,
          PairLayout::kHalf,
          Positions::From(position),
          TensorView::Of(x.data(), {1, 1, n}),
          {},
          {},
          {},
          0,
          direction});
  return x;
}

double Dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// <R_m q, R_n k> depends on m - n alone, however far both are: the reason for rotary embeddings.
TEST(Rotate, ScoresDependOnTheDistanceAlone) {
  const Frequencies f = FrequenciesTrainedAt2048(64);
  const std::vector<double> q = RandomValues<double>(64, 1);
  const std::vector<double> k = RandomValues<double>(64, 2);
  const double size = std::sqrt(Dot(q, q) * Dot(k, k));
  for (const int64_t distance : {0, 1, 255, 256, 257, 4096}) {
    const double near = Dot(Rotated(q, distance, f), Rotated(k, 0, f));
    for (const int64_t n : {1, 2047, 2048, 2049, 8192, 131071, 1048575, 2000000000}) {
      const double far = Dot(Rotated(q, n + distance, f), Rotated(k, n, f));
      EXPECT_NEAR(far, near, 4 * 0x1p-24 * size) << distance << " at " << n;
    }
  }
}

TEST(Rotate, KeepsLengthsAddsUpAndComesBack) {
  const Frequencies f = FrequenciesTrainedAt2048(64);
  const Frequencies yarn = FrequenciesTrainedAt2048(64, YarnScaling{4});
  const std::vector<double> x = RandomValues<double>(64, 3);
  for (const int64_t p : {1, 257, 131071, 1048575}) {
    const std::vector<double> y = Rotated(x, p, f);
    EXPECT_NEAR(Dot(y, y), Dot(x, x), 2 * 0x1p-24 * Dot(x, x));
    // R_p R_257 = R_(p + 257).
    const std::vector<double> twice = Rotated(y, 257, f);
    const std::vector<double> once = Rotated(x, p + 257, f);
    const std::vector<double> back = Rotated(Rotated(x, p, yarn), p, yarn, Direction::kInverse);
    for (std::size_t i = 0; i < 64; ++i) {
      EXPECT_NEAR(twice[i], once[i], 6 * 0x1p-24 * 4);  // |x| < 4, three roundings of cos and sin
      EXPECT_NEAR(back[i], x[i], 6 * 0x1p-24 * 4);
    }
    // <a R x, y> = <x, a R^T y>.
    const std::vector<double> z = RandomValues<double>(64, 4);
    EXPECT_NEAR(Dot(Rotated(x, p, yarn), z), Dot(x, Rotated(z, p, yarn, Direction::kAdjoint)),
                1e-12);
  }
}

// Any strides, negative ones too, q and k as columns of one matrix, batches: the same as
// contiguous.
TEST(Rotate, StridesBatchesAndTwoOperands) {
  const int64_t batch = 2, tokens = 5, heads = 3, kv = 1, dim = 16;
  const Frequencies f = FrequenciesTrainedAt2048(dim);
  const CosSinTable table(f, 0, 200, AnglePrecision::kExact);
  const int64_t width = (heads + 2 * kv) * dim + 3;
  std::vector<float> packed =
      RandomValues<float>(static_cast<std::size_t>(batch * tokens * width), 5);
  const std::vector<float> before = packed;
  TensorView q = TensorView::Of(packed.data(), {batch, tokens, heads, dim});
  q.strides[0] = tokens * width;
  q.strides[1] = width;
  TensorView k = TensorView::Of(packed.data() + heads * dim, {batch, tokens, kv, dim});
  k.strides[0] = tokens * width;
  k.strides[1] = width;
  const int64_t starts[] = {7, 100};
  Rotate({&table, PairLayout::kHalf, Positions::Starts(starts), q, k, {}, {}});
  // Heads and tokens walked backwards over the same memory: nothing may differ.
  std::vector<float> reversed = before;
  TensorView r = q;
  r.data = reversed.data() + (tokens - 1) * width + (heads - 1) * dim;
  r.strides[1] = -width;
  r.strides[2] = -dim;
  std::vector<int64_t> each;
  for (const int64_t start : starts) {
    for (int64_t t = tokens - 1; t >= 0; --t) each.push_back(start + t);
  }
  Rotate({&table, PairLayout::kHalf, Positions::Each(std::span<const int64_t>(each)), r});
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t row = (b * tokens + t) * width;
      for (int64_t h = 0; h < heads + kv; ++h) {
        std::vector<float> head(before.begin() + row + h * dim,
                                before.begin() + row + (h + 1) * dim);
        Rotate({&table,
                PairLayout::kHalf,
                Positions::From(starts[b] + t),
                TensorView::Of(head.data(), {1, 1, dim}),
                {},
                {},
                {}});
        for (int64_t i = 0; i < dim; ++i) {
          EXPECT_EQ(packed[static_cast<std::size_t>(row + h * dim + i)],
                    head[static_cast<std::size_t>(i)]);
          if (h < heads) {
            EXPECT_EQ(reversed[static_cast<std::size_t>(row + h * dim + i)],
                      head[static_cast<std::size_t>(i)]);
          }
        }
      }
      for (int64_t i = (heads + kv) * dim; i < width; ++i) {  // v and padding: untouched
        EXPECT_EQ(packed[static_cast<std::size_t>(row + i)],
                  before[static_cast<std::size_t>(row + i)]);
      }
    }
  }
}

template <class T>
void CheckOutOfPlace() {
  const Case c = {90, 74, 7};
  const Frequencies f = FrequenciesTrainedAt2048(c.rotary_dim);
  const CosSinTable table(f, 0, 64, AnglePrecision::kExact);
  std::vector<T> x = RandomValues<T>(static_cast<std::size_t>(4 * 3 * c.head_dim), 6);
  const std::vector<T> before = x;
  std::vector<T> y(x.size());
  RotateArgs args{&table,
                  PairLayout::kInterleaved,
                  Positions::From(9),
                  TensorView::Of(x.data(), {4, 3, c.head_dim}),
                  {},
                  TensorView::Of(y.data(), {4, 3, c.head_dim}),
                  {},
                  c.first_dim};
  Rotate(args);
  EXPECT_EQ(std::memcmp(x.data(), before.data(), x.size() * sizeof(T)), 0) << "input written";
  args.q_out = {};
  Rotate(args);
  EXPECT_EQ(std::memcmp(x.data(), y.data(), x.size() * sizeof(T)), 0);
}

TEST(Rotate, OutOfPlaceEqualsInPlaceAndCopiesTheRest) {
  CheckOutOfPlace<double>();
  CheckOutOfPlace<float>();
  CheckOutOfPlace<Float16>();
  CheckOutOfPlace<BFloat16>();
}

// Every way of saying the same positions, and packed sequences, on enough tokens for all threads.
TEST(Rotate, PositionsOfEveryKind) {
  const int64_t tokens = 700, dim = 64, heads = 2;
  const Frequencies f = FrequenciesTrainedAt2048(dim);
  const CosSinTable table(f, 0, 1024, AnglePrecision::kExact);
  const std::vector<float> x =
      RandomValues<float>(static_cast<std::size_t>(tokens * heads * dim), 8);
  const auto rotated = [&](const Positions& positions, int64_t batch) {
    std::vector<float> y = x;
    Rotate({&table,
            PairLayout::kHalf,
            positions,
            TensorView::Of(y.data(), {batch, tokens / batch, heads, dim}),
            {},
            {},
            {}});
    return y;
  };
  std::vector<int32_t> p32;
  std::vector<int64_t> p64;
  const int64_t boundaries[] = {0, 0, 5, 5, 300, 699, 700, 700};
  for (std::size_t s = 1; s < std::size(boundaries); ++s) {
    for (int64_t t = boundaries[s - 1]; t < boundaries[s]; ++t) {
      p64.push_back(t - boundaries[s - 1]);
      p32.push_back(static_cast<int32_t>(p64.back()));
    }
  }
  const std::vector<float> each = rotated(Positions::Each(std::span<const int64_t>(p64)), 1);
  EXPECT_EQ(each, rotated(Positions::Each(std::span<const int32_t>(p32)), 1));
  EXPECT_EQ(each, rotated(Positions::Packed(boundaries), 1));
  EXPECT_EQ(each, rotated(Positions::Packed(boundaries), 7));
  // One list of positions for every sequence of the batch.
  std::vector<int32_t> shared;
  for (int i = 0; i < 100; ++i) shared.push_back(100 + i);
  const int64_t starts[] = {100, 100, 100, 100, 100, 100, 100};
  const std::vector<float> from = rotated(Positions::From(100), 7);
  EXPECT_EQ(from, rotated(Positions::Each(std::span<const int32_t>(shared)), 7));
  EXPECT_EQ(from, rotated(Positions::Starts(starts), 7));
}

TEST(Rotate, ThreadsDoNotChangeBits) {
  const int64_t tokens = 300, heads = 4, dim = 64;
  const Frequencies f = FrequenciesTrainedAt2048(dim);
  const CosSinTable table(f, 0, tokens, AnglePrecision::kExact);
  const std::vector<float> x =
      RandomValues<float>(static_cast<std::size_t>(tokens * heads * dim), 9);
  const int before = NumThreads();
  std::vector<float> results[2];
  for (int i = 0; i < 2; ++i) {
    SetNumThreads(i == 0 ? 1 : 3);
    results[i] = x;
    Rotate({&table,
            PairLayout::kInterleaved,
            Positions::From(0),
            TensorView::Of(results[i].data(), {tokens, heads, dim}),
            {},
            {},
            {}});
  }
  SetNumThreads(before);
  EXPECT_EQ(results[0], results[1]);
}

}  // namespace rotate_rotate_test
}  // namespace ropewalk
