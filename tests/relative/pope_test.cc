// PoPE: vectors whose product is the paper's score.
#include "ropewalk/relative/pope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "reference/relative.h"
#include "ropewalk/base/error.h"
#include "tests/relative/support.h"
#include "tests/support/values.h"

namespace ropewalk {
namespace pope_test {

using testing::HasSubstr;
using testing::ThrowsMessage;
using Vector = std::vector<double>;

constexpr int64_t kHeads = 2, kHeadDim = 6;

struct Sample {
  std::vector<int64_t> positions;
  std::vector<float> q, k;  // [positions, heads, head_dim]
  PopeEncoding queries{kHeads, kHeadDim}, keys{kHeads, kHeadDim};
};

Sample MakeSample() {
  Sample s;
  s.positions = Distances(4096);
  const std::size_t n = s.positions.size() * kHeads * kHeadDim;
  s.q = RandomValues<float>(n, 1);
  s.k = RandomValues<float>(n, 2);
  s.k[0] = 90;  // where e^x has no float
  s.k[1] = -90;
  s.keys.phase = RandomValues<float>(kHeads * kHeadDim, 3);
  for (float& p : s.keys.phase) p = -std::abs(p);
  s.keys.phase[0] = 1;  // clipped on either side
  s.keys.phase[1] = -9;
  return s;
}

std::span<const double> Head(const Vector& x, std::size_t token, int64_t head) {
  return reference::Row(x, static_cast<int64_t>(token) * kHeads + head, kHeadDim);
}

double Truth(const Sample& s, const Vector& q, const Vector& k, const Vector& phase, int64_t head,
             std::size_t i, std::size_t j) {
  return reference::Pope(Head(q, i, head), Head(k, j, head), reference::Row(phase, head, kHeadDim),
                         s.positions[i], s.positions[j], 10000);
}

TEST(Pope, ProductsOfVectorsAreTheScore) {
  const Sample s = MakeSample();
  const Vector q = ToDoubles(s.queries.Encode(s.q, s.positions));
  const Vector k = ToDoubles(s.keys.Encode(s.k, s.positions));
  ASSERT_EQ(q.size(), 2 * s.q.size());
  for (std::size_t i = 0; i < s.positions.size(); ++i) {
    for (std::size_t j = 0; j < s.positions.size(); ++j) {
      for (int64_t h = 0; h < kHeads; ++h) {
        const auto row = [&](const Vector& x, std::size_t t) {
          return reference::Row(x, static_cast<int64_t>(t) * kHeads + h, 2 * kHeadDim);
        };
        const double truth =
            Truth(s, ToDoubles(s.q), ToDoubles(s.k), ToDoubles(s.keys.phase), h, i, j);
        // Six products of rounded numbers, the largest of them about 90.
        EXPECT_NEAR(reference::Dot(row(q, i), row(k, j)), truth, j == 0 ? 1e-4 : 3e-6);
      }
    }
  }
}

TEST(Pope, Gradients) {
  const Sample s = MakeSample();
  const std::vector<float> q = s.queries.Encode(s.q, s.positions);
  const std::vector<float> k = s.keys.Encode(s.k, s.positions);
  const auto weight = [](std::size_t i, std::size_t j) { return .1 + .01 * i - .02 * j; };
  std::vector<float> d_q(q.size());
  std::vector<float> d_k(k.size());
  const std::size_t tokens = s.positions.size();
  const std::size_t width = 2 * kHeads * kHeadDim;
  for (std::size_t i = 0; i < tokens; ++i) {
    for (std::size_t j = 0; j < tokens; ++j) {
      for (std::size_t e = 0; e < width; ++e) {
        d_q[i * width + e] += static_cast<float>(weight(i, j)) * k[j * width + e];
        d_k[j * width + e] += static_cast<float>(weight(i, j)) * q[i * width + e];
      }
    }
  }
  const PopeEncoding::Gradient of_q = s.queries.Backward(s.q, s.positions, d_q);
  const PopeEncoding::Gradient of_k = s.keys.Backward(s.k, s.positions, d_k);
  const auto loss = [&](const Vector& xq, const Vector& xk, const Vector& phase) {
    double sum = 0;
    for (std::size_t i = 0; i < tokens; ++i) {
      for (std::size_t j = 0; j < tokens; ++j) {
        for (int64_t h = 0; h < kHeads; ++h) {
          sum += weight(i, j) * Truth(s, xq, xk, phase, h, i, j);
        }
      }
    }
    return sum;
  };
  const Vector xq = ToDoubles(s.q);
  const Vector xk = ToDoubles(s.k);
  const Vector phase = ToDoubles(s.keys.phase);
  EXPECT_TRUE(of_q.phase.empty());
  for (std::size_t i = 0; i < xq.size(); i += 5) {
    const double by_q = Slope([&](const Vector& x) { return loss(x, xk, phase); }, xq, i);
    const double by_k = Slope([&](const Vector& x) { return loss(xq, x, phase); }, xk, i);
    EXPECT_NEAR(of_q.x[i], by_q, 1e-4 * (1 + std::abs(by_q)));
    EXPECT_NEAR(of_k.x[i], by_k, 1e-4 * (1 + std::abs(by_k)));
  }
  for (std::size_t i = 0; i < phase.size(); ++i) {
    const double slope = Slope([&](const Vector& x) { return loss(xq, xk, x); }, phase, i);
    EXPECT_NEAR(of_k.phase[i], slope, 1e-4 * (1 + std::abs(slope))) << i;
  }
  EXPECT_EQ(of_k.phase[0], 0);
  EXPECT_EQ(of_k.phase[1], 0);
}

TEST(Pope, BadInput) {
  const PopeEncoding pope{2, 3};
  EXPECT_THAT([&] { pope.Encode(std::vector<float>(5), std::vector<int64_t>{1}); },
              ThrowsMessage<Error>(HasSubstr("PopeEncoding: x: expected 6 numbers, got 5")));
  EXPECT_THAT([&] { pope.Encode(std::vector<float>(6), std::vector<int64_t>{-1}); },
              ThrowsMessage<Error>(HasSubstr("positions: expected 0 to 2^31 - 1, got -1")));
  EXPECT_THAT(
      [&] { pope.Backward(std::vector<float>(6), std::vector<int64_t>{1}, std::vector<float>(6)); },
      ThrowsMessage<Error>(HasSubstr("d_out: expected 12 numbers, got 6")));
  EXPECT_THAT(
      [] {
        (PopeEncoding{2, 3, 1e4, {1}}.Encode({}, {}));
      },
      ThrowsMessage<Error>(HasSubstr("PopeEncoding.phase: expected 6 numbers, got 1")));
}

}  // namespace pope_test
}  // namespace ropewalk
