// n^2 positions from n rows: against the article's formula, where nothing may change, gradients.
#include "ropewalk/absolute/hierarchical.h"

#include "reference/absolute.h"
#include "tests/absolute/support.h"

namespace ropewalk {
namespace hierarchical_test {

std::vector<double> Doubles(const std::vector<float>& v) { return {v.begin(), v.end()}; }

// BERT's 512 rows; 131071 lies inside, and 262143 is the last of all.
TEST(Hierarchical, TheArticlesFormula) {
  const HierarchicalSpec spec = {512, 6, 0.4};
  const auto table = RandomValues<float>(512 * 6, 1);
  const std::vector<int64_t> positions = {0,   1,    255,    256,    257, 511,
                                          512, 2048, 131071, 262143, 513, 261632};
  std::vector<float> out(positions.size() * 6);
  HierarchicalRows(spec, table, positions, out);
  const auto p = Doubles(table);
  for (std::size_t t = 0; t < positions.size(); ++t) {
    for (std::size_t e = 0; e < 6; ++e) {
      const double want =
          reference::Hierarchical(p, 512, 6, 0.4, positions[t], static_cast<int64_t>(e));
      EXPECT_NEAR(static_cast<double>(out[t * 6 + e]), want, 0x1p-24 * std::abs(want) + 1e-14);
    }
  }
}

TEST(Hierarchical, TrainedRowsKeepTheirBits) {
  const auto table = RandomValues<float>(512 * 4, 2);
  std::vector<int64_t> positions(512);
  for (std::size_t i = 0; i < 512; ++i) positions[i] = static_cast<int64_t>(i);
  for (const double alpha : {0.1, 0.4, 0.6, 0.999}) {
    std::vector<float> out(512 * 4);
    HierarchicalRows({512, 4, alpha}, table, positions, out);
    EXPECT_EQ(out, table) << alpha;
  }
}

TEST(Hierarchical, GradientsByFiniteDifferences) {
  HierarchicalSpec spec = {5, 2, 0.3};
  const auto table = RandomValues<float>(10, 3);
  const std::vector<int64_t> positions = {0, 3, 5, 7, 12, 24, 24, 20};
  const auto dy = RandomValues<float>(positions.size() * 2, 4);
  const auto loss = [&](const std::vector<double>& p, double alpha) {
    double sum = 0;
    for (std::size_t i = 0; i < dy.size(); ++i) {
      sum += static_cast<double>(dy[i]) *
             reference::Hierarchical(p, 5, 2, alpha, positions[i / 2], static_cast<int64_t>(i % 2));
    }
    return sum;
  };
  std::vector<double> d_table(10, 0.0);
  const double d_alpha = HierarchicalRowsBackward(spec, table, positions, dy, d_table);
  const auto p = Doubles(table);
  EXPECT_NEAR(d_alpha, Difference([&](double a) { return loss(p, a); }, spec.alpha), 1e-7);
  for (std::size_t i = 0; i < 10; ++i) {
    const auto moved = [&](double x) {
      auto q = p;
      q[i] = x;
      return loss(q, spec.alpha);
    };
    EXPECT_NEAR(d_table[i], Difference(moved, p[i]), 1e-8) << i;
  }
}

TEST(Hierarchical, BadInput) {
  const std::vector<float> table(8);
  std::vector<float> out(2);
  const auto rows = [&](double alpha, int64_t position) {
    return [&, alpha, position] {
      HierarchicalRows({4, 2, alpha}, table, std::vector<int64_t>{position}, out);
    };
  };
  rows(0.4, 15)();
  ExpectRefused(rows(0.5, 0), "other than 0.5");
  ExpectRefused(rows(0, 0), "alpha");
  ExpectRefused(rows(NAN, 0), "alpha");
  ExpectRefused(rows(0.4, 16), "expected 0 to 15, got 16");
  ExpectRefused([&] { HierarchicalRows({3, 2, 0.4}, table, {}, {}); }, "table: expected [3, 2]");
}

}  // namespace hierarchical_test
}  // namespace ropewalk
