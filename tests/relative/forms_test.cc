// CheckForm: what a kernel may rely on.
#include "ropewalk/relative/forms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ropewalk/base/error.h"

namespace ropewalk {
namespace forms_test {

using testing::HasSubstr;

void ExpectRefused(const ScoreForm& form, const std::string& words) {
  EXPECT_THAT([&] { CheckForm(form, 2, 4); }, testing::ThrowsMessage<Error>(HasSubstr(words)));
}

TEST(Forms, SizesAndNumbersOfSlopesAndDistances) {
  EXPECT_NO_THROW(CheckForm(SlopeForm{{1, 2}, {}}, 2, 4));
  ExpectRefused(SlopeForm{{1}, {}}, "SlopeForm.behind: expected 2 numbers, got 1");
  ExpectRefused(SlopeForm{{1, 2}, {1}}, "SlopeForm.ahead: expected 2 numbers, got 1");
  ExpectRefused(SlopeForm{{1, NAN}, {}}, "expected finite numbers, got nan at 1");
  EXPECT_NO_THROW(CheckForm(DistanceForm{-1, 3, std::vector<float>(6)}, 2, 4));
  ExpectRefused(DistanceForm{-1, 3, std::vector<float>(5)},
                "DistanceForm.values: expected 6 numbers, got 5");
  ExpectRefused(DistanceForm{0, 0, {}}, "DistanceForm.columns: expected 1 or more, got 0");
}

TEST(Forms, RowsOfContent) {
  ContentForm form;
  form.row_of = {0, 1, 1};
  form.rows = 2;
  form.head_dim = 4;
  form.query_rows.resize(8);
  EXPECT_NO_THROW(CheckForm(form, 2, 4));
  EXPECT_THAT([&] { CheckForm(form, 2, 8); },
              testing::ThrowsMessage<Error>(HasSubstr("head_dim: expected 8, got 4")));
  form.row_of = {0, 2};
  ExpectRefused(form, "ContentForm.row_of: expected rows below 2, got 2");
  form.row_of.clear();
  ExpectRefused(form, "ContentForm.row_of: expected at least one row");
  form.row_of = {0};
  form.table_heads = 2;
  ExpectRefused(form, "ContentForm.query_rows: expected 16 numbers, got 8");
  form.table_heads = 3;
  ExpectRefused(form, "ContentForm.table_heads: expected 1 or 2, got 3");
}

TEST(Forms, RunningAndPairs) {
  ExpectRefused(PairForm{}, "PairForm.function: expected a function, got null");
  RunningForm form;
  form.log_gates = {-1, -1, -1};
  ExpectRefused(form, "RunningForm.log_gates: expected a number for each token");
  form.log_gates = {-1, -1, -1, -INFINITY};
  ExpectRefused(form, "expected finite numbers, got -inf at 3");
  form.kind = RunningForm::Kind::kContextual;
  ExpectRefused(form, "RunningForm.rows: expected 1 or more, got 0");
}

}  // namespace forms_test
}  // namespace ropewalk
