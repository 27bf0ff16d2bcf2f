// stories260K (llama2.c): perplexities that an independent scalar program computed, with BOS before
// each story and windows that do not overlap; 65536 tokens at 512, 32768 beyond.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
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
  return ids;
}

TEST(Stories260K, AgreesWithAnIndependentProgram) {
  const char* data = std::getenv("ROPEWALK_TEST_DATA");
  if (data == nullptr) GTEST_SKIP() << "needs stories260K: set ROPEWALK_TEST_DATA";
  const std::string folder = data;
  const ModelFiles files = OpenModel(folder + "/stories260K/checkpoint_legacy.bin");
  ASSERT_NE(files.tokenizer, nullptr) << files.tokenizer_error;
  const std::unique_ptr<Decoder> decoder = Decoder::Load(files);
  const TokenText text =
      TextOfIds(StoryIds(*files.tokenizer, folder + "/text/tinystories_1000.txt", 65536));
  struct Row {
    const char* method;
    int64_t length;
    double perplexity, last_digit;
  };
  // Lengths up to 8192 agree as well; they take a minute.
  const Row rows[] = {{"none", 512, 5.97, 0.01},
                      {"none", 2048, 6.99, 0.01},
                      {"yarn", 2048, 8.23, 0.01},
                      {"linear", 2048, 46.2, 0.1},
                      {"ntk", 4096, 14.7, 0.1}};
  for (const Row& row : rows) {
    Protocol protocol = Protocol::Parse("windows");
    protocol.anchors = row.length == 512 ? 128 : 32768 / row.length;
    const double factor = static_cast<double>(row.length) / 512;
    const PositionPlan plan =
        WithScaling(files.config.plan, FindMethod(row.method).make(factor), 512);
    const PerplexityResult result =
        MeasurePerplexity(*decoder, plan, text, protocol, row.length, row.length, {});
    EXPECT_EQ(result.windows, protocol.anchors);
    EXPECT_NEAR(result.perplexity, row.perplexity, row.last_digit)
        << row.method << " at " << row.length;
  }
}

}  // namespace
}  // namespace ropewalk
