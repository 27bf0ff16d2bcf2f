// Settings for models whose files have a scaling already.
#include "src/config/shipped.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "ropewalk/config/config.h"
#include "ropewalk/engines/settings.h"
#include "ropewalk/plan/method.h"
#include "tests/engines/support.h"

namespace ropewalk {
namespace shipped_test {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

Json Config(int64_t max_position, const Json& rope_scaling) {
  Json config = Json::parse(R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4,
      "num_key_value_heads": 2, "num_hidden_layers": 2, "intermediate_size": 96, "vocab_size": 100,
      "rope_theta": 10000.0})");
  config["max_position_embeddings"] = max_position;
  config["rope_scaling"] = rope_scaling;
  return config;
}

PositionPlan Read(const Json& config) { return ParseHfConfig(config.dump(), "config.json").plan; }

const Json kLlama3 = {{"rope_type", "llama3"},
                      {"factor", 4.0},
                      {"low_freq_factor", 1.0},
                      {"high_freq_factor", 4.0},
                      {"original_max_position_embeddings", 1024}};
const Json kYarn = {
    {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 1024}};
const Json kDynamic = {{"rope_type", "dynamic"}, {"factor", 2.0}};
const Json kLongRope = {{"rope_type", "longrope"},
                        {"short_factor", std::vector<double>(8, 1.0)},
                        {"long_factor", std::vector<double>(8, 2.0)},
                        {"original_max_position_embeddings", 1024}};

EngineSetting Find(const std::vector<EngineSetting>& all, const std::string& engine) {
  for (const EngineSetting& s : all) {
    if (s.engine == engine) return s;
  }
  ADD_FAILURE() << "no setting for " << engine;
  return all.front();
}

SettingsTarget TargetOf(const PositionPlan& plan, int64_t length) {
  SettingsTarget target{1024, length, 10000, 16};
  target.place = plan.place;
  return target;
}

TEST(Shipped, IsKnownOfAFile) {
  EXPECT_EQ(Read(Config(1024, nullptr)).place.shipped, "");
  const SettingPlace yarn = Read(Config(2048, kYarn)).place;
  EXPECT_EQ(yarn.shipped, "yarn");
  EXPECT_FALSE(yarn.kept_in_gguf);
  EXPECT_EQ(yarn.stated_length, 2048);
  EXPECT_EQ(yarn.configured_length, 4096);
  EXPECT_TRUE(Read(Config(4096, kLlama3)).place.kept_in_gguf);
  EXPECT_TRUE(Read(Config(4096, kLongRope)).place.kept_in_gguf);
  EXPECT_FALSE(internal::KeptInGguf(YarnScaling{.factor = 4}));
  EXPECT_TRUE(internal::KeptInGguf(YarnScaling{.factor = 4, .attn_factor = 1.5}));
  EXPECT_TRUE(internal::KeptInGguf(ExplicitScaling{{1, 2}}));
}

// Transformers 5 takes a rope_scaling of the file in the place of rope_parameters.
TEST(Shipped, RopeScalingIsReplacedInTransformers5) {
  for (const char* name : {"none", "ntk", "linear", "yarn"}) {
    SCOPED_TRACE(name);
    Json config = Config(4096, kLlama3);
    config.erase("rope_theta");
    const PositionPlan plan = Read(config);
    const PositionMethod method = PositionMethod::Parse(name);
    const auto all = SettingsFor(method, 2, TargetOf(plan, 2048));
    const auto setting =
        nlohmann::ordered_json::parse(Find(all, "Hugging Face transformers 5").setting);
    // First: of a loaded configuration it is another name of rope_parameters.
    EXPECT_EQ(setting.begin().key(), "rope_scaling");
    EXPECT_TRUE(setting.begin().value().is_null());
    for (const auto& [key, value] : setting.items()) config[key] = Json::parse(value.dump());
    EXPECT_EQ(Resolve(Read(config), 2048).hash, Resolve(method.Apply(plan, 2, 1024), 2048).hash);
    EXPECT_THAT(Find(all, "vLLM (on transformers 5)").setting, Not(HasSubstr("rope_scaling")));
  }
}

// A file that llama.cpp's converter makes of it has divisors that no flag takes out.
TEST(Shipped, DivisorsStayUnderFlagsOfLlamaCpp) {
  for (const Json& rope : {kLlama3, kLongRope}) {
    const SettingsTarget target = TargetOf(Read(Config(4096, rope)), 2048);
    for (const char* name : {"none", "ntk", "yarn", "self-extend"}) {
      const EngineSetting s =
          Find(SettingsFor(PositionMethod::Parse(name), 2, target), "llama.cpp");
      EXPECT_FALSE(s.expressible) << name;
      EXPECT_EQ(s.setting, "");
      EXPECT_THAT(s.note, HasSubstr("ropewalk extend"));
    }
    EXPECT_FALSE(Find(SettingsForDictionary(R"({"rope_type": "linear", "factor": 2})", 2, target),
                      "llama.cpp")
                     .expressible);
  }
  const SettingsTarget yarn = TargetOf(Read(Config(4096, kYarn)), 2048);
  EXPECT_THAT(Find(SettingsFor(NoScaling{}, yarn), "llama.cpp").setting,
              HasSubstr("--rope-scaling none"));
}

TEST(AsShipped, DynamicCountsFromTheLengthOfTheFile) {
  const auto all = SettingsAsShipped(2048, Read(Config(1024, kDynamic)).place);
  for (const char* engine : {"Hugging Face transformers 5", "Hugging Face transformers 4"}) {
    EXPECT_EQ(Find(all, engine).setting, "{}");
    EXPECT_THAT(Find(all, engine).note, HasSubstr("Leave max_position_embeddings at 1024"));
  }
  EXPECT_EQ(Find(all, "vLLM").setting, "--max-model-len 2048");
  EXPECT_THAT(Find(all, "vLLM").note, HasSubstr("static despite its name"));
  EXPECT_FALSE(Find(all, "llama.cpp").expressible);
  EXPECT_THAT(Find(all, "llama.cpp").note, HasSubstr("no dynamic NTK"));
}

TEST(AsShipped, LengthsAreRaisedAndNeverLowered) {
  const auto of = [](int64_t max_position, const Json& rope, int64_t length, const char* engine) {
    return Find(SettingsAsShipped(length, Read(Config(max_position, rope)).place), engine).setting;
  };
  const auto hf = [&](int64_t max_position, const Json& rope, int64_t length) {
    return Json::parse(of(max_position, rope, length, "Hugging Face transformers 4"));
  };
  const auto raised = [](int64_t length) { return Json{{"max_position_embeddings", length}}; };
  EXPECT_EQ(hf(4096, kYarn, 2048), Json::object());
  EXPECT_EQ(hf(4096, kLlama3, 2048), Json::object());
  EXPECT_EQ(hf(4096, kLlama3, 8192), raised(8192));
  // Its ratio to the original length is YaRN's factor in some versions, LongRoPE's in all.
  EXPECT_EQ(hf(4096, kYarn, 8192), Json::object());
  EXPECT_EQ(hf(1024, kYarn, 2048), raised(4096));
  EXPECT_EQ(hf(4096, kLongRope, 8192), Json::object());
  // llama-server ends at the file's context_length.
  EXPECT_EQ(of(4096, kYarn, 2048, "llama.cpp"), "-c 2048");
  EXPECT_EQ(of(4096, kYarn, 8192, "llama.cpp"),
            "-c 8192 --override-kv ARCH.context_length=int:8192");
  // vLLM refuses more than the file's length, and its table of angles ends there.
  EXPECT_EQ(of(4096, kLlama3, 4096, "vLLM"), "--max-model-len 4096");
  EXPECT_EQ(of(4096, kLlama3, 8192, "vLLM"),
            "--max-model-len 8192 --hf-overrides '{\"max_position_embeddings\":8192}'");
  EXPECT_EQ(of(1024, kYarn, 4096, "vLLM"), "--max-model-len 4096");
  for (const Json& rope : {kYarn, kLongRope}) {
    const auto beyond = Find(SettingsAsShipped(8192, Read(Config(4096, rope)).place), "vLLM");
    EXPECT_FALSE(beyond.expressible);
    EXPECT_THAT(beyond.note, HasSubstr("ends at the length that the model's files say, 4096"));
  }
}

// Without original_max_position_embeddings engines count from max_position_embeddings.
TEST(Dictionaries, OriginalLengthIsSaid) {
  const SettingsTarget target{1024, 4096, 10000, 16};
  for (const char* dictionary :
       {R"({"rope_type": "yarn", "factor": 4})", R"({"type": "yarn", "beta_fast": 16})",
        R"({"rope_type": "longrope", "short_factor": [1, 1, 1, 1, 1, 1, 1, 1],
            "long_factor": [2, 2, 2, 2, 2, 2, 2, 2]})"}) {
    const auto all = SettingsForDictionary(dictionary, 4, target);
    const Json older = Json::parse(Find(all, "Hugging Face transformers 4").setting);
    EXPECT_EQ(older["rope_scaling"]["original_max_position_embeddings"], 1024) << dictionary;
    EXPECT_THAT(Find(all, "vLLM (on transformers 5)").setting,
                HasSubstr("\"original_max_position_embeddings\":1024"));
  }
  const auto own = SettingsForDictionary(
      R"({"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 300})", 4, target);
  EXPECT_EQ(Json::parse(Find(own, "Hugging Face transformers 4")
                            .setting)["rope_scaling"]["original_max_position_embeddings"],
            300);
  const auto linear = SettingsForDictionary(R"({"rope_type": "linear", "factor": 4})", 4, target);
  EXPECT_THAT(Find(linear, "Hugging Face transformers 4").setting, Not(HasSubstr("original")));
}

