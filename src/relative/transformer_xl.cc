#include "ropewalk/relative/transformer_xl.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/relative/check.h"
#include "src/relative/project.h"

namespace ropewalk {
namespace {

void CheckParameters(const TransformerXlBias& xl, int64_t heads) {
  if (xl.model_dim < 2 || xl.model_dim % 2 != 0) {
    internal::Refuse("TransformerXlBias.model_dim: expected an even number, 2 or more, got " +
                     std::to_string(xl.model_dim));
  }
  internal::CheckAtLeast("TransformerXlBias.head_dim", xl.head_dim, 1);
  internal::CheckAtLeast("TransformerXlBias.clamp_distance", xl.clamp_distance, 0);
  const int64_t width = heads * xl.head_dim;
  internal::CheckNumbers("TransformerXlBias.projection", xl.projection, width * xl.model_dim);
  internal::CheckNumbers("TransformerXlBias.content_bias", xl.content_bias, width);
  internal::CheckNumbers("TransformerXlBias.position_bias", xl.position_bias, width);
}

// R of `rows` distances from `first`, [rows, model_dim].
std::vector<double> Sinusoids(int64_t first, int64_t rows, int64_t model_dim) {
  const int64_t half = model_dim / 2;
  std::vector<double> out(rows * model_dim);
  for (int64_t i = 0; i < half; ++i) {
    const double frequency = std::pow(10000.0, -2.0 * static_cast<double>(i) / model_dim);
    for (int64_t r = 0; r < rows; ++r) {
      const double angle = static_cast<double>(first + r) * frequency;
      out[r * model_dim + i] = std::sin(angle);
      out[r * model_dim + half + i] = std::cos(angle);
    }
  }
  return out;
}

}  // namespace

ContentForm TransformerXlBias::Lower(int64_t heads, int64_t max_distance) const {
  internal::CheckLowering("TransformerXlBias", heads, max_distance);
  CheckParameters(*this, heads);
  const int64_t last = clamp_distance > 0 ? std::min(clamp_distance, max_distance) : max_distance;
  ContentForm form;
  form.first = causal ? 0 : -last;
  form.rows = last - form.first + 1;
  form.row_of.resize(form.rows);
  std::iota(form.row_of.begin(), form.row_of.end(), 0);
  form.head_dim = head_dim;
  form.table_heads = heads;
  form.query_rows = internal::Project({heads, head_dim, model_dim, projection, {}},
                                      Sinusoids(form.first, form.rows, model_dim));
  form.query_bias = position_bias;
  form.key_bias = content_bias;
  const bool clamped = clamp_distance > 0 && last == clamp_distance;
  form.repeats_ahead = clamped && !causal;
  form.repeats_behind = clamped;
  return form;
}

TransformerXlBias::Gradient TransformerXlBias::Backward(const ContentForm& gradient) const {
  internal::CheckAtLeast("TransformerXlBias.head_dim", head_dim, 1);
  const int64_t heads = static_cast<int64_t>(content_bias.size()) / head_dim;
  CheckParameters(*this, heads);
  const int64_t width = heads * head_dim;
  const std::string name = "TransformerXlBias.Backward: gradient.";
  internal::CheckAtLeast(name + "rows", gradient.rows, 1);
  internal::CheckNumbers(name + "query_rows", gradient.query_rows, width * gradient.rows);
  internal::CheckNumbers(name + "query_bias", gradient.query_bias, width);
  internal::CheckNumbers(name + "key_bias", gradient.key_bias, width);
  const std::vector<double> d_rows(gradient.query_rows.begin(), gradient.query_rows.end());
  internal::ProjectionGradient d =
      internal::ProjectBackward({heads, head_dim, model_dim, projection, {}},
                                Sinusoids(gradient.first, gradient.rows, model_dim), d_rows);
  return {std::move(d.weight),
          {gradient.key_bias.begin(), gradient.key_bias.end()},
          {gradient.query_bias.begin(), gradient.query_bias.end()}};
}

}  // namespace ropewalk
