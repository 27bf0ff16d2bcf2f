// Rows added to and multiplied into embeddings, and their gradients.
#include "ropewalk/absolute/combine.h"

#include "tests/absolute/support.h"

namespace ropewalk {
namespace combine_test {

TEST(CombineRows, AddsAndMultipliesEachSequence) {
  const std::size_t size = 9000;  // more than two blocks, and not whole ones
  const auto x = RandomValues<float>(3 * size, 1);
  const auto rows = RandomValues<float>(size, 2);
  auto sum = x, product = x;
  AddRows(sum, 3, rows, 0.5f);
  MultiplyRows(product, 3, rows);
  for (std::size_t i = 0; i < 3 * size; ++i) {
    ASSERT_EQ(sum[i], x[i] + 0.5f * rows[i % size]);
    ASSERT_EQ(product[i], x[i] * rows[i % size]);
  }
}

// A multiplied encoding is linear in both: <dy, MultiplyRows(x)> has the gradients dy * rows and
// dy * x exactly, up to the rounding of one product.
TEST(CombineRows, Gradients) {
  const std::size_t size = 5000;
  const auto x = RandomValues<float>(2 * size, 3), dy = RandomValues<float>(2 * size, 4);
  const auto rows = RandomValues<float>(size, 5);
  std::vector<double> d_sum(size, 1.0), d_product(size, 1.0);
  std::vector<float> dx(2 * size);
  AddRowsBackward(dy, 2, d_sum, 0.5f);
  MultiplyRowsBackward(x, dy, 2, rows, dx, d_product);
  const auto d = [](float v) { return static_cast<double>(v); };
  for (std::size_t i = 0; i < size; ++i) {
    ASSERT_NEAR(d_sum[i], 1 + 0.5 * (d(dy[i]) + d(dy[size + i])), 1e-14);
    ASSERT_NEAR(d_product[i], 1 + d(dy[i]) * d(x[i]) + d(dy[size + i]) * d(x[size + i]), 1e-13);
    ASSERT_EQ(dx[size + i], dy[size + i] * rows[i]);
  }
}

TEST(CombineRows, RefusesSizesThatDoNotFit) {
  std::vector<float> x(12), rows(5);
  std::vector<double> d_rows(6);
  ExpectRefused([&] { AddRows(x, 2, rows); }, "expected [2, 5], got 12 numbers");
  ExpectRefused([&] { MultiplyRows(x, 0, rows); }, "batch: expected 1 to 2147483648, got 0");
  ExpectRefused([&] { MultiplyRowsBackward(x, x, 2, std::span(x).first(6), rows, d_rows); }, "dx");
  ExpectRefused([&] { AddRowsBackward(x, 3, d_rows); }, "expected [3, 6]");
}

}  // namespace combine_test
}  // namespace ropewalk
