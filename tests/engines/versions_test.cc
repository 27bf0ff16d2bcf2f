// What holds for which release of an engine: just below, at and above each boundary.
#include "ropewalk/engines/versions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

#include "ropewalk/base/error.h"
#include "ropewalk/engines/settings.h"
#include "src/engines/facts.h"
#include "tests/engines/support.h"

namespace ropewalk {
namespace versions_test {

using internal::Fact;
using internal::FactRow;
using internal::kFacts;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr SettingsTarget kTarget{4096, 16384, 10000, 128};
constexpr char kOverride[] = "--override-kv ARCH.context_length=int:16384";

EngineVersion V(const std::string& choice) { return *ParseEngineChoice(choice).version; }

std::string WhatIsWrong(const std::string& choice) {
  try {
    (void)ParseEngineChoice(choice);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    return e.what();
  }
  return "";
}

// What is offered to someone who has this release, of the engines whose names begin so.
std::vector<EngineSetting> Offered(const char* method, const std::string& choice,
                                   const std::string& engine) {
  auto all =
      Narrow(SettingsFor(PositionMethod::Parse(method), 4, kTarget), {ParseEngineChoice(choice)});
  std::erase_if(all, [&](const EngineSetting& s) { return !s.engine.starts_with(engine); });
  return all;
}

EngineSetting TheOne(const char* method, const std::string& choice, const std::string& engine) {
  const auto all = Offered(method, choice, engine);
  EXPECT_EQ(all.size(), 1u) << method << ", " << choice;
  return all.empty() ? EngineSetting{} : all.front();
}

TEST(EngineVersions, AreRead) {
  EXPECT_LT(V("vllm=0.9.2"), V("vllm=0.10"));
  EXPECT_EQ(V("vllm=0.11"), V("vllm=0.11.0"));
  EXPECT_EQ(V("vllm=v0.8.5.post1"), V("vllm=0.8.5"));
  EXPECT_EQ(V("transformers=5.0.0rc1"), V("transformers=5"));
  EXPECT_LT(V("vllm=0.10.1"), V("vllm=0.10.1.1"));
  EXPECT_LT(V("llama.cpp=2026-08-29"), V("llama.cpp=2026-08-30"));
  EXPECT_EQ(ParseEngineChoice("vllm").version, std::nullopt);
  EXPECT_EQ(Text(EngineKind::kVllm, V("vllm=0.10.1.1")), "0.10.1.1");
  EXPECT_EQ(Text(EngineKind::kLlamaCpp, V("llama.cpp=2026-08-30")), "2026-08-30");
}

TEST(EngineVersions, RefusesWhatItDoesNotKnow) {
  for (const char* name : {"", "vLLM", "=0.11", "sglang", "sglang=0.5", "llamacpp"}) {
    EXPECT_THAT(WhatIsWrong(name), HasSubstr("transformers, vllm and llama.cpp are")) << name;
  }
  for (const char* bad : {"vllm=", "vllm=x", "vllm=0.11x", "vllm=-1", "vllm=0..1", "vllm=0.11.",
                          "vllm=1.2.3.4.5", "vllm=99999999999", "transformers=latest"}) {
    EXPECT_THAT(WhatIsWrong(bad), HasSubstr("expected a release, such as 0.11.0")) << bad;
  }
  for (const char* bad :
       {"llama.cpp=b9000", "llama.cpp=2026-8-30", "llama.cpp=2026-02-30", "llama.cpp=2026-13-01",
        "llama.cpp=2026-08-300", "llama.cpp=", "llama.cpp=2026--8-3", "llama.cpp=1-1-256257"}) {
    EXPECT_THAT(WhatIsWrong(bad), HasSubstr("date of its build, such as 2026-08-30")) << bad;
  }
}

TEST(EngineVersions, RangesInWords) {
  const VersionRange both{V("vllm=0.9"), V("vllm=0.11")};
  EXPECT_EQ(Text(EngineKind::kVllm, both), "since 0.9.0, before 0.11.0");
  EXPECT_EQ(Text(EngineKind::kVllm, VersionRange{V("vllm=0.9.2"), V("vllm=0.9.3")}), "0.9.2");
  EXPECT_EQ(Text(EngineKind::kVllm, VersionRange{}), "");
  EXPECT_FALSE(both.Contains(V("vllm=0.8.5.post1")));
  EXPECT_TRUE(both.Contains(V("vllm=0.9.0")));
  EXPECT_TRUE(both.Contains(V("vllm=0.10.2")));
  EXPECT_FALSE(both.Contains(V("vllm=0.11.0")));
}

// Each row holds at its first release and not at the one that ends it, nor just below the first.
TEST(EngineFacts, HoldFromTheirFirstReleaseToTheirEnd) {
  std::set<Fact> facts;
  for (const FactRow& row : kFacts) {
    facts.insert(row.fact);
    SCOPED_TRACE(row.text);
    EXPECT_NE(std::string(row.source), "");
    if (row.versions.since) {
      EXPECT_TRUE(Holds(row.fact, *row.versions.since));
      EXPECT_FALSE(row.versions.Contains(EngineVersion{}));
      EngineVersion below = *row.versions.since;
      for (std::size_t i = 4; i-- > 0;) {  // 0.11.0 -> 0.10.9999.9999
        if (below.parts[i] > 0) {
          --below.parts[i];
          break;
        }
        below.parts[i] = 9999;
      }
      EXPECT_FALSE(Holds(row.fact, below));
    }
    if (row.versions.before) {
      EXPECT_FALSE(Holds(row.fact, *row.versions.before));
    }
  }
  EXPECT_EQ(facts.size(), static_cast<std::size_t>(Fact::kHadamardBeforeCache) + 1);
}

TEST(EngineSettings, DualChunkIsOfferedForTheReleasesThatHaveIt) {
  for (const char* has : {"vllm=0.9.0", "vllm=0.9.2", "vllm=0.10.2"}) {
    const EngineSetting s = TheOne("dual-chunk", has, "vLLM");
    EXPECT_EQ(s.Title(), "vLLM (on transformers 4) since 0.9.0, before 0.11.0");
    EXPECT_EQ(s.setting,
              "--max-model-len 16384 --hf-overrides '{\"max_position_embeddings\":16384,"
              "\"dual_chunk_attention_config\":{\"chunk_size\":4095,\"local_size\":1023}}'")
        << has;
  }
  for (const char* has_not :
       {"vllm=0.8.5", "vllm=0.11.0", "vllm=0.11.1", "vllm=0.19.1", "vllm=0.33.0", "vllm=1.0"}) {
    for (const EngineSetting& s : Offered("dual-chunk", has_not, "vLLM")) {
      EXPECT_FALSE(s.expressible) << has_not;
      EXPECT_EQ(s.setting, "");
      EXPECT_THAT(s.note, AllOf(HasSubstr("Only vLLM since 0.9.0, before 0.11.0"),
                                HasSubstr("ignores it")));
    }
  }
  EXPECT_THAT(TheOne("dual-chunk:100,limit=200", "vllm=0.10", "vLLM").note,
              HasSubstr("multiple of the cache's block size"));
  // Unasked, the newest comes first and does not offer it.
  const auto all = SettingsFor(PositionMethod::Parse("dual-chunk"), 4, kTarget);
  const auto first = std::find_if(all.begin(), all.end(), [](const EngineSetting& s) {
    return s.engine == "vLLM (on transformers 4)";
  });
  ASSERT_NE(first, all.end());
  EXPECT_EQ(first->versions, "since 0.11.0");
  EXPECT_FALSE(first->expressible);
}

TEST(EngineSettings, VllmRunsOnTransformers5SinceOneRelease) {
  EXPECT_EQ(Offered("yarn", "vllm=0.19.0", "vLLM (on transformers 5)").size(), 0u);
  EXPECT_EQ(Offered("yarn", "vllm=0.19.1", "vLLM (on transformers 5)").size(), 1u);
  EXPECT_EQ(Offered("yarn", "vllm=0.19.0", "vLLM (on transformers 4)").size(), 1u);
}

TEST(EngineSettings, YarnNeedsNoOverrideSinceAugust2026) {
  EXPECT_THAT(TheOne("yarn", "llama.cpp=2026-08-29", "llama").setting, HasSubstr(kOverride));
  EXPECT_THAT(TheOne("yarn", "llama.cpp=2024-01-01", "llama").setting, HasSubstr(kOverride));
  for (const char* since : {"llama.cpp=2026-08-30", "llama.cpp=2026-11-01"}) {
    EXPECT_EQ(TheOne("yarn", since, "llama").setting,
              "-c 16384 --rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 4096");
    // The flags of other methods raise nothing.
    EXPECT_THAT(TheOne("linear", since, "llama").setting, HasSubstr(kOverride));
    EXPECT_THAT(TheOne("ntk", since, "llama").setting, HasSubstr(kOverride));
  }
  const auto both = SettingsFor(YarnScaling{.factor = 4}, kTarget);
  ASSERT_GE(both.size(), 2u);
  EXPECT_EQ(both[both.size() - 2].Title(), "llama.cpp since 2026-08-30");
  EXPECT_EQ(both.back().Title(), "llama.cpp before 2026-08-30");
  EXPECT_THAT(both.back().note, HasSubstr("general.architecture"));
  // Within the trained length nothing has to be raised.
  EXPECT_THAT(SettingsFor(LinearScaling{4}, {4096, 4096, 10000, 128}).back().setting,
              Not(HasSubstr("override")));
}

TEST(EngineSettings, SelfExtendLeftTheServer) {
  const auto note = [](const char* choice) { return TheOne("self-extend", choice, "llama").note; };
  EXPECT_THAT(note("llama.cpp=2024-10-11"), HasSubstr("llama-server -m MODEL.gguf"));
  EXPECT_THAT(note("llama.cpp=2024-10-12"), HasSubstr("Not for llama-server"));
  EXPECT_THAT(note("llama.cpp=2026-10-01"), HasSubstr("before 2024-10-12 alone"));
}

TEST(EngineSettings, TransformersByTheReleaseThatReadsAKey) {
  const auto of = [](const Scaling& scaling, const char* choice) {
    const auto all = Narrow(SettingsFor(scaling, kTarget), {ParseEngineChoice(choice)});
    EXPECT_EQ(all.size(), 1u) << choice;
    return all.at(0);
  };
  const Scaling kept = YarnScaling{.factor = 4, .truncate = false};
  EXPECT_FALSE(of(kept, "transformers=4.54.1").expressible);
  EXPECT_TRUE(of(kept, "transformers=4.55.0").expressible);
  EXPECT_TRUE(of(kept, "transformers=5.0.0").expressible);
  const Scaling proportional = ProportionalScaling{.fraction = 0.25};
  EXPECT_FALSE(of(proportional, "transformers=4.57.6").expressible);
  EXPECT_FALSE(of(proportional, "transformers=5.4.0").expressible);
  EXPECT_TRUE(of(proportional, "transformers=5.5.0").expressible);
  const Scaling linear = LinearScaling{4};
  EXPECT_THAT(of(linear, "transformers=4.57.6").setting, HasSubstr("rope_scaling"));
  EXPECT_THAT(of(linear, "transformers=5.0.0").setting, HasSubstr("rope_parameters"));
  const char* ratio = "transformers since 4.51.0, before 4.56.0 takes their ratio";
  EXPECT_THAT(of(YarnScaling{.factor = 4}, "transformers=4.55.4").note, HasSubstr(ratio));
  for (const char* other : {"transformers=4.57.6", "transformers=4.50.0"}) {
    EXPECT_THAT(of(YarnScaling{.factor = 4}, other).note, Not(HasSubstr(ratio))) << other;
  }
  // The ramp of earlier ones begins at max_position_embeddings.
  const EngineSetting early = of(YarnScaling{.factor = 4}, "transformers=4.50.0");
  EXPECT_THAT(early.setting, HasSubstr("\"max_position_embeddings\": 4096"));
  EXPECT_THAT(early.note, HasSubstr("Leave max_position_embeddings at 4096"));
  EXPECT_THAT(of(YarnScaling{.factor = 4}, "transformers=4.51.0").setting,
              HasSubstr("\"max_position_embeddings\": 16384"));
  EXPECT_EQ(of(YarnScaling{.factor = 4}, "transformers=5.0.0").note,
            "Replace these keys in config.json.");
}

TEST(EngineSettings, ReRopeIsAPatchOfOthers) {
  for (const char* method : {"rerope:window=512", "rerope:window=512+log-n"}) {
    const EngineSetting s = TheOne(method, "vllm=0.9.2", "vLLM");
    EXPECT_FALSE(s.expressible);
    EXPECT_THAT(s.note, AllOf(HasSubstr("vLLM 0.9.2 and 0.11.0"), HasSubstr("patch of others"),
                              HasSubstr("REROPE_WINDOW=512 TRAINING_LENGTH=4096")));
  }
}

// Every engine has a setting or a reason for every method, in each version exactly one.
TEST(EngineSettings, EveryEngineSaysSomethingOfEveryMethod) {
  std::vector<std::string> methods;
  for (const MethodInfo& m : Methods()) methods.emplace_back(m.name);
  for (const MethodPart& part : MethodParts()) methods.emplace_back(part.name);
  for (const std::string& method : methods) {
    const auto all = SettingsFor(PositionMethod::Parse(method), 4, kTarget);
    std::set<std::string> engines;
    for (const EngineSetting& s : all) {
      SCOPED_TRACE(method + ", " + s.Title());
      engines.insert(s.engine);
      EXPECT_EQ(s.expressible, !s.setting.empty());
      EXPECT_TRUE(s.expressible || !s.note.empty());
      ASSERT_TRUE(s.kind.has_value());
      for (const EngineSetting& other : all) {
        const bool overlap = s.range.since && other.range.Contains(*s.range.since);
        EXPECT_TRUE(&s == &other || s.engine != other.engine || !overlap) << other.Title();
      }
    }
    EXPECT_EQ(engines, (std::set<std::string>{
                           "Hugging Face transformers 5", "Hugging Face transformers 4",
                           "vLLM (on transformers 5)", "vLLM (on transformers 4)", "llama.cpp"}))
        << method;
    for (const char* choice : {"transformers=4.40.0", "transformers=4.57.0", "transformers=5.20.0",
                               "vllm=0.6.0", "vllm=0.10.0", "vllm=0.15.0", "llama.cpp=2024-01-01",
                               "llama.cpp=2025-06-30", "llama.cpp=2026-11-22"}) {
      EXPECT_EQ(Narrow(all, {ParseEngineChoice(choice)}).size(), 1u) << method << ", " << choice;
    }
  }
}

TEST(EngineSettings, NarrowedToWhatOneHas) {
  const auto all = SettingsFor(YarnScaling{.factor = 4}, kTarget);
  EXPECT_EQ(Narrow(all, {}).size(), all.size());
  const auto two = Narrow(all, {ParseEngineChoice("vllm=0.10.2"), ParseEngineChoice("llama.cpp")});
  ASSERT_EQ(two.size(), 3u);
  EXPECT_EQ(two[0].engine, "vLLM (on transformers 4)");
  EXPECT_EQ(two[1].Title(), "llama.cpp since 2026-08-30");
  EXPECT_EQ(two[2].Title(), "llama.cpp before 2026-08-30");
  // What is said of all engines stays.
  EXPECT_EQ(
      Narrow(SettingsForDictionary("no json", 4, kTarget), {ParseEngineChoice("vllm")}).size(), 1u);
}

TEST(EngineWarnings, NarrowedToWhatOneHas) {
  const auto ids = [](const PositionPlan& plan, const std::vector<EngineChoice>& choices) {
    std::set<std::string> all;
    for (const Finding& f : Narrow(WarningsOf(plan, 16384), choices)) all.insert(f.id);
    return all;
  };
  const PositionPlan dynamic = Plan(Spec(1e4, 128, 4096, DynamicNtkScaling{4}), 16384);
  EXPECT_EQ(ids(dynamic, {}).count("dynamic-state"), 1u);
  const std::vector<std::pair<const char*, std::size_t>> releases = {{"transformers=4.57.6", 0},
                                                                     {"transformers=5.0.0", 1},
                                                                     {"transformers=5.12.1", 1},
                                                                     {"transformers=5.13.0", 0},
                                                                     {"vllm=0.11", 0}};
  for (const auto& [choice, count] : releases) {
    EXPECT_EQ(ids(dynamic, {ParseEngineChoice(choice)}).count("dynamic-state"), count) << choice;
  }
  EXPECT_EQ(ids(dynamic, {ParseEngineChoice("vllm")}).count("dynamic-static"), 1u);
  EXPECT_EQ(ids(dynamic, {ParseEngineChoice("llama.cpp")}).count("dynamic-static"), 0u);
  EXPECT_EQ(ids(dynamic, {ParseEngineChoice("llama.cpp")}).count("unseen-angles"),
            ids(dynamic, {}).count("unseen-angles"));
  const auto state = Find(WarningsOf(dynamic, 16384), "dynamic-state");
  ASSERT_TRUE(state);
  EXPECT_EQ(state->versions, "since 5.0.0, before 5.13.0");

  PositionPlan dual = Plan(Spec(1e6, 128, 32768, NoScaling{}), 32768);
  EXPECT_EQ(ids(dual, {}).count("dual-chunk"), 0u);
  dual.has_dual_chunk_key = true;
  const auto warning = Find(WarningsOf(dual, 32768), "dual-chunk");
  ASSERT_TRUE(warning);
  EXPECT_THAT(warning->text, HasSubstr("since 0.9.0, before 0.11.0"));
}

TEST(EngineViews, NarrowedToTheEnginesThatOneHas) {
  const auto views = CompareEngines(Spec(1e4, 128, 4096, LinearScaling{4}), 16384, 16383);
  EXPECT_EQ(Narrow(views, {}).size(), 3u);
  const auto one = Narrow(views, {ParseEngineChoice("vllm=0.11.0")});
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].engine, Dialect::kVllm);
}

// docs/engines.md shows the rows as they are.
TEST(EngineFacts, AreInTheDocumentation) {
  std::string table = "| engine | versions | what it does | read in |\n|---|---|---|---|\n";
  for (const FactRow& row : kFacts) {
    const std::string versions = Text(row.engine, row.versions);
    table += std::string("| ") + internal::Title(row.engine) + " | " +
             (versions.empty() ? "all" : versions) + " | " + row.text + " | " + row.source + " |\n";
  }
  std::stringstream page;
  page << std::ifstream(ROPEWALK_SOURCE_DIR "/docs/engines.md").rdbuf();
  EXPECT_NE(page.str().find(table), std::string::npos)
      << "the table in docs/engines.md is not this one:\n"
      << table;
}

}  // namespace versions_test
}  // namespace ropewalk
