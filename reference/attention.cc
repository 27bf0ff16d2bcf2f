#include "reference/attention.h"

#include <algorithm>
#include <cmath>
#include <variant>

namespace ropewalk::reference {

namespace {

double Dot(const float* a, const float* b, int64_t n, const float* added = nullptr) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    sum += (double{a[i]} + (added == nullptr ? 0.0 : double{added[i]})) * double{b[i]};
  }
  return sum;
}

struct Pair {
  const AttentionCase& c;
  int64_t i, j, h;
  const double* sums = nullptr;   // of a RunningForm: RunningSums
  const double* turns = nullptr;  // with rotation on load: Turns
  const float* q() const { return c.q.data() + (i * c.heads + h) * c.head_dim; }
  const float* k(int64_t l) const {
    return c.k.data() + (l * c.kv_heads + h / (c.heads / c.kv_heads)) * c.head_dim;
  }
  int64_t Row(const ContentForm& f) const {
    const auto last = static_cast<int64_t>(f.row_of.size()) - 1;
    return f.row_of[std::clamp<int64_t>(c.Distance(i, j) - f.first, 0, last)];
  }
  static const float* Table(const std::vector<float>& rows, int64_t table_heads, int64_t count,
                            int64_t h, int64_t row, int64_t dim) {
    return rows.data() + ((table_heads == 1 ? 0 : h) * count + row) * dim;
  }

  double Product() const {
    double sum = Dot(q(), k(j), c.head_dim);
    if (!c.relative) return sum;
    const double a2 = c.amplitude * c.amplitude;  // queries and keys have the amplitude once each
    for (size_t p = 0; p < c.frequencies.size(); ++p) {
      const double* turn = turns + 2 * (static_cast<size_t>(j) * c.frequencies.size() + p);
      const int64_t first = c.pairs[2 * p], second = c.pairs[2 * p + 1];
      const double x = k(j)[first], y = k(j)[second];
      sum += q()[first] * (a2 * (x * turn[0] - y * turn[1]) - x);
      sum += q()[second] * (a2 * (y * turn[0] + x * turn[1]) - y);
    }
    return sum;
  }

  double operator()(const SlopeForm& f) const {
    const int64_t d = c.Distance(i, j);
    return -double{d >= 0 ? f.behind[h] : f.ahead[h]} * std::abs(static_cast<double>(d));
  }
  double operator()(const DistanceForm& f) const {
    return f
        .values[h * f.columns + std::clamp<int64_t>(c.Distance(i, j) - f.first, 0, f.columns - 1)];
  }
  double operator()(const ContentForm& f) const {
    const int64_t row = Row(f), dim = c.head_dim;
    double bias = 0;
    if (!f.query_rows.empty()) {
      bias += Dot(q(), Table(f.query_rows, f.table_heads, f.rows, h, row, dim), dim,
                  f.query_bias.empty() ? nullptr : f.query_bias.data() + h * dim);
    }
    if (!f.key_rows.empty()) {
      bias += Dot(k(j), Table(f.key_rows, f.table_heads, f.rows, h, row, dim), dim);
    }
    if (!f.key_bias.empty()) bias += Dot(f.key_bias.data() + h * dim, k(j), dim);
    return bias * c.Scale(i);
  }
  double operator()(const PairForm& f) const {
    const int64_t at = c.QueryPosition(i), key = c.KeyPosition(j);
    float bias = 0;
    f.function->Evaluate(h, {&at, 1}, {&key, 1}, &bias, 1);
    return bias;
  }
  double operator()(const RunningForm& f) const {
    const double sum = sums[j];
    if (f.kind == RunningForm::Kind::kGates) return sum;
    const double position = std::min(sum, static_cast<double>(f.rows - 1));
    const auto below = static_cast<int64_t>(position);
    const int64_t above = std::min(below + 1, f.rows - 1);
    const auto product = [&](int64_t row) {
      return Dot(q(), Table(f.position_rows, f.table_heads, f.rows, h, row, c.head_dim),
                 c.head_dim);
    };
    const double part = position - static_cast<double>(below);
    return (1 - part) * product(below) + part * product(above);
  }
};

// For query i: sums[j] of the gates of the tokens after j (kGates) or from j on (kContextual), up
// to the query.
std::vector<double> RunningSums(const AttentionCase& c, const RunningForm& f, int64_t i,
                                int64_t h) {
  std::vector<double> sums(static_cast<size_t>(c.keys));
  double sum = 0;
  for (int64_t j = c.keys - c.queries + i; j >= 0; --j) {
    if (f.kind == RunningForm::Kind::kGates) {
      sums[j] = sum;
      sum += f.log_gates[j * c.heads + h];
    } else {
      const Pair pair{c, i, j, h};
      sum += 1 / (1 + std::exp(-c.Scale(i) * Dot(pair.q(), pair.k(j), c.head_dim)));
      sums[j] = sum;
    }
  }
  return sums;
}

