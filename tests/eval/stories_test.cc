// stories260K (llama2.c): losses that an independent program in double computed
// (tests/golden/stories_make.py), with BOS before each story and windows that do not overlap.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/eval/tiny_model.h"

namespace ropewalk {
namespace {

std::vector<int32_t> StoryIds(const Tokenizer& tokenizer, const std::string& path, size_t tokens) {
  std::ostringstream all;
  all << std::ifstream(path, std::ios::binary).rdbuf();
  const std::string text = all.str(), mark = "<|endoftext|>", space = " \n";
  std::vector<int32_t> ids;
  for (size_t begin = 0; begin < text.size() && ids.size() < tokens;) {
    const size_t end = std::min(text.size(), text.find(mark, begin));
    const std::string story = text.substr(begin, end - begin);
    begin = end + mark.size();
    const size_t first = story.find_first_not_of(space);
    if (first == std::string::npos) continue;
    const std::vector<int32_t> part =
        tokenizer.Encode(story.substr(first, story.find_last_not_of(space) - first + 1));
    ids.push_back(*tokenizer.bos_id());
    ids.insert(ids.end(), part.begin(), part.end());
  }
  ids.resize(std::min(ids.size(), tokens));
  return ids;
}

TEST(Stories260K, AgreesWithAnIndependentProgram) {
  const char* data = std::getenv("ROPEWALK_TEST_DATA");
  if (data == nullptr) GTEST_SKIP() << "needs stories260K: set ROPEWALK_TEST_DATA";
  const std::string folder = data;
  std::ifstream file(std::string(ROPEWALK_SOURCE_DIR) + "/tests/golden/stories260K.json");
  const nlohmann::json golden = nlohmann::json::parse(file);
  const ModelFiles files = OpenModel(folder + "/stories260K/checkpoint_legacy.bin");
  ASSERT_NE(files.tokenizer, nullptr) << files.tokenizer_error;
  const std::unique_ptr<Decoder> decoder = Decoder::Load(files);
  const TokenText text = TextOfIds(
      StoryIds(*files.tokenizer, folder + "/text/tinystories_1000.txt", golden["tokens"]));
  ASSERT_EQ(text.ids.size(), golden["tokens"]);
  const auto first_ids = golden["first_ids"].get<std::vector<int32_t>>();
  ASSERT_TRUE(std::equal(first_ids.begin(), first_ids.end(), text.ids.begin()));
  for (const nlohmann::json& row : golden["rows"]) {
    const std::string method = row["method"];
    const int64_t length = row["length"];
    SCOPED_TRACE(method + " at " + std::to_string(length));
    const auto expected = row["window_nll"].get<std::vector<double>>();
    Protocol protocol = Protocol::Parse("windows");
    protocol.anchors = static_cast<int64_t>(expected.size());
    const PositionPlan plan = WithScaling(
        files.config.plan, FindMethod(method).make(static_cast<double>(length) / 512), 512);
    const PerplexityResult result =
        MeasurePerplexity(DecoderEngine(*decoder), plan, text, protocol, length, length, {});
    ASSERT_EQ(result.window_nll.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(result.window_nll[i], expected[i], 1e-5) << "window " << i;
    }
  }
}

}  // namespace
}  // namespace ropewalk
