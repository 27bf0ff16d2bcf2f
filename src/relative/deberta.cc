#include "ropewalk/relative/deberta.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "src/relative/check.h"
#include "src/relative/project.h"

namespace ropewalk {
namespace {

void CheckProjection(const std::string& name, const std::vector<float>& weight,
                     const std::vector<float>& bias, int64_t width, int64_t model_dim) {
  if (!weight.empty()) {
    internal::CheckNumbers("DebertaBias." + name, weight, width * model_dim);
    if (!bias.empty()) internal::CheckNumbers("DebertaBias." + name + "_bias", bias, width);
  } else if (!bias.empty()) {
    internal::Refuse("DebertaBias." + name + "_bias: expected none without " + name + ", got " +
                     std::to_string(bias.size()) + " numbers");
  }
}

void CheckParameters(const DebertaBias& deberta, int64_t heads) {
  internal::CheckDebertaBuckets(deberta.buckets, deberta.max_position);
  internal::CheckAtLeast("DebertaBias.model_dim", deberta.model_dim, 1);
  internal::CheckAtLeast("DebertaBias.head_dim", deberta.head_dim, 1);
  internal::CheckNumbers("DebertaBias.embedding", deberta.embedding,
                         2 * deberta.Span() * deberta.model_dim);
  const int64_t width = heads * deberta.head_dim;
  CheckProjection("key_projection", deberta.key_projection, deberta.key_projection_bias, width,
                  deberta.model_dim);
  CheckProjection("query_projection", deberta.query_projection, deberta.query_projection_bias,
                  width, deberta.model_dim);
  if (deberta.key_projection.empty() && deberta.query_projection.empty()) {
    internal::Refuse("DebertaBias: expected key_projection, query_projection or both, got neither");
  }
}

int64_t HeadsOf(const DebertaBias& deberta) {
  internal::CheckAtLeast("DebertaBias.model_dim", deberta.model_dim, 1);
  internal::CheckAtLeast("DebertaBias.head_dim", deberta.head_dim, 1);
  const auto size = static_cast<int64_t>(
      std::max(deberta.key_projection.size(), deberta.query_projection.size()));
  return size / (deberta.head_dim * deberta.model_dim);
}

}  // namespace

double DebertaBias::Scale() const {
  const int terms = 1 + (key_projection.empty() ? 0 : 1) + (query_projection.empty() ? 0 : 1);
  return 1 / std::sqrt(static_cast<double>(terms * head_dim));
}

ContentForm DebertaBias::Lower(int64_t heads, int64_t max_distance) const {
  internal::CheckLowering("DebertaBias", heads, max_distance);
  CheckParameters(*this, heads);
  // Bucket `buckets` begins at max_position: from there on the rows are the last ones.
  const int64_t last = std::min(max_distance, max_position);
  ContentForm form;
  form.first = -last;
  for (int64_t d = -last; d <= last; ++d) form.row_of.push_back(static_cast<int32_t>(Row(d)));
  form.rows = 2 * Span();
  form.repeats_ahead = form.row_of.front() == 0;
  form.repeats_behind = form.row_of.back() == form.rows - 1;
  form.head_dim = head_dim;
  form.table_heads = heads;
  const std::vector<double> rows(embedding.begin(), embedding.end());
  if (!key_projection.empty()) {
    form.query_rows =
        internal::Project({heads, head_dim, model_dim, key_projection, key_projection_bias}, rows);
  }
  if (!query_projection.empty()) {
    form.key_rows = internal::Project(
        {heads, head_dim, model_dim, query_projection, query_projection_bias}, rows);
  }
  return form;
}

DebertaBias::Gradient DebertaBias::Backward(const ContentForm& gradient) const {
  const int64_t heads = HeadsOf(*this);
  CheckParameters(*this, heads);
  const std::vector<double> rows(embedding.begin(), embedding.end());
  Gradient g;
  g.embedding.resize(embedding.size());
  const auto back = [&](const std::string& name, const std::vector<float>& weight,
                        const std::vector<float>& bias, const std::vector<float>& d_rows,
                        std::vector<double>& d_weight, std::vector<double>& d_bias) {
    if (weight.empty()) return;
    internal::CheckNumbers("DebertaBias.Backward: gradient." + name, d_rows,
                           2 * Span() * heads * head_dim);
    internal::ProjectionGradient d =
        internal::ProjectBackward({heads, head_dim, model_dim, weight, bias}, rows,
                                  std::vector<double>(d_rows.begin(), d_rows.end()));
    d_weight = std::move(d.weight);
    d_bias = std::move(d.bias);
    for (std::size_t i = 0; i < d.rows.size(); ++i) g.embedding[i] += d.rows[i];
  };
  back("query_rows", key_projection, key_projection_bias, gradient.query_rows, g.key_projection,
       g.key_projection_bias);
  back("key_rows", query_projection, query_projection_bias, gradient.key_rows, g.query_projection,
       g.query_projection_bias);
  return g;
}

}  // namespace ropewalk
