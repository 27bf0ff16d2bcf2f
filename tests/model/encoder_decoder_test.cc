// Encoder-decoder models: logits and losses of transformers 4.57
// (tests/golden/make_encoder_decoder_goldens.py) on tiny models, and what is refused.
#include "ropewalk/model/encoder_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "tests/model/encoder_support.h"

namespace ropewalk {
namespace encoder_decoder_test {

using test::json;
using test::kLimit;
using test::MessageOf;
using test::ReadBytes;
using test::ReadFloats;
using test::ReadJson;
using testing::AllOf;
using testing::HasSubstr;

const test::fs::path kModels =
    test::fs::path(ROPEWALK_SOURCE_DIR) / "tests" / "golden" / "hf_encoder_decoders";
constexpr const char* kNames[] = {"t5_lm", "t5_lm_gated", "mt5_lm", "umt5_lm"};

std::unique_ptr<EncoderDecoder> Load(const std::string& name) {
  return EncoderDecoder::Load(OpenModel((kModels / name).string()));
}

// What is predicted in the place of each of `ids`; the decoder takes `step` tokens at a time.
std::vector<float> Logits(const EncoderDecoder& model, std::span<const int32_t> prefix,
                          std::span<const int32_t> ids, int64_t step) {
  const Decoder& decoder = model.decoder();
  const auto tokens = static_cast<int64_t>(ids.size());
  const int64_t hidden = decoder.config().hidden, vocab = decoder.config().vocab;
  std::vector<int32_t> fed = {model.start_id()};
  fed.insert(fed.end(), ids.begin(), ids.end() - 1);
  Sequence sequence(decoder, decoder.config().plan, tokens, AnglePrecision::kExact);
  model.Read(prefix, sequence);
  std::vector<float> states(tokens * hidden), logits(tokens * vocab);
  for (int64_t t = 0; t < tokens; t += step) {
    const int64_t n = std::min(step, tokens - t);
    decoder.Forward(sequence, std::span(fed).subspan(t, n), states.data() + t * hidden, n);
  }
  decoder.Logits(states.data(), tokens, logits.data());
  return logits;
}

double MeanLoss(const std::vector<float>& logits, std::span<const int32_t> ids, int64_t vocab) {
  double sum = 0;
  for (std::size_t t = 0; t < ids.size(); ++t) {
    double all = 0;
    for (int64_t v = 0; v < vocab; ++v) all += std::exp(double{logits[t * vocab + v]});
    sum += std::log(all) - double{logits[t * vocab + ids[t]]};
  }
  return sum / static_cast<double>(ids.size());
}

// Of every run; and the loss, which the model of transformers says itself.
TEST(EncoderDecoderGolden, LogitsAndLossEqualTransformers) {
  const json cases = ReadJson(kModels / "cases.json");
  const auto ids = cases["ids"].get<std::vector<int32_t>>();
  for (const char* name : kNames) {
    SCOPED_TRACE(name);
    const std::vector<float> expected = ReadFloats(kModels / name / "logits.f32");
    const auto model = Load(name);
    const int64_t vocab = model->decoder().config().vocab;
    std::vector<float> ours;
    for (std::size_t run = 0; run < cases["runs"].size(); ++run) {
      const int64_t prefix = cases["runs"][run][0], tokens = cases["runs"][run][1];
      const auto text = std::span(ids).subspan(prefix, tokens);
      const auto logits = Logits(*model, std::span(ids).first(prefix), text, 1 << 20);
      for (const int64_t row : cases["rows"]) {
        if (row >= tokens) continue;
        ours.insert(ours.end(), logits.begin() + row * vocab, logits.begin() + (row + 1) * vocab);
      }
      EXPECT_NEAR(MeanLoss(logits, text, vocab), cases["losses"][name][run].get<double>(), 2e-5)
          << prefix << " + " << tokens;
    }
    ASSERT_EQ(ours.size(), expected.size());
    EXPECT_LE(test::Difference(ours, expected), kLimit);
  }
}

// t5_gguf_make.py: the same numbers under the names of gguf-py.
TEST(EncoderDecoderGguf, EqualsTheFolder) {
  const auto ids = ReadJson(kModels / "cases.json")["ids"].get<std::vector<int32_t>>();
  const auto prefix = std::span(ids).first(129), text = std::span(ids).subspan(129, 300);
  for (const char* name : {"t5_lm", "mt5_lm", "umt5_lm"}) {
    SCOPED_TRACE(name);
    const ModelFiles folder = OpenModel((kModels / name).string());
    const ModelFiles gguf = OpenModel((kModels / name / "model.gguf").string());
    EXPECT_EQ(gguf.config.format_name, "GGUF v3");
    EXPECT_EQ(Resolve(gguf.config.plan, 999).hash, Resolve(folder.config.plan, 999).hash);
    EXPECT_THAT(gguf.config.unknown_keys, testing::IsEmpty());
    const auto expected = EncoderDecoder::Load(folder), got = EncoderDecoder::Load(gguf);
    EXPECT_EQ(got->start_id(), expected->start_id());
    EXPECT_EQ(got->end_id(), expected->end_id());
    EXPECT_EQ(Logits(*got, prefix, text, 64), Logits(*expected, prefix, text, 64));
  }
}

TEST(EncoderDecoderGguf, AnEncoderAlone) {
  const auto ids = ReadJson(kModels / "cases.json")["ids"].get<std::vector<int32_t>>();
  const auto text = std::span(ids).first(200);
  const auto states = [&](const char* file) {
    const auto encoder = Encoder::Load(OpenModel((kModels / "t5_lm" / file).string()));
    std::vector<float> all(text.size() * encoder->config().hidden);
    encoder->Forward(text, all.data());
    return all;
  };
  const std::vector<float> expected = states("");
  EXPECT_EQ(states("encoder.gguf"), expected);
  EXPECT_EQ(states("model.gguf"), expected);
  const ModelFiles alone = OpenModel((kModels / "t5_lm" / "encoder.gguf").string());
  EXPECT_THAT(MessageOf([&] { EncoderDecoder::Load(alone); }),
              AllOf(HasSubstr("encoder.gguf"), HasSubstr("ropewalk embed")));
}

// A file with one key or tensor changed.
class GgufCopy {
 public:
  explicit GgufCopy(const char* name)
      : files_(OpenGguf((kModels / name / "model.gguf").string())) {}
  GgufFile& gguf() { return files_; }
  ModelFiles Model() const {
    ModelFiles files;
    files.path = files_.file->path();
    files.config = ParseGgufConfig(files_);
    files.tensors = files_.tensors;
    return files;
  }

