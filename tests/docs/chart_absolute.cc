// Pictures of absolute encodings.
#include <algorithm>

#include "ropewalk/absolute/combine.h"
#include "ropewalk/absolute/complex_order.h"
#include "ropewalk/absolute/convolutional.h"
#include "ropewalk/absolute/digits.h"
#include "ropewalk/absolute/floater.h"
#include "ropewalk/absolute/hierarchical.h"
#include "ropewalk/absolute/learned.h"
#include "ropewalk/absolute/recurrent.h"
#include "ropewalk/absolute/sinusoidal.h"
#include "tests/docs/chart_numbers.h"

namespace ropewalk::charts {
namespace {

Json TableHeat(const std::string& title, std::span<const float> table, int64_t dim,
               const std::string& rows = "position") {
  return Heat(title, "element", rows, static_cast<int64_t>(table.size()) / dim, dim,
              [&](int64_t r, int64_t e) { return table[r * dim + e]; });
}

Json SinusoidalPage() {
  Json panels = Json::array();
  for (const bool interleaved : {true, false}) {
    SinusoidalSpec spec(interleaved ? SinusoidalLayout::kInterleaved
                                    : SinusoidalLayout::kConcatenated);
    spec.dim = 32;
    std::vector<float> rows(48 * 32);
    Sinusoidal(spec).Rows(0, rows);
    panels.push_back(TableHeat(interleaved ? "Interleaved" : "Concatenated", rows, 32));
    if (interleaved) continue;
    const auto similarity = [&](int64_t d) {
      double sum = 0;
      for (int64_t e = 0; e < 32; ++e) sum += static_cast<double>(rows[e]) * rows[d * 32 + e];
      return sum / 16;
    };
    panels.push_back(Lines("Product of row 0 with row n, over dim / 2", "n",
                           {{"", "c0", Sampled(0, 47, 1, similarity)}}));
  }
  return panels;
}

Json Learned() {
  const std::vector<float> table = Wave(8, 3);
  const auto resized = [&](int64_t to, ResizeKernel kernel, bool antialias) {
    const std::vector<float> rows = ResizeTable(
        {.from = {8}, .to = {to}, .dim = 1, .kernel = kernel, .antialias = antialias}, table);
    Points points;  // middles of rows, in units of the old ones
    for (int64_t r = 0; r < to; ++r) {
      points.emplace_back((static_cast<double>(r) + 0.5) * 8 / static_cast<double>(to) - 0.5,
                          rows[r]);
    }
    return points;
  };
  const auto lines = [&](int64_t to, bool antialias) {
    return std::vector<Line>{{"8 trained rows", "rest", resized(8, ResizeKernel::kLinear, false)},
                             {"linear", "c0", resized(to, ResizeKernel::kLinear, antialias)},
                             {"cubic", "c1", resized(to, ResizeKernel::kCubic, antialias)}};
  };
  return {Lines("One element, resized to 32 rows", "trained position", lines(32, false)),
          Lines("To 5 rows, with antialias", "trained position", lines(5, true))};
}

Json Hierarchical() {
  constexpr int64_t kRows = 7, kDim = 16;
  SinusoidalSpec spec(SinusoidalLayout::kConcatenated);  // in the place of trained rows
  spec.dim = kDim;
  std::vector<float> table(kRows * kDim);
  Sinusoidal(spec).Rows(0, table);
  std::vector<int64_t> positions(kRows * kRows);
  for (int64_t k = 0; k < kRows * kRows; ++k) positions[k] = k;
  std::vector<float> rows(kRows * kRows * kDim);
  HierarchicalRows({kRows, kDim, 0.4}, table, positions, rows);
  const auto product = [&](int64_t a, int64_t b) {
    double sum = 0, aa = 0, bb = 0;
    for (int64_t e = 0; e < kDim; ++e) {
      const double x = rows[a * kDim + e], y = rows[b * kDim + e];
      sum += x * y, aa += x * x, bb += y * y;
    }
    return sum / std::sqrt(aa * bb);
  };
  return {TableHeat("7 trained rows", table, kDim), TableHeat("49 rows made of them", rows, kDim),
          Heat("Cosine of two of the 49 rows", "position", "position", 49, 49, product)};
}

Json Multiplicative() {
  constexpr int64_t kTokens = 24, kDim = 16;
  SinusoidalSpec spec(SinusoidalLayout::kConcatenated);
  spec.dim = kDim;
  std::vector<float> rows(kTokens * kDim), x = Wave(kTokens * kDim, 4);
  Sinusoidal(spec).Rows(0, rows);
  for (float& r : rows) r = 1 + r / 2;
  Json panels = {TableHeat("Embeddings x", x, kDim, "token"),
                 TableHeat("Rows p = 1 + sinusoids / 2", rows, kDim, "token")};
  MultiplyRows(x, 1, rows);
  panels.push_back(TableHeat("x * p", x, kDim, "token"));
  return panels;
}

Json ComplexOrderPage() {
  const std::vector<float> amplitude = {1, 0.6f, 0.35f}, frequency = {0.1f, 0.25f, 0.6f},
                           phase = {0, 1, 2};
  std::vector<Line> lines;
  for (int64_t word = 0; word < 3; ++word) {
    std::vector<int64_t> words(97, word), positions(97);
    for (int64_t t = 0; t < 97; ++t) positions[t] = t;
    std::vector<float> re(97), im(97);
    ComplexOrder({3, 1}, {amplitude, frequency, phase}, words, positions, {re, im});
    lines.push_back({"word " + std::to_string(word + 1), "c" + std::to_string(word),
                     Sampled(0, 96, 1, [&](int64_t t) { return re[t]; })});
  }
  return {Lines("Real part of one dimension, three words", "position", lines)};
}

Json DigitsPage() {
  std::vector<Line> lines;
  Json panels = Json::array();
  for (const auto& [name, extension] : {std::pair{"reserved digit", DigitExtension::kExtrapolate},
                                        {"interpolated", DigitExtension::kInterpolate},
                                        {"base 13", DigitExtension::kChangeBase}}) {
    const DigitSpec spec = ExtendDigits({}, 2000, extension);
    const auto digit = [&, spec = spec](int64_t position, int64_t i) {
      std::vector<float> row(spec.digits);
      DigitRows(spec, std::vector<int64_t>{position}, row);
      return row[i];
    };
    lines.push_back({name, "c" + std::to_string(lines.size()),
                     Sampled(0, 1999, 10, [&](int64_t n) { return digit(n, 0); })});
    if (extension == DigitExtension::kExtrapolate) continue;
    panels.push_back(Heat(std::string("Digits, ") + name, "digit", "position", 20, spec.digits,
                          [&](int64_t r, int64_t i) { return digit(1740 + r, i); }, {0, 1740}));
  }
  panels.insert(panels.begin(), Lines("The first digit; trained to 999", "position", lines));
  return panels;
}

// Tokens that are all alike through layers of five taps.
Json Convolutional() {
  constexpr int64_t kTokens = 32;
  const std::vector<float> weight = {0.1f, 0.25f, 0.4f, 0.2f, 0.05f};
  const auto lines = [&](ConvolutionBorder border) {
    PositionConvolutionSpec spec{{kTokens}, {5}, 1, 1};
    spec.border = border;
    spec.residual = false;
    std::vector<float> x(kTokens, 1.0f), y(kTokens);
    std::vector<Line> out;
    for (int layer = 1; layer <= 4; ++layer) {
      PositionConvolution(spec, x, 1, weight, {}, y);
      x = y;
      out.push_back({std::to_string(layer) + (layer == 1 ? " layer" : " layers"),
                     "c" + std::to_string(layer - 1),
                     Sampled(0, kTokens - 1, 1, [&](int64_t t) { return x[t]; })});
    }
    return out;
  };
  return {Lines("Equal tokens, zeros beyond the border", "token", lines(ConvolutionBorder::kZero),
                {.y_range = {0, 1.2}}),
          Lines("Equal tokens, circular border", "token", lines(ConvolutionBorder::kCircular),
                {.y_range = {0, 1.2}})};
}

Json Recurrent() {
  constexpr int64_t kDim = 16, kRows = 48;
  Json panels = Json::array();
  for (const bool gru : {false, true}) {
    const int64_t gates = gru ? 3 : 1;
    const std::vector<float> start = Wave(kDim, 1), b = Wave(gates * kDim, 4, 0.2f),
                             c(gates * kDim), w = Wave(gates * kDim * kDim, 3, 0.75f);
    std::vector<float> rows(kRows * kDim);
    RecurrentRows(gru ? RecurrentCell::kGru : RecurrentCell::kTanh, {start, w, b, c}, rows);
    panels.push_back(TableHeat(
        gru ? "A GRU cell, invented weights" : "A tanh cell, invented weights", rows, kDim));
  }
  return panels;
}

Json Floater() {
  // W twice the identity, then u, b, an antisymmetric V, c: the path neither falls nor grows.
  const TanhField field(
      3, 3, std::vector<float>{2, 0, 0,    0,     2,     0, 0,    0,    2,     0, 0, 0, 0.2f, -0.1f,
                               0, 0, 0.6f, -0.3f, -0.6f, 0, 0.5f, 0.3f, -0.5f, 0, 0, 0, 0});
  std::vector<float> path(129 * 3), turning(129 * 4);
  FloaterRows(field, {0.25, 10}, std::vector<float>{0, 1.5f, -1}, path);
  FloaterRows(TurningField(std::vector<DoubleDouble>{{0.2, 0}, {0.05, 0}}), {1, 16},
              std::vector<float>{0, 1, 0, 1}, turning);
  const auto lines = [](std::span<const float> rows, int64_t dim) {
    std::vector<Line> out;
    for (int64_t e = 0; e < dim; ++e) {
      out.push_back({"element " + std::to_string(e), "c" + std::to_string(e),
                     Sampled(0, 128, 1, [&](int64_t n) { return rows[n * dim + e]; })});
    }
    return out;
  };
  return {Lines("The path of an invented network", "position", lines(path, 3)),
          Lines("A path that is sinusoidal", "position", lines(turning, 4))};
}

}  // namespace

void AddAbsolute(Json& pages) {
  pages["absolute/sinusoidal"] = SinusoidalPage();
  pages["absolute/learned"] = Learned();
  pages["absolute/hierarchical"] = Hierarchical();
  pages["absolute/multiplicative"] = Multiplicative();
  pages["absolute/complex-order"] = ComplexOrderPage();
  pages["absolute/digits"] = DigitsPage();
  pages["absolute/convolutional"] = Convolutional();
  pages["absolute/recurrent"] = Recurrent();
  pages["absolute/floater"] = Floater();
}

}  // namespace ropewalk::charts
