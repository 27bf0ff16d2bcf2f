// Tables of learned positions: rows, resizing as PyTorch does it, gradients.
#include "ropewalk/absolute/learned.h"

#include "tests/absolute/support.h"

namespace ropewalk {
namespace learned_test {

ResizeKernel Kernel(const std::string& mode) {
  return mode == "bicubic" ? ResizeKernel::kCubic : ResizeKernel::kLinear;
}

TEST(LearnedPositions, LookUpAndItsGradient) {
  const auto table = RandomValues<float>(514 * 3, 1);
  // L = 512 rows after two in front, as OPT keeps them; positions repeat.
  const std::vector<int64_t> positions = {0, 1, 255, 256, 257, 511, 256};
  std::vector<float> out(7 * 3);
  LookUpRows(table, 3, positions, out, 2);
  for (std::size_t t = 0; t < 7; ++t) {
    for (std::size_t e = 0; e < 3; ++e) {
      EXPECT_EQ(out[t * 3 + e], table[static_cast<std::size_t>(positions[t] + 2) * 3 + e]);
    }
  }
  std::vector<double> d_table(514 * 3, 0.5);
  LookUpRowsBackward(out, 3, positions, d_table, 2);
  EXPECT_EQ(d_table[0], 0.5);
  EXPECT_EQ(d_table[3 * 3], 0.5 + static_cast<double>(out[3]));  // position 1
  EXPECT_EQ(d_table[258 * 3 + 2], 0.5 + 2 * static_cast<double>(out[3 * 3 + 2]));
}

TEST(ResizeTable, IsPyTorchsInterpolate) {
  int cases = 0;
  for (const auto& golden : Golden()["resize"]) {
    ResizeSpec spec;
    spec.from = golden["from"].get<std::vector<int64_t>>();
    spec.to = golden["to"].get<std::vector<int64_t>>();
    spec.dim = golden["dim"];
    spec.kernel = Kernel(golden["mode"]);
    spec.antialias = golden["antialias"];
    SCOPED_TRACE(golden["mode"].get<std::string>() + (spec.antialias ? " antialias " : " ") +
                 golden["from"].dump() + golden["to"].dump());
    std::size_t from = 2;
    for (const int64_t n : spec.from) from *= static_cast<std::size_t>(n);
    const std::vector<float> out = ResizeTable(spec, GoldenValues(from));
    ExpectGolden(out, golden["out"]);
    std::vector<double> d_table(from, 0.0);
    ResizeTableBackward(spec, GoldenValues(out.size(), 5), d_table);
    ExpectGolden(d_table, golden["d_table"]);
    ++cases;
  }
  EXPECT_EQ(cases, 20);
}

TEST(ResizeTable, KeepsTheClassToken) {
  ResizeSpec spec;
  spec.from = {4, 4};
  spec.to = {6, 3};
  spec.dim = 3;
  spec.prefix_rows = 1;
  spec.kernel = ResizeKernel::kCubic;
  const auto table = GoldenValues(17 * 3);
  const auto out = ResizeTable(spec, table);
  ExpectGolden(out, Golden()["vit"]["out"]);
  EXPECT_TRUE(std::equal(out.begin(), out.begin() + 3, table.begin()));
  std::vector<double> d_table(17 * 3, 0.0);
  ResizeTableBackward(spec, out, d_table);
  EXPECT_EQ(d_table[1], static_cast<double>(out[1]));
  // <y, R x> = <R^T y, x> for the whole of it.
  double left = 0, right = 0;
  for (const float y : out) left += static_cast<double>(y) * static_cast<double>(y);
  for (std::size_t i = 0; i < table.size(); ++i) {
    right += d_table[i] * static_cast<double>(table[i]);
  }
  EXPECT_NEAR(left, right, 1e-6 * left);
}

TEST(ResizeTable, SameSizeIsTheTable) {
  const auto table = RandomValues<float>(512 * 4, 3);
  for (const auto kernel : {ResizeKernel::kLinear, ResizeKernel::kCubic}) {
    for (const bool antialias : {false, true}) {
      ResizeSpec spec;
      spec.from = spec.to = {512};
      spec.dim = 4;
      spec.kernel = kernel;
      spec.antialias = antialias;
      EXPECT_EQ(ResizeTable(spec, table), table);
    }
  }
}

// BERT's 512 rows to 4 times as many, at the positions where short tests see nothing: row i of the
// result stands at (i + 1/2) / 4 - 1/2 of the table.
TEST(ResizeTable, FarRowsOfALongTable) {
  const int64_t n = 32768, to = 4 * n;  // rows 0 .. 131071
  std::vector<float> table(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i);
  ResizeSpec spec;
  spec.from = {n};
  spec.to = {to};
  spec.dim = 1;
  const auto out = ResizeTable(spec, table);
  for (const int64_t i : {int64_t{255}, int64_t{256}, int64_t{257}, n - 1, n, n + 1, to - 4}) {
    EXPECT_EQ(out[static_cast<std::size_t>(i)],
              static_cast<float>((static_cast<double>(i) + 0.5) / 4 - 0.5));
  }
  EXPECT_EQ(out[0], 0.0f);
  EXPECT_EQ(out[131071], 32767.0f);
}

TEST(LearnedPositions, BadInput) {
  const std::vector<float> table(12);
  std::vector<float> out(3);
  const auto look_up = [&](int64_t dim, int64_t position, int64_t offset) {
    return [&, dim, position, offset] {
      LookUpRows(table, dim, std::vector<int64_t>{position}, out, offset);
    };
  };
  ExpectRefused(look_up(3, 4, 0), "expected 0 to 3, got 4 at 0; resize the table");
  ExpectRefused(look_up(3, 2, 2), "expected 0 to 1, got 2");
  ExpectRefused(look_up(3, -1, 0), "got -1");
  ExpectRefused(look_up(5, 0, 0), "table: expected [rows, 5], got 12 numbers");
  ExpectRefused(look_up(2, 0, 0), "out: expected [1, 2], got 3");
  ExpectRefused(look_up(3, 0, -1), "offset");
  ResizeSpec spec;
  spec.from = {2, 2};
  spec.to = {4};
  spec.dim = 3;
  ExpectRefused([&] { ResizeTable(spec, table); }, "to: expected 2 sizes as from has, got 1");
  spec.to = {4, 0};
  ExpectRefused([&] { ResizeTable(spec, table); }, "to: expected 1 to 1048576, got 0");
  spec.to = {4, 1};
  spec.prefix_rows = 1;
  ExpectRefused([&] { ResizeTable(spec, table); }, "expected [5, 3], got 12 numbers");
  spec.from = {};
  ExpectRefused([&] { ResizeTable(spec, table); }, "axes of from");
}

}  // namespace learned_test
}  // namespace ropewalk
