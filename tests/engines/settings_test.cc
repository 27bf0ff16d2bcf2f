// Settings to paste: read back through the configuration reader they give the same frequencies.
#include "ropewalk/engines/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "ropewalk/base/error.h"
#include "ropewalk/config/config.h"
#include "ropewalk/plan/method.h"
#include "ropewalk/rotary/frequencies.h"
#include "src/engines/hf_config.h"

namespace ropewalk {
namespace settings_test {

using ::testing::HasSubstr;
using Json = nlohmann::json;

const SettingsTarget kTarget{4096, 16384, 10000, 128};

RotarySpec Spec(const Scaling& scaling) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = kTarget.rotary_dim;
  spec.base = kTarget.base;
  spec.trained_length = kTarget.trained_length;
  spec.scaling = scaling;
  return spec;
}

// The newest one.
EngineSetting Engine(const std::vector<EngineSetting>& all, const std::string& name) {
  for (const EngineSetting& s : all) {
    if (s.engine == name) return s;
  }
  ADD_FAILURE() << "no setting for " << name;
  return all.front();
}

// What the reader of Hugging Face configurations makes of a pasted setting.
Frequencies ReadBack(const std::string& setting, const std::string& key) {
  const Json pasted = Json::parse(setting);
  PositionPlan plan;
  plan.trained_length = kTarget.trained_length;
  plan.layers.resize(1);
  plan.layers[0].rotation = Spec(NoScaling{});
  if (pasted.contains("rope_theta")) plan.layers[0].rotation->base = pasted["rope_theta"];
  if (!pasted.at(key).is_null()) {
    plan = ParseRopeDictionary(pasted.at(key).dump(), key, plan);
  }
  return Resolve(*plan.layers[0].rotation, kTarget.target_length);
}

void ExpectSame(const Frequencies& got, const Frequencies& want) {
  EXPECT_NEAR(got.amplitude, want.amplitude, 1e-12);
  ASSERT_EQ(got.inv_freq.size(), want.inv_freq.size());
  for (size_t i = 0; i < want.inv_freq.size(); ++i) {
    EXPECT_NEAR(got.inv_freq[i].hi / want.inv_freq[i].hi, 1, 1e-12) << "pair " << i;
  }
}

class EveryMethod : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryMethod, HuggingFaceReadsBackTheSameFrequencies) {
  const Scaling scaling = FindMethod(GetParam()).make(4);
  const Frequencies want = Resolve(Spec(scaling), kTarget.target_length);
  const auto settings = SettingsFor(scaling, kTarget);
  ExpectSame(ReadBack(Engine(settings, "Hugging Face transformers 4").setting, "rope_scaling"),
             want);
  ExpectSame(ReadBack(Engine(settings, "Hugging Face transformers 5").setting, "rope_parameters"),
             want);
}

