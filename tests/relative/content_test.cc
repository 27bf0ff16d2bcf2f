// Shaw, Transformer-XL and DeBERTa: products of content with rows chosen by distance.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "reference/relative.h"
#include "ropewalk/base/error.h"
#include "ropewalk/relative/deberta.h"
#include "ropewalk/relative/shaw.h"
#include "ropewalk/relative/transformer_xl.h"
#include "tests/relative/support.h"
#include "tests/support/values.h"

namespace ropewalk {
namespace content_test {

using testing::HasSubstr;
using testing::ThrowsMessage;
using Vector = std::vector<double>;

std::vector<float> Random(int64_t n, uint64_t seed) { return RandomValues<float>(n, seed); }

Vector RandomDoubles(int64_t n, uint64_t seed) { return ToDoubles(Random(n, seed)); }

std::vector<int64_t> BothSides(int64_t length) {
  std::vector<int64_t> all;
  for (const int64_t d : Distances(length)) {
    all.push_back(d);
    all.push_back(-d);
  }
  return all;
}

// What a kernel adds to the form's gradient for d(loss) / d(bias) = g at one pair.
void AddGradient(ContentForm& d, const ContentForm& form, int64_t head, int64_t distance,
                 const Vector& q, const Vector& k, double g) {
  const int64_t table = form.table_heads == 1 ? 0 : head;
  const int64_t row = (table * form.rows + RowOf(form, distance)) * form.head_dim;
  for (int64_t e = 0; e < form.head_dim; ++e) {
    const int64_t own = head * form.head_dim + e;
    const double v = form.query_bias.empty() ? 0 : form.query_bias[own];
    if (!form.query_rows.empty()) d.query_rows[row + e] += static_cast<float>(g * (q[e] + v));
    if (!form.key_rows.empty()) d.key_rows[row + e] += static_cast<float>(g * k[e]);
    if (!form.query_bias.empty()) {
      d.query_bias[own] += static_cast<float>(g * form.query_rows[row + e]);
    }
    if (!form.key_bias.empty()) d.key_bias[own] += static_cast<float>(g * k[e]);
  }
}

ContentForm Zero(ContentForm form) {
  for (auto* v :
       {&form.query_rows, &form.key_rows, &form.value_rows, &form.query_bias, &form.key_bias}) {
    std::fill(v->begin(), v->end(), 0.f);
  }
  return form;
}

TEST(Shaw, RowsOnBothSidesOfEveryLimit) {
  const Vector q = RandomDoubles(8, 1);
  for (const int64_t table_heads : {1, 3}) {
    for (const auto& [left, right] : {std::pair<int64_t, int64_t>{4, 4}, {7, 2}, {0, 5}, {3, 0}}) {
      const int64_t size = table_heads * (left + right + 1) * 8;
      const ShawBias shaw{left, right, 8, table_heads, Random(size, 2), Random(size, 3)};
      const ContentForm form = shaw.Lower(3, 4096);
      CheckForm(form, 3, 8);
      std::vector<int64_t> distances = BothSides(4096);
      for (int64_t d = -10; d <= 10; ++d) distances.push_back(d);
      for (const int64_t d : distances) {
        const int64_t row = reference::ShawRow(d, left, right);
        ASSERT_EQ(RowOf(form, d), row) << d << " of " << left << ", " << right;
        const Vector rows = ToDoubles(shaw.key_rows);
        const int64_t table = table_heads == 1 ? 0 : 2;
        const double truth =
            .5 * reference::Dot(q, reference::Row(rows, table * form.rows + row, 8));
        EXPECT_NEAR(BiasOf(form, 2, d, q.data(), q.data(), .5), truth, 1e-12);
      }
      EXPECT_EQ(form.value_rows, shaw.value_rows);
      const ShawBias::Gradient g = shaw.Backward(form);
      EXPECT_EQ(g.key_rows, ToDoubles(shaw.key_rows));
      EXPECT_EQ(g.value_rows, ToDoubles(shaw.value_rows));
    }
  }
}

TEST(Shaw, SinusoidalRowsMeetByTheirDifference) {
  const std::vector<float> rows = ShawSinusoidalRows(3, 4, 6);
  ASSERT_EQ(rows.size(), 8u * 6);
  for (int64_t r = 0; r < 8; ++r) {
    for (int64_t i = 0; i < 3; ++i) {
      const double angle = static_cast<double>(r - 3) / std::pow(10000.0, 2.0 * i / 6);
      EXPECT_NEAR(rows[r * 6 + 2 * i], std::sin(angle), 1e-7);
      EXPECT_NEAR(rows[r * 6 + 2 * i + 1], std::cos(angle), 1e-7);
    }
  }
}

// NEZHA's published code counts rows from 0.
TEST(Shaw, SinusoidalRowsFromAnotherPosition) {
  const std::vector<float> rows = ShawSinusoidalRows(64, 64, 6, 0);
  ASSERT_EQ(rows.size(), 129u * 6);
  for (const int64_t r : {0, 1, 63, 64, 65, 127, 128}) {
    for (int64_t i = 0; i < 3; ++i) {
      const double angle = static_cast<double>(r) / std::pow(10000.0, 2.0 * i / 6);
      EXPECT_NEAR(rows[r * 6 + 2 * i], std::sin(angle), 1e-7);
      EXPECT_NEAR(rows[r * 6 + 2 * i + 1], std::cos(angle), 1e-7);
    }
  }
  EXPECT_EQ(ShawSinusoidalRows(3, 4, 6, -3), ShawSinusoidalRows(3, 4, 6));
}

TEST(Shaw, BadInput) {
  EXPECT_THAT(
      [] {
        (ShawBias{2, 2, 4}.Lower(1, 9));
      },
      ThrowsMessage<Error>(HasSubstr("expected key_rows, value_rows or both")));
  EXPECT_THAT(
      [] {
        (ShawBias{-1, 2, 4, 1, Random(8, 1)}.Lower(1, 9));
      },
      ThrowsMessage<Error>(HasSubstr("ShawBias.left: expected 0 or more, got -1")));
  EXPECT_THAT(
      [] {
        (ShawBias{2, 2, 4, 1, Random(19, 1)}.Lower(1, 9));
      },
      ThrowsMessage<Error>(HasSubstr("ShawBias.key_rows: expected 20 numbers, got 19")));
  EXPECT_THAT(
      [] {
        (ShawBias{2, 2, 4, 2, Random(40, 1)}.Lower(3, 9));
      },
      ThrowsMessage<Error>(HasSubstr("ShawBias.table_heads: expected 1 or 3, got 2")));
  EXPECT_THAT([] { ShawSinusoidalRows(2, 2, 5); }, ThrowsMessage<Error>(HasSubstr("even number")));
}

constexpr int64_t kHeads = 2, kHeadDim = 4, kModelDim = 6;

TransformerXlBias MakeXl(bool causal, int64_t clamp) {
  return {kModelDim,
          kHeadDim,
          causal,
          clamp,
          Random(kHeads * kHeadDim * kModelDim, 5),
          Random(kHeads * kHeadDim, 6),
          Random(kHeads * kHeadDim, 7)};
}

double XlTruth(const Vector& projection, const Vector& u, const Vector& v, int64_t head,
               int64_t distance, const Vector& q, const Vector& k) {
  const int64_t own = head * kHeadDim;
  return reference::TransformerXl(
      q, k, distance, std::span(projection).subspan(own * kModelDim, kHeadDim * kModelDim),
      std::span(u).subspan(own, kHeadDim), std::span(v).subspan(own, kHeadDim), kModelDim);
}

TEST(TransformerXl, FourTermsNearAndFar) {
  const Vector q = RandomDoubles(kHeadDim, 1);
  const Vector k = RandomDoubles(kHeadDim, 2);
  for (const bool causal : {true, false}) {
    for (const int64_t clamp : {0, 100}) {
      const TransformerXlBias xl = MakeXl(causal, clamp);
      const ContentForm form = xl.Lower(kHeads, 1048575);
      CheckForm(form, kHeads, kHeadDim);
      EXPECT_EQ(form.rows, clamp > 0 ? (causal ? 101 : 201) : (causal ? 1048576 : 2097151));
      for (const int64_t d : BothSides(512)) {
        if (causal && d < 0) continue;
        const int64_t clamped = clamp > 0 ? std::clamp(d, -clamp, clamp) : d;
        for (int64_t h = 0; h < kHeads; ++h) {
          const double truth = XlTruth(ToDoubles(xl.projection), ToDoubles(xl.content_bias),
                                       ToDoubles(xl.position_bias), h, clamped, q, k);
          EXPECT_NEAR(BiasOf(form, h, d, q.data(), k.data(), .5), .5 * truth, 2e-6) << d;
        }
      }
    }
  }
}

TEST(TransformerXl, Gradients) {
  const Vector q = RandomDoubles(kHeadDim, 1);
  const Vector k = RandomDoubles(kHeadDim, 2);
  const TransformerXlBias xl = MakeXl(false, 0);
  const ContentForm form = xl.Lower(kHeads, 300);
  ContentForm g = Zero(form);
  const int64_t distances[] = {-300, -257, -1, 0, 1, 2, 255, 256, 300};
  for (const int64_t d : distances) {
    for (int64_t h = 0; h < kHeads; ++h) AddGradient(g, form, h, d, q, k, 1 + .01 * d + h);
  }
  const TransformerXlBias::Gradient got = xl.Backward(g);
  const auto loss = [&](const Vector& w, const Vector& u, const Vector& v) {
    double sum = 0;
    for (const int64_t d : distances) {
      for (int64_t h = 0; h < kHeads; ++h) {
        sum += (1 + .01 * d + h) * XlTruth(w, u, v, h, d, q, k);
      }
    }
    return sum;
  };
  const Vector w = ToDoubles(xl.projection);
  const Vector u = ToDoubles(xl.content_bias);
  const Vector v = ToDoubles(xl.position_bias);
  for (std::size_t i = 0; i < w.size(); ++i) {
    EXPECT_NEAR(got.projection[i], Slope([&](const Vector& x) { return loss(x, u, v); }, w, i),
                1e-5);
  }
  for (std::size_t i = 0; i < u.size(); ++i) {
    EXPECT_NEAR(got.content_bias[i], Slope([&](const Vector& x) { return loss(w, x, v); }, u, i),
                1e-5);
    EXPECT_NEAR(got.position_bias[i], Slope([&](const Vector& x) { return loss(w, u, x); }, v, i),
                1e-5);
  }
}

TEST(TransformerXl, BadInput) {
  TransformerXlBias xl = MakeXl(true, 0);
  EXPECT_THAT([&] { xl.Lower(3, 9); },
              ThrowsMessage<Error>(HasSubstr("projection: expected 72 numbers, got 48")));
  xl.model_dim = 5;
  EXPECT_THAT([&] { xl.Lower(2, 9); },
              ThrowsMessage<Error>(HasSubstr("model_dim: expected an even number")));
  EXPECT_THAT([] { MakeXl(true, 0).Backward({}); },
              ThrowsMessage<Error>(HasSubstr("gradient.rows: expected 1 or more, got 0")));
}

DebertaBias MakeDeberta(int64_t buckets, int64_t max_position, bool c2p, bool p2c) {
  DebertaBias deberta{buckets, max_position, kModelDim, kHeadDim};
  deberta.embedding = Random(2 * deberta.Span() * kModelDim, 1);
  const int64_t width = kHeads * kHeadDim;
  if (c2p) {
    deberta.key_projection = Random(width * kModelDim, 2);
    deberta.key_projection_bias = Random(width, 3);
  }
  if (p2c) {
    deberta.query_projection = Random(width * kModelDim, 4);
    if (c2p) deberta.query_projection_bias = Random(width, 5);
  }
  return deberta;
}

// q . (E_r W_K + b_K) + k . (E_r W_Q + b_Q) of one head.
double DebertaTruth(const DebertaBias& deberta, const std::vector<Vector>& learned, int64_t head,
                    int64_t distance, const Vector& q, const Vector& k) {
  const int64_t row = reference::DebertaRow(distance, deberta.buckets, deberta.max_position);
  const auto e = reference::Row(learned[0], row, kModelDim);
  double sum = 0;
  for (const int term : {0, 1}) {
    const Vector& w = learned[1 + 2 * term];
    if (w.empty()) continue;
    const Vector x = reference::Linear(w, learned[2 + 2 * term], e);
    sum += reference::Dot(term == 0 ? q : k, reference::Row(x, head, kHeadDim));
  }
  return sum;
}

std::vector<Vector> Learned(const DebertaBias& d) {
  return {ToDoubles(d.embedding), ToDoubles(d.key_projection), ToDoubles(d.key_projection_bias),
          ToDoubles(d.query_projection), ToDoubles(d.query_projection_bias)};
}

TEST(Deberta, RowsOnBothSidesOfEveryBoundary) {
  for (const auto& [buckets, max_position] :
       {std::pair<int64_t, int64_t>{256, 512}, {32, 512}, {8, 16}, {4, 12}, {0, 64}, {0, 512}}) {
    const DebertaBias deberta{buckets, max_position, 2, 4};
    std::vector<int64_t> distances = BothSides(512);
    for (int64_t d = -1100; d <= 1100; ++d) distances.push_back(d);
    for (const int64_t d : distances) {
      ASSERT_EQ(deberta.Row(d), reference::DebertaRow(d, buckets, max_position))
          << d << " of " << buckets << " to " << max_position;
    }
  }
}

TEST(Deberta, TermsNearAndFarAndGradients) {
  const Vector q = RandomDoubles(kHeadDim, 11);
  const Vector k = RandomDoubles(kHeadDim, 12);
  for (const int terms : {1, 2, 3}) {
    for (const int64_t buckets : {0, 8}) {
      const DebertaBias deberta = MakeDeberta(buckets, 20, (terms & 1) != 0, (terms & 2) != 0);
      const ContentForm form = deberta.Lower(kHeads, 1048575);
      CheckForm(form, kHeads, kHeadDim);
      EXPECT_LE(form.row_of.size(), 41u);
      EXPECT_DOUBLE_EQ(deberta.Scale(), 1 / std::sqrt((terms == 3 ? 3. : 2.) * kHeadDim));
      const std::vector<Vector> learned = Learned(deberta);
      ContentForm g = Zero(form);
      for (const int64_t d : BothSides(20)) {
        for (int64_t h = 0; h < kHeads; ++h) {
          const double truth = DebertaTruth(deberta, learned, h, d, q, k);
          EXPECT_NEAR(BiasOf(form, h, d, q.data(), k.data(), .25), .25 * truth, 5e-6) << d;
          AddGradient(g, form, h, d, q, k, d % 3 + h + .5);
        }
      }
      const DebertaBias::Gradient got = deberta.Backward(g);
      const std::vector<Vector> gradients = {got.embedding, got.key_projection,
                                             got.key_projection_bias, got.query_projection,
                                             got.query_projection_bias};
      for (std::size_t which = 0; which < learned.size(); ++which) {
        ASSERT_EQ(gradients[which].size(), learned[which].size());
        const auto loss = [&](const Vector& x) {
          std::vector<Vector> changed = learned;
          changed[which] = x;
          double sum = 0;
          for (const int64_t d : BothSides(20)) {
            for (int64_t h = 0; h < kHeads; ++h) {
              sum += (d % 3 + h + .5) * DebertaTruth(deberta, changed, h, d, q, k);
            }
          }
          return sum;
        };
        for (std::size_t i = 0; i < learned[which].size(); ++i) {
          EXPECT_NEAR(gradients[which][i], Slope(loss, learned[which], i), 3e-5) << which;
        }
      }
    }
  }
}

TEST(Deberta, BadInput) {
  EXPECT_EQ(DebertaBucket(INT64_MIN, 256, 512), -DebertaBucket(INT64_MAX, 256, 512));
  EXPECT_THAT([] { DebertaBucket(1, 8, 5); },
              ThrowsMessage<Error>(HasSubstr("max_position: expected more than 5")));
  DebertaBias deberta = MakeDeberta(8, 20, false, false);
  EXPECT_THAT([&] { deberta.Lower(2, 9); },
              ThrowsMessage<Error>(HasSubstr("key_projection, query_projection or both")));
  deberta.query_projection_bias = {1};
  EXPECT_THAT([&] { deberta.Lower(2, 9); },
              ThrowsMessage<Error>(HasSubstr("query_projection_bias: expected none")));
  EXPECT_THAT([] { MakeDeberta(8, 20, true, true).Lower(3, 9); },
              ThrowsMessage<Error>(HasSubstr("key_projection: expected 72 numbers, got 48")));
}

}  // namespace content_test
}  // namespace ropewalk
