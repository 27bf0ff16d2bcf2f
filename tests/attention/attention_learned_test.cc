// From the loss to what a method learns: AttentionBackward, then the method's own Backward, against
// differences of the N x N reference with the method lowered again.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "ropewalk/attention/backward.h"
#include "ropewalk/relative/alibi.h"
#include "ropewalk/relative/deberta.h"
#include "ropewalk/relative/fire.h"
#include "ropewalk/relative/kerple.h"
#include "ropewalk/relative/running.h"
#include "ropewalk/relative/shaw.h"
#include "ropewalk/relative/swin.h"
#include "ropewalk/relative/t5.h"
#include "ropewalk/relative/transformer_xl.h"
#include "ropewalk/relative/tupe.h"
#include "tests/attention/attention_cases.h"

namespace ropewalk {
namespace attention_learned_test {

constexpr int64_t kHeads = 2, kDim = 8, kTokens = 49, kModel = 12;

// Numbers that a method learns and what the chain of both Backwards gave for them.
struct Learned {
  const char* name;
  std::vector<float>* values;
  std::vector<double> gradient;
};

// The gradient as the form that methods take it in.
SlopeForm Slope(const FormGradient& g) { return {g.behind, g.ahead}; }
DistanceForm Table(const ScoreForm& form, const FormGradient& g) {
  DistanceForm out = std::get<DistanceForm>(form);
  out.values = g.values;
  return out;
}
ContentForm Content(const ScoreForm& form, const FormGradient& g) {
  ContentForm out = std::get<ContentForm>(form);
  out.query_rows = g.query_rows, out.key_rows = g.key_rows, out.value_rows = g.value_rows;
  out.query_bias = g.query_bias, out.key_bias = g.key_bias;
  return out;
}

void ExpectDifferences(const std::string& what, bool causal,
                       const std::function<ScoreForm()>& lower,
                       const std::function<std::vector<Learned>(const FormGradient&)>& backward) {
  AttentionCase c = MakeCase(kHeads, 1, kDim, kTokens, kTokens);
  c.causal = causal;
  c.form = lower();
  const std::vector<float> weights = Normal(static_cast<int64_t>(c.q.size()), 99);
  CaseMemory m(c);
  Attention(m.args);
  std::vector<float> d_q(c.q.size()), d_k(c.k.size()), d_v(c.v.size());
  FormGradient gradient;
  AttentionBackward({&m.args,
                     TensorView::Of(weights.data(), {kTokens, kHeads, kDim}),
                     TensorView::Of(d_q.data(), {kTokens, kHeads, kDim}),
                     TensorView::Of(d_k.data(), {kTokens, 1, kDim}),
                     TensorView::Of(d_v.data(), {kTokens, 1, kDim}),
                     &gradient,
                     {}});
  for (Learned& l : backward(gradient)) {
    ASSERT_EQ(l.gradient.size(), l.values->size()) << what << ": " << l.name;
    const std::vector<float> before = *l.values;
    const std::vector<float> direction = Normal(static_cast<int64_t>(before.size()), 5);
    double expected = 0, size = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      expected += l.gradient[i] * direction[i];
      size += std::abs(l.gradient[i] * direction[i]);
    }
    const auto loss = [&](float step) {
      for (size_t i = 0; i < before.size(); ++i) {
        (*l.values)[i] = before[i] + step * direction[i];
      }
      AttentionCase moved = c;
      moved.form = lower();
      const auto out = reference::Attention(moved).out;
      double sum = 0;
      for (size_t i = 0; i < out.size(); ++i) sum += out[i] * weights[i];
      return sum;
    };
    constexpr float h = 0x1p-9f;
    const double difference =
        (8 * (loss(h) - loss(-h)) - (loss(2 * h) - loss(-2 * h))) / (12 * static_cast<double>(h));
    *l.values = before;
    EXPECT_NE(expected, 0) << what << ": " << l.name;
    // The step's own error, and float32 rounding of the lowered numbers over the step.
    EXPECT_NEAR(expected, difference, 1e-3 * size + 1e-3) << what << ": " << l.name;
  }
}

TEST(AttentionLearned, Alibi) {
  AlibiBias alibi{.slopes = {0.1f, 0.03f}};
  ExpectDifferences(
      "ALiBi", true, [&] { return alibi.Lower(kHeads, kTokens); },
      [&](const FormGradient& g) {
        return std::vector<Learned>{{"slopes", &alibi.slopes, alibi.Backward(Slope(g))}};
      });
}

TEST(AttentionLearned, DistanceTables) {
  for (const bool causal : {true, false}) {
    T5Bias t5{.buckets = 8, .last_distance = 20, .bidirectional = !causal};
    t5.embedding = Normal(8 * kHeads, 1);
    const auto lower_t5 = [&] { return t5.Lower(kHeads, kTokens); };
    ExpectDifferences("T5", causal, lower_t5, [&](const FormGradient& g) {
      return std::vector<Learned>{{"embedding", &t5.embedding, t5.Backward(Table(lower_t5(), g))}};
    });
    for (const KerpleKernel kernel : {KerpleKernel::kLog, KerpleKernel::kPower}) {
      KerpleBias kerple{.kernel = kernel, .r1 = {0.7f, 0.2f}, .r2 = {0.3f, 0.9f}, .causal = causal};
      const auto lower = [&] { return kerple.Lower(kHeads, kTokens); };
      ExpectDifferences("KERPLE", causal, lower, [&](const FormGradient& g) {
        const auto d = kerple.Backward(Table(lower(), g));
        return std::vector<Learned>{{"r1", &kerple.r1, d.r1}, {"r2", &kerple.r2, d.r2}};
      });
    }
  }
}

TEST(AttentionLearned, ContentTables) {
  ShawBias shaw{.left = 5, .right = 3, .head_dim = kDim};
  shaw.key_rows = Normal(9 * kDim, 1), shaw.value_rows = Normal(9 * kDim, 2);
  const auto lower_shaw = [&] { return shaw.Lower(kHeads, kTokens); };
  ExpectDifferences("Shaw", false, lower_shaw, [&](const FormGradient& g) {
    const auto d = shaw.Backward(Content(lower_shaw(), g));
    return std::vector<Learned>{{"key_rows", &shaw.key_rows, d.key_rows},
                                {"value_rows", &shaw.value_rows, d.value_rows}};
  });
  for (const bool causal : {true, false}) {
    TransformerXlBias xl{.model_dim = kModel, .head_dim = kDim, .causal = causal};
    xl.projection = Normal(kHeads * kDim * kModel, 3, 0.3f);
    xl.content_bias = Normal(kHeads * kDim, 4), xl.position_bias = Normal(kHeads * kDim, 5);
    const auto lower = [&] { return xl.Lower(kHeads, kTokens); };
    ExpectDifferences("Transformer-XL", causal, lower, [&](const FormGradient& g) {
      const auto d = xl.Backward(Content(lower(), g));
      return std::vector<Learned>{{"projection", &xl.projection, d.projection},
                                  {"content_bias", &xl.content_bias, d.content_bias},
                                  {"position_bias", &xl.position_bias, d.position_bias}};
    });
  }
  DebertaBias deberta{.buckets = 8, .max_position = 40, .model_dim = kModel, .head_dim = kDim};
  deberta.embedding = Normal(16 * kModel, 6, 0.5f);
  deberta.key_projection = Normal(kHeads * kDim * kModel, 7, 0.3f);
  deberta.query_projection = Normal(kHeads * kDim * kModel, 8, 0.3f);
  const auto lower = [&] { return deberta.Lower(kHeads, kTokens); };
  ExpectDifferences("DeBERTa", false, lower, [&](const FormGradient& g) {
    const auto d = deberta.Backward(Content(lower(), g));
    return std::vector<Learned>{
        {"embedding", &deberta.embedding, d.embedding},
        {"key_projection", &deberta.key_projection, d.key_projection},
        {"query_projection", &deberta.query_projection, d.query_projection}};
  });
}

TEST(AttentionLearned, PairFunctions) {
  FireBias fire{.w1 = Normal(8, 1), .b1 = Normal(8, 2), .w2 = Normal(kHeads * 8, 3)};
  fire.b2 = Normal(kHeads, 4);
  fire.threshold = 20;
  ExpectDifferences(
      "FIRE", true, [&] { return fire.Lower(kHeads, kTokens); },
      [&](const FormGradient& g) {
        const auto d = fire.Backward(g.parameters);
        // A kink that a step passes is no difference: of the first layer only what is smooth.
        return std::vector<Learned>{{"w2", &fire.w2, d.w2}};
      });
  SwinBias swin{.height = 7, .width = 7};
  swin.w1 = Normal(2 * 6, 5), swin.b1 = Normal(6, 6), swin.w2 = Normal(kHeads * 6, 7);
  ExpectDifferences(
      "Swin V2", false, [&] { return swin.Lower(kHeads, kTokens); },
      [&](const FormGradient& g) {
        return std::vector<Learned>{{"w2", &swin.w2, swin.Backward(g.parameters).w2}};
      });
  TupeBias tupe{.positions = kTokens, .model_dim = kModel, .head_dim = kDim};
  tupe.embedding = Normal(kTokens * kModel, 8, 0.5f);
  tupe.query_projection = Normal(kHeads * kDim * kModel, 9, 0.3f);
  tupe.key_projection = Normal(kHeads * kDim * kModel, 10, 0.3f);
  tupe.from_cls = {0.3f, -0.4f}, tupe.to_cls = {0.5f, 0.1f};
  ExpectDifferences(
      "TUPE", false, [&] { return tupe.Lower(kHeads, kTokens); },
      [&](const FormGradient& g) {
        const auto d = tupe.Backward(g.parameters);
        return std::vector<Learned>{
            {"embedding", &tupe.embedding, d.embedding},
            {"query_projection", &tupe.query_projection, d.query_projection},
            {"key_projection", &tupe.key_projection, d.key_projection},
            {"from_cls", &tupe.from_cls, d.from_cls},
            {"to_cls", &tupe.to_cls, d.to_cls}};
      });
}

TEST(AttentionLearned, RunningSums) {
  ForgetGateBias gate{.model_dim = kModel};
  gate.weight = Normal(kHeads * kModel, 1, 0.3f), gate.bias = {1.0f, 2.0f};
  std::vector<float> x = Normal(kTokens * kModel, 2);
  const auto lower = [&] { return gate.Lower(kHeads, x); };
  ExpectDifferences("forgetting gate", true, lower, [&](const FormGradient& g) {
    RunningForm form = std::get<RunningForm>(ScoreForm(lower()));
    form.log_gates = g.log_gates;
    const auto d = gate.Backward(form, x);
    return std::vector<Learned>{{"weight", &gate.weight, d.weight}, {"bias", &gate.bias, d.bias}};
  });
  CopeBias cope{.rows = 64, .head_dim = kDim, .position_rows = Normal(64 * kDim, 3, 0.3f)};
  const auto lower_cope = [&] { return cope.Lower(kHeads, kTokens); };
  ExpectDifferences("CoPE", true, lower_cope, [&](const FormGradient& g) {
    RunningForm form = lower_cope();
    form.position_rows = g.position_rows;
    return std::vector<Learned>{{"position_rows", &cope.position_rows, cope.Backward(form)}};
  });
}

}  // namespace attention_learned_test
}  // namespace ropewalk
