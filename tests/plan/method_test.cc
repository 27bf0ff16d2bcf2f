// Methods by their words: what they are made of, what they derive from a length, what they refuse.
#include "ropewalk/plan/method.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ropewalk/base/error.h"
#include "tests/support/message_of.h"

namespace ropewalk {
namespace {

using test::MessageOf;
using testing::AllOf;
using testing::HasSubstr;

PositionPlan Plan(int64_t trained, int64_t layers = 3) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = 32;
  spec.trained_length = trained;
  PositionPlan plan;
  plan.trained_length = trained;
  plan.layers.resize(static_cast<std::size_t>(layers));
  for (LayerPlan& layer : plan.layers) layer.rotation = spec;
  return plan;
}

std::string WhyNot(const std::string& method) {
  return MessageOf([&] { PositionMethod::Parse(method); });
}

TEST(PositionMethod, ScalingsAreWhatTheyWere) {
  const PositionPlan plan = Plan(256);
  for (const MethodInfo& info : Methods()) {
    const PositionMethod method = PositionMethod::Parse(info.name);
    EXPECT_TRUE(method.only_scales());
    EXPECT_EQ(method.title(), info.title);
    EXPECT_EQ(method.source(), info.source);
    EXPECT_EQ(method.length_dependent(), info.length_dependent);
    EXPECT_EQ(method.Describe(4, 256), Describe(info.make(4)));
    EXPECT_EQ(Resolve(method.Apply(plan, 4, 256), 1024).hash,
              Resolve(WithScaling(plan, info.make(4), 256), 1024).hash);
  }
  EXPECT_TRUE(PositionMethod::Parse("yarn").uses_factor());
  EXPECT_FALSE(PositionMethod::Parse("hope").uses_factor());
  EXPECT_FALSE(PositionMethod::Parse("yarn:factor=2").uses_factor());
}

// OLMo 3 has one base, and its sliding layers are never scaled.
TEST(PositionMethod, UnscaledLocalLayers) {
  PositionPlan plan = Plan(256);
  plan.layers[0].window_tokens = plan.layers[2].window_tokens = 64;
  const PositionMethod yarn = PositionMethod::Parse("yarn");
  const auto scaled = [](const PositionPlan& p, int layer) {
    return p.layers[layer].rotation->scaling != Scaling(NoScaling{});
  };
  EXPECT_TRUE(scaled(yarn.Apply(plan, 4, 256), 0));
  plan.local_unscaled = true;
  const PositionPlan out = yarn.Apply(plan, 4, 256);
  EXPECT_FALSE(scaled(out, 0) || scaled(out, 2));
  EXPECT_TRUE(scaled(out, 1));
  EXPECT_TRUE(scaled(PositionMethod::Parse("yarn+all-layers").Apply(plan, 4, 256), 0));
  plan.layers[1].window_tokens = 64;  // nothing sees everything
  EXPECT_TRUE(scaled(yarn.Apply(plan, 4, 256), 1));
}

// A sliding layer that the file scales keeps the length of its own dictionary.
TEST(PositionMethod, LocalLayersKeepTheirLength) {
  PositionPlan plan = Plan(256);
  RotarySpec& local = *plan.layers[0].rotation;
  plan.layers[0].window_tokens = 64;
  local.base = 500;
  local.scaling = YarnScaling{.factor = 2};
  local.trained_length = 128;
  const PositionPlan out = PositionMethod::Parse("yarn").Apply(plan, 4, 512);
  EXPECT_EQ(*out.layers[0].rotation, local);
  EXPECT_EQ(out.layers[1].rotation->trained_length, 512);
}

// Defaults by the formulas of the papers, typed again.
TEST(PositionMethod, DefaultsKeepEveryDistanceKnown) {
  for (const int64_t trained : {2, 3, 7, 64, 256, 257, 4096, 8192, 131071}) {
    for (const double factor : {1.0, 1.5, 2.0, 4.0, 8.0, 64.0}) {
      const auto target = static_cast<int64_t>(std::llround(static_cast<double>(trained) * factor));
      for (const MethodPart& part : MethodParts()) {
        if (part.make == nullptr) continue;
        const auto map = PositionMethod::Parse(part.name).MapFor(factor, trained);
        ASSERT_TRUE(map);
        if (const auto* m = std::get_if<StringMap>(&*map);
            m != nullptr && target + m->window >= 2 * trained) {
          // Near ones are below trained and far ones start at the window: it reaches twice as far.
          EXPECT_EQ(m->shift, trained - 1);
          continue;
        }
        EXPECT_LT(LargestRelativePosition(*map, target), static_cast<double>(trained))
            << Describe(*map) << " of " << trained << " to " << target;
      }
    }
  }
  const auto words = [](const char* name, double factor) {
    return PositionMethod::Parse(name).Describe(factor, 4096);
  };
  EXPECT_EQ(words("rerope", 4), "rerope(window 2048)");
  EXPECT_EQ(words("leaky-rerope", 4), "leaky-rerope(window 2048, factor 7)");  // 14336 / 2048
  EXPECT_EQ(words("self-extend", 4), "self-extend(window 1024, group 6)");     // 5 reach 4096
  EXPECT_EQ(words("self-extend", 1), "self-extend(window 1024, group 1)");
  EXPECT_EQ(words("dual-chunk", 4), "dual-chunk(chunk 3072, limit 4095)");  // the paper's
  EXPECT_EQ(words("sinks", 4), "sinks(sinks 4, window 4092)");
  EXPECT_EQ(words("string", 1), "string(shift 1365, window 128)");  // a third, as the paper
  // The authors' fit for Llama 3.1 as far as it goes: 82358 of 131072 tokens, here of 4096.
  EXPECT_EQ(words("lampe", 4), "lampe(head 512, mapped 2573, tail 200, length 16384)");
  EXPECT_EQ(words("dpe", 4),
            "dpe(window 1024, group1 8, group2 8, group3 8, group4 8, group5 8, group6 8, "
            "group7 8, group8 8)");
  EXPECT_EQ(words("mscale", 4), "mscale(factor 2)");
  EXPECT_EQ(words("string", 1.5), "string(shift 2176, window 128)");  // 6144 + 128 - 4096
  EXPECT_EQ(words("log-n", 4), "log-n(length 4096)");
  // A group less would show distances that were never trained.
  EXPECT_GE(LargestRelativePosition(SelfExtend{1024, 5}, 16384), 4096);
  EXPECT_GE(LargestRelativePosition(LeakyRerope{2048, 6}, 16384), 4096);
}

TEST(PositionMethod, SettingsReplaceDefaults) {
  const auto words = [](const char* name) { return PositionMethod::Parse(name).Describe(4, 4096); };
  EXPECT_EQ(words("rerope:512"), "rerope(window 512)");
  EXPECT_EQ(words("rerope:window=512"), "rerope(window 512)");
  EXPECT_EQ(words("self-extend:window=512,group=8"), "self-extend(window 512, group 8)");
  EXPECT_EQ(words("self-extend:group=8"), "self-extend(window 1024, group 8)");
  EXPECT_EQ(words("leaky-rerope:512"), "leaky-rerope(window 512, factor 5)");  // 15872 / 3584
  EXPECT_EQ(words("dual-chunk:chunk=2048"), "dual-chunk(chunk 2048, limit 4095)");
  EXPECT_EQ(words("sinks:0,window=100"), "sinks(sinks 0, window 100)");
  EXPECT_EQ(words("string:1638,window=512"), "string(shift 1638, window 512)");
  EXPECT_EQ(words("lampe:head=256,mapped=3000,tail=64,length=9000"),
            "lampe(head 256, mapped 3000, tail 64, length 9000)");
  EXPECT_EQ(words("dpe:512,group2=4,group8=128"),
            "dpe(window 512, group1 8, group2 4, group3 8, group4 8, group5 8, group6 8, group7 8, "
            "group8 128)");
  EXPECT_EQ(words("string+mscale:3"), "string(shift 4095, window 128) + mscale(factor 3)");
  EXPECT_EQ(words("string:64"), "string(shift 64, window 64)");
  EXPECT_EQ(words("log-n:512"), "log-n(length 512)");
}

TEST(PositionMethod, CombinationsShareTheFactor) {
  const PositionMethod both = PositionMethod::Parse("yarn+self-extend+log-n");
  EXPECT_FALSE(both.only_scales());
  EXPECT_EQ(both.title(), "YaRN + Self-Extend + log-n attention");
  EXPECT_EQ(FactorOf(both.ScalingFor(16)), 4);
  // YaRN knows 4 * 256 tokens, Self-Extend goes from there to 4096: 4095 / 6 + 256 - 256 / 6.
  EXPECT_EQ(Describe(*both.MapFor(16, 256)), "self-extend(window 256, group 6)");
  EXPECT_EQ(both.TemperatureFor(256)->period, 256);
  EXPECT_EQ(FactorOf(PositionMethod::Parse("ntk+log-n").ScalingFor(16)), 16);
  EXPECT_EQ(FactorOf(PositionMethod::Parse("ntk:factor=2.5+rerope").ScalingFor(16)), 2.5);
  EXPECT_EQ(PositionMethod::Parse("ntk:2+rerope").Describe(16, 256),
            "ntk(factor 2) + rerope(window 256)");
  EXPECT_EQ(PositionMethod::Parse("log-n+rerope").Describe(16, 256),
            "rerope(window 128) + log-n(length 256)");

  const ResolvedPlan plan = Resolve(both.Apply(Plan(256), 16, 256), 4096);
  for (const ResolvedLayer& layer : plan.layers) {
    ASSERT_TRUE(layer.map && layer.temperature);
    EXPECT_EQ(Describe(*layer.map), "self-extend(window 256, group 6)");
    for (const int64_t n : {0, 255, 256, 4095, 131071, 1048575}) {
      EXPECT_DOUBLE_EQ(Temperature(*layer.temperature, n),
                       std::max(1.0, std::log(double(n) + 1) / std::log(256.0)));
    }
  }
}

// Layers that never see farther than the model knows stay as they are; others must take the map.
TEST(PositionMethod, LayersThatNeedIt) {
  PositionPlan plan = Plan(256, 4);
  plan.layers[0].window_tokens = 128;
  plan.layers[1].rotation.reset();
  plan.layers[2].chunk_tokens = 256;
  const PositionPlan out = PositionMethod::Parse("rerope+log-n").Apply(plan, 4);
  EXPECT_FALSE(out.layers[0].map || out.layers[0].temperature);
  EXPECT_FALSE(out.layers[1].map);
  EXPECT_TRUE(out.layers[1].temperature);
  EXPECT_FALSE(out.layers[2].map || out.layers[2].temperature);
  EXPECT_TRUE(out.layers[3].map && out.layers[3].temperature);
  EXPECT_THAT(Describe(out, 1024),
              AllOf(HasSubstr("distances mapped by rerope(window 128)"), HasSubstr("ln 256")));

  plan.layers[3].window_tokens = 256;
  EXPECT_THAT(MessageOf([&] { PositionMethod::Parse("sinks").Apply(plan, 4); }),
              HasSubstr("sees farther than the 256 tokens"));
  plan.layers[3].temperature = QueryTemperature{};
  EXPECT_NO_THROW(PositionMethod::Parse("log-n").Apply(plan, 4));
  plan.layers[3].window_tokens = 0;
  EXPECT_THAT(MessageOf([&] { PositionMethod::Parse("log-n").Apply(plan, 4); }),
              HasSubstr("layer 3 of this model has a temperature of its own"));
  plan.layers[3].temperature = QueryTemperature{QueryTemperature::Kind::kLogN, 0, 256, 0};
  EXPECT_NO_THROW(PositionMethod::Parse("log-n").Apply(plan, 4));  // Qwen 1: the same
}

// modeling_qwen.py of Qwen 1, typed again: get_ntk_alpha, and logn_list = [log_L(i) if i > L else 1],
// i from 1, of which the query at position m takes entry m.
TEST(PositionMethod, ProportionalFrequenciesAreKeptOrTheMethodRefused) {
  PositionPlan plan = Plan(64);
  plan.layers[0].rotation->scaling = ProportionalScaling{0.25, 1};
  const auto apply = [&](const char* method) {
    return PositionMethod::Parse(method).Apply(plan, 4);
  };
  for (const char* method : {"none", "rerope", "log-n"}) {
    const PositionPlan kept = apply(method);
    EXPECT_EQ(kept.layers[0].rotation->scaling, (Scaling(ProportionalScaling{0.25, 1}))) << method;
    EXPECT_EQ(kept.layers[1].rotation->scaling, Scaling(NoScaling{})) << method;
  }
  const PositionPlan linear = apply("linear");
  EXPECT_EQ(linear.layers[0].rotation->scaling, (Scaling(ProportionalScaling{0.25, 4})));
  EXPECT_EQ(linear.layers[1].rotation->scaling, Scaling(LinearScaling{4}));
  for (const char* method : {"yarn", "ntk", "dynamic", "llama3"}) {
    EXPECT_THAT(
        MessageOf([&] { apply(method); }),
        AllOf(HasSubstr("layer 0"), HasSubstr("proportional"), HasSubstr("none and linear")))
        << method;
  }
}

// Gemma 3: four layers slide and have base 10000, two see everything and have base 1e6.
TEST(PositionMethod, AllLayersAreThoseWithALocalBaseToo) {
  PositionPlan plan = Plan(4096, 6);
  for (const std::size_t l : {0, 1, 3, 4}) plan.layers[l].window_tokens = 512;
  for (const std::size_t l : {2, 5}) plan.layers[l].rotation->base = 1e6;
  const PositionPlan full = PositionMethod::Parse("linear").Apply(plan, 4);
  const PositionMethod method = PositionMethod::Parse("linear+all-layers");
  const PositionPlan all = method.Apply(plan, 4);
  EXPECT_NE(Resolve(full, 16384).hash, Resolve(all, 16384).hash);
  const ResolvedPlan of_full = Resolve(full, 16384), of_all = Resolve(all, 16384);
  for (std::size_t l = 0; l < 6; ++l) {
    const bool slides = plan.layers[l].window_tokens > 0;
    // base^(-2 i / 32) of pair 5, over 4 where it is scaled.
    const double plain = std::pow(slides ? 1e4 : 1e6, -10.0 / 32);
    const auto pair = [&](const ResolvedPlan& r) {
      return r.rotations[static_cast<std::size_t>(r.layers[l].rotation)].frequencies.inv_freq[5].hi;
    };
    EXPECT_NEAR(pair(of_full), slides ? plain : plain / 4, 1e-15) << l;
    EXPECT_NEAR(pair(of_all), plain / 4, 1e-15) << l;
    EXPECT_EQ(all.layers[l].window_tokens, plan.layers[l].window_tokens);
  }
  EXPECT_TRUE(method.all_layers() && method.only_scales() && method.uses_factor());
  EXPECT_EQ(method.title(), "position interpolation, in all layers");
  EXPECT_EQ(method.Describe(4, 4096), "linear(factor 4), in all layers");
  EXPECT_EQ(PositionMethod::Parse("ntk:2+all-layers+log-n").Describe(4, 4096),
            "ntk(factor 2) + log-n(length 4096), in all layers");
  EXPECT_THAT(MessageOf([&] { method.Apply(Plan(4096), 4); }),
              AllOf(HasSubstr("method linear+all-layers: no sliding-window layer"),
                    HasSubstr("leave it out")));
  for (const char* alone : {"all-layers", "none+all-layers", "rerope+all-layers"}) {
    EXPECT_THAT(WhyNot(alone), HasSubstr("expected a scaling before all-layers")) << alone;
  }
  for (const char* twice : {"yarn+all-layers+all-layers", "yarn+all-layers:2"}) {
    EXPECT_THAT(WhyNot(twice), HasSubstr("expected all-layers once and without settings")) << twice;
  }
}

TEST(PositionMethod, QwenAndLogNAreThoseOfQwen1) {
  const PositionMethod both = PositionMethod::Parse("qwen+log-n");
  EXPECT_FALSE(PositionMethod::Parse("qwen").TemperatureFor(2048));
  const PositionPlan plan = both.Apply(Plan(2048), 8);
  for (const int64_t n : {1, 256, 2047, 2048, 2049, 4096, 4097, 8192, 131071}) {
    const double context = std::log2(static_cast<double>(n) / 2048) + 1;
    const double alpha = std::max(std::pow(2.0, std::ceil(context)) - 1, 1.0);
    const ResolvedPlan resolved = Resolve(plan, n);
    const double base = 10000 * std::pow(alpha, 32.0 / 30);
    EXPECT_NEAR(resolved.rotations[0].frequencies.inv_freq[15].hi * std::pow(base, 30.0 / 32), 1,
                1e-12)
        << n;
  }
  for (const int64_t m : {0, 1, 255, 2046, 2047, 2048, 2049, 8192, 131071, 1048575}) {
    const double i = static_cast<double>(m + 1);
    EXPECT_NEAR(Temperature(*plan.layers[0].temperature, m),
                i > 2048 ? std::log(i) / std::log(2048.0) : 1, 1e-15)
        << m;
  }
}

TEST(PositionMethod, Refusals) {
  EXPECT_THAT(WhyNot("bogus"), AllOf(HasSubstr("expected one of none, linear"),
                                     HasSubstr("self-extend"), HasSubstr("got \"bogus\"")));
  EXPECT_THAT(WhyNot(""), HasSubstr("got \"\""));
  EXPECT_THAT(WhyNot("ntk+"), HasSubstr("got \"\""));
  EXPECT_THAT(WhyNot("yarm"), HasSubstr("got \"yarm\" (did you mean \"yarn\"?)"));
  EXPECT_THAT(WhyNot("ntk+T5"), HasSubstr("got \"T5\", which is trained with the model"));
  EXPECT_THAT(WhyNot("ntk+yarn"), HasSubstr("one scaling of the frequencies, got ntk and yarn"));
  EXPECT_THAT(WhyNot("rerope+sinks"), HasSubstr("one distance map, got rerope and sinks"));
  EXPECT_THAT(WhyNot("log-n+log-n"), HasSubstr("one temperature, got log-n and log-n"));
  EXPECT_THAT(WhyNot("rerope:group=3"), HasSubstr("expected window=NUMBER, each once"));
  EXPECT_THAT(WhyNot("self-extend:8,8"), HasSubstr("window=NUMBER or group=NUMBER"));
  EXPECT_THAT(WhyNot("self-extend:window=8,window=9"), HasSubstr("got \"window=9\""));
  for (const char* bad : {"rerope:", "rerope:x", "rerope:5x", "rerope:window=", "rerope:1.5",
                          "yarn:", "yarn:factor=two", "yarn:window=5"}) {
    EXPECT_THAT(WhyNot(bad), HasSubstr("NUMBER")) << bad;
  }
  EXPECT_THAT(WhyNot("hope:factor=2"), HasSubstr("hope has nothing to set"));
  EXPECT_FALSE(PositionMethod::TryParse("custom"));
  EXPECT_TRUE(PositionMethod::TryParse("ntk+log-n"));

  const auto apply = [](const char* method, double factor = 4, int64_t trained = 256) {
    return MessageOf([&] { PositionMethod::Parse(method).Apply(Plan(trained), factor); });
  };
  EXPECT_THAT(apply("dynamic+rerope"), HasSubstr("both would extend twice"));
  EXPECT_EQ(apply("dynamic+log-n"), "no error");
  EXPECT_THAT(apply("rerope:256"), HasSubstr("expected distances below 256"));
  EXPECT_EQ(apply("linear:2+rerope:256"), "no error");  // it knows 512
  EXPECT_THAT(apply("rerope:0"), HasSubstr("Rerope.window: expected 1 or more, got 0"));
  EXPECT_THAT(apply("rerope:-5"), HasSubstr("Rerope.window: expected 1 or more, got -5"));
  EXPECT_THAT(apply("self-extend:group=0"), HasSubstr("SelfExtend.group"));
  EXPECT_THAT(apply("dual-chunk:10,limit=21"), HasSubstr("DualChunk.limit: expected 10 to 20"));
  EXPECT_THAT(apply("rerope", 0.5), HasSubstr("a factor from 1 to 1e6"));
  EXPECT_THAT(apply("rerope", 4, 0), HasSubstr("--trained N"));
  EXPECT_THAT(apply("log-n", 4, 0), HasSubstr("--trained N"));
  PositionPlan xpos = Plan(256);
  xpos.layers[1].rotation->xpos = XposDecay{};
  EXPECT_THAT(MessageOf([&] { PositionMethod::Parse("rerope").Apply(xpos, 4); }),
              HasSubstr("without xPos"));
  PositionPlan still = Plan(256);
  for (LayerPlan& layer : still.layers) layer.rotation.reset();
  for (const char* method : {"rerope", "mscale"}) {
    EXPECT_THAT(MessageOf([&] { PositionMethod::Parse(method).Apply(still, 4); }),
                HasSubstr("expected a layer that rotates"))
        << method;
  }
}

}  // namespace
}  // namespace ropewalk
