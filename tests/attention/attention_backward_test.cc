// Gradients of attention against differences of the double reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "ropewalk/attention/backward.h"
#include "ropewalk/base/error.h"
#include "ropewalk/base/threads.h"
#include "src/attention/kernel/tile.h"
#include "tests/attention/attention_cases.h"
#include "tests/support/sanitizer.h"
#include "tests/support/targets.h"

namespace ropewalk {
namespace attention_backward_test {

// Multiples of 2^-12, so that steps of 2^-7 are exact in float32.
void Quantise(std::vector<float>& values) {
  for (float& x : values) x = std::round(x * 4096) / 4096;
}

struct Gradients {
  std::vector<float> q, k, v, sinks;
  FormGradient form;
};

// What the loss, sum of out times `weights`, gives.
Gradients Differentiate(const AttentionCase& c, const std::vector<float>& weights,
                        bool form_wanted = true) {
  CaseMemory m(c);
  Attention(m.args);
  Gradients g;
  g.q.assign(c.q.size(), NAN);
  g.k.assign(c.k.size(), NAN);
  g.v.assign(c.v.size(), NAN);
  g.sinks.assign(c.sinks.size(), NAN);
  AttentionBackwardArgs args;
  args.forward = &m.args;
  args.d_out = TensorView::Of(weights.data(), {c.queries, c.heads, c.ValueDim()});
  args.d_q = TensorView::Of(g.q.data(), {c.queries, c.heads, c.head_dim});
  args.d_k = TensorView::Of(g.k.data(), {c.keys, c.kv_heads, c.head_dim});
  args.d_v = TensorView::Of(g.v.data(), {c.keys, c.kv_heads, c.ValueDim()});
  if (form_wanted) args.d_form = &g.form;
  args.d_sinks = g.sinks;
  AttentionBackward(args);
  return g;
}

double Loss(const AttentionCase& c, const std::vector<float>& weights) {
  const auto out = reference::Attention(c).out;
  double loss = 0;
  for (size_t i = 0; i < out.size(); ++i) loss += out[i] * weights[i];
  return loss;
}

struct Learned {
  std::string name;
  std::vector<float>* values;  // in the case
  std::vector<double> gradient;
};

std::vector<double> Wide(const std::vector<float>& x) { return {x.begin(), x.end()}; }

std::vector<Learned> EverythingLearned(AttentionCase& c, const Gradients& g) {
  std::vector<Learned> all{{"q", &c.q, Wide(g.q)}, {"k", &c.k, Wide(g.k)}, {"v", &c.v, Wide(g.v)}};
  const auto add = [&](const char* name, std::vector<float>& values, const std::vector<float>& d) {
    EXPECT_EQ(values.size(), d.size()) << name;
    if (!values.empty() && values.size() == d.size()) all.push_back({name, &values, Wide(d)});
  };
  add("sinks", c.sinks, g.sinks);
  if (!c.form) return all;
  if (auto* slope = std::get_if<SlopeForm>(&*c.form)) {
    add("behind", slope->behind, g.form.behind);
    if (!c.causal) add("ahead", slope->ahead, g.form.ahead);
  }
  if (auto* table = std::get_if<DistanceForm>(&*c.form))
    add("values", table->values, g.form.values);
  if (auto* content = std::get_if<ContentForm>(&*c.form)) {
    add("query_rows", content->query_rows, g.form.query_rows);
    add("key_rows", content->key_rows, g.form.key_rows);
    add("value_rows", content->value_rows, g.form.value_rows);
    add("query_bias", content->query_bias, g.form.query_bias);
    add("key_bias", content->key_bias, g.form.key_bias);
  }
  if (auto* running = std::get_if<RunningForm>(&*c.form)) {
    add("log_gates", running->log_gates, g.form.log_gates);
    add("position_rows", running->position_rows, g.form.position_rows);
  }
  if (auto* pair = std::get_if<PairForm>(&*c.form)) {
    auto& wave = const_cast<WavePair&>(dynamic_cast<const WavePair&>(*pair->function));
    EXPECT_EQ(wave.numbers().size(), g.form.parameters.size());
    all.push_back({"parameters", &wave.numbers(), g.form.parameters});
  }
  return all;
}

// Along directions of -1, 0 and 1, by differences of fourth order, whose own error at a step of
// 2^-7 is some 1e-8.
void ExpectDifferences(AttentionCase c, const std::string& what, int directions = 2,
                       const std::vector<std::string>& only = {}) {
  Quantise(c.q), Quantise(c.k), Quantise(c.v), Quantise(c.sinks);
  std::vector<float> weights = Normal(c.queries * c.heads * c.ValueDim(), 99);
  const Gradients g = Differentiate(c, weights);
  std::mt19937 random(7);
  for (Learned& learned : EverythingLearned(c, g)) {
    if (learned.name != "q" && learned.name != "k" && learned.name != "v") {
      Quantise(*learned.values);
    }
  }
  // The form's numbers have changed a little.
  const Gradients exact = Differentiate(c, weights);
  // Differences are minutes of the reference, and say nothing of memory.
  if (UnderAddressSanitizer()) return;
  for (Learned& learned : EverythingLearned(c, exact)) {
    if (!only.empty() && std::find(only.begin(), only.end(), learned.name) == only.end()) continue;
    const std::vector<float> before = *learned.values;
    for (int n = 0; n < directions; ++n) {
      std::vector<int> direction(before.size());
      double expected = 0, size = 0;
      for (size_t i = 0; i < before.size(); ++i) {
        direction[i] = n % 2 == 0 ? 1 - 2 * static_cast<int>(random() % 2)
                                  : static_cast<int>(random() % 8 == 0);
        expected += learned.gradient[i] * direction[i];
        size += std::abs(learned.gradient[i] * direction[i]);
      }
      const auto loss = [&](int steps) {
        for (size_t i = 0; i < before.size(); ++i) {
          (*learned.values)[i] = before[i] + 0x1p-7f * static_cast<float>(steps * direction[i]);
        }
        return Loss(c, weights);
      };
      const double difference = (8 * (loss(1) - loss(-1)) - (loss(2) - loss(-2))) / (12 * 0x1p-7);
      *learned.values = before;
      EXPECT_NEAR(expected, difference, 1e-5 * size + 2e-5) << what << ": " << learned.name;
    }
  }
}

// Rows on a line, as many as positions can reach: interpolation between them has no kinks, which
// differences would see.
void MakeSmooth(const AttentionCase& c, RunningForm& f) {
  f.rows = c.keys + 2;
  const std::vector<float> start = Normal(f.table_heads * c.head_dim, 41, 0.3f);
  const std::vector<float> step = Normal(f.table_heads * c.head_dim, 42, 0.05f);
  f.position_rows.clear();
  for (int64_t h = 0; h < f.table_heads; ++h) {
    for (int64_t row = 0; row < f.rows; ++row) {
      for (int64_t i = h * c.head_dim; i < (h + 1) * c.head_dim; ++i) {
        f.position_rows.push_back(start[i] +
                                  std::round(step[i] * 4096) / 4096 * static_cast<float>(row));
      }
    }
  }
}

void ExpectEveryForm(AttentionCase c, bool gates) {
  ExpectDifferences(c, "no form");
  for (const NamedForm& f : EveryForm(c, gates)) {
    if (NeedsEqualWidths(f.form) && c.ValueDim() != c.head_dim) continue;
    c.form = f.form;
    if (auto* running = std::get_if<RunningForm>(&*c.form);
        running != nullptr && running->kind == RunningForm::Kind::kContextual) {
      MakeSmooth(c, *running);
    }
    // A step on a slope moves far scores by much.
    if (std::holds_alternative<SlopeForm>(f.form) && c.keys > 40) continue;
    ExpectDifferences(c, f.name);
  }
}

TEST(AttentionBackward, EveryFormAtSmallSizes) {
  for (const int64_t tokens : {1, 2, 7, 33})
    ExpectEveryForm(MakeCase(4, 2, 5, tokens, tokens), true);
}

TEST(AttentionBackward, EveryFormAcrossTiles) {
  ExpectEveryForm(MakeCase(4, 2, 6, 300, 130), true);
  ExpectEveryForm(MakeCase(3, 1, 18, 270, 220), true);
}

TEST(AttentionBackward, EveryMask) {
  AttentionCase c = MakeCase(4, 2, 6, 280, 140);
  c.window = 37;
  ExpectEveryForm(c, true);
  c.causal = false;
  ExpectEveryForm(c, false);
  c.window = 0;
  ExpectEveryForm(c, false);
  for (int64_t j = 0; j < c.keys; ++j) c.key_documents.push_back(j < 150 ? 0 : j < 160 ? 1 : 2);
  c.query_documents.assign(c.key_documents.begin() + 140, c.key_documents.end());
  ExpectEveryForm(c, false);
  c.causal = true;
  ExpectEveryForm(c, true);
}

// Gradients of values that are not as wide as keys.
TEST(AttentionBackward, ValuesOfAnotherWidth) {
  for (const auto& [dim, value_dim] :
       {std::pair<int64_t, int64_t>{192, 128}, {64, 32}, {80, 96}, {5, 3}, {6, 19}}) {
    SCOPED_TRACE(testing::Message() << dim << " and " << value_dim);
    ExpectDifferences(MakeCase(4, 2, dim, 70, 70, value_dim), "no form");
  }
  ExpectEveryForm(MakeCase(4, 2, 18, 270, 130, 7), true);
  AttentionCase c = MakeCase(4, 2, 6, 90, 90, 20);
  c.sinks = Normal(4, 17);
  c.soft_cap = 3;
  c.window = 37;
  c.causal = false;
  ExpectEveryForm(c, false);
}

TEST(AttentionBackward, PositionsCapSinksAndTemperatures) {
  AttentionCase c = MakeCase(4, 2, 6, 60, 80);
  for (int64_t i = 0; i < c.queries; ++i) c.query_positions.push_back(i);
  for (int64_t j = 0; j < c.keys; ++j) c.key_positions.push_back(j + 10);  // some see nothing
  ExpectEveryForm(c, false);
  c.sinks = Normal(4, 17);
  for (int64_t i = 0; i < c.queries; ++i) {
    c.temperatures.push_back(0.5f + 0.015625f * static_cast<float>(i));
  }
  ExpectEveryForm(c, false);
  c.soft_cap = 3;
  ExpectEveryForm(c, false);
  c.causal = false;
  ExpectEveryForm(c, false);
  for (int64_t j = 0; j < c.keys; ++j) c.key_positions[j] = j * 2;
  c.form.reset();
  ExpectDifferences(c, "gaps");
  for (const NamedForm& f : EveryForm(c, false)) {
    if (!std::holds_alternative<DistanceForm>(f.form) &&
        !std::holds_alternative<PairForm>(f.form)) {
      continue;
    }
    c.form = f.form;
    ExpectDifferences(c, f.name + ", gaps");
  }
}

// The slope's own gradient where a step of 2^-7 is too much: sum of -distance times the gradient of
// a distance table.
TEST(AttentionBackward, SlopesEqualATableOfDistances) {
  for (const int64_t first : {0, 131071, 1048575}) {
    AttentionCase c = MakeCase(2, 1, 8, 300, 300);
    for (int64_t j = 0; j < c.keys; ++j) c.key_positions.push_back(first + j);
    c.form = SlopeForm{{0.03f, 0.1f}, {}};
    const std::vector<float> weights = Normal(static_cast<int64_t>(c.q.size()), 98);
    const Gradients slope = Differentiate(c, weights);
    DistanceForm table{0, 300, {}};
    for (const float s : {0.03f, 0.1f}) {
      for (int d = 0; d < 300; ++d) table.values.push_back(-s * static_cast<float>(d));
    }
    c.form = table;
    const Gradients distances = Differentiate(c, weights);
    for (int h = 0; h < 2; ++h) {
      double sum = 0, size = 0;
      for (int d = 0; d < 300; ++d) {
        sum -= double{distances.form.values[h * 300 + d]} * d;
        size += std::abs(double{distances.form.values[h * 300 + d]} * d);
      }
      EXPECT_NEAR(slope.form.behind[h], sum, 1e-5 * size);
    }
    for (size_t i = 0; i < slope.q.size(); ++i) ASSERT_NEAR(slope.q[i], distances.q[i], 2e-5);
  }
}

// Few rows: positions beyond the last stay there, and their gates get nothing from it. The loss is
// smooth in the rows, the values and, where all positions are clamped, in everything.
TEST(AttentionBackward, ContextualPositionsBeyondTheLastRow) {
  AttentionCase c = MakeCase(4, 2, 6, 300, 300);
  for (const NamedForm& f : EveryForm(c, true)) {
    if (f.name != "contextual") continue;
    c.form = f.form;
    ExpectDifferences(c, "24 rows", 2, {"v", "position_rows"});
    auto& running = std::get<RunningForm>(*c.form);
    running.rows = 1;
    running.position_rows = Normal(c.heads * c.head_dim, 43);
    ExpectDifferences(c, "1 row");
  }
}

TEST(AttentionBackward, SameBitsForAnyThreads) {
  const int threads = NumThreads();
  AttentionCase c = MakeCase(8, 4, 32, 500, 500);
  c.sinks = Normal(8, 1);
  const std::vector<float> weights = Normal(static_cast<int64_t>(c.q.size()), 97);
  for (const NamedForm& f : EveryForm(c, false)) {
    c.form = f.form;
    SetNumThreads(1);
    const Gradients one = Differentiate(c, weights);
    SetNumThreads(3);
    const Gradients more = Differentiate(c, weights);
    EXPECT_EQ(one.q, more.q) << f.name;
    EXPECT_EQ(one.k, more.k) << f.name;
    EXPECT_EQ(one.v, more.v) << f.name;
    EXPECT_EQ(one.sinks, more.sinks) << f.name;
    EXPECT_EQ(one.form.values, more.form.values);
    EXPECT_EQ(one.form.query_rows, more.form.query_rows);
    EXPECT_EQ(one.form.parameters, more.form.parameters);
  }
  SetNumThreads(threads);
}

TEST(AttentionBackward, SameBitsWhereTheFormsGradientIsNotWanted) {
  AttentionCase c = MakeCase(4, 2, 18, 300, 220);
  const std::vector<float> weights = Normal(static_cast<int64_t>(c.q.size()), 98);
  for (const NamedForm& f : EveryForm(c, true)) {
    c.form = f.form;
    const Gradients all = Differentiate(c, weights), fewer = Differentiate(c, weights, false);
    EXPECT_EQ(all.q, fewer.q) << f.name;
    EXPECT_EQ(all.k, fewer.k) << f.name;
    EXPECT_EQ(all.v, fewer.v) << f.name;
  }
}

// The gradient of an output reaches the keys that its query sees, and no others.
TEST(AttentionBackward, EachQueryReachesTheKeysThatItSees) {
  AttentionCase c = MakeCase(4, 2, 18, 270, 270);
  std::vector<float> weights(c.q.size());
  for (const int64_t query : {0, 1, 5, 6, 63, 64, 100, 191, 192, 255, 256, 269}) {
    std::fill(weights.begin(), weights.end(), 0.0f);
    const int64_t row = c.heads * c.head_dim;
    std::fill_n(weights.begin() + query * row, row, NAN);
    const Gradients g = Differentiate(c, weights);
    const int64_t width = c.kv_heads * c.head_dim;
    for (int64_t key = 0; key < c.keys; ++key) {
      // Six keys of a block are multiplied at once, with weights of 0 for those that are not seen.
      const int64_t panel = key / 64 * 64 + key % 64 / 6 * 6;
      if (key > query && panel <= query) continue;
      EXPECT_EQ(std::isnan(g.v[static_cast<size_t>(key * width)]), key <= query)
          << "query " << query << ", key " << key;
    }
  }
}

TEST(AttentionBackward, EveryTarget) {
  ForEachTarget(internal::AttentionTarget, [&](const char* name) {
    SCOPED_TRACE(name);
    ExpectEveryForm(MakeCase(4, 2, 18, 70, 70), true);
  });
}

void ExpectRefusal(const std::function<void()>& call, const std::string& part) {
  try {
    call();
    ADD_FAILURE() << "no error; expected one that says " << part;
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST(AttentionBackward, Refusals) {
  AttentionCase c = MakeCase(2, 1, 8, 20, 20);
  CaseMemory m(c);
  Attention(m.args);
  std::vector<float> q(c.q.size()), k(c.k.size()), v(c.v.size());
  AttentionBackwardArgs args;
  ExpectRefusal([&] { AttentionBackward(args); }, "forward");
  args.forward = &m.args;
  args.d_out = args.d_q = TensorView::Of(q.data(), {20, 2, 8});
  args.d_k = TensorView::Of(k.data(), {20, 1, 8});
  args.d_v = TensorView::Of(v.data(), {20, 2, 8});
  ExpectRefusal([&] { AttentionBackward(args); }, "d_v: expected float32 [20, 1, 8]");
  args.d_v = TensorView::Of(v.data(), {20, 1, 8});
  EXPECT_NO_THROW(AttentionBackward(args));
  float sink = 0;
  args.d_sinks = {&sink, 1};
  ExpectRefusal([&] { AttentionBackward(args); }, "d_sinks");
  args.d_sinks = {};
  AttentionCase wide = MakeCase(2, 1, 8, 20, 20, 12);
  CaseMemory of_wide(wide);
  Attention(of_wide.args);
  args.forward = &of_wide.args;
  ExpectRefusal([&] { AttentionBackward(args); }, "d_out: expected float32 [20, 2, 12]");
  args.forward = &m.args;
  m.args.scale = 0.0f;
  ExpectRefusal([&] { AttentionBackward(args); }, "scale: expected a finite number above 0");
  m.args.scale = kScaleByHeadDim;
  m.args.log_sum_exp = {};
  ExpectRefusal([&] { AttentionBackward(args); }, "log_sum_exp");
  m.args.log_sum_exp = m.log_sum_exp;
  m.args.out = m.args.q;
  ExpectRefusal([&] { AttentionBackward(args); }, "forward.out");
}

}  // namespace attention_backward_test
}  // namespace ropewalk