// For query i, whatever the head: cosine and sine of -relative(i, j) times each frequency, for each key
// that it sees.
std::vector<double> Turns(const AttentionCase& c, int64_t i, const std::vector<bool>& seen) {
  std::vector<double> turns(c.relative ? 2 * seen.size() * c.frequencies.size() : 0);
  if (!c.relative) return turns;
  const int64_t at = c.keys - c.queries + i;
  for (int64_t j = 0; j < c.keys; ++j) {
    if (!seen[j]) continue;
    const double distance = c.relative(at, j);
    for (size_t p = 0; p < c.frequencies.size(); ++p) {
      const double own =
          c.relative_of_pair ? c.relative_of_pair(at, j, static_cast<int64_t>(p)) : distance;
      double* turn = turns.data() + 2 * (static_cast<size_t>(j) * c.frequencies.size() + p);
      turn[0] = std::cos(-own * c.frequencies[p]);
      turn[1] = std::sin(-own * c.frequencies[p]);
    }
  }
  return turns;
}

}  // namespace

AttentionResult Attention(const AttentionCase& c) {
  const auto rows = static_cast<size_t>(c.queries * c.heads);
  const int64_t value_dim = c.ValueDim();
  AttentionResult result{std::vector<double>(rows * static_cast<size_t>(value_dim)),
                         std::vector<double>(rows), std::vector<double>(rows)};
  std::vector<double> scores(static_cast<size_t>(c.keys));
  std::vector<bool> seen(scores.size());
  for (int64_t i = 0; i < c.queries; ++i) {
    for (int64_t j = 0; j < c.keys; ++j) seen[j] = c.Sees(i, j);
    const std::vector<double> turns = Turns(c, i, seen);
    for (int64_t h = 0; h < c.heads; ++h) {
      double* out = result.out.data() + (i * c.heads + h) * value_dim;
      const auto* running = c.form ? std::get_if<RunningForm>(&*c.form) : nullptr;
      const std::vector<double> sums =
          running == nullptr ? std::vector<double>() : RunningSums(c, *running, i, h);
      double max = c.sinks.empty() ? -INFINITY : double{c.sinks[h]};
      for (int64_t j = 0; j < c.keys; ++j) {
        if (!seen[j]) continue;
        const Pair pair{c, i, j, h, sums.data(), turns.data()};
        double score = c.Scale(i) * pair.Product();
        if (c.form) score += std::visit(pair, *c.form);
        if (c.soft_cap != 0) score = c.soft_cap * std::tanh(score / c.soft_cap);
        scores[j] = score;
        max = std::max(max, score);
      }
      double sum = c.sinks.empty() ? 0 : std::exp(c.sinks[h] - max);
      for (int64_t j = 0; j < c.keys; ++j) {
        if (seen[j]) sum += std::exp(scores[j] - max);
      }
      result.log_sum_exp[i * c.heads + h] = sum == 0 ? -INFINITY : max + std::log(sum);
      double& entropy = result.entropy[i * c.heads + h];
      const double log_sum = std::log(sum);
      const auto weigh = [&](double score) {
        const double weight = std::exp(score - max) / sum;
        // Minus the weight times its logarithm.
        entropy -= weight == 0 ? 0 : weight * (score - max - log_sum);
        return weight;
      };
      if (!c.sinks.empty()) weigh(c.sinks[h]);
      const auto* content = c.form ? std::get_if<ContentForm>(&*c.form) : nullptr;
      for (int64_t j = 0; j < c.keys; ++j) {
        if (!seen[j]) continue;
        const double weight = weigh(scores[j]);
        const float* v = c.v.data() + (j * c.kv_heads + h / (c.heads / c.kv_heads)) * value_dim;
        for (int64_t x = 0; x < value_dim; ++x) out[x] += weight * v[x];
        if (content == nullptr || content->value_rows.empty()) continue;
        const float* row = Pair::Table(content->value_rows, content->table_heads, content->rows, h,
                                       Pair{c, i, j, h}.Row(*content), c.head_dim);
        for (int64_t x = 0; x < c.head_dim; ++x) out[x] += weight * row[x];
      }
    }
  }
  return result;
}

}  // namespace ropewalk::reference
