// Encoders: states of transformers 4.57 (tests/golden/make_encoder_goldens.py) on tiny models of
// every family, and what is refused.
#include "ropewalk/model/encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "ropewalk/base/error.h"
#include "tests/model/encoder_support.h"
#include "tests/support/message_of.h"

namespace ropewalk {
namespace encoder_test {

using nlohmann::json;
using test::Changed;
using test::kGoldens;
using test::kLimit;
using test::LoadGolden;
using test::MessageOf;
using test::ReadFloats;
using test::ReadJson;
using test::States;
using test::fs::path;
using testing::AllOf;
using testing::HasSubstr;

TEST(EncoderGolden, StatesEqualTransformers) {
  const json cases = ReadJson(kGoldens / "cases.json");
  const auto ids = cases["ids"].get<std::vector<int32_t>>();
  ASSERT_GE(cases["runs"].size(), 3u);
  for (const auto& [name, runs] : cases["runs"].items()) {
    SCOPED_TRACE(name);
    const std::vector<float> expected = ReadFloats(kGoldens / name / "states.f32");
    const auto encoder = LoadGolden(name, runs[0]["alpha"]);
    const int64_t hidden = encoder->config().hidden;
    std::vector<float> ours;
    for (const json& run : runs) {
      const int64_t tokens = run["tokens"];
      std::vector<int32_t> types;
      if (!run["types"].is_null()) types = run["types"].get<std::vector<int32_t>>();
      const auto which =
          run["decoder"].get<bool>() ? EncoderStates::kMaskDecoder : EncoderStates::kLast;
      const auto states = States(*encoder, std::span(ids).first(tokens), types, which);
      for (const int64_t row : cases["rows"]) {
        if (row >= tokens) continue;
        ours.insert(ours.end(), states.begin() + row * hidden, states.begin() + (row + 1) * hidden);
      }
    }
    ASSERT_EQ(ours.size(), expected.size());
    EXPECT_LE(test::Difference(ours, expected), kLimit);
  }
}

// Positions matter: the same tokens in another order have other states, and more than rounding.
TEST(EncoderGolden, OrderIsSeen) {
  const json cases = ReadJson(kGoldens / "cases.json");
  const auto ids = cases["ids"].get<std::vector<int32_t>>();
  for (const auto& [name, runs] : cases["runs"].items()) {
    const auto encoder = LoadGolden(name, runs[0]["alpha"]);
    const int64_t hidden = encoder->config().hidden;
    std::vector<int32_t> text(ids.begin(), ids.begin() + 60);
    const auto states = States(*encoder, text);
    std::rotate(text.begin() + 10, text.begin() + 40, text.end());
    const auto other = States(*encoder, text);
    const std::vector<float> a(states.begin(), states.begin() + 10 * hidden);
    const std::vector<float> b(other.begin(), other.begin() + 10 * hidden);
    EXPECT_GT(test::Difference(a, b), 0.01) << name;
  }
}

TEST(Encoder, ShorterTextsDoNotDependOnLongerOnesBefore) {
  const auto ids = ReadJson(kGoldens / "cases.json")["ids"].get<std::vector<int32_t>>();
  for (const auto& entry : test::fs::directory_iterator(kGoldens)) {
    if (!entry.is_directory()) continue;
    const std::string name = entry.path().filename();
    const auto fresh = LoadGolden(name), used = LoadGolden(name);
    const auto text = std::span(ids).first(20);
    States(*used, std::span(ids).first(std::min<int64_t>(used->max_tokens(), 300)));
    EXPECT_EQ(States(*fresh, text), States(*used, text)) << name;
  }
}

// The table of 20 positions of one golden.
TEST(Encoder, BeyondTheTableOfPositions) {
  const auto plain = LoadGolden("bert_hierarchical");
  EXPECT_EQ(plain->max_tokens(), 20);
  const std::vector<int32_t> ids(401, 5);
  const auto first = [&](int64_t n) { return std::span(ids).first(n); };
  EXPECT_THAT(MessageOf([&] { States(*plain, first(21)); }),
              AllOf(HasSubstr("21 tokens"), HasSubstr("for 20"), HasSubstr("hierarchical"),
                    HasSubstr("400")));
  const auto more = LoadGolden("bert_hierarchical", 0.4);
  EXPECT_EQ(more->max_tokens(), 400);
  EXPECT_EQ(States(*plain, first(20)), States(*more, first(20)));  // to the last bit
  EXPECT_EQ(States(*more, first(400)).size(), 400u * 32);
  EXPECT_THAT(MessageOf([&] { States(*more, first(401)); }),
              AllOf(HasSubstr("401 tokens"), HasSubstr("400")));
  EXPECT_THAT(MessageOf([&] { LoadGolden("bert_hierarchical", 0.5); }), HasSubstr("alpha"));
  EXPECT_EQ(LoadGolden("roberta")->max_tokens(), 300);  // of 302 rows
}

// Each with a bias of its own, and models with the same one share the hash.
TEST(Encoder, PlansHaveHashesOfTheirBias) {
  const auto hash = [](const std::string& folder) {
    return Resolve(OpenModel(folder).config.plan, 64).hash;
  };
  const auto golden = [&](const char* name) { return hash((kGoldens / name).string()); };
  std::set<std::string> seen;
  const auto names = {
      "bert",           "roberta",    "t5",          "t5_gated",     "umt5",
      "deberta_linear", "deberta_v3", "deberta_c2p", "deberta_p2c",  "xlnet",
      "xlnet_clamped",  "roformer",   "nezha",       "nezha_masked", "deberta_v1_c2p"};
  for (const char* name : names) EXPECT_TRUE(seen.insert(golden(name)).second) << name;
  EXPECT_EQ(golden("deberta_linear"), golden("deberta_decoder_linear"));
  EXPECT_NE(golden("deberta_v3"), golden("deberta_decoder"));  // of 3 layers
  for (const auto& [name, key, value] : {std::tuple{"t5", "relative_attention_num_buckets", 16},
                                         {"t5", "relative_attention_max_distance", 256},
                                         {"umt5", "num_heads", 2},
                                         {"deberta_v3", "position_buckets", 32},
                                         {"deberta_v3", "max_relative_positions", 200},
                                         {"deberta_linear", "max_relative_positions", 61},
                                         {"xlnet", "clamp_len", 60},
                                         {"nezha", "max_relative_position", 63}}) {
    EXPECT_TRUE(seen.insert(hash(Changed(name, {{key, value}}).path())).second) << name << key;
  }
  EXPECT_EQ(golden("roformer"), golden("roformer_masked"));
  EXPECT_EQ(seen.size(), names.size() + 8);
}

TEST(Encoder, BadInput) {
  const auto bert = LoadGolden("bert");
  std::vector<float> room(2 * 32);
  const auto error = [&](std::vector<int32_t> ids, std::vector<int32_t> types) {
    return MessageOf([&] { bert->Forward(ids, room.data(), types); });
  };
  EXPECT_THAT(error({3, 64}, {}), AllOf(HasSubstr("ids"), HasSubstr("0 to 63"), HasSubstr("64")));
  EXPECT_THAT(error({-1}, {}), HasSubstr("item 0 is -1"));
  EXPECT_THAT(error({1, 2}, {0}), AllOf(HasSubstr("token_types"), HasSubstr("2 ids, got 1")));
  EXPECT_THAT(error({1, 2}, {0, 2}), AllOf(HasSubstr("token_types"), HasSubstr("0 to 1")));
  EXPECT_EQ(error({}, {}), "no error");
  const auto xlnet = LoadGolden("xlnet");
  EXPECT_THAT(MessageOf([&] {
                xlnet->Forward(std::vector<int32_t>{1, 2}, room.data(), std::vector<int32_t>{0, 1});
              }),
              AllOf(HasSubstr("token_types"), HasSubstr("one segment")));
  EXPECT_THAT(MessageOf([&] { bert->Forward(std::vector<int32_t>{1}, nullptr); }),
              HasSubstr("hidden"));
}

// What the configuration can say and the encoder does not compute is read, and refused by name.
TEST(Encoder, RefusesByName) {
  struct Row {
    const char* golden;
    json keys;
    std::vector<const char*> message;
  };
  const std::vector<Row> table = {
      {"bert",
       {{"position_embedding_type", "relative_key"}},
       {"position_embedding_type", "absolute"}},
      {"bert", {{"is_decoder", true}}, {"is_decoder"}},
      {"bert", {{"hidden_act", "quick_gelu"}}, {"hidden_act", "quick_gelu"}},
      {"bert", {{"quantization_config", {{"bits", 4}}}}, {"quantization_config"}},
      {"bert", {{"intermediate_size", nullptr}}, {"intermediate_size"}},
      {"bert", {{"model_type", "electra"}}, {"electra", "bert, roberta, t5"}},
      {"t5", {{"is_decoder", true}}, {"is_decoder"}},
      {"t5", {{"feed_forward_proj", "gated-quick"}}, {"feed_forward_proj", "gated-quick"}},
      {"deberta_linear", {{"conv_kernel_size", 3}}, {"conv_kernel_size is 3", "convolution"}},
      {"deberta_linear", {{"embedding_size", 16}}, {"embedding_size is 16"}},
      {"deberta_linear", {{"pos_att_type", {"p2p"}}}, {"pos_att_type", "p2p"}},
      {"deberta_linear", {{"pos_att_type", nullptr}}, {"pos_att_type", "c2p"}},
      {"deberta_v1", {{"talking_head", true}}, {"talking_head", "heads"}},
      {"deberta_v1", {{"share_att_key", true}}, {"share_att_key", "deberta-v2"}},
      {"deberta_v1", {{"position_buckets", 16}}, {"position_buckets is 16", "deberta-v2"}},
      {"deberta_v1", {{"norm_rel_ebd", "layer_norm"}}, {"norm_rel_ebd", "deberta-v2"}},
      {"roformer", {{"rotary_value", true}}, {"rotary_value"}},
      {"roformer", {{"is_decoder", true}}, {"is_decoder"}},
      {"roformer", {{"hidden_act", "tanh"}}, {"hidden_act", "tanh"}},
      {"nezha", {{"is_decoder", true}}, {"is_decoder"}},
      {"nezha", {{"max_relative_position", 100000}}, {"max_relative_position is 100000"}},
      {"nezha", {{"hidden_size", 36}, {"num_attention_heads", 4}}, {"hidden_size is 36", "even"}},
      {"xlnet", {{"attn_type", "uni"}}, {"attn_type", "uni"}},
      {"xlnet", {{"bi_data", true}}, {"bi_data"}},
      {"xlnet", {{"ff_activation", "tanh"}}, {"ff_activation", "tanh"}},
  };
  for (const Row& row : table) {
    const Changed folder(row.golden, row.keys);
    const ModelFiles files = OpenModel(folder.path());
    EXPECT_EQ(files.config.encoder, nullptr);
    const std::string error = MessageOf([&] { Encoder::Load(files); });
    for (const char* part : row.message) EXPECT_THAT(error, HasSubstr(part)) << row.keys;
    EXPECT_THAT(error, HasSubstr(folder.path())) << row.keys;
  }
  EXPECT_THAT(MessageOf([] { Decoder::Load(OpenModel((kGoldens / "bert").string())); }),
              AllOf(HasSubstr("encoder"), HasSubstr("ropewalk embed")));
}

TEST(Encoder, TensorsAndConfigurationMustAgree) {
  const auto error = [](const char* golden, const json& keys) {
    const Changed folder(golden, keys);
    return MessageOf([&] { Encoder::Load(OpenModel(folder.path())); });
  };
  EXPECT_THAT(
      error("bert", {{"max_position_embeddings", 299}}),
      AllOf(HasSubstr("position_embeddings"), HasSubstr("[300, 32]"), HasSubstr("[299, 32]")));
  EXPECT_THAT(error("bert", {{"num_hidden_layers", 3}}),
              AllOf(HasSubstr("encoder.layer.2."), HasSubstr("missing")));
  EXPECT_THAT(error("bert", {{"num_hidden_layers", 1}}),
              AllOf(HasSubstr("encoder.layer.1."), HasSubstr("no place")));
  EXPECT_THAT(error("bert", {{"num_hidden_layers", 1000}}), HasSubstr("1000 layers"));
  EXPECT_THAT(error("t5", {{"relative_attention_num_buckets", 16}}),
              AllOf(HasSubstr("relative_attention_bias"), HasSubstr("[16, 4]")));
  EXPECT_THAT(error("t5_gated", {{"is_gated_act", false}}),
              AllOf(HasSubstr("feed_forward_proj"), HasSubstr("is_gated_act")));
  EXPECT_THAT(error("deberta_linear", {{"share_att_key", true}}),
              AllOf(HasSubstr("pos_key_proj"), HasSubstr("no place")));
  EXPECT_THAT(error("deberta_linear", {{"model_type", "deberta"}, {"pooler_hidden_act", "gelu"}}),
              AllOf(HasSubstr("in_proj"), HasSubstr("missing")));
  EXPECT_THAT(error("deberta_v1", {{"max_relative_positions", 59}}),
              AllOf(HasSubstr("rel_embeddings"), HasSubstr("[118, 32]")));
  EXPECT_THAT(error("deberta_v1", {{"pos_att_type", {"c2p"}}}),
              AllOf(HasSubstr("pos_q_proj"), HasSubstr("no place")));
  EXPECT_THAT(error("roformer_masked", {{"embedding_size", 24}}),
              AllOf(HasSubstr("word_embeddings"), HasSubstr("[64, 24]")));
  EXPECT_THAT(error("roformer_masked", {{"embedding_size", nullptr}}),
              AllOf(HasSubstr("word_embeddings"), HasSubstr("[64, 32]")));
  EXPECT_THAT(error("nezha", {{"type_vocab_size", 3}}), HasSubstr("token_type_embeddings"));
  EXPECT_THAT(error("deberta_v3", {{"norm_rel_ebd", "none"}}),
              AllOf(HasSubstr("encoder.LayerNorm"), HasSubstr("no place")));
  EXPECT_THAT(error("deberta_v3", {{"position_buckets", 32}}), HasSubstr("rel_embeddings"));
  EXPECT_THAT(error("xlnet", {{"d_head", 7}}), AllOf(HasSubstr("d_head"), HasSubstr("d_model")));
}

// Names as TensorFlow's checkpoints have them, and the positions' numbers that old files carry.
TEST(Encoder, OldSpellings) {
  test::TempFolder folder;
  std::ifstream in(kGoldens / "bert_hierarchical" / "model.safetensors", std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  uint64_t size = 0;
  std::memcpy(&size, bytes.data(), 8);
  json header = json::parse(bytes.substr(8, size)), renamed = json::object();
  std::string data = bytes.substr(8 + size);
  for (const auto& [name, entry] : header.items()) {
    std::string other = name;
    for (const auto& [from, to] :
         {std::pair<std::string, std::string>{"LayerNorm.weight", "LayerNorm.gamma"},
          {"LayerNorm.bias", "LayerNorm.beta"}}) {
      if (const auto at = other.find(from); at != std::string::npos)
        other.replace(at, from.size(), to);
    }
    renamed[other] = entry;
  }
  renamed["embeddings.position_ids"] = {
      {"dtype", "I64"}, {"shape", {1, 20}}, {"data_offsets", {data.size(), data.size() + 160}}};
  data.append(160, '\0');
  std::string text = renamed.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  size = text.size();
  test::WriteFile(folder / "model.safetensors",
                  std::string(reinterpret_cast<const char*>(&size), 8) + text + data);
  test::fs::copy_file(kGoldens / "bert_hierarchical" / "config.json", folder / "config.json");
  const std::vector<int32_t> ids = {3, 1, 4, 1, 5};
  EXPECT_EQ(States(*Encoder::Load(OpenModel(folder.path())), ids),
            States(*LoadGolden("bert_hierarchical"), ids));
}

TEST(Pooling, ReadsAndRefuses) {
  test::TempFolder folder;
  EXPECT_EQ(ReadSentencePooling(folder.path()).kind, SentencePooling::Kind::kMean);
  EXPECT_FALSE(ReadSentencePooling(folder.path()).normalize);
  const auto modules = [&](std::vector<std::string> types) {
    json list = json::array();
    for (const std::string& type : types) {
      list.push_back({{"path", type == "Pooling" ? "1_Pooling" : ""},
                      {"type", "sentence_transformers.models." + type}});
    }
    test::WriteFile(folder / "modules.json", list.dump());
  };
  test::fs::create_directory(folder / "1_Pooling");
  const auto mode = [&](const json& config) {
    test::WriteFile(folder / "1_Pooling/config.json", config.dump());
  };
  modules({"Transformer", "Pooling", "Normalize"});
  mode({{"pooling_mode_cls_token", true}, {"pooling_mode_mean_tokens", false}});
  test::WriteFile(folder / "sentence_bert_config.json", R"({"max_seq_length": 256})");
  const SentencePooling pooling = ReadSentencePooling(folder.path());
  EXPECT_EQ(pooling.kind, SentencePooling::Kind::kFirst);
  EXPECT_TRUE(pooling.normalize);
  EXPECT_EQ(pooling.trained_tokens, 256);
  const auto error = [&] { return MessageOf([&] { ReadSentencePooling(folder.path()); }); };
  mode({{"pooling_mode_max_tokens", true}});
  EXPECT_THAT(error(), HasSubstr("pooling_mode_max_tokens"));
  mode({{"pooling_mode_cls_token", true}, {"pooling_mode_mean_tokens", true}});
  EXPECT_THAT(error(), HasSubstr("2 pooling modes"));
  mode({{"pooling_mode_cls_token", true}});
  test::WriteFile(folder / "sentence_bert_config.json", R"({"do_lower_case": true})");
  EXPECT_THAT(error(), HasSubstr("do_lower_case"));
  test::WriteFile(folder / "sentence_bert_config.json", R"({"do_lower_case": false})");
  EXPECT_NO_THROW(ReadSentencePooling(folder.path()));
  const auto prompts = [&](const json& config) {
    test::WriteFile(folder / "config_sentence_transformers.json", config.dump());
  };
  prompts({{"prompts", {{"query", "query: "}}}, {"default_prompt_name", "query"}});
  EXPECT_THAT(error(), AllOf(HasSubstr("default_prompt_name"), HasSubstr("query")));
  prompts({{"prompts", json::object()}, {"default_prompt_name", nullptr}});
  EXPECT_NO_THROW(ReadSentencePooling(folder.path()));
  modules({"Transformer", "Dense"});
  EXPECT_THAT(error(), AllOf(HasSubstr("module 1"), HasSubstr("Dense")));
  test::WriteFile(folder / "modules.json", "{}");
  EXPECT_THAT(error(), HasSubstr("array of modules"));
}

TEST(Pooling, Vectors) {
  const std::vector<float> hidden = {1, 2, 3, 0, 8, -3};
  SentencePooling pooling;
  EXPECT_EQ(SentenceVector(pooling, hidden, 2), (std::vector<float>{4, -1.0F / 3}));
  EXPECT_EQ(SentenceVector(pooling, hidden, 3), (std::vector<float>{.5, 5, 0}));
  pooling.normalize = true;
  pooling.kind = SentencePooling::Kind::kFirst;
  EXPECT_EQ(SentenceVector(pooling, std::vector<float>{3, 4, 7, 7}, 2),
            (std::vector<float>{.6F, .8F}));
  EXPECT_THAT(MessageOf([&] { SentenceVector(pooling, hidden, 4); }), HasSubstr("[tokens, 4]"));
  EXPECT_THAT(MessageOf([&] { SentenceVector(pooling, {}, 4); }), HasSubstr("hidden"));
}

}  // namespace encoder_test
}  // namespace ropewalk
