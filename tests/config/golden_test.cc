// Published configurations and GGUF headers against tests/golden/config_plans.json, in which a
// Python script restates each family's rule (config_plans_make.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ropewalk/model/model.h"
#include "tests/config/plan_facts.h"

namespace ropewalk {
namespace golden_test {

using nlohmann::json;

json Golden() {
  std::ifstream in(std::string(ROPEWALK_SOURCE_DIR) + "/tests/golden/config_plans.json");
  return json::parse(in);
}

void CompareFrequencies(const RotarySpec& spec, const json& expected) {
  const Frequencies ours = Resolve(spec, expected["length"].get<int64_t>());
  EXPECT_NEAR(ours.amplitude, expected["amplitude"].get<double>(), 1e-12);
  EXPECT_NEAR(ours.softmax_multiplier, expected["softmax_multiplier"].get<double>(), 1e-12);
  for (const auto& [i, value] : expected["inv_freq"].items()) {
    const double f = value.get<double>();
    EXPECT_NEAR(ours.inv_freq[std::stoul(i)].hi, f, 1e-12 * f)
        << "pair " << i << " at length " << expected["length"];
  }
}

void Compare(const PositionPlan& plan, const json& expected) {
  EXPECT_EQ(plan.trained_length, expected["trained_length"].get<int64_t>());
  EXPECT_EQ(plan.configured_length, expected["configured_length"].get<int64_t>());
  std::size_t l = 0;
  for (const json& run : expected["runs"]) {
    for (int64_t n = run["count"].get<int64_t>(); n > 0; --n, ++l) {
      ASSERT_LT(l, plan.layers.size());
      EXPECT_EQ(test::Facts(plan.layers[l]), run["layer"]) << "layer " << l;
    }
    if (!run.contains("at") || !plan.layers[l - 1].rotation) continue;
    for (const json& at : run["at"]) CompareFrequencies(*plan.layers[l - 1].rotation, at);
  }
  EXPECT_EQ(l, plan.layers.size());
  if (expected.contains("note")) {
    EXPECT_THAT(plan.notes, testing::Contains(testing::HasSubstr(expected["note"])));
  }
}

TEST(ConfigGolden, PublishedFilesReadRight) {
  const char* data = std::getenv("ROPEWALK_TEST_DATA");
  if (data == nullptr) {
    GTEST_SKIP() << "ROPEWALK_TEST_DATA is not set: published configurations were not compared";
  }
  const json golden = Golden();
  ASSERT_GE(golden.size(), 33u);
  for (const auto& [file, expected] : golden.items()) {
    SCOPED_TRACE(file);
    const ModelFiles files =
        OpenModel(std::string(data) + "/" + file, {.allow_unknown = false, .need_weights = false});
    Compare(files.config.plan, expected);
  }
}

}  // namespace golden_test
}  // namespace ropewalk
