// Models made by the tests: random tensors, written as a Hugging Face folder or as GGUF.
#pragma once

#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "ropewalk/model/model.h"

namespace ropewalk::test {

namespace fs = std::filesystem;

class TempFolder {
 public:
  TempFolder() {
    std::string name = (fs::temp_directory_path() / "ropewalk-model-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

inline void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary);
  out << bytes;
  if (!out.flush()) throw std::runtime_error("cannot write " + path);
}

struct Tensor {
  std::vector<int64_t> shape;
  std::vector<float> values;
};
using Tensors = std::map<std::string, Tensor>;

inline void WriteSafetensors(const std::string& path, const Tensors& tensors) {
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  for (const auto& [name, t] : tensors) {
    const std::size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(t.values.data()), t.values.size() * 4);
    header[name] = {{"dtype", "F32"}, {"shape", t.shape}, {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t size = text.size();
  WriteFile(path, std::string(reinterpret_cast<const char*>(&size), 8) + text + data);
}

// GGUF version 3 with F32 tensors; metadata of the types that configurations use.
class GgufWriter {
 public:
  void Int(const std::string& key, uint32_t v) { Key(key, 4), Raw(v); }
  void Float(const std::string& key, float v) { Key(key, 6), Raw(v); }
  void Bool(const std::string& key, bool v) { Key(key, 7), Raw(static_cast<uint8_t>(v)); }
  void Str(const std::string& key, const std::string& v) { Key(key, 8), String(metadata_, v); }
  void Ints(const std::string& key, const std::vector<int32_t>& list) {
    Key(key, 9), Raw(uint32_t{5}), Raw(static_cast<uint64_t>(list.size()));
    for (const int32_t v : list) Raw(v);
  }

  void Write(const std::string& path, const Tensors& tensors) const {
    std::string out = "GGUF";
    Raw(out, uint32_t{3});
    Raw(out, static_cast<uint64_t>(tensors.size()));
    Raw(out, keys_);
    out += metadata_;
    uint64_t offset = 0;
    for (const auto& [name, t] : tensors) {
      String(out, name);
      Raw(out, static_cast<uint32_t>(t.shape.size()));
      for (auto d = t.shape.rbegin(); d != t.shape.rend(); ++d) Raw(out, static_cast<uint64_t>(*d));
      Raw(out, uint32_t{0});  // F32
      Raw(out, offset);
      offset += (t.values.size() * 4 + 31) / 32 * 32;
    }
    out.append((32 - out.size() % 32) % 32, '\0');
    for (const auto& [name, t] : tensors) {
      out.append(reinterpret_cast<const char*>(t.values.data()), t.values.size() * 4);
      out.append((32 - out.size() % 32) % 32, '\0');
    }
    WriteFile(path, out);
  }

 private:
  template <class T>
  static void Raw(std::string& out, T v) {
    out.append(reinterpret_cast<const char*>(&v), sizeof(v));
  }
  template <class T>
  void Raw(T v) {
    Raw(metadata_, v);
  }
  static void String(std::string& out, const std::string& s) {
    Raw(out, static_cast<uint64_t>(s.size()));
    out += s;
  }
  void Key(const std::string& key, uint32_t type) {
    String(metadata_, key);
    Raw(metadata_, type);
    ++keys_;
  }
  std::string metadata_;
  uint64_t keys_ = 0;
};

// Sizes of a tiny llama; every pair of sizes differs so that a swapped shape cannot pass.
struct Tiny {
  int64_t layers = 3, hidden = 24, heads = 4, kv_heads = 2, head_dim = 8, feed_forward = 40,
          vocab = 53, trained = 64;

  nlohmann::json Config() const {
    return {{"model_type", "llama"},
            {"hidden_size", hidden},
            {"intermediate_size", feed_forward},
            {"num_hidden_layers", layers},
            {"num_attention_heads", heads},
            {"num_key_value_heads", kv_heads},
            {"head_dim", head_dim},
            {"vocab_size", vocab},
            {"max_position_embeddings", trained},
            {"rms_norm_eps", 1e-5},
            {"rope_theta", 500.0},
            {"tie_word_embeddings", true}};
  }
  // Hugging Face names. Large enough that attention is far from uniform.
  Tensors Weights(uint32_t seed = 1) const {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal;
    Tensors all;
    const auto add = [&](const std::string& name, std::vector<int64_t> shape, float scale,
                         float mean = 0) {
      int64_t n = 1;
      for (const int64_t d : shape) n *= d;
      Tensor t{std::move(shape), std::vector<float>(n)};
      for (float& v : t.values) v = mean + scale * normal(engine);
      all.emplace(name, std::move(t));
    };
    add("model.embed_tokens.weight", {vocab, hidden}, 0.5f);
    add("model.norm.weight", {hidden}, 0.2f, 1);
    for (int64_t l = 0; l < layers; ++l) {
      const std::string p = "model.layers." + std::to_string(l) + ".";
      add(p + "input_layernorm.weight", {hidden}, 0.2f, 1);
      add(p + "post_attention_layernorm.weight", {hidden}, 0.2f, 1);
      add(p + "self_attn.q_proj.weight", {heads * head_dim, hidden}, 0.3f);
      add(p + "self_attn.k_proj.weight", {kv_heads * head_dim, hidden}, 0.3f);
      add(p + "self_attn.v_proj.weight", {kv_heads * head_dim, hidden}, 0.2f);
      add(p + "self_attn.o_proj.weight", {hidden, heads * head_dim}, 0.2f);
      add(p + "mlp.gate_proj.weight", {feed_forward, hidden}, 0.2f);
      add(p + "mlp.up_proj.weight", {feed_forward, hidden}, 0.2f);
      add(p + "mlp.down_proj.weight", {hidden, feed_forward}, 0.2f);
    }
    return all;
  }
  void WriteFolder(const std::string& folder) const { WriteFolder(folder, Config(), Weights()); }
  static void WriteFolder(const std::string& folder, const nlohmann::json& config,
                          const Tensors& tensors) {
    fs::create_directories(folder);
    WriteFile(folder + "/config.json", config.dump());
    WriteSafetensors(folder + "/model.safetensors", tensors);
  }
  std::vector<int32_t> Ids(int64_t n, uint32_t seed = 7) const {
    std::mt19937 engine(seed);
    std::vector<int32_t> ids(n);
    for (int32_t& id : ids) id = static_cast<int32_t>(engine() % static_cast<uint32_t>(vocab));
    return ids;
  }
};

struct RunOptions {
  int64_t chunk = 1 << 30;
  int64_t offset = 0;
  int64_t final_length = 0;  // 0: as many as there are ids
  AnglePrecision angles = AnglePrecision::kExact;
  KvType kv = KvType::kF32;
};

// [ids, vocab] logits.
inline std::vector<float> LogitsOf(const Decoder& decoder, const PositionPlan& plan,
                                   const std::vector<int32_t>& ids, const RunOptions& o = {}) {
  const int64_t n = static_cast<int64_t>(ids.size());
  Sequence sequence(decoder, plan, o.final_length > 0 ? o.final_length : n, o.angles, o.kv);
  if (o.offset > 0) sequence.OffsetPositions(o.offset);
  const int64_t hidden = decoder.config().hidden;
  std::vector<float> states(n * hidden), logits(n * decoder.config().vocab);
  for (int64_t t = 0; t < n; t += o.chunk) {
    const int64_t rows = std::min(o.chunk, n - t);
    decoder.Forward(sequence, {ids.data() + t, static_cast<std::size_t>(rows)},
                    states.data() + t * hidden, rows);
  }
  decoder.Logits(states.data(), n, logits.data());
  return logits;
}

// max |a - b| / max |b|; NaN anywhere gives NaN.
inline double Difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size() || b.empty()) return NAN;
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) return NAN;
    difference = std::max(difference, std::abs(double(a[i]) - double(b[i])));
    largest = std::max(largest, std::abs(double(b[i])));
  }
  return difference / largest;
}

}  // namespace ropewalk::test
