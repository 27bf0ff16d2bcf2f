// Prints docs/charts.json (make charts).
#include "tests/docs/chart_numbers.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "ropewalk/attention/attention.h"

namespace ropewalk::charts {

namespace {

// Few digits, which are more than a picture shows.
Json Rounded(double x, int digits = 4) {
  if (std::abs(x) < 5e-6) return 0;
  char text[32];
  std::snprintf(text, sizeof text, "%.*g", digits, x);
  const double rounded = std::strtod(text, nullptr);
  if (rounded == std::floor(rounded)) return static_cast<int64_t>(rounded);
  return rounded;
}

}  // namespace

Json Lines(const std::string& title, const std::string& x, const std::vector<Line>& lines,
           const Axes& axes) {
  Json out = {{"title", title}, {"x", x}, {"lines", Json::array()}};
  for (const Line& line : lines) {
    Json points = Json::array();
    for (const auto& [a, b] : line.points) points.push_back({Rounded(a), Rounded(b)});
    out["lines"].push_back({{"label", line.label}, {"colour", line.colour}, {"points", points}});
  }
  if (axes.x_log) out["x_log"] = true;
  if (!axes.y_range.empty()) out["y_range"] = axes.y_range;
  return out;
}

Points Sampled(int64_t first, int64_t last, int64_t step, const std::function<double(int64_t)>& f) {
  Points points;
  for (int64_t n = first; n <= last; n += step) points.emplace_back(n, f(n));
  return points;
}

Points Octaves(int64_t first, int64_t last, const std::function<double(int64_t)>& f) {
  Points points;
  for (int k = 0;; ++k) {
    const int64_t n = std::llround(static_cast<double>(first) * std::exp2(k / 8.0));
    if (n > last) return points;
    if (points.empty() || static_cast<double>(n) > points.back().first)
      points.emplace_back(n, f(n));
  }
}

Json Heat(const std::string& title, const std::string& columns_title, const std::string& rows_title,
          int64_t rows, int64_t columns, const std::function<double(int64_t, int64_t)>& f,
          First first) {
  Json cells = Json::array();
  for (int64_t r = 0; r < rows; ++r) {
    Json row = Json::array();
    for (int64_t c = 0; c < columns; ++c) {
      const double x = f(r, c);
      row.push_back(std::isnan(x) ? Json(nullptr) : Rounded(x, 3));
    }
    cells.push_back(std::move(row));
  }
  Json out = {{"title", title}, {"x", columns_title}, {"y", rows_title}, {"cells", cells}};
  if (first.column != 0 || first.row != 0) out["first"] = {first.column, first.row};
  return out;
}

std::vector<double> Scores(const ScoreForm& form, int64_t tokens, float scale, std::vector<float> q,
                           std::vector<float> k) {
  q.resize(tokens * tokens);
  k.resize(tokens * tokens);
  std::vector<float> v(tokens * tokens), out(tokens * tokens), log_sum_exp(tokens);
  for (int64_t t = 0; t < tokens; ++t) v[t * tokens + t] = 1;
  KvCache cache(1, tokens, tokens);
  cache.Append(TensorView::Of(k.data(), {tokens, 1, tokens}),
               TensorView::Of(v.data(), {tokens, 1, tokens}));
  AttentionArgs args;
  args.q = TensorView::Of(q.data(), {tokens, 1, tokens});
  args.out = TensorView::Of(out.data(), {tokens, 1, tokens});
  args.cache = &cache;
  args.scale = scale;
  args.form = &form;
  args.log_sum_exp = log_sum_exp;
  Attention(args);
  std::vector<double> scores(tokens * tokens, NAN);
  for (int64_t i = 0; i < tokens; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      scores[i * tokens + j] = std::log(static_cast<double>(out[i * tokens + j])) + log_sum_exp[i];
    }
  }
  return scores;
}

Json WeightsHeat(const std::string& title, const ScoreForm& form, int64_t tokens) {
  const std::vector<double> scores = Scores(form, tokens);
  return Heat(title, "key", "query", tokens, tokens, [&](int64_t i, int64_t j) {
    const auto row = scores.begin() + i * tokens;
    return std::exp(row[j] - *std::max_element(row, row + i + 1));
  });
}

std::vector<float> Wave(int64_t n, int64_t seed, float scale) {
  std::vector<float> v(n);
  for (int64_t k = 0; k < n; ++k) {
    v[k] = scale * static_cast<float>((7 * k * k + 13 * k + 17 * seed) % 61 - 30) / 30;
  }
  return v;
}

}  // namespace ropewalk::charts

int main() {
  using namespace ropewalk::charts;
  Json pages;
  AddBiases(pages);
  AddRelative(pages);
  AddMaps(pages);
  AddAbsolute(pages);
  // One page a line: a change of one shows as one line.
  const char* before = "{\n";
  for (const auto& [page, panels] : pages.items()) {
    std::printf("%s\"%s\":%s", before, page.c_str(), panels.dump().c_str());
    before = ",\n";
  }
  std::printf("\n}\n");
}
