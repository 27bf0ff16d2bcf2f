// Forgetting gate and CoPE: positions that depend on content.
#include "ropewalk/relative/running.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "reference/relative.h"
#include "ropewalk/base/error.h"
#include "tests/relative/support.h"
#include "tests/support/values.h"

namespace ropewalk {
namespace running_test {

using testing::HasSubstr;
using testing::ThrowsMessage;
using Vector = std::vector<double>;

std::vector<float> Random(int64_t n, uint64_t seed) { return RandomValues<float>(n, seed); }

constexpr int64_t kHeads = 2, kModelDim = 4, kTokens = 300;

// Logits of one head, [tokens].
Vector Logits(const Vector& weight, const Vector& bias, const Vector& x, int64_t head) {
  Vector logits;
  for (int64_t t = 0; t < kTokens; ++t) {
    logits.push_back(
        reference::Dot(reference::Row(weight, head, kModelDim), reference::Row(x, t, kModelDim)) +
        bias[head]);
  }
  return logits;
}

double SumOf(const RunningForm& form, int64_t heads, int64_t head, int64_t i, int64_t j) {
  double sum = 0;
  for (int64_t l = j + 1; l <= i; ++l) sum += form.log_gates[l * heads + head];
  return sum;
}

TEST(ForgetGate, SumsOfGatesAndGradients) {
  const ForgetGateBias gate{kModelDim, Random(kHeads * kModelDim, 1), Random(kHeads, 2)};
  const std::vector<float> x = Random(kTokens * kModelDim, 3);
  const RunningForm form = gate.Lower(kHeads, x);
  CheckForm(form, kHeads, 8);
  const Vector learned[] = {ToDoubles(gate.weight), ToDoubles(gate.bias), ToDoubles(x)};
  struct Pair {
    int64_t i, j;
  };
  const Pair pairs[] = {{0, 0}, {1, 0}, {255, 0}, {256, 255}, {257, 1}, {299, 0}, {299, 298}};
  RunningForm g = form;
  std::fill(g.log_gates.begin(), g.log_gates.end(), 0.f);
  for (int64_t h = 0; h < kHeads; ++h) {
    const Vector logits = Logits(learned[0], learned[1], learned[2], h);
    for (const auto& [i, j] : pairs) {
      const double truth = reference::ForgetGate(logits, i, j);
      EXPECT_NEAR(SumOf(form, kHeads, h, i, j), truth, 1e-6 * (1 + std::abs(truth)));
      for (int64_t l = j + 1; l <= i; ++l) {
        g.log_gates[l * kHeads + h] += static_cast<float>(1 + h - .5 * j);
      }
    }
  }
  const ForgetGateBias::Gradient got = gate.Backward(g, x);
  const Vector* gradients[] = {&got.weight, &got.bias, &got.x};
  for (int which = 0; which < 3; ++which) {
    ASSERT_EQ(gradients[which]->size(), learned[which].size());
    const auto loss = [&](const Vector& changed) {
      double sum = 0;
      for (int64_t h = 0; h < kHeads; ++h) {
        const Vector logits =
            Logits(which == 0 ? changed : learned[0], which == 1 ? changed : learned[1],
                   which == 2 ? changed : learned[2], h);
        for (const auto& [i, j] : pairs) {
          sum += (1 + h - .5 * j) * reference::ForgetGate(logits, i, j);
        }
      }
      return sum;
    };
    for (std::size_t i = 0; i < learned[which].size(); i += which == 2 ? 53 : 1) {
      const double slope = Slope(loss, learned[which], i);
      EXPECT_NEAR((*gradients[which])[i], slope, 1e-5 * (1 + std::abs(slope))) << which;
    }
  }
}

// A gate that is all but open or shut: neither rounds to 0 or overflows.
TEST(ForgetGate, FarLogits) {
  const ForgetGateBias gate{1, {1}, {0}};
  const std::vector<float> x = {-1000, -80, 0, 80};
  const RunningForm form = gate.Lower(1, x);
  EXPECT_EQ(form.log_gates[0], -1000);
  EXPECT_EQ(form.log_gates[1], -80);
  EXPECT_FLOAT_EQ(form.log_gates[2], -std::log(2.f));
  EXPECT_FLOAT_EQ(form.log_gates[3], -std::exp(-80.f));
  RunningForm ones = form;
  ones.log_gates = {1, 1, 1, 1};
  const ForgetGateBias::Gradient g = gate.Backward(ones, x);
  EXPECT_NEAR(g.x[0], 1, 1e-15);
  EXPECT_NEAR(g.x[3], 0, 1e-15);
}

TEST(ForgetGate, BadInput) {
  const ForgetGateBias gate{4, Random(8, 1), Random(2, 2)};
  EXPECT_THAT([&] { gate.Lower(2, Random(7, 3)); },
              ThrowsMessage<Error>(HasSubstr("ForgetGateBias: x: expected 4 numbers, got 7")));
  EXPECT_THAT([&] { gate.Lower(2, {}); },
              ThrowsMessage<Error>(HasSubstr("tokens of x: expected 1 or more, got 0")));
  EXPECT_THAT([&] { gate.Lower(3, Random(8, 3)); },
              ThrowsMessage<Error>(HasSubstr("weight: expected 12 numbers, got 8")));
}

TEST(Cope, TheFormIsTheTable) {
  const CopeBias cope{5, 4, 1, Random(20, 1)};
  const RunningForm form = cope.Lower(3, 1048575);
  CheckForm(form, 3, 4);
  EXPECT_EQ(form.position_rows, cope.position_rows);
  EXPECT_EQ(cope.Backward(form), ToDoubles(cope.position_rows));
  // The formula that kernels are held against: gates of a half each count every second token.
  const Vector q = {0, 0, 0, 1};
  const Vector keys(40, 0.0);
  const Vector rows = ToDoubles(cope.position_rows);
  EXPECT_DOUBLE_EQ(reference::Cope(q, keys, 5, 2, 1, rows), rows[2 * 4 + 3]);
  EXPECT_DOUBLE_EQ(reference::Cope(q, keys, 5, 3, 1, rows),
                   (rows[1 * 4 + 3] + rows[2 * 4 + 3]) / 2);
  EXPECT_DOUBLE_EQ(reference::Cope(q, keys, 9, 0, 1, rows), rows[4 * 4 + 3]);
}

TEST(Cope, BadInput) {
  EXPECT_THAT(
      [] {
        (CopeBias{5, 4, 1, Random(19, 1)}.Lower(3, 9));
      },
      ThrowsMessage<Error>(HasSubstr("position_rows: expected 20 numbers, got 19")));
  EXPECT_THAT(
      [] {
        (CopeBias{5, 4, 2, Random(40, 1)}.Lower(3, 9));
      },
      ThrowsMessage<Error>(HasSubstr("CopeBias.table_heads: expected 1 or 3, got 2")));
  EXPECT_THAT(
      [] {
        (CopeBias{5, 4, 1, Random(20, 1)}.Backward({}));
      },
      ThrowsMessage<Error>(HasSubstr("expected 20 numbers, got 0")));
}

}  // namespace running_test
}  // namespace ropewalk