// A factor on YaRN's own amplitude is vLLM's and llama.cpp's; transformers ignores it.
TEST(Dictionaries, AFactorOnYarnsAmplitude) {
  const SettingsTarget target{1024, 4096, 10000, 16};
  const char* dictionary = R"({"rope_type": "yarn", "factor": 4, "attn_factor": 1.3})";
  const double amplitude = 1.3 * (0.1 * std::log(4) + 1);
  for (const auto& all : {SettingsForDictionary(dictionary, 4, target),
                          SettingsFor(YarnScaling{.factor = 4, .attn_factor = 1.3}, target)}) {
    for (const char* name : {"rope_scaling", "rope_parameters"}) {
      const bool newer = std::string(name) == "rope_parameters";
      const Json rope = Json::parse(
          Find(all, newer ? "Hugging Face transformers 5" : "Hugging Face transformers 4")
              .setting)[name];
      EXPECT_DOUBLE_EQ(rope["attention_factor"], amplitude);
      EXPECT_FALSE(rope.contains("attn_factor"));
    }
    const EngineSetting vllm = Find(all, "vLLM (on transformers 5)");
    EXPECT_THAT(vllm.setting, HasSubstr("\"attn_factor\":1.3"));
    EXPECT_THAT(vllm.setting, Not(HasSubstr("attention_factor")));
    EXPECT_THAT(vllm.note, Not(HasSubstr("drop attention_factor")));
  }
}

