// Paths of differential equations: sinusoids are one of them, within the error that is stated; the
// order of the method; gradients by finite differences of the method typed again.
#include "ropewalk/absolute/floater.h"

#include <algorithm>

#include "reference/absolute.h"
#include "ropewalk/absolute/sinusoidal.h"
#include "tests/absolute/support.h"

namespace ropewalk {
namespace floater_test {

Sinusoidal Paper(int64_t dim) {
  SinusoidalSpec spec(SinusoidalLayout::kInterleaved);
  spec.dim = dim;
  return Sinusoidal(spec);
}

struct Errors {
  double stated, real;
};

// A turning field from (0, 1) on against exact sinusoids, position k at time k.
Errors SinusoidErrors(int64_t dim, int64_t rows, int64_t substeps) {
  const Sinusoidal sinusoidal = Paper(dim);
  const TurningField field(sinusoidal.frequencies());
  std::vector<float> start, path(static_cast<std::size_t>(rows * dim)), want(path.size());
  for (int64_t i = 0; i < dim; ++i) start.push_back(static_cast<float>(i % 2));
  Errors errors = {FloaterRows(field, {1, substeps}, start, path), 0};
  sinusoidal.Rows(0, want);
  for (std::size_t i = 0; i < path.size(); ++i) {
    errors.real = std::max(errors.real,
                           std::abs(static_cast<double>(path[i]) - static_cast<double>(want[i])));
  }
  return errors;
}

// 4 L positions of L = 512: no further from the sinusoids than stated and float32's rounding.
TEST(Floater, SinusoidsAreASolution) {
  const Errors errors = SinusoidErrors(16, 2049, 128);
  EXPECT_LT(errors.stated, 1e-7);
  EXPECT_LE(errors.real, 1.2 * errors.stated + 0x1p-24);
}

// Where float32 does not hide it, the statement is the error itself: within a fifth.
TEST(Floater, StatedErrorIsTheError) {
  for (const int64_t substeps : {4, 8, 16}) {
    const Errors errors = SinusoidErrors(4, 513, substeps);
    EXPECT_NEAR(errors.stated / errors.real, 1, 0.2) << substeps;
  }
  const Errors far = SinusoidErrors(2, 131072, 16);  // to position 131071
  EXPECT_GT(far.real, 1e-3);
  EXPECT_NEAR(far.stated / far.real, 1, 0.2);
  const Errors farther = SinusoidErrors(2, 1048576, 32);  // to position 1048575
  EXPECT_GT(farther.real, 1e-3);
  EXPECT_NEAR(farther.stated / farther.real, 1, 0.2);
}

TEST(Floater, MethodOfOrderFour) {
  const double two = SinusoidErrors(2, 257, 8).real, one = SinusoidErrors(2, 257, 16).real;
  EXPECT_NEAR(std::log2(two / one), 4, 0.1);
}

TEST(Floater, NetworkAgainstReference) {
  const int64_t dim = 3, hidden = 4, rows = 6;
  const auto values = RandomValues<float>(35, 1), start = RandomValues<float>(3, 2);
  const TanhField field(dim, hidden, values);
  std::vector<float> out(18);
  const double stated = FloaterRows(field, {0.5, 4}, start, out);
  const std::vector<double> v(values.begin(), values.end()), p(start.begin(), start.end());
  const auto want = reference::TanhPath(v, p, 4, 0.5, 4, rows);
  const auto exact = reference::TanhPath(v, p, 4, 0.5, 512, rows);
  double real = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(out[i]), want[i], 0x1p-24 * std::abs(want[i]) + 1e-14);
    real = std::max(real, std::abs(exact[i] - want[i]));
  }
  EXPECT_GT(stated, real / 3);
  EXPECT_LT(stated, real * 3);
}

TEST(Floater, GradientsByFiniteDifferences) {
  const int64_t hidden = 4, rows = 5;
  const auto values = RandomValues<float>(35, 1), start = RandomValues<float>(3, 2),
             dy = RandomValues<float>(15, 3);
  const TanhField field(3, hidden, values);
  std::vector<double> d_start(3, 0.0), gradient(35, 0.0);
  FloaterRowsBackward(field, {0.5, 4}, start, dy, d_start, gradient);
  std::vector<double> all(values.begin(), values.end());
  all.insert(all.end(), start.begin(), start.end());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto loss = [&](double x) {
      auto moved = all;
      moved[i] = x;
      const std::vector<double> v(moved.begin(), moved.begin() + 35),
          p(moved.begin() + 35, moved.end());
      const auto path = reference::TanhPath(v, p, 4, 0.5, 4, rows);
      double sum = 0;
      for (std::size_t k = 0; k < path.size(); ++k) sum += path[k] * static_cast<double>(dy[k]);
      return sum;
    };
    const double want = Difference(loss, all[i]);
    EXPECT_NEAR(i < 35 ? gradient[i] : d_start[i - 35], want, 1e-7 * (1 + std::abs(want))) << i;
  }
}

// The gradient of a frequency of the turning field is that of the sinusoidal encoding.
TEST(Floater, FrequencyGradientIsTheSinusoids) {
  const Sinusoidal sinusoidal = Paper(6);
  const TurningField field(sinusoidal.frequencies());
  const std::vector<float> start = {0, 1, 0, 1, 0, 1};
  const auto dy = RandomValues<float>(33 * 6, 4);
  std::vector<double> d_start(6, 0.0), got(3, 0.0), want(3, 0.0);
  FloaterRowsBackward(field, {1, 32}, start, dy, d_start, got);
  sinusoidal.FrequencyGradient(dy, 1, 0, want);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(got[i], want[i], 1e-4 * (1 + std::abs(want[i])));
}

TEST(Floater, BadInput) {
  const TurningField field(std::vector<DoubleDouble>{{1, 0}});
  const std::vector<float> start = {0, 1};
  std::vector<float> out(4), odd(3);
  const auto run = [&](double spacing, int64_t substeps) {
    return [&, spacing, substeps] { FloaterRows(field, {spacing, substeps}, start, out); };
  };
  run(0.1, 2)();
  ExpectRefused(run(0, 2), "spacing: expected a positive time");
  ExpectRefused(run(0.1, 3), "substeps: expected an even number");
  ExpectRefused(run(0.1, 0), "substeps: expected 2 to");
  ExpectRefused([&] { FloaterRows(field, {}, odd, out); }, "start: expected [2], got 3");
  ExpectRefused([&] { FloaterRows(field, {}, start, odd); }, "out of [rows, dim]");
  ExpectRefused([] { TanhField(2, 3, std::vector<float>(5)); }, "values of W, u, b, V, c");
  // Turning far more than a step can follow grows without bound.
  std::vector<float> path(4000);
  const TurningField fast(std::vector<DoubleDouble>{{1e5, 0}});
  ExpectRefused([&] { FloaterRows(fast, {1, 2}, start, path); }, "leaves the finite numbers");
}

}  // namespace floater_test
}  // namespace ropewalk
