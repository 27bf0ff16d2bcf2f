// What tests of encoders share: the goldens of tests/golden/make_encoder_goldens.py.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "ropewalk/base/error.h"
#include "ropewalk/model/encoder.h"
#include "tests/model/support.h"
#include "tests/support/message_of.h"

namespace ropewalk::test {

using nlohmann::json;

inline const fs::path kGoldens = fs::path(ROPEWALK_SOURCE_DIR) / "tests" / "golden" / "hf_encoders";
inline json ReadJson(const fs::path& file) {
  std::ifstream in(file);
  return json::parse(in);
}

// The limit of make parity as well.
inline constexpr double kLimit = 2e-5;

inline std::string ReadBytes(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::vector<float> ReadFloats(const fs::path& file) {
  const std::string bytes = ReadBytes(file);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

// A golden's folder with keys of its configuration changed.
class Changed {
 public:
  Changed(const std::string& name, const json& keys) {
    fs::create_symlink(kGoldens / name / "model.safetensors", folder_ / "model.safetensors");
    json config = ReadJson(kGoldens / name / "config.json");
    config.update(keys);
    WriteFile(folder_ / "config.json", config.dump());
  }
  std::string path() const { return folder_.path(); }

 private:
  TempFolder folder_;
};

inline std::unique_ptr<Encoder> LoadGolden(const std::string& name, double alpha = 0) {
  EncoderOptions options;
  if (alpha != 0) options.hierarchical_alpha = alpha;
  return Encoder::Load(OpenModel((kGoldens / name).string()), options);
}

inline std::vector<float> States(const Encoder& encoder, std::span<const int32_t> ids,
                                 std::span<const int32_t> types = {},
                                 EncoderStates which = EncoderStates::kLast) {
  std::vector<float> states(ids.size() * encoder.config().hidden);
  encoder.Forward(ids, states.data(), types, which);
  return states;
}

}  // namespace ropewalk::test