TEST_P(EveryMethod, SaysSomethingAboutEveryEngine) {
  for (const EngineSetting& s : SettingsFor(FindMethod(GetParam()).make(4), kTarget)) {
    EXPECT_EQ(s.expressible, !s.setting.empty()) << s.engine;
    if (!s.expressible) {
      EXPECT_FALSE(s.note.empty()) << s.engine;
    }
    if (s.engine.find("vLLM") == 0) {
      const size_t open = s.setting.find('\''), close = s.setting.rfind('\'');
      ASSERT_LT(open, close);
      EXPECT_EQ(s.setting.find('\'', open + 1), close);  // one argument to the shell
      EXPECT_FALSE(Json::parse(s.setting.substr(open + 1, close - open - 1)).is_discarded());
      EXPECT_THAT(s.setting, HasSubstr("--max-model-len 16384"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, EveryMethod,
                         ::testing::Values("none", "linear", "ntk", "dynamic", "by-parts",
                                           "by-parts-repo", "yarn", "llama3"));

std::string LlamaCpp(const Scaling& s) {
  const auto all = SettingsFor(s, kTarget);
  return Engine(all, "llama.cpp").setting;
}

// Of a model that reads images too: at the top vLLM takes the keys and does nothing (vllm#54289).
TEST(Settings, KeysOfATextPart) {
  SettingsTarget target = kTarget;
  target.place.text_part = "thinker_config.text_config";
  const Scaling yarn = YarnScaling{.factor = 4};
  const auto top = SettingsFor(yarn, kTarget), inside = SettingsFor(yarn, target);
  const Json keys = Json::parse(Engine(top, "Hugging Face transformers 5").setting);
  const Json expected = {{"thinker_config", {{"text_config", keys}}}};
  EXPECT_EQ(Json::parse(Engine(inside, "Hugging Face transformers 5").setting), expected);
  const std::string vllm = Engine(inside, "vLLM (on transformers 5)").setting;
  EXPECT_THAT(vllm, HasSubstr("--hf-overrides '{\"thinker_config\":{\"text_config\":{"));
  EXPECT_EQ(Engine(inside, "llama.cpp").setting, Engine(top, "llama.cpp").setting);
  EXPECT_EQ(HuggingFaceSetting(ConfigSchema::kRopeParameters, yarn, target),
            HuggingFaceSetting(ConfigSchema::kRopeParameters, yarn, kTarget));
}

// Published files of Qwen2-VL have the keys at their top; what is loaded of them has them inside.
TEST(Settings, KeysOfAFlatFile) {
  SettingsTarget target = kTarget;
  target.place = {"text_config", /*flat_file=*/true, ""};
  const Scaling yarn = YarnScaling{.factor = 4};
  const auto all = SettingsFor(yarn, target);
  EXPECT_EQ(Engine(all, "Hugging Face transformers 4").setting,
            Engine(SettingsFor(yarn, kTarget), "Hugging Face transformers 4").setting);
  EXPECT_THAT(Engine(all, "vLLM (on transformers 4)").setting,
              HasSubstr("--hf-overrides '{\"text_config\":{"));
}

TEST(Settings, LengthAloneInATextPart) {
  const auto setting = [](const SettingPlace& place) {
    return Json::parse(
        Engine(SettingsAsShipped(8192, place), "Hugging Face transformers 5").setting);
  };
  const Json length = {{"max_position_embeddings", 8192}};
  EXPECT_EQ(setting({}), length);
  EXPECT_EQ(setting({"text_config", /*flat_file=*/false, ""}), Json({{"text_config", length}}));
  EXPECT_EQ(setting({"text_config", /*flat_file=*/true, ""}), length);
}

// A setting takes the place of the whole dictionary, in which the model may have more.
TEST(Settings, KeysThatTheModelHasInItsDictionary) {
  SettingsTarget target = kTarget;
  target.place.rope_keys = R"({"partial_rotary_factor":0.5,"mrope_section":[8,4,4]})";
  const auto setting = [&](const Scaling& scaling, const char* engine) {
    return Json::parse(Engine(SettingsFor(scaling, target), engine).setting);
  };
  const Json sections = {8, 4, 4};
  const Json newer = setting(YarnScaling{.factor = 4}, "Hugging Face transformers 5");
  EXPECT_EQ(newer["rope_parameters"]["rope_type"], "yarn");
  EXPECT_EQ(newer["rope_parameters"]["mrope_section"], sections);
  EXPECT_EQ(newer["rope_parameters"]["partial_rotary_factor"], 0.5);
  const Json older = setting(YarnScaling{.factor = 4}, "Hugging Face transformers 4");
  EXPECT_EQ(older["rope_scaling"]["mrope_section"], sections);
  EXPECT_EQ(older["partial_rotary_factor"], 0.5);
  EXPECT_FALSE(older["rope_scaling"].contains("partial_rotary_factor"));
  // Plain RoPE is null without them.
  const Json plain = setting(NoScaling{}, "Hugging Face transformers 4");
  EXPECT_EQ(plain["rope_scaling"], (Json{{"rope_type", "default"}, {"mrope_section", sections}}));
  const std::string vllm =
      Engine(SettingsFor(YarnScaling{.factor = 4}, target), "vLLM (on transformers 5)").setting;
  EXPECT_THAT(vllm, HasSubstr("\"mrope_section\":[8,4,4]"));
  // A dictionary of the user goes before what the model has.
  const auto given = SettingsForDictionary(
      R"({"rope_type": "linear", "factor": 4.0, "partial_rotary_factor": 0.25})", 4, target);
  const Json own = Json::parse(Engine(given, "Hugging Face transformers 4").setting);
  EXPECT_EQ(own["rope_scaling"]["partial_rotary_factor"], 0.25);
  EXPECT_EQ(own["rope_scaling"]["mrope_section"], sections);
  EXPECT_FALSE(own.contains("partial_rotary_factor"));
}

// What is written into such a config.json: inside, and nothing beside it that would contradict.
TEST(Settings, WrittenIntoATextPart) {
  const std::string config = R"({"model_type": "mistral3", "max_position_embeddings": 4096,
      "image_token_index": 10, "text_config": {"model_type": "mistral", "hidden_size": 64,
      "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2,
      "intermediate_size": 96, "vocab_size": 100, "max_position_embeddings": 4096,
      "rope_theta": 10000.0, "sliding_window": null}})";
  SettingsTarget target = kTarget;
  target.rotary_dim = 16;
  const auto setting = nlohmann::ordered_json::parse(
      HuggingFaceSetting(ConfigSchema::kRopeScaling, YarnScaling{.factor = 4}, target));
  const std::string written = internal::WithRopeSetting(config, "config.json", setting, 4096);
  const PositionPlan before = ParseHfConfig(config, "config.json").plan;
  const PositionPlan after = ParseHfConfig(written, "config.json").plan;
  EXPECT_EQ(after.place.text_part, "text_config");
  EXPECT_EQ(Resolve(after, 16384).hash,
            Resolve(WithScaling(before, YarnScaling{.factor = 4}), 16384).hash);
  const Json all = Json::parse(written);
  EXPECT_EQ(all["image_token_index"], 10);
  EXPECT_FALSE(all.contains("max_position_embeddings"));
  EXPECT_EQ(all["text_config"]["max_position_embeddings"], 16384);
}

// A GPT-NeoX has a name of its own for the base, and transformers 4 writes both.
TEST(Settings, BothNamesOfABaseAreWritten) {
  const std::string config = R"({"model_type": "gpt_neox", "hidden_size": 64,
      "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 96, "vocab_size": 100,
      "max_position_embeddings": 4096, "rotary_pct": 1.0, "rotary_emb_base": 10000)";
  SettingsTarget target = kTarget;
  target.rotary_dim = 16;
  for (const auto& [schema, more] :
       {std::pair{ConfigSchema::kRopeScaling, R"(, "rope_theta": 10000})"},
        std::pair{ConfigSchema::kRopeScaling, "}"},
        std::pair{ConfigSchema::kRopeParameters, R"(, "rope_parameters":
            {"rope_type": "default", "rope_theta": 10000, "partial_rotary_factor": 1.0}})"}}) {
    const auto setting =
        nlohmann::ordered_json::parse(HuggingFaceSetting(schema, NtkScaling{4}, target));
    const std::string written =
        internal::WithRopeSetting(config + more, "config.json", setting, 4096);
    const PositionPlan before = ParseHfConfig(config + more, "config.json").plan;
    EXPECT_EQ(Resolve(ParseHfConfig(written, "config.json").plan, 16384).hash,
              Resolve(WithScaling(before, NtkScaling{4}), 16384).hash);
    const Json all = Json::parse(written);
    EXPECT_EQ(all.contains("rotary_emb_base"), schema == ConfigSchema::kRopeScaling);
  }
}

TEST(Settings, LlamaCppFlags) {
  // llama-server ends at the file's context_length; YaRN's flags raise it.
  const std::string raised = " --override-kv ARCH.context_length=int:16384";
  EXPECT_EQ(LlamaCpp(NoScaling{}), "-c 16384 --rope-scaling none" + raised);
  EXPECT_EQ(LlamaCpp(LinearScaling{4}), "-c 16384 --rope-scaling linear --rope-scale 4" + raised);
  EXPECT_EQ(LlamaCpp(YarnScaling{.factor = 4}),
            "-c 16384 --rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 4096");
  EXPECT_EQ(LlamaCpp(YarnScaling{.factor = 4, .beta_fast = 16, .beta_slow = 2}),
            "-c 16384 --rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 4096 --yarn-beta-fast 16 "
            "--yarn-beta-slow 2");
  const std::string ntk = LlamaCpp(NtkScaling{4});
  EXPECT_THAT(ntk, HasSubstr("--rope-freq-base "));
  EXPECT_NEAR(std::stod(ntk.substr(ntk.find("base ") + 5)), 10000 * std::pow(4, 128.0 / 126), 1e-6);
}

TEST(Settings, LlamaCppNamesWhatItCannot) {
  for (const Scaling& s :
       {Scaling(DynamicNtkScaling{4}), Scaling(ByPartsScaling{4}), Scaling(ByPartsRepoScaling{4}),
        Scaling(Llama3Scaling{4}), Scaling(YarnScaling{.factor = 4, .truncate = false}),
        Scaling(YarnScaling{.factor = 4, .attention_factor = 1})}) {
    EXPECT_EQ(LlamaCpp(s), "") << Describe(s);
  }
  const auto llama3 = SettingsFor(Llama3Scaling{4}, kTarget);
  EXPECT_THAT(Engine(llama3, "llama.cpp").note, HasSubstr("rope_freqs.weight"));
}

TEST(Settings, HuggingFaceGoldens) {
  const auto yarn = SettingsFor(YarnScaling{.factor = 4}, kTarget);
  EXPECT_EQ(Engine(yarn, "Hugging Face transformers 4").setting,
            "{\n  \"max_position_embeddings\": 16384,\n  \"rope_scaling\": {\n"
            "    \"rope_type\": \"yarn\",\n    \"factor\": 4.0,\n"
            "    \"original_max_position_embeddings\": 4096\n  }\n}");
  EXPECT_EQ(Engine(yarn, "vLLM (on transformers 5)").setting,
            "--max-model-len 16384 --hf-overrides '{\"max_position_embeddings\":16384,"
            "\"rope_parameters\":{\"rope_type\":\"yarn\",\"rope_theta\":10000.0,\"factor\":4.0,"
            "\"original_max_position_embeddings\":4096}}'");
  const auto by_parts = SettingsFor(ByPartsScaling{4, 1, 32}, kTarget);
  const Json rope =
      Json::parse(Engine(by_parts, "Hugging Face transformers 5").setting).at("rope_parameters");
  EXPECT_EQ(rope.at("rope_type"), "llama3");
  EXPECT_EQ(rope.at("low_freq_factor"), 1.0);
  EXPECT_EQ(rope.at("high_freq_factor"), 32.0);
}

// Dynamic NTK takes max_position_embeddings for the trained length, so raising it would break it.
TEST(Settings, DynamicLeavesThePositionsAlone) {
  for (const EngineSetting& s : SettingsFor(DynamicNtkScaling{4}, kTarget)) {
    EXPECT_EQ(s.setting.find("max_position_embeddings"), std::string::npos) << s.engine;
  }
  const auto all = SettingsFor(DynamicNtkScaling{4}, kTarget);
  EXPECT_THAT(Engine(all, "vLLM (on transformers 5)").note, HasSubstr("static"));
}

// Some versions take max_position_embeddings / original for YaRN's factor.
TEST(Settings, YarnServesWhatItsFactorSays) {
  const auto all = SettingsFor(YarnScaling{.factor = 8}, kTarget);
  const Json pasted = Json::parse(Engine(all, "Hugging Face transformers 4").setting);
  EXPECT_EQ(pasted.at("max_position_embeddings"), 32768);
}

// A dictionary has the flags of the scaling that it comes to, with what it says beside it.
TEST(Settings, FlagsOfDictionaries) {
  const auto llama = [&](const char* dictionary) {
    return Engine(SettingsForDictionary(dictionary, 4, {256, 1024, 10000, 32}), "llama.cpp");
  };
  const std::string raised = " --override-kv ARCH.context_length=int:1024";
  EXPECT_EQ(llama(R"({"rope_type": "yarn", "factor": 4})").setting,
            "-c 1024 --rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 256");
  EXPECT_EQ(
      llama(R"({"type": "yarn", "factor": 4, "original_max_position_embeddings": 300})").setting,
      "-c 1024 --rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 300");
  EXPECT_EQ(llama(R"({"rope_type": "linear", "factor": 4, "rope_theta": 5e5})").setting,
            "-c 1024 --rope-scaling linear --rope-scale 4 --rope-freq-base 500000" + raised);
  EXPECT_EQ(llama(R"({"rope_theta": 5e5})").setting,
            "-c 1024 --rope-scaling none --rope-freq-base 500000" + raised);
  EXPECT_EQ(llama(R"({"rope_type": "linear", "factor": 4, "partial_rotary_factor": 0.5})").setting,
            "-c 1024 --rope-scaling linear --rope-scale 4" + raised);
  // A fixed alpha is NTK, whose base is worked out from the dictionary's own.
  EXPECT_THAT(llama(R"({"rope_type": "dynamic", "alpha": 2, "rope_theta": 1e4})").setting,
              HasSubstr("--rope-scaling none --rope-freq-base 20"));
  EXPECT_THAT(llama(R"({"rope_type": "yarn", "factor": 4, "truncate": false})").note,
              HasSubstr("always truncates"));
  EXPECT_THAT(llama(R"({"rope_type": "llama3", "factor": 4, "low_freq_factor": 1,
                        "high_freq_factor": 4})")
                  .note,
              HasSubstr("rope_freqs.weight"));
  EXPECT_THAT(llama(R"({"rope_type": "nonsense"})").note, HasSubstr("nonsense"));
}

