// Settings to paste for the rows of a sweep.
#include "ropewalk/engines/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ropewalk/eval/eval.h"
#include "tests/report/synthetic.h"

namespace ropewalk {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

// The newest one.
EngineSetting Of(const std::vector<EngineSetting>& all, const std::string& name) {
  for (const EngineSetting& s : all) {
    if (s.engine == name) return s;
  }
  ADD_FAILURE() << "no setting for " << name;
  return all.front();
}

TEST(CellSettings, FollowTheMethod) {
  Cell cell = testing::MakeCell({"yarn", 4, 1024, 21});
  EXPECT_THAT(Of(SettingsFor(cell, 1024), "llama.cpp").setting, HasSubstr("--rope-scale 4"));
  cell.method = "as-shipped";
  EXPECT_EQ(Of(SettingsFor(cell, 1024), "llama.cpp").setting, "-c 1024");
  cell.method = "self-extend";
  EXPECT_THAT(Of(SettingsFor(cell, 1024), "llama.cpp").setting, HasSubstr("--grp-attn-n"));
}

TEST(CellSettings, OfDictionaries) {
  Cell cell = testing::MakeCell({"yarn", 4, 1024, 21});
  cell.method = "custom";
  cell.scaling = R"({"type": "yarn", "factor": 2, "beta_fast": 16})";
  const Json rope = Json::parse(Of(SettingsFor(cell, 1024), "Hugging Face transformers 5").setting)
                        .at("rope_parameters");
  EXPECT_EQ(rope, Json::parse(R"({"rope_type": "yarn", "rope_theta": 10000.0, "factor": 2,
                                  "beta_fast": 16, "original_max_position_embeddings": 256})"));
  for (const char* hostile : {"", "not json", "[1]", R"({"rope_type": 5})",
                              R"({"rope_type": "yarn", "factor": "four"})"}) {
    cell.scaling = hostile;
    EXPECT_NO_THROW((void)SettingsFor(cell, 1024)) << hostile;
  }
}

// Engines do not read the family ropewalk, so its own file is what there is.
TEST(CellSettings, OfTheFamilyRopewalk) {
  const auto only = [](const Cell& cell) {
    const std::vector<EngineSetting> all = SettingsFor(cell, 1024, "ropewalk");
    EXPECT_EQ(all.size(), 1u);
    EXPECT_EQ(all.at(0).engine, "ropewalk, in config.json");
    return all.at(0);
  };
  Cell cell = testing::MakeCell({"ntk-fixed", 4, 1024, 21});
  EXPECT_EQ(Json::parse(only(cell).setting).at("positions").at("rotation"),
            Json::parse(R"({"rope_type": "ntk-fixed", "rope_theta": 10000.0, "factor": 4.0})"));
  EXPECT_THAT(only(cell).note, HasSubstr("ropewalk extend --method ntk-fixed --factor 4"));
  cell.method = "yarn+rerope:64";
  const Json positions = Json::parse(only(cell).setting).at("positions");
  EXPECT_EQ(positions.at("rotation").at("factor"), 2);
  EXPECT_EQ(positions.at("map"), Json::parse(R"({"type": "rerope", "window": 64})"));
  cell.method = "linear";
  cell.inv_freq.back() = 0;  // which it was trained with: p-RoPE
  EXPECT_EQ(only(cell).setting, "");
  EXPECT_THAT(only(cell).note, HasSubstr("ropewalk extend --method linear"));
  cell.method = "as-shipped";
  EXPECT_EQ(only(cell).setting, "");
  cell.method = "custom";
  cell.scaling = R"({"rope_type": "yarn", "factor": 2})";
  EXPECT_EQ(only(cell).setting, cell.scaling);
}

}  // namespace
}  // namespace ropewalk
