#include "src/model/experts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ropewalk::internal {
namespace {

float Sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

void ScoreExperts(const ExpertsSpec& spec, float* scores) {
  if (spec.scores == ExpertsSpec::Scores::kSigmoid) {
    std::transform(scores, scores + spec.count, scores, Sigmoid);
    return;
  }
  const float largest = *std::max_element(scores, scores + spec.count);
  float sum = 0;
  for (int64_t e = 0; e < spec.count; ++e) sum += scores[e] = std::exp(scores[e] - largest);
  for (int64_t e = 0; e < spec.count; ++e) scores[e] /= sum;
}

// The `n` largest of `values`, the largest first.
std::vector<int64_t> Largest(const std::vector<float>& values, int64_t n) {
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + n, order.end(), [&](int64_t a, int64_t b) {
    return values[a] > values[b] || (values[a] == values[b] && a < b);
  });
  order.resize(n);
  return order;
}

// Experts of groups that are not chosen get 0, as in transformers.
void KeepGroups(const ExpertsSpec& spec, std::vector<float>& choice) {
  if (spec.groups <= 1) return;
  const int64_t size = spec.count / spec.groups;
  std::vector<float> of_group(spec.groups);
  for (int64_t g = 0; g < spec.groups; ++g) {
    const std::vector<float> group(choice.begin() + g * size, choice.begin() + (g + 1) * size);
    const bool two = spec.group_by == ExpertsSpec::GroupBy::kTwoLargest;
    for (const int64_t e : Largest(group, two ? 2 : 1)) of_group[g] += group[e];
  }
  std::vector<bool> kept(spec.groups, false);
  for (const int64_t g : Largest(of_group, spec.chosen_groups)) kept[g] = true;
  for (int64_t e = 0; e < spec.count; ++e) {
    if (!kept[e / size]) choice[e] = 0;
  }
}

// x [rows, hidden] through an expert -> s.expert_added [rows, hidden]; x has room for PaddedRows.
void RunExpert(const ModelConfig& c, const MlpWeights& expert, const float* x, int64_t rows,
               LayerScratch& s) {
  RunMlp(c.layer.mlp, expert, x, rows, s);
  expert.down.Apply(s.activated.data(), rows, expert.down.in_features(), s.expert_added.data(),
                    c.hidden);
}

// out += what the rows' expert gives, each times its weight.
void AddExpert(const ModelConfig& c, const MlpWeights& expert, const Routes& routes, int64_t first,
               int64_t n, const float* input, LayerScratch& s) {
  const int64_t hidden = c.hidden, padded = PaddedRows(n);
  const bool weighs_input = c.experts.weighs_input;
  for (int64_t i = 0; i < padded; ++i) {
    float* row = s.gathered.data() + i * hidden;
    if (i >= n) {
      std::fill_n(row, hidden, 0.0f);
      continue;
    }
    std::copy_n(input + routes.rows[first + i] * hidden, hidden, row);
    if (!weighs_input) continue;
    for (int64_t j = 0; j < hidden; ++j) row[j] *= routes.weights[first + i];
  }
  RunExpert(c, expert, s.gathered.data(), padded, s);
  for (int64_t i = 0; i < n; ++i) {
    const float weight = weighs_input ? 1.0f : routes.weights[first + i];
    const float* given = s.expert_added.data() + i * hidden;
    float* out = s.added.data() + routes.rows[first + i] * hidden;
    for (int64_t j = 0; j < hidden; ++j) out[j] += weight * given[j];
  }
}

// The expert that every token passes.
void AddShared(const ModelConfig& c, const ExpertWeights& weights, const float* input, int64_t rows,
               LayerScratch& s) {
  std::vector<float> gates(c.experts.shared_gate ? rows : 0);
  if (!gates.empty()) weights.shared_router.Apply(input, rows, c.hidden, gates.data(), 1);
  for (int64_t first = 0; first < rows; first += kMlpRows) {
    const int64_t n = std::min(kMlpRows, rows - first);
    RunExpert(c, weights.shared, input + first * c.hidden, n, s);
    for (int64_t i = 0; i < n; ++i) {
      const float gate = gates.empty() ? 1.0f : Sigmoid(gates[first + i]);
      const float* given = s.expert_added.data() + i * c.hidden;
      float* out = s.added.data() + (first + i) * c.hidden;
      for (int64_t j = 0; j < c.hidden; ++j) out[j] += gate * given[j];
    }
  }
}

}  // namespace

Routes ChooseExperts(const ExpertsSpec& spec, const float* choice_bias, int64_t rows,
                     float* logits) {
  std::vector<int64_t> chosen(rows * spec.chosen);
  std::vector<float> weights(rows * spec.chosen);
  Routes routes;
  routes.first.resize(spec.count + 1);
  for (int64_t r = 0; r < rows; ++r) {
    float* scores = logits + r * spec.count;
    ScoreExperts(spec, scores);
    std::vector<float> choice(scores, scores + spec.count);
    for (int64_t e = 0; choice_bias != nullptr && e < spec.count; ++e) choice[e] += choice_bias[e];
    KeepGroups(spec, choice);
    const std::vector<int64_t> best = Largest(choice, spec.chosen);
    float sum = 0;
    for (const int64_t e : best) sum += scores[e];
    const float factor = static_cast<float>(spec.scale) / (spec.normalized ? sum : 1.0f);
    for (int64_t i = 0; i < spec.chosen; ++i) {
      chosen[r * spec.chosen + i] = best[i];
      weights[r * spec.chosen + i] = scores[best[i]] * factor;
      ++routes.first[best[i] + 1];
    }
  }
  std::partial_sum(routes.first.begin(), routes.first.end(), routes.first.begin());
  routes.rows.resize(chosen.size());
  routes.weights.resize(chosen.size());
  std::vector<int64_t> next(routes.first.begin(), routes.first.end() - 1);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const int64_t at = next[chosen[i]]++;
    routes.rows[at] = static_cast<int64_t>(i) / spec.chosen;
    routes.weights[at] = weights[i];
  }
  return routes;
}

int64_t PaddedRows(int64_t rows) {
  const int64_t step = rows <= 4 ? 1 : rows <= 16 ? 4 : rows <= 64 ? 8 : 32;
  return (rows + step - 1) / step * step;
}

void RunExperts(const ModelConfig& c, const ExpertWeights& weights, const float* input,
                int64_t rows, LayerScratch& s) {
  std::fill_n(s.added.data(), rows * c.hidden, 0.0f);
  std::vector<float> logits(rows * c.experts.count);
  weights.router.Apply(input, rows, c.hidden, logits.data(), c.experts.count);
  const float* bias = weights.choice_bias.size() > 0 ? weights.choice_bias.data() : nullptr;
  const Routes routes = ChooseExperts(c.experts, bias, rows, logits.data());
  for (int64_t e = 0; e < c.experts.count; ++e) {
    for (int64_t first = routes.first[e]; first < routes.first[e + 1]; first += kMlpRows) {
      const int64_t n = std::min(kMlpRows, routes.first[e + 1] - first);
      AddExpert(c, weights.experts[e], routes, first, n, input, s);
    }
  }
  if (c.experts.shared_feed_forward > 0) AddShared(c, weights, input, rows, s);
}

}  // namespace ropewalk::internal