// Maps and temperatures: two engines have one each, the others say what they lack.
TEST(Settings, MapsAndTemperatures) {
  const auto of = [](const char* method) {
    return SettingsFor(PositionMethod::Parse(method), 4, kTarget);
  };
  for (const char* method :
       {"rerope", "leaky-rerope", "self-extend", "dual-chunk", "sinks", "string", "lampe", "dpe",
        "mscale", "string+mscale", "log-n", "ntk+log-n", "yarn+self-extend", "dual-chunk+log-n"}) {
    for (const EngineSetting& s : of(method)) {
      EXPECT_EQ(s.expressible, !s.setting.empty()) << method << ", " << s.Title();
      EXPECT_NE(s.note, "");
      const bool says =
          (method == std::string("dual-chunk") && s.versions == "since 0.9.0, before 0.11.0") ||
          (method == std::string("self-extend") && s.engine == "llama.cpp");
      EXPECT_EQ(s.expressible, says) << method << ", " << s.Title();
    }
  }
  // Blocks of whole groups.
  EXPECT_EQ(Engine(of("self-extend:window=1000,group=6"), "llama.cpp").setting,
            "-c 16384 --grp-attn-n 6 --grp-attn-w 1002");
  EXPECT_THAT(Engine(of("sinks"), "llama.cpp").note, HasSubstr("-c 4096 --keep 4"));
  EXPECT_THAT(Engine(of("ntk+log-n"), "Hugging Face transformers 5").note,
              HasSubstr("no log-n(length 4096)"));
  EXPECT_THAT(Engine(of("string+mscale"), "llama.cpp").note,
              HasSubstr("no string(shift 4095, window 128) and no mscale(factor 2)"));
  EXPECT_THAT(Engine(of("rerope+log-n"), "llama.cpp").note,
              HasSubstr("no rerope(window 2048) and no log-n(length 4096)"));
}

