// Which experts a token goes through, by the formulas of the papers typed again in double; experts of
// more tokens than are computed at a time; files that lack an expert or have one too many.
#include "src/model/experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

#include "ropewalk/base/error.h"
#include "tests/model/support.h"

namespace ropewalk::internal {
namespace experts_test {

using test::Tensor;
using test::Tensors;
using testing::AllOf;
using testing::HasSubstr;
using Scores = ExpertsSpec::Scores;
using GroupBy = ExpertsSpec::GroupBy;

// weight of each expert for one token, 0: not chosen.
std::vector<double> Expected(const ExpertsSpec& spec, const std::vector<float>& logits,
                             const std::vector<float>& bias) {
  const int64_t n = spec.count, size = n / spec.groups;
  std::vector<double> scores(n);
  double sum = 0;
  for (int64_t e = 0; e < n; ++e) sum += std::exp(double(logits[e]));
  for (int64_t e = 0; e < n; ++e) {
    scores[e] = spec.scores == Scores::kSigmoid ? 1 / (1 + std::exp(-double(logits[e])))
                                                : std::exp(double(logits[e])) / sum;
  }
  std::vector<double> choice = scores;
  for (std::size_t e = 0; e < bias.size(); ++e) choice[e] += bias[e];
  // A group stays when fewer than chosen_groups others have more.
  std::vector<double> of_group(spec.groups);
  for (int64_t g = 0; g < spec.groups; ++g) {
    std::vector<double> group(choice.begin() + g * size, choice.begin() + (g + 1) * size);
    std::sort(group.rbegin(), group.rend());
    of_group[g] = group[0] + (spec.group_by == GroupBy::kTwoLargest && size > 1 ? group[1] : 0);
  }
  for (int64_t e = 0; e < n; ++e) {
    const double own = of_group[e / size];
    const auto above = std::count_if(of_group.begin(), of_group.end(),
                                     [own](double other) { return other > own; });
    if (above >= spec.chosen_groups) choice[e] = 0;
  }
  std::vector<double> weights(n, 0.0);
  double chosen_sum = 0;
  for (int64_t e = 0; e < n; ++e) {
    const auto above = std::count_if(choice.begin(), choice.end(),
                                     [&](double other) { return other > choice[e]; });
    if (above < spec.chosen) chosen_sum += weights[e] = scores[e];
  }
  for (double& w : weights) w *= spec.scale / (spec.normalized ? chosen_sum : 1);
  return weights;
}

TEST(Experts, ChosenByTheFormula) {
  std::mt19937 engine(3);
  std::normal_distribution<float> normal(0, 2);
  const ExpertsSpec specs[] = {
      {.count = 8, .chosen = 2, .normalized = true},
      {.count = 7, .chosen = 7, .scale = 3},
      {.count = 1, .chosen = 1},
      {.count = 60, .chosen = 4, .scores = Scores::kSigmoid},
      {.count = 32, .chosen = 6, .scale = 16, .groups = 8, .chosen_groups = 3},
      {.count = 64,
       .chosen = 8,
       .scores = Scores::kSigmoid,
       .normalized = true,
       .scale = 2.5,
       .groups = 8,
       .chosen_groups = 4,
       .group_by = GroupBy::kTwoLargest,
       .choice_bias = true},
  };
  for (const ExpertsSpec& spec : specs) {
    SCOPED_TRACE(spec.count);
    const int64_t rows = 50;
    std::vector<float> logits(rows * spec.count), bias(spec.choice_bias ? spec.count : 0);
    for (float& x : logits) x = normal(engine);
    for (float& x : bias) x = 0.1f * normal(engine);
    std::vector<float> scratch = logits;
    const Routes routes =
        ChooseExperts(spec, bias.empty() ? nullptr : bias.data(), rows, scratch.data());
    ASSERT_EQ(routes.first.size(), static_cast<std::size_t>(spec.count + 1));
    ASSERT_EQ(routes.first.back(), rows * spec.chosen);
    std::vector<double> ours(rows * spec.count, 0.0);
    for (int64_t e = 0; e < spec.count; ++e) {
      for (int64_t i = routes.first[e]; i < routes.first[e + 1]; ++i) {
        ours[routes.rows[i] * spec.count + e] += routes.weights[i];
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      const std::vector<float> row(logits.begin() + r * spec.count,
                                   logits.begin() + (r + 1) * spec.count);
      const std::vector<double> expected = Expected(spec, row, bias);
      for (int64_t e = 0; e < spec.count; ++e) {
        EXPECT_NEAR(ours[r * spec.count + e], expected[e], 2e-6 * spec.scale) << r << " " << e;
      }
    }
  }
}

TEST(Experts, LargeLogitsAndEqualOnes) {
  const ExpertsSpec spec = {.count = 4, .chosen = 2, .normalized = true};
  std::vector<float> logits = {1e4f, -1e4f, 1e4f, 0, 5, 5, 5, 5};
  const Routes routes = ChooseExperts(spec, nullptr, 2, logits.data());
  EXPECT_THAT(routes.first, testing::ElementsAre(0, 2, 3, 4, 4));  // of equal ones, the lower
  for (const float w : routes.weights) EXPECT_FLOAT_EQ(w, 0.5f);
}

// Few different numbers of rows reach the kernels, and at most a third more than there are.
TEST(Experts, PaddedRows) {
  std::set<int64_t> sizes;
  for (int64_t rows = 1; rows <= kMlpRows; ++rows) {
    const int64_t padded = PaddedRows(rows);
    EXPECT_GE(padded, rows);
    EXPECT_LE(padded, std::max(rows + 3, rows * 3 / 2));
    EXPECT_EQ(PaddedRows(padded), padded);
    sizes.insert(padded);
  }
  EXPECT_EQ(PaddedRows(kMlpRows), kMlpRows);
  EXPECT_LE(sizes.size(), 32u);
}

constexpr int64_t kHidden = 24, kWide = 20, kVocab = 53, kExperts = 3;

Tensors Mixtral() {
  std::mt19937 engine(8);
  std::normal_distribution<float> normal;
  Tensors all;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape, float scale = 0.3f,
                       float mean = 0) {
    Tensor t{shape, std::vector<float>(std::accumulate(shape.begin(), shape.end(), int64_t{1},
                                                       std::multiplies<>()))};
    for (float& x : t.values) x = mean + scale * normal(engine);
    all.emplace(name + ".weight", t);
  };
  add("model.embed_tokens", {kVocab, kHidden}, 1);
  add("model.norm", {kHidden}, 0.2f, 1);
  add("lm_head", {kVocab, kHidden});
  for (int64_t l = 0; l < 2; ++l) {
    const std::string p = "model.layers." + std::to_string(l) + ".";
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) {
      add(p + norm, {kHidden}, 0.2f, 1);
    }
    for (const char* x : {"q", "k", "v", "o"}) {
      add(p + "self_attn." + x + "_proj", {kHidden, kHidden});
    }
    add(p + "block_sparse_moe.gate", {kExperts, kHidden});
    for (int64_t e = 0; e < kExperts; ++e) {
      const std::string q = p + "block_sparse_moe.experts." + std::to_string(e) + ".";
      add(q + "w1", {kWide, kHidden});
      add(q + "w3", {kWide, kHidden});
      add(q + "w2", {kHidden, kWide});
    }
  }
  return all;
}

nlohmann::json MixtralConfig() {
  return {{"model_type", "mixtral"},    {"hidden_size", kHidden},
          {"intermediate_size", kWide}, {"num_hidden_layers", 2},
          {"num_attention_heads", 3},   {"num_key_value_heads", 3},
          {"vocab_size", kVocab},       {"max_position_embeddings", 4096},
          {"rope_theta", 1e4},          {"num_local_experts", kExperts},
          {"num_experts_per_tok", 2},   {"rms_norm_eps", 1e-5}};
}

ModelFiles Write(const test::TempFolder& folder, const nlohmann::json& config,
                 const Tensors& tensors) {
  test::WriteFile(folder / "config.json", config.dump());
  test::WriteSafetensors(folder / "model.safetensors", tensors);
  return OpenModel(folder.path());
}

// More tokens for one expert than kMlpRows, against tokens one by one and a few at a time; and the same
// model with equal experts, which is a model without a choice.
TEST(Experts, ManyTokensAreTheSameAsFew) {
  const test::TempFolder folder;
  const ModelFiles files = Write(folder, MixtralConfig(), Mixtral());
  const auto decoder = Decoder::Load(files);
  std::vector<int32_t> ids;
  for (int i = 0; i < 1700; ++i) ids.push_back(i * i % kVocab);
  const auto whole = test::LogitsOf(*decoder, files.config.plan, ids, {.chunk = 1700});
  for (const int64_t chunk : {1, 13, 700}) {
    const auto pieces = test::LogitsOf(*decoder, files.config.plan, ids, {.chunk = chunk});
    EXPECT_LE(test::Difference(pieces, whole), 2e-6) << chunk;
  }
  EXPECT_GT(decoder->weight_bytes(), 2 * kExperts * 3 * kWide * kHidden * 4);
}

TEST(Experts, EveryExpertIsAskedFor) {
  const Tensors whole = Mixtral();
  const auto message = [&](const nlohmann::json& config, const Tensors& tensors) -> std::string {
    const test::TempFolder folder;
    try {
      Write(folder, config, tensors);
    } catch (const Error& e) {
      return e.what();
    }
    return "nothing was thrown";
  };
  const std::string last = "model.layers.1.block_sparse_moe.experts.2.w2.weight";
  Tensors changed = whole;
  changed.erase(last);
  EXPECT_THAT(message(MixtralConfig(), changed), AllOf(HasSubstr(last), HasSubstr("is missing")));
  changed.emplace("model.layers.1.block_sparse_moe.experts.3.w2.weight", whole.at(last));
  changed.emplace(last, whole.at(last));
  EXPECT_THAT(message(MixtralConfig(), changed),
              AllOf(HasSubstr("experts.3.w2"), HasSubstr("has no place")));
  nlohmann::json config = MixtralConfig();
  config["intermediate_size"] = kWide + 1;
  EXPECT_THAT(message(config, whole), AllOf(HasSubstr("experts.0.w1"), HasSubstr("[20, 24]")));
  // More than the files can hold: no list is made of them.
  config = MixtralConfig();
  config["num_local_experts"] = 65536;
  EXPECT_THAT(message(config, whole), AllOf(HasSubstr("65536 experts"), HasSubstr("35 tensors")));
}

}  // namespace experts_test
}  // namespace ropewalk::internal
