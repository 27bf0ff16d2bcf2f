// Where attention looks, against softmax in double over queries and keys that were watched: with
// rotations, distance maps, ALiBi, a soft cap, sliding windows and learned sinks.
#include "ropewalk/eval/attention_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "reference/relative.h"
#include "ropewalk/plan/method.h"
#include "tests/eval/tiny_model.h"
#include "tests/support/message_of.h"

namespace ropewalk {
namespace {

using test::RandomText;
using test::Tiny;
using testing::HasSubstr;

// Weights of the keys 0 .. query of one query and head, and what the sink takes (last).
std::vector<double> Softmax(std::vector<double> scores, double sink) {
  scores.push_back(sink);
  double total = 0;
  for (double& s : scores) total += s = std::exp(s);
  for (double& s : scores) s /= total;
  return scores;
}

// Adds weights by the bins of the profile.
void AddTo(AttentionMass& sums, const AttentionProfile& p, const std::vector<double>& weights) {
  const std::size_t query = weights.size() - 2;
  sums.sink += weights.back();
  sums.first_token += weights[0];
  for (std::size_t key = 1; key <= query; ++key) {
    const auto distance = static_cast<int64_t>(query - key);
    std::size_t bin = 0;
    while (p.edges[bin + 1] <= distance) ++bin;
    sums.mass[bin] += weights[key];
  }
}

void ExpectMass(const AttentionMass& got, const AttentionMass& sums, double rows) {
  EXPECT_NEAR(got.first_token, sums.first_token / rows, 2e-6);
  EXPECT_NEAR(got.sink, sums.sink / rows, 2e-6);
  for (std::size_t b = 0; b < sums.mass.size(); ++b) {
    EXPECT_NEAR(got.mass[b], sums.mass[b] / rows, 2e-6) << "bin " << b;
  }
  const double all = std::accumulate(got.mass.begin(), got.mass.end(), got.first_token + got.sink);
  EXPECT_NEAR(all, 1, 1e-6);
}

// Token after token: (layer, query position, arguments of attention, the query's keys).
using See = std::function<void(std::size_t, std::size_t, const AttentionArgs&)>;
void Decode(const Decoder& decoder, const PositionPlan& plan, const std::vector<int32_t>& ids,
            const See& see) {
  Sequence sequence(decoder, plan, static_cast<int64_t>(ids.size()), AnglePrecision::kExact);
  std::vector<float> hidden(static_cast<std::size_t>(decoder.config().hidden));
  std::size_t position = 0;
  sequence.ObserveAttention([&](int64_t layer, const AttentionArgs& args) {
    see(static_cast<std::size_t>(layer), position, args);
  });
  for (; position < ids.size(); ++position) {
    decoder.Forward(sequence, std::span(&ids[position], 1), hidden.data(), 1);
  }
}

const float* Head(const TensorView& q, std::size_t head) {
  return static_cast<const float*>(q.data) + static_cast<int64_t>(head) * q.strides[1];
}

// Of a model whose keys are cached rotated; bias(head, distance).
void ExpectDirect(const Decoder& decoder, const PositionPlan& plan, const std::vector<int32_t>& ids,
                  const std::function<double(std::size_t, std::size_t)>& bias,
                  int64_t trained = 0) {
  const ModelConfig& c = decoder.config();
  const AttentionProfile p =
      MeasureAttentionProfile(decoder, plan, ids, {.queries = 5, .trained_length = trained});
  ASSERT_EQ(p.queries.size(), 5u);
  std::vector<AttentionMass> sums(p.layers.size(),
                                  {.mass = std::vector<double>(p.edges.size() - 1)});
  Decode(decoder, plan, ids, [&](std::size_t layer, std::size_t query, const AttentionArgs& args) {
    if (std::find(p.queries.begin(), p.queries.end(), int64_t(query)) == p.queries.end()) return;
    const auto dim = static_cast<std::size_t>(c.head_dim), keys = query + 1;
    const int64_t window = plan.layers[layer].window_tokens;
    for (std::size_t h = 0; h < static_cast<std::size_t>(c.heads); ++h) {
      std::vector<float> k(dim * keys);
      args.cache->CopyKeys(int64_t(h) * c.kv_heads / c.heads, 0, int64_t(keys), k.data());
      std::vector<double> scores;
      for (std::size_t key = 0; key < keys; ++key) {
        double dot = 0;
        for (std::size_t i = 0; i < dim; ++i) dot += double{Head(args.q, h)[i]} * k[i * keys + key];
        double score = dot * *args.scale + bias(h, query - key);
        if (args.soft_cap > 0) score = args.soft_cap * std::tanh(score / args.soft_cap);
        if (window > 0 && int64_t(query - key) >= window) score = -INFINITY;
        scores.push_back(score);
      }
      AddTo(sums[layer], p, Softmax(scores, args.sinks.empty() ? -INFINITY : args.sinks[h]));
    }
  });
  for (std::size_t l = 0; l < sums.size(); ++l) {
    SCOPED_TRACE("layer " + std::to_string(l));
    ExpectMass(p.layers[l], sums[l], 5.0 * double(c.heads));
  }
}

double NoBias(std::size_t, std::size_t) { return 0; }

TEST(AttentionProfile, IsTheSoftmaxOfEveryKey) {
  const std::vector<int32_t> ids = RandomText(300, 3).ids;
  ExpectDirect(*Tiny().decoder, Tiny().files.config.plan, ids, NoBias, test::kTinyTrained);
  PositionPlan windows = Tiny().files.config.plan;
  windows.layers[1].window_tokens = 37;
  ExpectDirect(*Tiny().decoder, windows, ids, NoBias);
}

TEST(AttentionProfile, OfOtherKindsOfLayers) {
  const std::filesystem::path goldens =
      std::filesystem::path(ROPEWALK_SOURCE_DIR) / "tests" / "golden" / "hf_models";
  const auto mpt = [](std::size_t h, std::size_t distance) {
    const int exponent[] = {2, 4, 6, 8, 1, 3};  // of 6 heads
    return -std::ldexp(double(distance), -exponent[h]);
  };
  bool learned_sink = false;
  for (const char* name : {"mpt", "gpt_oss", "gemma2", "gpt2", "llama"}) {
    SCOPED_TRACE(name);
    const test::TempFolder folder;
    std::filesystem::create_symlink(goldens / name / "model.safetensors",
                                    folder / "model.safetensors");
    std::filesystem::create_symlink(goldens / name / "default.json", folder / "config.json");
    const ModelFiles files = OpenModel(folder.path());
    const auto decoder = Decoder::Load(files);
    std::vector<int32_t> ids = RandomText(56, 5).ids;
    for (int32_t& id : ids) id %= static_cast<int32_t>(files.config.vocab);
    ExpectDirect(
        *decoder, files.config.plan, ids,
        std::string(name) == "mpt" ? std::function<double(std::size_t, std::size_t)>(mpt) : NoBias);
    const AttentionProfile p = MeasureAttentionProfile(*decoder, files.config.plan, ids);
    learned_sink |= p.Mean().sink > 1e-4;
  }
  EXPECT_TRUE(learned_sink);
}

// Under a map keys are cached unrotated: scores from the watched queries and keys before rotation.
void ExpectMapped(const char* method, const std::function<double(int64_t, int64_t)>& distance) {
  SCOPED_TRACE(method);
  const std::vector<int32_t> ids = RandomText(256, 9).ids;
  const PositionPlan plan = PositionMethod::Parse(method).Apply(Tiny().files.config.plan, 4);
  const AttentionProfile p = MeasureAttentionProfile(*Tiny().decoder, plan, ids, {.queries = 4});
  std::vector<AttentionMass> sums(2, {.mass = std::vector<double>(p.edges.size() - 1)});
  Decode(*Tiny().decoder, plan, ids,
         [&](std::size_t layer, std::size_t query, const AttentionArgs& args) {
           if (std::find(p.queries.begin(), p.queries.end(), int64_t(query)) == p.queries.end())
             return;
           std::vector<float> k(16 * (query + 1));
           args.cache->CopyKeys(0, 0, int64_t(query) + 1, k.data());
           for (std::size_t h = 0; h < 2; ++h) {
             const float* q = Head(args.q, h);
             std::vector<double> scores;
             for (std::size_t key = 0; key <= query; ++key) {
               const double d = distance(int64_t(query), int64_t(key));
               double score = 0;
               for (std::size_t i = 0; i < 8; ++i) {
                 const double angle = d * std::pow(10000.0, -double(i) / 8);
                 const double qa = q[i], qb = q[i + 8];
                 const double ka = k[i * (query + 1) + key], kb = k[(i + 8) * (query + 1) + key];
                 score +=
                     (qa * ka + qb * kb) * std::cos(angle) + (qa * kb - qb * ka) * std::sin(angle);
               }
               scores.push_back(std::isnan(d) ? -INFINITY : score / 4);
             }
             AddTo(sums[layer], p, Softmax(scores, -INFINITY));
           }
         });
  for (std::size_t l = 0; l < 2; ++l) ExpectMass(p.layers[l], sums[l], 8);
}

TEST(AttentionProfile, UnderDistanceMaps) {
  ExpectMapped("rerope:30",
               [](int64_t i, int64_t j) { return double(std::min<int64_t>(i - j, 30)); });
  ExpectMapped("self-extend:30,group=6",
               [](int64_t i, int64_t j) { return double(reference::SelfExtend(i, j, 30, 6)); });
  ExpectMapped("sinks:4,window=40", [](int64_t i, int64_t j) {
    return i - j < 40 ? double(i - j) : j < 4 ? double(43 - j) : std::nan("");
  });
}

// Bins: an edge at the trained length, every distance in one, keys counted as they are.
TEST(AttentionProfile, Bins) {
  const AttentionProfile p =
      MeasureAttentionProfile(*Tiny().decoder, Tiny().files.config.plan, RandomText(1100, 1).ids,
                              {.queries = 3, .trained_length = 61});
  EXPECT_EQ(p.edges.front(), 0);
  EXPECT_EQ(p.edges.back(), 1099);
  EXPECT_NE(std::find(p.edges.begin(), p.edges.end(), 61), p.edges.end());
  EXPECT_THAT(std::vector<int64_t>(p.edges.begin(), p.edges.begin() + 10),
              testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 10));
  EXPECT_EQ(p.queries, (std::vector<int64_t>{1008, 1054, 1099}));
  EXPECT_NEAR(std::accumulate(p.keys.begin(), p.keys.end(), 0.0), (1008 + 1054 + 1099) / 3.0, 1e-9);
  const AttentionMass mean = p.Mean();
  EXPECT_NEAR(mean.mass[0], (p.layers[0].mass[0] + p.layers[1].mass[0]) / 2, 1e-12);
  EXPECT_NEAR(mean.Between(p.edges, 0, 61) + mean.Between(p.edges, 61, 1100) + mean.first_token, 1,
              1e-6);
}

TEST(AttentionProfile, Refuses) {
  const auto message = [](int64_t tokens, int64_t queries) {
    return test::MessageOf(ErrorCode::kInvalidArgument, [&] {
      MeasureAttentionProfile(*Tiny().decoder, Tiny().files.config.plan, RandomText(tokens, 1).ids,
                              {.queries = queries});
    });
  };
  EXPECT_THAT(message(15, 32), HasSubstr("at least 16 tokens and 2 queries, got 15 and 32"));
  EXPECT_THAT(message(64, 1), HasSubstr("got 64 and 1"));
}

}  // namespace
}  // namespace ropewalk