// Gemma 3: rope_theta of the full layers, a base of their own in the sliding ones, which no setting
// may change. Transformers 5 takes a dictionary for each of them, older ones rope_local_base_freq.
TEST(Settings, SlidingLayersKeepTheirBase) {
  const Json gemma = Json::parse(R"({"model_type": "gemma3_text", "hidden_size": 256,
      "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 128, "num_hidden_layers": 3,
      "intermediate_size": 64, "vocab_size": 64, "max_position_embeddings": 4096,
      "sliding_window": 512,
      "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]})");
  const auto read = [&](Json config, const Json& pasted) {
    for (const auto& [key, value] : pasted.items()) config[key] = value;
    return ParseHfConfig(config.dump(), "config.json", false).plan;
  };
  const PositionPlan shipped = read(gemma, {{"rope_theta", 1e6}, {"rope_local_base_freq", 2e4}});
  EXPECT_EQ(LocalBase(shipped), 2e4);
  EXPECT_EQ(OnlyRotation(shipped).base, 1e6);
  const SettingsTarget target{4096, 16384, 1e6, 128, false, LocalBase(shipped)};
  for (const char* name : {"linear", "ntk", "yarn", "llama3"}) {
    SCOPED_TRACE(name);
    const PositionMethod method = PositionMethod::Parse(name);
    const std::string want = Resolve(method.Apply(shipped, 4, 4096), 16384).hash;
    const auto settings = SettingsFor(method.ScalingFor(4), target);
    const Json fresh = Json::parse(Engine(settings, "Hugging Face transformers 5").setting);
    EXPECT_EQ(fresh["rope_parameters"]["sliding_attention"],
              Json({{"rope_type", "default"}, {"rope_theta", 2e4}}));
    EXPECT_EQ(Resolve(read(gemma, fresh), 16384).hash, want);
    Json older = gemma;
    older["rope_theta"] = 1e6;
    older["rope_local_base_freq"] = 2e4;
    const Json pasted = Json::parse(Engine(settings, "Hugging Face transformers 4").setting);
    EXPECT_EQ(Resolve(read(older, pasted), 16384).hash, want);
    EXPECT_THAT(Engine(settings, "vLLM (on transformers 5)").setting,
                HasSubstr("\"sliding_attention\""));

    // Scaled as well, from their own base.
    const PositionMethod both = PositionMethod::Parse(std::string(name) + "+all-layers");
    const auto all = SettingsFor(both, 4, target);
    const Json pasted_all = Json::parse(Engine(all, "Hugging Face transformers 5").setting);
    EXPECT_EQ(Resolve(read(gemma, pasted_all), 16384).hash,
              Resolve(both.Apply(shipped, 4, 4096), 16384).hash);
    const std::string vllm = Engine(all, "vLLM (on transformers 5)").setting;
    const std::size_t quote = vllm.find('\'') + 1;
    EXPECT_EQ(Json::parse(vllm.substr(quote, vllm.size() - quote - 1))["rope_parameters"],
              pasted_all["rope_parameters"]);
    for (const char* engine :
         {"Hugging Face transformers 4", "vLLM (on transformers 4)", "llama.cpp"}) {
      EXPECT_FALSE(Engine(all, engine).expressible) << engine;
      EXPECT_THAT(Engine(all, engine).note, HasSubstr("not those that slide")) << engine;
    }
  }
  const char* llama = R"({"model_type": "llama", "hidden_size": 256,
      "num_attention_heads": 2, "num_hidden_layers": 3, "intermediate_size": 64, "vocab_size": 64,
      "max_position_embeddings": 4096})";
  EXPECT_EQ(LocalBase(ParseHfConfig(llama, "config.json", false).plan), std::nullopt);
}

TEST(Settings, BadTargets) {
  EXPECT_THROW((void)SettingsFor(LinearScaling{4}, {0, 1024, 10000, 32}), Error);
  EXPECT_THROW((void)SettingsFor(LinearScaling{4}, {256, 1024, 10000, 0}), Error);
}

}  // namespace settings_test
}  // namespace ropewalk
