#include "tests/eval/tiny_model.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

namespace ropewalk::test {
namespace {

void WriteWeights(const TinyShape& shape, const std::string& path) {
  const int64_t width = shape.width, keys = width / 2, feed_forward = shape.feed_forward;
  std::mt19937 random(7);
  nlohmann::ordered_json header;
  std::string data;
  const auto add = [&](const std::string& name, std::vector<int64_t> sizes, float spread) {
    int64_t count = 1;
    for (const int64_t n : sizes) count *= n;
    const size_t begin = data.size();
    for (int64_t i = 0; i < count; ++i) {
      const float unit = static_cast<float>(random()) * 0x1p-31f - 1;  // -1 .. 1
      const float value = spread == 0 ? 1 : spread * unit;
      data.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    header[name] = {{"dtype", "F32"}, {"shape", sizes}, {"data_offsets", {begin, data.size()}}};
  };
  add("model.embed_tokens.weight", {kTinyVocab, width}, 1.0f);
  for (int64_t i = 0; i < shape.layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    add(layer + "input_layernorm.weight", {width}, 0);
    add(layer + "self_attn.q_proj.weight", {width, width}, 0.6f);
    add(layer + "self_attn.k_proj.weight", {keys, width}, 0.6f);
    add(layer + "self_attn.v_proj.weight", {keys, width}, 0.6f);
    add(layer + "self_attn.o_proj.weight", {width, width}, 0.6f);
    add(layer + "post_attention_layernorm.weight", {width}, 0);
    add(layer + "mlp.gate_proj.weight", {feed_forward, width}, 0.4f);
    add(layer + "mlp.up_proj.weight", {feed_forward, width}, 0.4f);
    add(layer + "mlp.down_proj.weight", {width, feed_forward}, 0.4f);
  }
  add("model.norm.weight", {width}, 0);
  std::string json = header.dump();
  while (json.size() % 8 != 0) json += ' ';
  const uint64_t size = json.size();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&size), sizeof(size));
  file << json << data;
}

template <class Use>
void DecodeOneByOne(const Decoder& decoder, const PositionPlan& plan,
                    const std::vector<int32_t>& ids, Use&& use) {
  Sequence sequence(decoder, plan, static_cast<int64_t>(ids.size()), AnglePrecision::kExact);
  std::vector<float> hidden(static_cast<size_t>(decoder.config().hidden));
  std::vector<float> logits(static_cast<size_t>(decoder.config().vocab));
  for (size_t p = 1; p < ids.size(); ++p) {
    decoder.Forward(sequence, std::span(&ids[p - 1], 1), hidden.data(), 1);
    decoder.Logits(hidden.data(), 1, logits.data());
    use(p, logits);
  }
}

}  // namespace

TempFolder::TempFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "ropewalk-XXXXXX").string();
  path_ = ::mkdtemp(name.data());
}
TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::unique_ptr<TinyModel> MakeTiny(const TinyShape& shape) {
  auto tiny = std::make_unique<TinyModel>();
  WriteWeights(shape, tiny->folder / "model.safetensors");
  std::ofstream(tiny->folder / "config.json")
      << nlohmann::json{{"architectures", {"LlamaForCausalLM"}},
                        {"model_type", "llama"},
                        {"vocab_size", kTinyVocab},
                        {"hidden_size", shape.width},
                        {"intermediate_size", shape.feed_forward},
                        {"num_hidden_layers", shape.layers},
                        {"num_attention_heads", 2},
                        {"num_key_value_heads", 1},
                        {"hidden_act", "silu"},
                        {"max_position_embeddings", kTinyTrained},
                        {"rope_theta", 10000.0},
                        {"rms_norm_eps", 1e-5},
                        {"tie_word_embeddings", true},
                        {"attention_bias", false},
                        {"mlp_bias", false}};
  tiny->files = OpenModel(tiny->folder.path());
  tiny->decoder = Decoder::Load(tiny->files);
  tiny->engine = std::make_unique<DecoderEngine>(*tiny->decoder);
  return tiny;
}

const TinyModel& Tiny() {
  static const std::unique_ptr<TinyModel> kTiny = MakeTiny({});
  return *kTiny;
}

ByteTokenizer::ByteTokenizer() {
  kind_ = "bytes";
  hash_ = "0123";
  bos_id_ = 256;
}
std::vector<int32_t> ByteTokenizer::Encode(std::string_view text, const EncodeOptions&) const {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}
std::string ByteTokenizer::Decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) text += id == 256 ? "<s>" : std::string(1, static_cast<char>(id));
  return text;
}
std::string ByteTokenizer::Piece(int32_t id) const {
  return Decode(std::span<const int32_t>(&id, 1));
}

TokenText RandomText(int64_t tokens, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < tokens; ++i) ids.push_back(static_cast<int32_t>(random() % 256));
  return TextOfIds(std::move(ids));
}

std::vector<double> ReferenceNll(const Decoder& decoder, const PositionPlan& plan,
                                 const std::vector<int32_t>& ids) {
  std::vector<double> nll(ids.size(), 0.0);
  DecodeOneByOne(decoder, plan, ids, [&](size_t p, const std::vector<float>& logits) {
    long double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<long double>(logit));
    nll[p] = static_cast<double>(std::log(sum) - logits[static_cast<size_t>(ids[p])]);
  });
  return nll;
}

std::vector<int32_t> ReferenceArgmax(const Decoder& decoder, const PositionPlan& plan,
                                     const std::vector<int32_t>& ids) {
  std::vector<int32_t> best(ids.size(), -1);
  DecodeOneByOne(decoder, plan, ids, [&](size_t p, const std::vector<float>& logits) {
    best[p] = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  });
  return best;
}

PositionPlan MadeUpPlan(int64_t trained_length) {
  PositionPlan plan;
  RotarySpec rotation(PairLayout::kHalf);
  rotation.head_dim = rotation.rotary_dim = 16;
  rotation.trained_length = trained_length;
  plan.layers.resize(2);
  for (LayerPlan& layer : plan.layers) layer.rotation = rotation;
  plan.trained_length = trained_length;
  return plan;
}

}  // namespace ropewalk::test