// transformers before 5 takes both lengths from the top level, and their ratio as the factor; vLLM
// knows no attention_factor.
TEST(Dictionaries, LongRopeHasOneAmplitudeInEveryEngine) {
  const std::string lists = R"("short_factor": [1, 1, 1, 1, 1, 1, 1, 1],
                               "long_factor": [2, 2, 2, 2, 2, 2, 2, 2])";
  const auto usual = [](double factor) { return std::sqrt(1 + std::log(factor) / std::log(1024)); };
  struct Case {
    std::string keys;
    double amplitude;
    bool stands_in_5;
  };
  const Case cases[] = {{"", usual(4), false},
                        {R"(, "factor": 8)", usual(8), false},
                        {R"(, "attention_factor": 1.25)", 1.25, true},
                        {R"(, "short_mscale": 1.0, "long_mscale": 1.5)", 1.5, true}};
  for (const Case& c : cases) {
    const auto all = SettingsForDictionary("{\"rope_type\": \"longrope\", " + lists + c.keys + "}",
                                           4, {1024, 3000, 10000, 16});
    const Json older = Json::parse(Find(all, "Hugging Face transformers 4").setting);
    EXPECT_EQ(older["original_max_position_embeddings"], 1024) << c.keys;
    EXPECT_EQ(older["max_position_embeddings"], 3000) << c.keys;
    EXPECT_DOUBLE_EQ(older["rope_scaling"]["attention_factor"], c.amplitude) << c.keys;
    const Json newer =
        Json::parse(Find(all, "Hugging Face transformers 5").setting)["rope_parameters"];
    EXPECT_EQ(newer["original_max_position_embeddings"], 1024) << c.keys;
    EXPECT_EQ(newer.contains("attention_factor"), c.stands_in_5) << c.keys;
    const double written = c.stands_in_5 ? newer["attention_factor"].get<double>()
                                         : usual(newer["factor"].get<double>());
    EXPECT_DOUBLE_EQ(written, c.amplitude) << c.keys;
    for (const char* engine : {"vLLM (on transformers 5)", "vLLM (on transformers 4)"}) {
      const std::string setting = Find(all, engine).setting;
      const size_t open = setting.find('\''), close = setting.rfind('\'');
      const Json override = Json::parse(setting.substr(open + 1, close - open - 1));
      const Json rope =
          override.value("rope_parameters", override.value("rope_scaling", Json::object()));
      EXPECT_DOUBLE_EQ(rope["long_mscale"], c.amplitude) << engine << c.keys;
      EXPECT_DOUBLE_EQ(rope["short_mscale"], c.amplitude == 1.5 ? 1.0 : c.amplitude) << c.keys;
      EXPECT_FALSE(rope.contains("attention_factor")) << engine;
    }
  }
}

