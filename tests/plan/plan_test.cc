#include "ropewalk/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "ropewalk/base/error.h"
#include "tests/support/message_of.h"

namespace ropewalk {
namespace {

using ::testing::HasSubstr;

RotarySpec Spec(double base = 10000) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = 64;
  spec.base = base;
  spec.trained_length = 2048;
  return spec;
}

// Gemma's pattern in small: local layers, a global one with another base, a NoPE layer.
PositionPlan Mixed() {
  PositionPlan plan;
  plan.trained_length = 2048;
  plan.configured_length = 8192;
  for (const int layer : {0, 1, 2, 3, 4, 5}) {
    LayerPlan l;
    if (layer != 5) l.rotation = Spec(layer == 2 ? 1e6 : 10000);
    if (layer != 2 && layer != 5) l.window_tokens = 512;
    plan.layers.push_back(l);
  }
  plan.notes = {"weights permuted at load"};
  return plan;
}

TEST(Plan, ResolveSharesEqualRotations) {
  const ResolvedPlan r = Resolve(Mixed(), 4096);
  EXPECT_EQ(r.length, 4096);
  ASSERT_EQ(r.rotations.size(), 2u);
  ASSERT_EQ(r.layers.size(), 6u);
  const int expected[] = {0, 0, 1, 0, 0, -1};
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(r.layers[i].rotation, expected[i]) << i;
  EXPECT_EQ(r.layers[0].window_tokens, 512);
  EXPECT_EQ(r.layers[2].window_tokens, 0);
  EXPECT_EQ(r.hash.size(), 32u);
}

// A bias is found once, described and hashed by what scores get of it.
TEST(Plan, BiasOfALayer) {
  PositionPlan plan;
  plan.layers.resize(4);
  const std::string bare = Resolve(plan, 64).hash;
  for (const int layer : {0, 1, 3}) plan.layers[layer].bias = LayerBias{12, AlibiBias{}};
  plan.layers[3].bias->heads = 16;
  const ResolvedPlan r = Resolve(plan, 64);
  ASSERT_EQ(r.biases.size(), 2u);
  const int expected[] = {0, 0, -1, 1};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(r.layers[i].bias, expected[i]) << i;
  EXPECT_NE(r.hash, bare);
  EXPECT_EQ(r.hash, Resolve(plan, 1048576).hash);
  const std::string text = Describe(plan, 64);
  EXPECT_THAT(text,
              HasSubstr("layers 0-1: no rotation, scores plus ALiBi, 12 slopes 0.7071 to "
                        "0.003906 per token, 2^(-8k/8), then 2^(-8(2k-1)/16), added to scaled"));
  EXPECT_THAT(text, HasSubstr("layer 3: no rotation, scores plus ALiBi, 16 slopes 0.7071 to "
                              "0.003906 per token, 2^(-8k/16), added"));
  EXPECT_THAT(text, HasSubstr("layer 2: no position information"));

  const auto hash_with = [&](auto change) {
    PositionPlan other = plan;
    change(std::get<AlibiBias>(other.layers[1].bias->method));
    return Resolve(other, 64).hash;
  };
  EXPECT_NE(hash_with([](AlibiBias& a) { a.max_bias = 16; }), r.hash);
  EXPECT_NE(hash_with([](AlibiBias& a) { a.rule = AlibiSlopes::kGeometric; }), r.hash);
  EXPECT_NE(hash_with([](AlibiBias& a) { a.scale = 0.125; }), r.hash);
  EXPECT_NE(hash_with([](AlibiBias& a) { a.bfloat16 = true; }), r.hash);
  EXPECT_NE(hash_with([](AlibiBias& a) { a.ahead = AlibiAhead::kSymmetric; }), r.hash);
  EXPECT_EQ(hash_with([](AlibiBias& a) { a.slopes = AlibiBias{}.Lower(12, 0).behind; }), r.hash);

  // A rotation and a bias at once.
  plan.layers[0].rotation = Spec();
  EXPECT_THAT(Describe(plan, 64), HasSubstr("layer 0: rotary, half pairs"));
  for (const auto& [heads, max_bias, says] :
       {std::tuple{0, 8.0, "heads"}, {65537, 8.0, "heads"}, {8, -1.0, "max_bias"}}) {
    plan.layers[1].bias = LayerBias{heads, AlibiBias{.max_bias = max_bias}};
    EXPECT_THAT([&] { Resolve(plan, 64); }, testing::ThrowsMessage<Error>(HasSubstr(says)));
  }
  plan.layers[1].bias = LayerBias{8, AlibiBias{}};
  plan.layers[1].recurrent = true;
  EXPECT_THAT([&] { Resolve(plan, 64); },
              testing::ThrowsMessage<Error>(HasSubstr("layer 1: recurrent layers have no scores")));
}

// Hashes that docs/results names stay: SmolLM2-135M without scaling and with YaRN.
TEST(Plan, PublishedHashesStay) {
  PositionPlan plan;
  LayerPlan layer;
  layer.rotation = Spec(100000);
  plan.layers.assign(30, layer);
  EXPECT_EQ(Resolve(WithScaling(plan, NoScaling{}, 8192), 4096).hash,
            "0c2f055c5698c11a908ee579b83e8dac");
  EXPECT_EQ(Resolve(WithScaling(plan, YarnScaling{2}, 8192), 16384).hash,
            "0bd75ad0c92b289ea2c37db49bf7d56f");
  // ALiBi, as it was before other biases had a hash.
  plan.layers.assign(2, {});
  for (LayerPlan& l : plan.layers) l.bias = LayerBias{6, AlibiBias{}};
  EXPECT_EQ(Resolve(plan, 64).hash, "01ef7a54016a597db2503d1f19d99c7f");
}

TEST(Plan, WithScalingReplacesEveryRotationButLocalOnes) {
  const PositionPlan scaled = WithScaling(Mixed(), YarnScaling{4}, 1024);
  EXPECT_EQ(scaled.trained_length, 1024);
  for (std::size_t i = 0; i < 5; ++i) {
    ASSERT_TRUE(scaled.layers[i].rotation);
    // A layer that slides with a base of its own (Gemma 3) stays as it was trained.
    EXPECT_EQ(std::holds_alternative<YarnScaling>(scaled.layers[i].rotation->scaling), i == 2) << i;
    EXPECT_EQ(scaled.layers[i].rotation->trained_length, 1024);
    EXPECT_EQ(scaled.layers[i].window_tokens, Mixed().layers[i].window_tokens);
  }
  EXPECT_FALSE(scaled.layers[5].rotation);
  EXPECT_EQ(WithScaling(Mixed(), NoScaling{}).trained_length, 2048);
}

TEST(Plan, LearnedPositions) {
  PositionPlan plan;
  plan.layers.resize(3);
  const std::string nope = Resolve(plan, 64).hash;
  EXPECT_THAT(Describe(plan, 64), HasSubstr("NoPE"));
  plan.learned = LearnedPositions{1024, 2};
  const std::string hash = Resolve(plan, 64).hash;
  EXPECT_EQ(Resolve(plan, 64).learned->positions, 1024);
  EXPECT_THAT(Describe(plan, 64), HasSubstr("a learned vector for each of 1024 positions, from "
                                            "row 2"));
  EXPECT_THAT(Describe(plan, 64), HasSubstr("layers 0-2: no rotation"));
  plan.learned->first_row = 0;
  EXPECT_EQ((std::set<std::string>{nope, hash, Resolve(plan, 64).hash}).size(), 3u);
  plan.learned->positions = 0;
  EXPECT_THROW(Resolve(plan, 64), Error);
}

// Every encoding in front of the layers is a fact of the plan: in its hash, its text and its end.
TEST(Plan, EncodingsOfTheEmbeddings) {
  PositionPlan plan;
  plan.layers.resize(3);
  std::set<std::string> hashes = {Resolve(plan, 64).hash};
  struct Case {
    AbsoluteEncoding encoding;
    std::string words;
    int64_t positions = INT64_MAX;
  };
  const std::vector<Case> cases = {
      {SinusoidalEmbedding{}, "sinusoidal(interleaved, base 10000)"},
      {SinusoidalEmbedding{.ladder = SinusoidalLadder::kToBase, .scale = 0.5},
       "sinusoidal(interleaved, base 10000, ladder to-base, scale 0.5)"},
      {HierarchicalEmbedding{.rows = 7}, "hierarchical(rows 7, alpha 0.4)", 49},
      {MultiplicativeEmbedding{.rows = 64}, "multiplicative(rows 64)", 64},
      {DigitsEmbedding{}, "digits(base 10, digits 3)", 1000},
      {DigitsEmbedding{.base = 3, .digits = 4, .factor = 1.7},
       "digits(base 3, digits 4, factor 1.7)", 138},
      {RecurrentEmbedding{RecurrentCell::kGru}, "recurrent(gru)", 1 << 22},
      {FloaterEmbedding{.hidden = 16}, "floater(hidden 16, spacing 0.1, substeps 10)", 1 << 22},
      {ConvolutionalEmbedding{.kernel = 5, .groups = 2},
       "convolutional(kernel 5, groups 2, border zero)"},
      {ComplexOrderEmbedding{.phase_shared = ComplexSharing::kDims},
       "complex_order(frequency_shared none, phase_shared dims)"}};
  for (const Case& c : cases) {
    plan.absolute = c.encoding;
    EXPECT_THAT(Describe(plan, 64), HasSubstr("  embeddings: " + c.words + "\n"));
    EXPECT_THAT(Describe(plan, 64), HasSubstr("layers 0-2: no rotation"));
    EXPECT_EQ(PositionsOf(plan), c.positions) << c.words;
    if (c.positions < INT64_MAX) {
      EXPECT_EQ(DescribeEnd(plan), "no row: " + c.words + " has " + std::to_string(c.positions) +
                                       " positions, 0 to " + std::to_string(c.positions - 1));
    }
    EXPECT_TRUE(hashes.insert(Resolve(plan, 64).hash).second) << c.words;
    plan.recurrent_layer = RecurrentLayer{};
    EXPECT_TRUE(hashes.insert(Resolve(plan, 64).hash).second) << c.words;
    plan.recurrent_layer->cell = RecurrentCell::kGru;
    EXPECT_TRUE(hashes.insert(Resolve(plan, 64).hash).second) << c.words;
    EXPECT_THAT(Describe(plan, 64), HasSubstr("in front of the layers: recurrent layer(gru)"));
    plan.recurrent_layer.reset();
  }
  plan.learned = LearnedPositions{32, 0};  // the nearer end counts
  EXPECT_EQ(PositionsOf(plan), 32);
  EXPECT_EQ(DescribeEnd(plan),
            "no learned vector: there are learned vectors for 32 positions, 0 to 31");
}

TEST(Plan, EncodingsOfTheEmbeddingsRefuseWhatTheyCannotCompute) {
  const auto message = [](const AbsoluteEncoding& encoding, int64_t hidden = 24) {
    return test::MessageOf(ErrorCode::kInvalidArgument, [&] { Check(encoding, hidden); });
  };
  EXPECT_THAT(message(SinusoidalEmbedding{.base = 0}), HasSubstr("absolute: base: expected a pos"));
  EXPECT_THAT(message(HierarchicalEmbedding{.rows = 0}), HasSubstr("rows: expected 1 to"));
  EXPECT_THAT(message(HierarchicalEmbedding{.rows = 8, .alpha = 0.5}),
              HasSubstr("alpha: expected a number between 0 and 1 other than 0.5"));
  EXPECT_THAT(message(MultiplicativeEmbedding{}), HasSubstr("rows: expected 1 to"));
  EXPECT_THAT(message(DigitsEmbedding{.base = 1}), HasSubstr("base: expected 2 to"));
  EXPECT_THAT(message(DigitsEmbedding{.factor = 0.5}), HasSubstr("factor: expected 1 or more"));
  EXPECT_THAT(message(FloaterEmbedding{.substeps = 3}), HasSubstr("substeps: expected an even"));
  EXPECT_THAT(message(ConvolutionalEmbedding{.groups = 5}),
              HasSubstr("groups: expected a divisor of hidden_size, 24, got 5"));
  EXPECT_THAT(message(ConvolutionalEmbedding{.kernel = 2000, .groups = 1}),
              HasSubstr("kernel: expected 1 to 1024, got 2000"));
  EXPECT_THAT(message(ComplexOrderEmbedding{}, 7), HasSubstr("an even hidden_size"));
  Check(DigitsEmbedding{}, 7);
}

TEST(Plan, ScalingNeedsARotation) {
  PositionPlan plan;
  plan.layers.resize(2);
  EXPECT_EQ(WithScaling(plan, NoScaling{}, 64).trained_length, 64);
  try {
    WithScaling(plan, LinearScaling{2});
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(e.what(), HasSubstr("linear(factor 2) scales rotary frequencies"));
  }
}

TEST(Plan, HashIsOfWhatIsComputed) {
  const std::string hash = Resolve(Mixed(), 4096).hash;
  std::set<std::string> hashes = {hash};
  const auto changed = [&](const std::function<void(PositionPlan&)>& change) {
    PositionPlan plan = Mixed();
    change(plan);
    return Resolve(plan, 4096).hash;
  };
  // Not of names, notes, layouts, lengths that change nothing, or how the same numbers came about.
  EXPECT_EQ(changed([](PositionPlan& p) { p.notes.clear(); }), hash);
  EXPECT_EQ(changed([](PositionPlan& p) { p.configured_length = 0; }), hash);
  EXPECT_EQ(Resolve(Mixed(), 100).hash, hash);
  EXPECT_EQ(changed([](PositionPlan& p) {
              for (LayerPlan& l : p.layers) {
                if (l.rotation) l.rotation->layout = PairLayout::kInterleaved;
              }
            }),
            hash);
  EXPECT_EQ(changed([](PositionPlan& p) { p.layers[0].rotation->scaling = LinearScaling{1}; }),
            hash);
  // But of frequencies, amplitude, windows, and which layers have what.
  EXPECT_TRUE(
      hashes.insert(changed([](PositionPlan& p) { p.layers[0].rotation->base = 10001; })).second);
  EXPECT_TRUE(hashes
                  .insert(changed([](PositionPlan& p) {
                    YarnScaling s{1};
                    s.attention_factor = 1.5;
                    p.layers[0].rotation->scaling = s;
                  }))
                  .second);
  EXPECT_TRUE(
      hashes.insert(changed([](PositionPlan& p) { p.layers[0].window_tokens = 513; })).second);
  EXPECT_TRUE(hashes.insert(changed([](PositionPlan& p) { p.layers[0].rotation.reset(); })).second);
  EXPECT_TRUE(hashes.insert(changed([](PositionPlan& p) { p.layers.pop_back(); })).second);
  EXPECT_TRUE(
      hashes.insert(changed([](PositionPlan& p) { std::swap(p.layers[2], p.layers[3]); })).second);
}

TEST(Plan, LengthDependentMethodsResolveForTheDeclaredLength) {
  const PositionPlan plan = WithScaling(Mixed(), DynamicNtkScaling{2});
  EXPECT_EQ(Resolve(plan, 100).hash, Resolve(plan, 2048).hash);
  EXPECT_NE(Resolve(plan, 4096).hash, Resolve(plan, 2048).hash);
}

TEST(Plan, DescribeSaysWhatIsComputed) {
  const std::string text = Describe(WithScaling(Mixed(), YarnScaling{4}), 8192);
  EXPECT_THAT(text, HasSubstr("6 layers, resolved for 8192 tokens, trained at 2048"));
  EXPECT_THAT(text, HasSubstr("configured for 8192"));
  EXPECT_THAT(text, HasSubstr("layers 0, 1, 3, 4: rotary, half pairs, 64 of 64 dims, base 10000"));
  EXPECT_THAT(text, HasSubstr("yarn(factor 4"));
  EXPECT_THAT(text, HasSubstr("layer 2: rotary"));
  EXPECT_THAT(text, HasSubstr("base 1000000"));
  EXPECT_THAT(text, HasSubstr("sliding window of 512 tokens"));
  EXPECT_THAT(text, HasSubstr("layer 5: no position information (NoPE)"));
  EXPECT_THAT(text, HasSubstr("cos and sin times 1.138629436"));
  EXPECT_THAT(text, HasSubstr("wavelengths 6.28319 to"));
  EXPECT_THAT(text, HasSubstr("note: weights permuted at load"));
  EXPECT_THAT(text, HasSubstr("hash: "));
}

TEST(Plan, BadPlansAreErrors) {
  PositionPlan plan = Mixed();
  plan.layers[1].window_tokens = -1;
  try {
    Resolve(plan, 10);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("layer 1"));
  }
  plan = Mixed();
  plan.layers[3].rotation->rotary_dim = 63;
  EXPECT_THROW(Resolve(plan, 10), Error);
  EXPECT_THROW(Resolve(Mixed(), 0), Error);
  EXPECT_EQ(Resolve(PositionPlan(), 1).layers.size(), 0u);
}

