// Writes the states of texts, or their sentence vectors, as float32: what encoders.py holds against
// transformers.
//
//   encoder_dump JOBS.json
//
// JOBS.json is an array of {"model", "ids", "types", "alpha", "vector", "decoder", "logits", "out"}:
// types null, or one for each id; alpha of hierarchical positions, 0: none; decoder: the mask
// decoder's states; logits: of the masked language model. `out` receives [ids, hidden], [hidden] for
// a vector, or [ids, vocab], float32, little endian.
#include <cstdio>
#include <exception>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <vector>

#include "ropewalk/base/error.h"
#include "ropewalk/model/encoder.h"

namespace {

void RunJob(const nlohmann::json& job, const ropewalk::Encoder& encoder) {
  const auto ids = job.at("ids").get<std::vector<int32_t>>();
  std::vector<int32_t> types;
  if (!job.at("types").is_null()) types = job.at("types").get<std::vector<int32_t>>();
  const int64_t hidden = encoder.config().hidden;
  std::vector<float> states(ids.size() * hidden);
  encoder.Forward(
      ids, states.data(), types,
      job.at("decoder") ? ropewalk::EncoderStates::kMaskDecoder : ropewalk::EncoderStates::kLast);
  if (job.at("vector")) {
    const std::string folder = job.at("model");
    states = ropewalk::SentenceVector(ropewalk::ReadSentencePooling(folder), states, hidden);
  }
  if (job.at("logits")) {
    std::vector<float> logits(ids.size() * encoder.config().vocab);
    encoder.Logits(states.data(), static_cast<int64_t>(ids.size()), logits.data());
    states = std::move(logits);
  }
  std::ofstream out(job.at("out").get<std::string>(), std::ios::binary);
  out.write(reinterpret_cast<const char*>(states.data()),
            static_cast<std::streamsize>(states.size() * sizeof(float)));
  if (!out.flush()) throw ropewalk::Error(ropewalk::ErrorCode::kIo, "cannot write an output file");
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::fprintf(stderr, "usage: encoder_dump JOBS.json\n");
    return 2;
  }
  std::ifstream in(argv[1]);
  const nlohmann::json jobs = nlohmann::json::parse(in);
  std::map<std::tuple<std::string, double, bool>, std::unique_ptr<ropewalk::Encoder>> encoders;
  for (const auto& job : jobs) {
    const std::string path = job.at("model");
    const double alpha = job.at("alpha");
    const bool head = job.at("logits");
    auto& encoder = encoders[{path, alpha, head}];
    if (!encoder) {
      ropewalk::EncoderOptions options;
      if (alpha != 0) options.hierarchical_alpha = alpha;
      options.masked_head = head;
      encoder = ropewalk::Encoder::Load(ropewalk::OpenModel(path), options);
    }
    RunJob(job, *encoder);
  }
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "encoder_dump: %s\n", e.what());
  return 1;
}
