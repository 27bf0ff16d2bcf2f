// Rows of recurrent cells and their gradients, against PyTorch.
#include "ropewalk/absolute/recurrent.h"

#include "tests/absolute/support.h"

namespace ropewalk {
namespace recurrent_test {

void ExpectCell(RecurrentCell cell, std::size_t gates, const nlohmann::json& golden) {
  const auto start = GoldenValues(3), weight = GoldenValues(gates * 9, 2),
             input = GoldenValues(gates * 3, 3), hidden = GoldenValues(gates * 3, 4);
  const RecurrentParameters parameters = {start, weight, input, hidden};
  std::vector<float> out(7 * 3);
  RecurrentRows(cell, parameters, out);
  ExpectGolden(out, golden["out"]);
  std::vector<double> d_start(3), d_weight(gates * 9), d_input(gates * 3), d_hidden(gates * 3);
  RecurrentRowsBackward(cell, parameters, GoldenValues(21, 5),
                        {d_start, d_weight, d_input, d_hidden});
  ExpectGolden(d_start, golden["d_start"]);
  ExpectGolden(d_weight, golden["d_weight"]);
  ExpectGolden(d_input, golden["d_input_bias"]);
  ExpectGolden(d_hidden, golden["d_hidden_bias"]);
}

TEST(Recurrent, TanhIsPyTorchsRnnCell) { ExpectCell(RecurrentCell::kTanh, 1, Golden()["tanh"]); }
TEST(Recurrent, GruIsPyTorchsGruCell) { ExpectCell(RecurrentCell::kGru, 3, Golden()["gru"]); }

// A position is the same row however many are asked for, far ones too; and a contracting cell
// settles, so far positions cannot be told apart: why a generator must be trained to count.
TEST(Recurrent, FarRows) {
  const std::vector<float> start = {1}, weight = {0.5f}, zero = {0};
  const RecurrentParameters parameters = {start, weight, zero, zero};
  std::vector<float> few(258), many(1048576);
  RecurrentRows(RecurrentCell::kTanh, parameters, few);
  RecurrentRows(RecurrentCell::kTanh, parameters, many);
  double p = 1;
  for (std::size_t k = 0; k < 258; ++k) {
    EXPECT_EQ(few[k], many[k]);
    EXPECT_EQ(few[k], static_cast<float>(p)) << k;
    p = std::tanh(0.5 * p);
  }
  EXPECT_EQ(many[131071], 0);
  EXPECT_EQ(many[1048575], 0);
}

TEST(Recurrent, BadInput) {
  const std::vector<float> start(2), weight(4), bias(2);
  std::vector<float> out(4), odd(3);
  RecurrentRows(RecurrentCell::kTanh, {start, weight, bias, bias}, out);
  ExpectRefused(
      [&] {
        RecurrentRows(RecurrentCell::kGru, {start, weight, bias, bias}, out);
      },
      "weight: expected [6, 2], got 4");
  ExpectRefused(
      [&] {
        RecurrentRows(RecurrentCell::kTanh, {start, weight, bias, bias}, odd);
      },
      "out of [rows, dim]: expected [1, 2], got 3");
  ExpectRefused(
      [&] {
        RecurrentRows(RecurrentCell::kTanh, {{}, weight, bias, bias}, out);
      },
      "the size of start");
  ExpectRefused(
      [&] {
        RecurrentRows(RecurrentCell::kTanh, {start, weight, {}, bias}, out);
      },
      "input_bias: expected [2], got 0");
}

}  // namespace recurrent_test
}  // namespace ropewalk