// Llama 4 and Ministral 3 differ by one position; log-n is one up to the trained length.
TEST(Plan, Temperatures) {
  using Kind = QueryTemperature::Kind;
  const QueryTemperature llama4{Kind::kStepLog, 0.1, 8192, 1};
  const QueryTemperature ministral{Kind::kStepLog, 0.1, 8192, 0};
  EXPECT_EQ(Temperature(llama4, 0), 1);
  EXPECT_NEAR(Temperature(llama4, 8191), 1.0693147, 5e-8);
  EXPECT_EQ(Temperature(ministral, 8191), 1.0);
  EXPECT_NEAR(Temperature(llama4, 16383), 1.1098612, 5e-8);
  EXPECT_NEAR(Temperature(ministral, 16383), 1.0693147, 5e-8);
  // Before -offset there is no step, also where the formula would take the logarithm of 0 or less.
  const QueryTemperature late{Kind::kStepLog, 0.1, 8192, -8192};
  EXPECT_EQ(Temperature(late, 8192), 1);
  EXPECT_NEAR(Temperature(late, 16384), 1.0693147, 5e-8);
  for (const int64_t position :
       {int64_t{8191}, int64_t{1}, int64_t{0}, int64_t{-1}, int64_t{-8192}}) {
    EXPECT_EQ(Temperature(late, position), 1) << position;
  }
  const QueryTemperature log_n{Kind::kLogN, 0, 2048, 0};
  EXPECT_EQ(Temperature(log_n, 0), 1);
  EXPECT_EQ(Temperature(log_n, 2047), 1);
  EXPECT_GT(Temperature(log_n, 2048), 1);
  EXPECT_NEAR(Temperature(log_n, 2048 * 2048 - 1), 2, 1e-12);
}

