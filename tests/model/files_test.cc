// Which files make a model, and what is said when they do not belong together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "ropewalk/base/error.h"
#include "src/model/tensor_table.h"
#include "tests/model/support.h"

namespace ropewalk {
namespace files_test {

using test::Tensors;
using test::Tiny;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

std::string ErrorOf(const std::string& path, const OpenOptions& options = {}) {
  try {
    OpenModel(path, options);
  } catch (const Error& e) {
    return e.what();
  }
  return "(no error)";
}

TEST(OpenModel, TensorsMustFitTheConfiguration) {
  const Tiny tiny;
  struct Row {
    std::function<void(nlohmann::json&, Tensors&)> change;
    std::vector<const char*> message;
  };
  const std::string up = "model.layers.1.mlp.up_proj.weight";
  const Row table[] = {
      {[&](auto&, Tensors& t) { t.erase(up); },
       {"layers.1.mlp.up_proj.weight", "missing", "[40, 24]"}},
      {[&](auto&, Tensors& t) { std::swap(t[up].shape[0], t[up].shape[1]); },
       {"layers.1.mlp.up_proj.weight", "[24, 40]", "[40, 24]"}},
      {[&](auto&, Tensors& t) { t["model.layers.3.mlp.up_proj.weight"] = t[up]; },
       {"layers.3.mlp.up_proj.weight", "no place"}},
      {[&](auto&, Tensors& t) {
         t["model.layers.0.self_attn.q_proj.bias"] = {{2}, {1, 2}};
       },
       {"q_proj.bias", "no place"}},
      {[&](auto& c, Tensors&) { c["tie_word_embeddings"] = false; },
       {"lm_head.weight", "missing", "[53, 24]"}},
      {[&](auto& c, Tensors&) { c["num_hidden_layers"] = 4; }, {"model.layers.3.", "missing"}},
      {[&](auto& c, Tensors&) { c["num_hidden_layers"] = 4000; }, {"4000 layers", "tensors"}},
      {[&](auto& c, Tensors&) { c["num_hidden_layers"] = 2; }, {"model.layers.2.", "no place"}},
      {[&](auto& c, Tensors&) { c["vocab_size"] = 67108864; },
       {"embed_tokens", "[53, 24]", "67108864"}},
      {[&](auto& c, Tensors&) { c["model_type"] = "qwen3"; }, {"q_norm", "missing"}},
      {[&](auto& c, Tensors&) { c["model_type"] = "qwen2"; }, {"bias", "missing"}},
  };
  for (const Row& row : table) {
    const test::TempFolder folder;
    nlohmann::json config = tiny.Config();
    Tensors tensors = tiny.Weights();
    row.change(config, tensors);
    Tiny::WriteFolder(folder.path(), config, tensors);
    const std::string error = ErrorOf(folder.path());
    for (const char* part : row.message) EXPECT_THAT(error, HasSubstr(part));
    EXPECT_THAT(error, HasSubstr(folder.path()));
  }
}

TEST(OpenModel, HarmlessTensorsAreListed) {
  const Tiny tiny;
  const test::TempFolder folder;
  Tensors tensors = tiny.Weights();
  tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"];
  tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = {{4}, {1, 2, 3, 4}};
  Tiny::WriteFolder(folder.path(), tiny.Config(), tensors);
  const ModelFiles files = OpenModel(folder.path());
  EXPECT_THAT(files.config.harmless_keys, Contains("tensor lm_head.weight"));
  EXPECT_THAT(files.config.harmless_keys,
              Contains("tensor model.layers.0.self_attn.rotary_emb.inv_freq"));
  EXPECT_NE(Decoder::Load(files), nullptr);
}

// transformers 4 takes the embedding then, 5 the file's own head.
TEST(OpenModel, ATiedHeadWithOtherNumbersIsRefused) {
  const Tiny tiny;
  const test::TempFolder folder;
  Tensors tensors = tiny.Weights();
  tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"];
  tensors["lm_head.weight"].values.back() += 0.25f;
  nlohmann::json config = tiny.Config();
  Tiny::WriteFolder(folder.path(), config, tensors);
  const std::string error = ErrorOf(folder.path());
  for (const char* part : {"tie_word_embeddings is true", "lm_head.weight",
                           "model.embed_tokens.weight", "\"tie_word_embeddings\": false"}) {
    EXPECT_THAT(error, HasSubstr(part));
  }
  // What reads positions alone reads no weights.
  EXPECT_NO_THROW(OpenModel(folder.path(), {.allow_unknown = false, .need_weights = false}));
  config["tie_word_embeddings"] = false;
  Tiny::WriteFolder(folder.path(), config, tensors);
  EXPECT_NE(Decoder::Load(OpenModel(folder.path())), nullptr);
}

TEST(OpenModel, ATiedHeadMayHaveABias) {
  for (const char* type : {"phi", "gptj"}) {
    nlohmann::json config = Tiny().Config();
    config["model_type"] = type;
    const ModelConfig c = ParseHfConfig(config.dump(), "config.json");
    std::vector<std::string> names;
    for (const auto& t : internal::ExpectedTensors(c, internal::Naming::kHuggingFace)) {
      names.push_back(t.name);
    }
    EXPECT_THAT(names, Contains("lm_head.bias")) << type;
    EXPECT_THAT(names, Not(Contains("lm_head.weight"))) << type;
  }
}

TEST(OpenModel, TokenizerFailureBlocksNobody) {
  const Tiny tiny;
  const test::TempFolder folder;
  tiny.WriteFolder(folder.path());
  const ModelFiles none = OpenModel(folder.path());
  EXPECT_EQ(none.tokenizer, nullptr);
  EXPECT_FALSE(none.tokenizer_error.empty());
  test::WriteFile(folder / "tokenizer.json", "{\"broken\": ");
  const ModelFiles broken = OpenModel(folder.path());
  EXPECT_EQ(broken.tokenizer, nullptr);
  EXPECT_THAT(broken.tokenizer_error, HasSubstr("tokenizer.json"));
  EXPECT_NE(Decoder::Load(broken), nullptr);
}

TEST(OpenModel, ConfigurationAlone) {
  const Tiny tiny;
  const test::TempFolder folder;
  test::WriteFile(folder / "config.json", tiny.Config().dump());
  const OpenOptions no_weights{.allow_unknown = false, .need_weights = false};
  for (const std::string& path : {folder.path(), folder / "config.json"}) {
    const ModelFiles files = OpenModel(path, no_weights);
    EXPECT_EQ(files.config.layers, 3);
    EXPECT_TRUE(files.tensors.empty());
    EXPECT_NE(ErrorOf(path), "(no error)");
    try {
      Decoder::Load(files);
      ADD_FAILURE() << "loaded without weights";
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr("3 layers"));
    }
  }
}

TEST(OpenModel, HashFollowsContent) {
  const Tiny tiny;
  const test::TempFolder folder;
  tiny.WriteFolder(folder / "a");
  tiny.WriteFolder(folder / "b");
  nlohmann::json config = tiny.Config();
  config["rope_theta"] = 501.0;
  Tiny::WriteFolder(folder / "c", config, tiny.Weights());
  Tiny::WriteFolder(folder / "d", tiny.Config(), tiny.Weights(2));
  const std::string hash = OpenModel(folder / "a").Hash();
  EXPECT_EQ(hash.size(), 32u);
  EXPECT_EQ(OpenModel(folder / "b").Hash(), hash);
  EXPECT_NE(OpenModel(folder / "c").Hash(), hash);
  EXPECT_NE(OpenModel(folder / "d").Hash(), hash);
}

TEST(OpenModel, RefusesWhatIsNoModel) {
  const test::TempFolder folder;
  EXPECT_THAT(ErrorOf(folder / "absent"), HasSubstr("no such file or folder"));
  EXPECT_THAT(ErrorOf(folder.path()), HasSubstr("no config.json"));
  test::WriteFile(folder / "model.safetensors", "");
  EXPECT_THAT(ErrorOf(folder / "model.safetensors"), HasSubstr("give the folder"));
  test::WriteFile(folder / "notes.txt", "hello");
  EXPECT_THAT(ErrorOf(folder / "notes.txt"), HasSubstr("notes.txt"));
  for (const char* name : {"empty.gguf", "empty.bin", "config.json"}) {
    test::WriteFile(folder / name, "");
    EXPECT_THAT(ErrorOf(folder / name, {.allow_unknown = false, .need_weights = false}),
                HasSubstr(name));
  }
  // llama2.c headers that cannot be.
  for (const std::vector<int32_t>& header : {std::vector<int32_t>{0, 0, 0, 0, 0, 0, 0},
                                             {64, 172, 5, 8, 4, 512, -1},
                                             {2147483647, 2147483647, 2147483647, 8, 4, 512, 512},
                                             {64, 172, 5, 7, 4, 512, 512},
                                             {64, 172, 5, 8, 3, 512, 512},
                                             {-64, 172, 5, 8, 4, 512, 512}}) {
    test::WriteFile(
        folder / "bad.bin",
        std::string(reinterpret_cast<const char*>(header.data()), 28) + std::string(4096, '\0'));
    EXPECT_THAT(ErrorOf(folder / "bad.bin"), HasSubstr("bad.bin"));
  }
}

}  // namespace files_test
}  // namespace ropewalk