 private:
  GgufFile files_;
};

TEST(EncoderDecoderGguf, BadKeysAndTensors) {
  const auto message = [](const char* name, const std::function<void(GgufFile&)>& change) {
    GgufCopy copy(name);
    change(copy.gguf());
    return MessageOf([&] { EncoderDecoder::Load(copy.Model()); });
  };
  const auto key = [&](const char* which, int64_t value) {
    return message("t5_lm", [&](GgufFile& g) { g.metadata[which].value = value; });
  };
  EXPECT_THAT(key("t5.attention.value_length", 7),
              AllOf(HasSubstr("t5.attention.value_length"), HasSubstr("12, got 7")));
  EXPECT_THAT(key("t5.attention.head_count_kv", 1), HasSubstr("t5.attention.head_count_kv"));
  EXPECT_THAT(key("t5.block_count", 0), HasSubstr("t5.block_count"));
  EXPECT_THAT(key("t5.block_count", int64_t{1} << 40), HasSubstr("t5.block_count"));
  EXPECT_THAT(key("t5.attention.relative_buckets_count", -1), HasSubstr("relative_buckets_count"));
  EXPECT_THAT(key("t5.decoder_start_token_id", 1000), HasSubstr("decoder_start_token_id"));
  EXPECT_THAT(key("t5.attention.relative_max_distance", 64),
              AllOf(HasSubstr("relative_max_distance"), HasSubstr("unknown key")));
  EXPECT_THAT(message("t5_lm", [](GgufFile& g) { g.metadata.erase("t5.block_count"); }),
              HasSubstr("t5.block_count"));
  EXPECT_THAT(message("t5_lm", [](GgufFile& g) { g.metadata.erase("t5.decoder_start_token_id"); }),
              HasSubstr("decoder_start_token_id is absent"));
  const std::map<std::string, Weight> all = GgufCopy("umt5_lm").gguf().tensors;
  for (const auto& [name, weight] : all) {
    const std::string what = message("umt5_lm", [&, name = name](GgufFile& g) {
      g.tensors["renamed." + name] = g.tensors.at(name);
      g.tensors.erase(name);
    });
    // Without the encoder's second bias this is a T5, in which those of the decoder have no place.
    const bool tells_kind = name == "enc.blk.1.attn_rel_b.weight";
    EXPECT_THAT(what, HasSubstr(tells_kind ? "has no place in a 't5' model" : name))
        << "renamed: " << name;
  }
  // The first T5's head is its embedding: one with other numbers is another model's.
  EXPECT_THAT(message("t5_lm",
                      [](GgufFile& g) {
                        g.tensors["output.weight"] = g.tensors.at("token_embd.weight");
                        g.tensors["output.weight"].data += 2;
                      }),
              AllOf(HasSubstr("output.weight"), HasSubstr("ffn_gate")));
  GgufCopy twice("t5_lm");
  twice.gguf().tensors["output.weight"] = twice.gguf().tensors.at("token_embd.weight");
  EXPECT_TRUE(EncoderDecoder::Load(twice.Model())->decoder().config().tied_head);
}

// The whole text at once, in pieces across the bucket of distance 128, and token by token.
TEST(EncoderDecoder, ChunksEqualTheWhole) {
  const auto ids = ReadJson(kModels / "cases.json")["ids"].get<std::vector<int32_t>>();
  for (const char* name : kNames) {
    const auto model = Load(name);
    const auto prefix = std::span(ids).first(129), text = std::span(ids).subspan(129, 530);
    const auto whole = Logits(*model, prefix, text, 530);
    EXPECT_LE(test::Difference(Logits(*model, prefix, text, 127), whole), kLimit) << name;
    const auto few = text.first(140);
    const auto one = Logits(*model, prefix, few, 1);
    const std::vector<float> begin(whole.begin(), whole.begin() + static_cast<int64_t>(one.size()));
    EXPECT_LE(test::Difference(one, begin), kLimit) << name;
  }
}

// The decoder reads the encoder, whose text has an order, and a later token changes no earlier one.
TEST(EncoderDecoder, ReadsThePrefixAndItsOrder) {
  const auto ids = ReadJson(kModels / "cases.json")["ids"].get<std::vector<int32_t>>();
  for (const char* name : kNames) {
    const auto model = Load(name);
    std::vector<int32_t> prefix(ids.begin(), ids.begin() + 60);
    std::vector<int32_t> text(ids.begin() + 60, ids.begin() + 100);
    const auto before = Logits(*model, prefix, text, 64);
    std::rotate(prefix.begin(), prefix.begin() + 20, prefix.end());
    EXPECT_GT(test::Difference(Logits(*model, prefix, text, 64), before), 1e-3) << name;
    std::rotate(prefix.begin(), prefix.begin() + 40, prefix.end());
    text[20] = text[20] == 5 ? 6 : 5;
    const auto after = Logits(*model, prefix, text, 64);
    const int64_t same = 21 * model->decoder().config().vocab;
    EXPECT_TRUE(std::equal(before.begin(), before.begin() + same, after.begin())) << name;
    EXPECT_FALSE(std::equal(before.begin(), before.end(), after.begin())) << name;
  }
}

TEST(EncoderDecoder, SaysWhatItIs) {
  const ModelConfig config = OpenModel((kModels / "t5_lm").string()).config;
  ASSERT_NE(config.decoder, nullptr);
  const ModelConfig& decoder = config.decoder->config;
  EXPECT_EQ(config.layers, 2);
  EXPECT_EQ(decoder.layers, 3);
  EXPECT_EQ(config.decoder->start_id, 0);
  EXPECT_EQ(config.decoder->end_id, 1);
  EXPECT_TRUE(decoder.tied_head);
  EXPECT_NEAR(decoder.logit_scale, 1 / std::sqrt(32.0), 1e-12);
  EXPECT_THAT(Describe(decoder.plan, 64), HasSubstr("only keys before the query"));
  EXPECT_THAT(Describe(config.plan, 64), HasSubstr("both directions"));
  EXPECT_NE(Resolve(decoder.plan, 64).hash, Resolve(config.plan, 64).hash);
  EXPECT_EQ(OpenModel((kModels / "mt5_lm").string()).config.decoder->config.logit_scale, 1);
  EXPECT_THAT(MessageOf([] { Decoder::Load(OpenModel((kModels / "t5_lm").string())); }),
              AllOf(HasSubstr("perplexity --prefix"), HasSubstr("ropewalk embed")));
}

// A copy of a golden with another configuration, and tensors renamed or left out.
class Copy {
 public:
  explicit Copy(const std::string& name, const json& keys = json::object()) {
    json config = ReadJson(kModels / name / "config.json");
    config.update(keys);
    test::WriteFile(folder_ / "config.json", config.dump());
    const std::string bytes = ReadBytes(kModels / name / "model.safetensors");
    uint64_t size = 0;
    std::memcpy(&size, bytes.data(), 8);
    header_ = json::parse(bytes.substr(8, size));
    data_ = bytes.substr(8 + size);
    header_.erase("__metadata__");
  }
  json& header() { return header_; }
  std::string data(const std::string& name) const {
    const json& at = header_[name]["data_offsets"];
    return data_.substr(at[0], at[1].get<std::size_t>() - at[0].get<std::size_t>());
  }
  // The same numbers under another name as well.
  void Repeat(const std::string& name, const std::string& other, bool changed) {
    std::string bytes = data(name);
    if (changed) bytes[1] = static_cast<char>(bytes[1] ^ 0x20);
    header_[other] = header_[name];
    header_[other]["data_offsets"] = {data_.size(), data_.size() + bytes.size()};
    data_ += bytes;
  }
  std::string Write(std::size_t missing = 0) {
    std::string text = header_.dump();
    text.append((8 - text.size() % 8) % 8, ' ');
    const uint64_t size = text.size();
    const std::string all = std::string(reinterpret_cast<const char*>(&size), 8) + text + data_;
    test::WriteFile(folder_ / "model.safetensors", all.substr(0, all.size() - missing));
    return folder_.path();
  }
  std::string Error() {
    const std::string path = Write();
    return MessageOf([&] { EncoderDecoder::Load(OpenModel(path)); });
  }