// Whatever changes what is computed changes the hash, and the words.
TEST(Plan, EverythingCounts) {
  const auto change = [](const std::function<void(LayerPlan&)>& f) {
    PositionPlan plan = Mixed();
    f(plan.layers[0]);
    return plan;
  };
  const PositionPlan plans[] = {
      Mixed(),
      change([](LayerPlan& l) { l.chunk_tokens = 8192; }),
      change([](LayerPlan& l) { l.temperature = QueryTemperature{}; }),
      change([](LayerPlan& l) { l.temperature = QueryTemperature{.offset = 1}; }),
      change([](LayerPlan& l) { l.map = Rerope{100}; }),
      change([](LayerPlan& l) { l.map = Rerope{101}; }),
      change([](LayerPlan& l) {
        l.map = SelfExtend{100, 2};
      }),
      change([](LayerPlan& l) {
        l.map = SelfExtend{100, 3};
      }),
      change([](LayerPlan& l) {
        l.map = LeakyRerope{100, 2};
      }),
      change([](LayerPlan& l) {
        l.map = DualChunk{60, 100};
      }),
      change([](LayerPlan& l) {
        l.map = AttentionSinks{60, 100};
      }),
      change([](LayerPlan& l) {
        l.rotation->axes.sections = {16, 8, 8};
      }),
      change([](LayerPlan& l) {
        l.rotation->axes.sections = {16, 8, 8};
        l.rotation->axes.order = AxisOrder::kInterleaved;
      }),
      change([](LayerPlan& l) { l.rotation->xpos = XposDecay{}; }),
      change([](LayerPlan& l) { l.rotation->rotated_heads = 2; }),
      change([](LayerPlan& l) { l.rotation->scaling = HopeScaling{}; }),
  };
  std::set<std::string> hashes, words;
  for (const PositionPlan& plan : plans) {
    hashes.insert(Resolve(plan, 2048).hash);
    std::string text = Describe(plan, 2048);
    words.insert(text.substr(0, text.find("  hash:")));
  }
  EXPECT_EQ(hashes.size(), std::size(plans));
  EXPECT_EQ(words.size(), std::size(plans));
  const PositionPlan hope = change([](LayerPlan& l) { l.rotation->scaling = HopeScaling{}; });
  EXPECT_THAT(Describe(hope, 2048), HasSubstr("pairs have frequency 0"));
}

