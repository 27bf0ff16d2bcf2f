// Against transformers: tests/golden/relative.json, made by tests/golden/relative_make.py.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "ropewalk/relative/alibi.h"
#include "ropewalk/relative/deberta.h"
#include "ropewalk/relative/swin.h"
#include "ropewalk/relative/t5.h"
#include "ropewalk/relative/transformer_xl.h"
#include "tests/relative/support.h"

namespace ropewalk {
namespace golden_test {

using nlohmann::json;

json Golden(const char* method) {
  std::ifstream file(ROPEWALK_SOURCE_DIR "/tests/golden/relative.json");
  json all = json::parse(file);
  EXPECT_FALSE(all.at(method).empty());
  return all.at(method);
}

std::vector<double> Softmax(std::vector<double> scores) {
  const double top = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& s : scores) sum += s = std::exp(s - top);
  for (double& s : scores) s /= sum;
  return scores;
}

TEST(RelativeGolden, AlibiOfBloomAndMpt) {
  for (const json& c : Golden("alibi")) {
    const SlopeForm form = AlibiBias{.max_bias = c["max_bias"]}.Lower(c["heads"], 0);
    ASSERT_EQ(form.behind.size(), c["slopes"].size());
    for (std::size_t h = 0; h < form.behind.size(); ++h) {
      const double theirs = c["slopes"][h];  // float32 powers
      EXPECT_NEAR(form.behind[h] / theirs, 1, 5e-6) << c["heads"] << " heads, head " << h;
    }
  }
}

// Slopes and products bit for bit, over the far positions as well.
TEST(RelativeGolden, AlibiOfFalconInBfloat16) {
  for (const json& c : Golden("falcon_alibi")) {
    const int64_t heads = c["heads"];
    SCOPED_TRACE(heads);
    const AlibiBias alibi{.scale = 0.125, .bfloat16 = true};
    const SlopeForm line = alibi.Lower(heads, 0);
    for (int64_t h = 0; h < heads; ++h) EXPECT_EQ(line.behind[h], 0.125f * float(c["slopes"][h]));
    const auto positions = c["positions"].get<std::vector<int64_t>>();
    const PairForm form = alibi.LowerInBfloat16(heads);
    EXPECT_EQ(form.function->heads(), heads);
    const auto count = static_cast<int64_t>(positions.size());
    std::vector<float> bias(count * count);
    for (std::size_t i = 0; i < c["chosen"].size(); ++i) {
      form.function->Evaluate(c["chosen"][i], positions, positions, bias.data(), count);
      const auto product = [&](int64_t at) { return double(c["products"][i * count + at]); };
      for (int64_t q = 0; q < count; ++q) {
        for (int64_t k = 0; k < count; ++k) {
          const auto expected = static_cast<float>(0.125 * (product(k) - product(q)));
          EXPECT_EQ(bias[q * count + k], expected) << positions[q] << " " << positions[k];
        }
      }
    }
  }
}

TEST(RelativeGolden, BucketsOfT5) {
  for (const json& c : Golden("t5")) {
    const T5Bias t5{c["buckets"], c["last"], c["bidirectional"], {}};
    for (std::size_t i = 0; i < c["distances"].size(); ++i) {
      EXPECT_EQ(t5.Bucket(c["distances"][i]), c["bucket"][i])
          << t5.buckets << " to " << t5.last_distance << ", distance " << c["distances"][i];
    }
  }
}

TEST(RelativeGolden, BucketsOfDeberta) {
  for (const json& c : Golden("deberta_buckets")) {
    for (std::size_t i = 0; i < c["distances"].size(); ++i) {
      EXPECT_EQ(DebertaBucket(c["distances"][i], c["buckets"], c["max_position"]), c["bucket"][i])
          << c["buckets"] << " to " << c["max_position"] << ", distance " << c["distances"][i];
    }
  }
}

TEST(RelativeGolden, DisentangledBiasOfDeberta) {
  for (const json& c : Golden("deberta")) {
    const int64_t heads = c["heads"];
    const int64_t dim = c["head_dim"];
    const int64_t tokens = c["tokens"];
    const int64_t hidden = heads * dim;
    DebertaBias deberta{std::max<int64_t>(0, c["buckets"]), c["max_position"], hidden, dim};
    deberta.embedding = GoldenValues(2 * deberta.Span() * hidden, 7);
    for (const json& kind : c["kinds"]) {
      const bool c2p = kind == "c2p";
      (c2p ? deberta.key_projection : deberta.query_projection) =
          GoldenValues(hidden * hidden, c2p ? 1 : 3);
      (c2p ? deberta.key_projection_bias : deberta.query_projection_bias) =
          GoldenValues(hidden, c2p ? 2 : 4);
    }
    const ContentForm form = deberta.Lower(heads, tokens);
    const std::vector<double> q = ToDoubles(GoldenValues(heads * tokens * dim, 5));
    const std::vector<double> k = ToDoubles(GoldenValues(heads * tokens * dim, 6));
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < tokens; ++i) {
        for (int64_t j = 0; j < tokens; ++j) {
          const double got = BiasOf(form, h, i - j, q.data() + (h * tokens + i) * dim,
                                    k.data() + (h * tokens + j) * dim, deberta.Scale());
          ASSERT_NEAR(got, c["bias"][(h * tokens + i) * tokens + j], 3e-6)
              << "query " << i << ", key " << j << ", " << c["kinds"];
        }
      }
    }
  }
}