 private:
  test::TempFolder folder_;
  json header_;
  std::string data_;
};

TEST(EncoderDecoder, EveryTensorRenamedIsAnError) {
  for (const char* name : {"t5_lm", "umt5_lm"}) {
    const json all = Copy(name).header();
    EXPECT_EQ(Copy(name).Error(), "no error");
    EXPECT_GT(all.size(), 50u);
    for (const auto& [tensor, entry] : all.items()) {
      Copy copy(name);
      copy.header().erase(tensor);
      copy.header()[tensor + "x"] = entry;
      EXPECT_THAT(copy.Error(), AllOf(HasSubstr(tensor), HasSubstr("missing"))) << name;
    }
    Copy more(name);
    more.Repeat("shared.weight", "decoder.block.0.layer.1.EncDecAttention.x.weight", false);
    EXPECT_THAT(more.Error(), AllOf(HasSubstr("EncDecAttention.x"), HasSubstr("no place")));
  }
}

// Of the published files: embeddings repeated, a bias that nothing reads.
TEST(EncoderDecoder, KnownTensorsAreHarmless) {
  Copy copy("t5_lm");
  copy.Repeat("shared.weight", "encoder.embed_tokens.weight", false);
  copy.Repeat("shared.weight", "decoder.embed_tokens.weight", false);
  copy.Repeat("shared.weight", "lm_head.weight", false);
  copy.Repeat("decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
              "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight", true);
  const std::string path = copy.Write();
  const auto changed = EncoderDecoder::Load(OpenModel(path)), plain = Load("t5_lm");
  const std::vector<int32_t> ids = {3, 1, 4, 1, 5, 9, 2, 6};
  const auto first = std::span(ids).first(4), rest = std::span(ids).subspan(4);
  EXPECT_EQ(Logits(*changed, first, rest, 8), Logits(*plain, first, rest, 8));
}

// What transformers 5 writes of a head of its own, and what neither version writes.
TEST(EncoderDecoder, HeadsThatTheConfigurationDoesNotName) {
  const std::vector<int32_t> ids = {3, 1, 4, 1, 5, 9, 2, 6};
  const auto first = std::span(ids).first(4), rest = std::span(ids).subspan(4);
  Copy five("t5_lm_gated", {{"tie_word_embeddings", true}, {"scale_decoder_outputs", false}});
  EXPECT_EQ(Logits(*EncoderDecoder::Load(OpenModel(five.Write())), first, rest, 8),
            Logits(*Load("t5_lm_gated"), first, rest, 8));
  EXPECT_THAT(Copy("t5_lm_gated", {{"tie_word_embeddings", true}}).Error(),
              AllOf(HasSubstr("tie_word_embeddings"), HasSubstr("lm_head.weight")));
  Copy none("t5_lm", {{"tie_word_embeddings", false}});
  EXPECT_THAT(none.Error(), AllOf(HasSubstr("lm_head.weight"), HasSubstr("missing")));
  // A tied head whose states are not scaled, which transformers 5 makes of a new T5 1.1.
  Copy unscaled("t5_lm", {{"scale_decoder_outputs", false}});
  const auto logits = Logits(*EncoderDecoder::Load(OpenModel(unscaled.Write())), first, rest, 8);
  auto scaled = Logits(*Load("t5_lm"), first, rest, 8);
  for (float& x : scaled) x *= std::sqrt(32.0F);
  EXPECT_LE(test::Difference(logits, scaled), kLimit);
}

TEST(EncoderDecoder, RefusesByName) {
  const std::string encoder = (test::kGoldens / "umt5").string();  // of UMT5EncoderModel
  EXPECT_THAT(MessageOf([&] { EncoderDecoder::Load(OpenModel(encoder)); }),
              AllOf(HasSubstr("no decoder"), HasSubstr("ropewalk embed")));
  EXPECT_THAT(Copy("t5_lm", {{"is_encoder_decoder", false}}).Error(),
              AllOf(HasSubstr("expected an encoder-decoder"), HasSubstr("t5")));
  EXPECT_THAT(Copy("t5_lm", {{"decoder_start_token_id", nullptr}}).Error(),
              HasSubstr("decoder_start_token_id"));
  EXPECT_THAT(Copy("t5_lm", {{"decoder_start_token_id", 64}}).Error(),
              AllOf(HasSubstr("decoder_start_token_id"), HasSubstr("0 to 63")));
  EXPECT_THAT(Copy("t5_lm", {{"eos_token_id", -2}}).Error(), HasSubstr("eos_token_id"));
  EXPECT_THAT(Copy("t5_lm", {{"num_decoder_layers", 4}}).Error(),
              AllOf(HasSubstr("decoder.block.3."), HasSubstr("missing")));
  EXPECT_THAT(Copy("t5_lm", {{"num_decoder_layers", 2}}).Error(),
              AllOf(HasSubstr("decoder.block.2."), HasSubstr("no place")));
  EXPECT_THAT(Copy("t5_lm", {{"relative_attention_num_buckets", 16}}).Error(),
              AllOf(HasSubstr("relative_attention_bias"), HasSubstr("[16, 5]")));
  for (const char* type : {"longt5", "switch_transformers"}) {
    EXPECT_THAT(Copy("t5_lm", {{"model_type", type}}).Error(),
                AllOf(HasSubstr(type), HasSubstr("not supported")));
  }
  Copy cut("t5_lm");
  const std::string path = cut.Write(/*missing=*/64);
  EXPECT_THAT(MessageOf([&] { EncoderDecoder::Load(OpenModel(path)); }),
              HasSubstr("model.safetensors"));
}

TEST(EncoderDecoder, BadInput) {
  const auto model = Load("t5_lm");
  const Decoder& decoder = model->decoder();
  Sequence sequence(decoder, decoder.config().plan, 8, AnglePrecision::kExact);
  const std::vector<int32_t> ids = {0, 5};
  EXPECT_THAT(MessageOf([&] { decoder.Forward(sequence, ids, nullptr, 0); }),
              HasSubstr("ReadSource"));
  EXPECT_THAT(MessageOf([&] { model->Read(std::vector<int32_t>{64}, sequence); }),
              HasSubstr("0 to 63"));
  std::vector<float> states(32);
  EXPECT_THAT(MessageOf([&] { decoder.ReadSource(sequence, states.data(), 0); }),
              HasSubstr("got 0"));
  model->Read(ids, sequence);
  decoder.Forward(sequence, ids, nullptr, 0);
  EXPECT_THAT(MessageOf([&] { model->Read(ids, sequence); }), HasSubstr("2 tokens already"));
  sequence.Truncate(0);
  EXPECT_NO_THROW(model->Read(ids, sequence));
  PositionPlan other = decoder.config().plan;
  std::get<T5LayerBias>(other.layers[1].bias->method).bias.last_distance = 64;
  EXPECT_THAT(MessageOf([&] { Sequence(decoder, other, 8, AnglePrecision::kExact); }),
              AllOf(HasSubstr("layer 1"), HasSubstr("learned")));
}

}  // namespace encoder_decoder_test
}  // namespace ropewalk