TEST(Plan, BadTemperaturesAreErrors) {
  for (const QueryTemperature& bad :
       {QueryTemperature{.period = 0}, QueryTemperature{.offset = -1},
        QueryTemperature{.beta = -0.1},
        QueryTemperature{.kind = QueryTemperature::Kind::kLogN, .period = 1}}) {
    PositionPlan plan = Mixed();
    plan.layers[3].temperature = bad;
    EXPECT_THROW((void)Resolve(plan, 2048), Error);
  }
  EXPECT_THROW((void)Temperature({.period = 0}, 5), Error);
  EXPECT_THROW((void)Temperature({.kind = QueryTemperature::Kind::kLogN, .period = 1}, 5), Error);
  EXPECT_THROW((void)Temperature({.kind = QueryTemperature::Kind::kMscale, .period = 0}, 5), Error);
  PositionPlan plan = Mixed();
  plan.layers[3].chunk_tokens = -1;
  EXPECT_THROW((void)Resolve(plan, 2048), Error);
}

TEST(Plan, MapsNeedALayerThatTakesThem) {
  const auto why = [](std::size_t layer, const DistanceMap& map) -> std::string {
    PositionPlan plan = Mixed();
    plan.layers[layer].map = map;
    try {
      Resolve(plan, 4096);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(why(2, Rerope{}), "");
  EXPECT_THAT(why(5, Rerope{}), HasSubstr("layer 5: rerope(window 512): expected a layer that"));
  EXPECT_THAT(why(0, Rerope{}),
              HasSubstr("layer 0: rerope(window 512): expected a layer that sees"));
  EXPECT_THAT(why(2, Rerope{2048}), HasSubstr("expected distances below 2048"));
  EXPECT_THAT(why(2, Rerope{0}), HasSubstr("Rerope.window"));
}

TEST(LayerNames, InWords) {
  EXPECT_EQ(LayerNames({3}), "layer 3");
  EXPECT_EQ(LayerNames({0, 1}), "layers 0-1");
  EXPECT_EQ(LayerNames({0, 2}), "layers 0, 2");
  EXPECT_EQ(LayerNames({1, 3, 5, 7, 9, 11}), "layers 1, 3, 5, ... 11");
  EXPECT_EQ(LayerNames({0, 1, 2, 4, 5, 6}), "layers 0, 1, 2, 4, 5, 6");
}

// Recurrent layers say so and hash like others without rotation; both at once is a mistake.
TEST(Plan, RecurrentLayers) {
  PositionPlan plan = Mixed();
  const std::string hash = Resolve(plan, 2048).hash;
  plan.layers[5].recurrent = true;
  EXPECT_THAT(Describe(plan, 2048), HasSubstr("layer 5: recurrent"));
  EXPECT_EQ(Resolve(plan, 2048).hash, hash);
  plan.layers[0].recurrent = true;
  try {
    Resolve(plan, 2048);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("layer 0: recurrent layers have no rotation"));
  }
}

// gpt-oss and Gemma alternate: a line for each kind of layer, not for each layer.
TEST(Describe, LayersThatAlternateMakeTwoLines) {
  PositionPlan plan;
  plan.layers.resize(24);
  for (std::size_t i = 0; i < plan.layers.size(); i += 2) plan.layers[i].window_tokens = 128;
  const std::string text = Describe(plan, 4096);
  EXPECT_THAT(text, HasSubstr("layers 0, 2, 4, ... 22: no position information (NoPE), sliding"));
  EXPECT_THAT(text, HasSubstr("layers 1, 3, 5, ... 23: no position information (NoPE)\n"));
}

TEST(Plan, AnEncodingStandsInThePlaceOfARotation) {
  PositionPlan plan = Mixed();
  plan.layers[0].encoding = FopeLayer{500, 4};
  EXPECT_THAT(test::MessageOf([&] { Resolve(plan, 100); }),
              HasSubstr("layer 0: FoPE, base 500; cos and sin of 4 pairs"));
  plan.layers[0].rotation.reset();
  const std::string hash = Resolve(plan, 100).hash;
  plan.layers[0].encoding = FopeLayer{500, 5};
  EXPECT_NE(Resolve(plan, 100).hash, hash);
  plan.layers[0].encoding = PopeLayer{500};
  EXPECT_NE(Resolve(plan, 100).hash, hash);
  plan.layers[0].recurrent = true;
  EXPECT_THAT(test::MessageOf([&] { Resolve(plan, 100); }), HasSubstr("recurrent layers"));
  EXPECT_EQ(EncodedDim(std::nullopt, 8), 8);
  EXPECT_EQ(EncodingFrequencies(PopeLayer{500}, 8).inv_freq.size(), 8u);
  EXPECT_EQ(EncodingFrequencies(FopeLayer{500, 3}, 8).inv_freq.size(), 3u);
  EXPECT_THAT(test::MessageOf([&] {
                EncodingFrequencies(FopeLayer{500, 5}, 8);
              }),
              HasSubstr("frequencies: expected 1 to 4"));
}

}  // namespace
}  // namespace ropewalk
