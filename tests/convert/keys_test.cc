// What a conversion carries besides weights: roles of tokens, chat templates, and the rest by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ropewalk/base/error.h"
#include "ropewalk/convert/convert.h"
#include "ropewalk/io/writer.h"
#include "tests/model/support.h"

namespace ropewalk {
namespace keys_test {

using ::testing::HasSubstr;

std::string Joined(const std::vector<std::string>& notes) {
  std::string all;
  for (const std::string& note : notes) all += note + "\n";
  return all;
}

// A GGUF file with everything that has a place in a folder, and more that has none.
std::map<std::string, GgufValue> More() {
  const auto id = [](int64_t i) { return GgufValue{i, GgufType::kU32}; };
  const auto text = [](const char* t) { return GgufValue{std::string(t), GgufType::kString}; };
  return {{"tokenizer.ggml.padding_token_id", id(3)},
          {"tokenizer.ggml.unknown_token_id", id(4)},
          {"tokenizer.ggml.eos_token_id", id(5)},
          {"tokenizer.ggml.eot_token_id", id(6)},
          {"tokenizer.ggml.eom_token_id", id(7)},
          {"tokenizer.ggml.mask_token_id", id(8)},
          {"tokenizer.ggml.seperator_token_id", id(9)},
          {"tokenizer.ggml.cls_token_id", id(10)},
          {"tokenizer.ggml.add_eos_token", {true, GgufType::kBool}},
          {"tokenizer.chat_template", text("{{ messages }} caf\xc3\xa9")},
          {"tokenizer.chat_template.tool_use", text("{{ tools }}")},
          {"tokenizer.chat_templates", {std::vector<std::string>{"tool_use"}, GgufType::kString}},
          {"tokenizer.ggml.fim_pre_token_id", id(11)},
          {"tokenizer.huggingface.json", text("{}")},
          {"general.license", text("mit")},
          {"general.sampling.temp", {0.5, GgufType::kF32}},
          {"llama.rope.scaling.finetuned", {true, GgufType::kBool}}};
}

class GgufKeys : public ::testing::Test {
 protected:
  // The repository's model as GGUF with more keys.
  std::string Write(const std::map<std::string, GgufValue>& more) {
    const ModelFiles files = OpenModel(std::string(ROPEWALK_SOURCE_DIR) + "/models");
    FolderToGguf(files, folder_ / "plain.gguf", {});
    const GgufFile plain = OpenGguf(folder_ / "plain.gguf");
    auto metadata = plain.metadata;
    for (const auto& [key, value] : more) metadata[key] = value;
    std::vector<TensorSource> tensors;
    for (const auto& [name, weight] : plain.tensors) tensors.push_back(CopyOf(weight));
    WriteGguf(folder_ / "full.gguf", metadata, tensors);
    return folder_ / "full.gguf";
  }
  const test::TempFolder folder_;
};

TEST_F(GgufKeys, AreKeptOrListedEachOfThem) {
  const ModelFiles files = OpenModel(Write(More()));
  const auto there = GgufToFolder(files, folder_ / "hf", {});
  const ModelFiles folder = OpenModel(folder_ / "hf");
  ProveTokenizer(*files.tokenizer, *folder.tokenizer);
  ProveExtras(there.extras, folder);
  const auto back = FolderToGguf(folder, folder_ / "back.gguf", {});
  ProveExtras(there.extras, OpenModel(folder_ / "back.gguf"));

  const auto before = OpenGguf(files.path).metadata,
             after = OpenGguf(folder_ / "back.gguf").metadata;
  const std::string notes = Joined(there.notes);
  int listed = 0;
  for (const auto& [key, value] : before) {
    if (key == "tokenizer.ggml.pre") continue;  // one of several names for one pattern
    if (notes.find("'" + key + "'") != std::string::npos) {
      ++listed;
      continue;
    }
    ASSERT_TRUE(after.contains(key)) << key << " is neither kept nor listed";
    EXPECT_EQ(after.at(key).value, value.value) << key;
  }
  EXPECT_EQ(listed, 6);  // those behind chat_templates in More(), and general.name
}

TEST_F(GgufKeys, AnIdThatIsNoTokenIsListed) {
  const ModelFiles files =
      OpenModel(Write({{"tokenizer.ggml.padding_token_id", {int64_t{99999}, GgufType::kU32}}}));
  const auto there = GgufToFolder(files, folder_ / "hf", {});
  EXPECT_THAT(Joined(there.notes), HasSubstr("'tokenizer.ggml.padding_token_id'"));
  EXPECT_FALSE(there.extras.ids.contains("pad"));
}

TEST_F(GgufKeys, TextThatIsNotUtf8IsRefusedByName) {
  const ModelFiles files =
      OpenModel(Write({{"tokenizer.chat_template", {std::string("a\xff"), GgufType::kString}}}));
  try {
    GgufToFolder(files, folder_ / "hf", {});
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("full.gguf: tokenizer.chat_template"));
    EXPECT_THAT(e.what(), HasSubstr("not valid UTF-8"));
  }
}

TEST_F(GgufKeys, AProofSeesALostTemplate) {
  const ModelFiles files = OpenModel(Write(More()));
  auto there = GgufToFolder(files, folder_ / "hf", {});
  there.extras.chat_templates["default"] += " ";
  const ModelFiles folder = OpenModel(folder_ / "hf");
  EXPECT_THROW(ProveExtras(there.extras, folder), Error);
}

}  // namespace keys_test
}  // namespace ropewalk