TEST(Warnings, LongRopeOfOlderTransformers) {
  const auto warning = [](const Json& keys, bool at_the_top, int64_t length) {
    Json rope = kLongRope;
    rope.update(keys);
    Json config = Config(4096, rope);
    if (at_the_top) {
      config["rope_scaling"].erase("original_max_position_embeddings");
      config["original_max_position_embeddings"] = 1024;
    }
    return Find(WarningsOf(Read(config), length), "longrope-top-level");
  };
  const auto usual = [](double s, double l) { return std::sqrt(1 + std::log(s) / std::log(l)); };
  EXPECT_FALSE(warning(Json::object(), true, 4096));
  EXPECT_FALSE(warning({{"factor", 4.0}}, true, 4096));
  EXPECT_FALSE(warning({{"factor", 8.0}, {"attention_factor", 1.5}}, true, 4096));
  const auto ratio = warning({{"factor", 8.0}}, true, 4096);
  ASSERT_TRUE(ratio);
  EXPECT_EQ(ratio->unit, "x");
  EXPECT_NEAR(ratio->value, usual(4, 1024) / usual(8, 1024), 1e-12);
  // An original length of 4096: the short divisors, 1 instead of 2, up to there.
  const auto inside = warning({{"factor", 4.0}}, false, 4096);
  ASSERT_TRUE(inside);
  EXPECT_EQ(inside->unit, "rad");
  EXPECT_NEAR(inside->value, 4095 * 0.5, 1e-6);
  EXPECT_THAT(inside->text, HasSubstr("before 5.0.0"));
  EXPECT_THAT(inside->text,
              HasSubstr(fmt::format("{:.7f} instead of {:.7f}", usual(4, 4096), usual(4, 1024))));
}

TEST(Dictionaries, HaveTheNotesOfTheirMethods) {
  const auto note = [](const char* dictionary, const char* engine) {
    return Find(SettingsForDictionary(dictionary, 4, {1024, 4096, 10000, 16}), engine).note;
  };
  constexpr const char* kVllm = "vLLM (on transformers 5)";
  const char* dynamic = R"({"rope_type": "dynamic", "factor": 4})";
  EXPECT_THAT(note(dynamic, kVllm), HasSubstr("static despite its name"));
  EXPECT_THAT(note(dynamic, "Hugging Face transformers 5"),
              HasSubstr("Leave max_position_embeddings at 1024"));
  EXPECT_THAT(note(R"({"rope_type": "yarn", "factor": 4, "attention_factor": 1.0})", kVllm),
              HasSubstr("drop attention_factor"));
  EXPECT_THAT(note(R"({"rope_type": "proportional", "partial_rotary_factor": 0.5})", kVllm),
              HasSubstr("Gemma 4"));
  // A fixed alpha is NTK, of which the note would be that it changes rope_theta.
  EXPECT_THAT(note(R"({"rope_type": "dynamic", "alpha": 2})", "Hugging Face transformers 5"),
              Not(HasSubstr("rope_theta")));
}

}  // namespace shipped_test
}  // namespace ropewalk
