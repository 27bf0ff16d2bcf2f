// The head of a masked language model: logits of transformers 4.57 (tests/golden/
// make_encoder_goldens.py), and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/model/encoder_support.h"
#include "tests/support/message_of.h"

namespace ropewalk {
namespace masked_head_test {

using nlohmann::json;
using test::Changed;
using test::kGoldens;
using test::kLimit;
using test::LoadGolden;
using test::MessageOf;
using test::ReadBytes;
using test::ReadFloats;
using test::ReadJson;
using test::States;
using testing::AllOf;
using testing::HasSubstr;

json HeaderOf(const std::string& safetensors) {
  uint64_t size = 0;
  std::memcpy(&size, safetensors.data(), 8);
  return json::parse(safetensors.substr(8, size));
}

std::unique_ptr<Encoder> LoadMasked(const std::string& folder) {
  EncoderOptions options;
  options.masked_head = true;
  return Encoder::Load(OpenModel(folder), options);
}

TEST(MaskedHead, LogitsOfTheMaskedLanguageModelEqualTransformers) {
  const json cases = ReadJson(kGoldens / "cases.json");
  const auto ids = cases["ids"].get<std::vector<int32_t>>();
  int compared = 0;
  for (const auto& [name, runs] : cases["runs"].items()) {
    if (!test::fs::exists(kGoldens / name / "logits.f32")) continue;
    SCOPED_TRACE(name);
    const auto encoder = LoadMasked((kGoldens / name).string());
    const int64_t hidden = encoder->config().hidden, vocab = encoder->config().vocab;
    std::vector<float> ours;
    for (const json& run : runs) {
      const int64_t tokens = run["tokens"];
      std::vector<int32_t> types;
      if (!run["types"].is_null()) types = run["types"].get<std::vector<int32_t>>();
      const auto states = States(*encoder, std::span(ids).first(tokens), types);
      for (const int64_t row : cases["rows"]) {
        if (row >= tokens) continue;
        ours.resize(ours.size() + vocab);
        encoder->Logits(states.data() + row * hidden, 1, ours.data() + ours.size() - vocab);
      }
    }
    const std::vector<float> expected = ReadFloats(kGoldens / name / "logits.f32");
    ASSERT_EQ(ours.size(), expected.size());
    EXPECT_LE(test::Difference(ours, expected), kLimit);
    ++compared;
  }
  EXPECT_EQ(compared, 5);
}

TEST(MaskedHead, IsNeededForLogits) {
  std::vector<float> logits(64);
  const std::vector<float> state(32);
  EXPECT_THAT(MessageOf([&] { LoadGolden("bert_masked")->Logits(state.data(), 1, logits.data()); }),
              AllOf(HasSubstr("Logits"), HasSubstr("masked_head")));
  EXPECT_THAT(MessageOf([] { LoadMasked((kGoldens / "bert").string()); }),
              AllOf(HasSubstr((kGoldens / "bert").string()), HasSubstr("no head"),
                    HasSubstr("ForMaskedLM")));
  // A tied head does not need the matrix of its own, an untied one does.
  const Changed untied("bert_masked", {{"tie_word_embeddings", false}});
  EXPECT_THAT(MessageOf([&] { LoadMasked(untied.path()); }),
              AllOf(HasSubstr("cls.predictions.decoder.weight"), HasSubstr("missing")));
  const Changed tied("bert_masked_untied", {{"tie_word_embeddings", true}});
  EXPECT_EQ(MessageOf([&] { LoadMasked(tied.path()); }), "no error");
}

// A head that is there in part, or with a tensor that has no place, is an error and no other model.
TEST(MaskedHead, NoPartOfTheHeadIsDroppedInSilence) {
  for (const char* golden : {"bert_masked", "roberta_masked", "roformer_masked", "nezha_masked"}) {
    const std::string bytes = ReadBytes(kGoldens / golden / "model.safetensors");
    const json header = HeaderOf(bytes);
    for (const auto& [name, entry] : header.items()) {
      if (!name.starts_with("cls.") && !name.starts_with("lm_head.")) continue;
      test::TempFolder folder;
      std::string other = bytes;  // of the same length
      other[other.find("\"" + name) + name.size()] = 'X';
      test::WriteFile(folder / "model.safetensors", other);
      test::fs::copy_file(kGoldens / golden / "config.json", folder / "config.json");
      const std::string error = MessageOf([&] { LoadMasked(folder.path()); });
      EXPECT_THAT(error, HasSubstr(name)) << golden;
      EXPECT_THAT(error, HasSubstr("missing")) << golden << name;
      EXPECT_EQ(MessageOf([&] { Encoder::Load(OpenModel(folder.path())); }), error);
    }
  }
}

}  // namespace masked_head_test
}  // namespace ropewalk
