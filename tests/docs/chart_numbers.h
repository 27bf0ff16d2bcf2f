// Numbers of the pictures in docs/relative and docs/absolute, asked of the library. A picture is a
// list of panels; scripts/docs_charts.py draws them.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ropewalk/relative/forms.h"

namespace ropewalk::charts {

using Json = nlohmann::ordered_json;
using Points = std::vector<std::pair<double, double>>;

struct Line {
  std::string label;   // empty: not named
  std::string colour;  // c0 .. c4, rest
  Points points;
};
struct Axes {
  bool x_log = false;
  std::vector<double> y_range = {};  // empty: of the numbers
};
Json Lines(const std::string& title, const std::string& x, const std::vector<Line>& lines,
           const Axes& axes = {});
// points of f at 0 or first .. last, a step apart, or some eight an octave
Points Sampled(int64_t first, int64_t last, int64_t step, const std::function<double(int64_t)>& f);
Points Octaves(int64_t first, int64_t last, const std::function<double(int64_t)>& f);

// A map of rows x columns cells; NAN: empty. `rows_title` names what runs downwards; the first
// column and row are numbered as `first` says.
struct First {
  int64_t column = 0, row = 0;
};
Json Heat(const std::string& title, const std::string& columns_title, const std::string& rows_title,
          int64_t rows, int64_t columns, const std::function<double(int64_t, int64_t)>& f,
          First first = {});

// Scores that attention with this form gives `tokens` tokens, by the weights of one-hot values and
// their log-sum-exp; NAN: not seen. q and k [tokens, tokens], 0 where they are empty.
std::vector<double> Scores(const ScoreForm& form, int64_t tokens, float scale = 1,
                           std::vector<float> q = {}, std::vector<float> k = {});
// The softmax of even scores and this form's bias, each row over its largest.
Json WeightsHeat(const std::string& title, const ScoreForm& form, int64_t tokens);

// Numbers between -1 and 1 that look like nothing.
std::vector<float> Wave(int64_t n, int64_t seed, float scale = 1);

void AddBiases(Json& pages);
void AddRelative(Json& pages);
void AddMaps(Json& pages);
void AddAbsolute(Json& pages);

}  // namespace ropewalk::charts