TEST(RelativeGolden, ProbabilitiesOfXlnet) {
  for (const json& c : Golden("xlnet")) {
    const int64_t heads = c["heads"];
    const int64_t dim = c["head_dim"];
    const int64_t hidden = c["hidden"];
    const int64_t queries = c["queries"];
    const int64_t keys = c["keys"];
    const TransformerXlBias xl{hidden,
                               dim,
                               c["causal"],
                               c["clamp"],
                               GoldenValues(heads * dim * hidden, 3, .3),
                               GoldenValues(heads * dim, 1),
                               GoldenValues(heads * dim, 2)};
    const ContentForm form = xl.Lower(heads, keys);
    // [queries, heads, head_dim] and [keys, heads, head_dim]
    const std::vector<double> q = ToDoubles(GoldenValues(queries * heads * dim, 4));
    const std::vector<double> k = ToDoubles(GoldenValues(keys * heads * dim, 5));
    const double scale = 1 / std::sqrt(static_cast<double>(dim));
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < queries; ++i) {
        const int64_t position = keys - queries + i;  // memory before the first query
        const double* q_i = q.data() + (i * heads + h) * dim;
        std::vector<double> scores(keys, -1e30);
        for (int64_t j = 0; j < (c["causal"] ? position + 1 : keys); ++j) {
          const double* k_j = k.data() + (j * heads + h) * dim;
          scores[j] = BiasOf(form, h, position - j, q_i, k_j, scale);
          for (int64_t e = 0; e < dim; ++e) scores[j] += scale * q_i[e] * k_j[e];
        }
        const std::vector<double> p = Softmax(scores);
        for (int64_t j = 0; j < keys; ++j) {
          EXPECT_NEAR(p[j], c["probabilities"][(h * queries + i) * keys + j], 1e-6);
        }
      }
    }
  }
}

// Their query is zero, so the probabilities are the softmax of the bias.
TEST(RelativeGolden, ProbabilitiesOfSwinV2) {
  for (const json& c : Golden("swin")) {
    const int64_t heads = c["heads"];
    const int64_t window = c["window"];
    const int64_t tokens = window * window;
    const SwinBias swin{window,
                        window,
                        c["pretrained"][0],
                        c["pretrained"][1],
                        GoldenValues(1024, 1),
                        GoldenValues(512, 2),
                        GoldenValues(heads * 512, 3, .05)};
    const PairForm form = swin.Lower(heads, tokens);
    std::vector<int64_t> all(tokens);
    std::iota(all.begin(), all.end(), 0);
    for (int64_t h = 0; h < heads; ++h) {
      std::vector<float> bias(tokens * tokens);
      form.function->Evaluate(h, all, all, bias.data(), tokens);
      for (int64_t i = 0; i < tokens; ++i) {
        const std::vector<double> p =
            Softmax({bias.begin() + i * tokens, bias.begin() + (i + 1) * tokens});
        for (int64_t j = 0; j < tokens; ++j) {
          const double theirs = c["probabilities"][(h * tokens + i) * tokens + j];
          EXPECT_NEAR(p[j], theirs, 2e-5) << "query " << i << ", key " << j;
        }
      }
    }
  }
}

}  // namespace golden_test
}  // namespace ropewalk
