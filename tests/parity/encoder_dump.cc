// Writes the states of texts, or their sentence vectors, as float32: what encoders.py holds against
// transformers.
//
//   encoder_dump JOBS.json
//
// JOBS.json is an array of {"model", "ids", "types", "alpha", "vector", "decoder", "logits",
// "prefix", "out"}:
// types null, or one for each id; alpha of hierarchical positions, 0: none; decoder: the mask
// decoder's states; logits: of the masked language model. `out` receives [ids, hidden], [hidden] for
// a vector, or [ids, vocab], float32, little endian. prefix: null, or what the encoder of an
// encoder-decoder model reads, whose decoder then predicts each of `ids`.
#include <cstdio>
#include <exception>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <vector>

#include "ropewalk/base/error.h"
#include "ropewalk/model/encoder.h"
#include "ropewalk/model/encoder_decoder.h"

namespace {

void Write(const nlohmann::json& job, const std::vector<float>& numbers) {
  std::ofstream out(job.at("out").get<std::string>(), std::ios::binary);
  out.write(reinterpret_cast<const char*>(numbers.data()),
            static_cast<std::streamsize>(numbers.size() * sizeof(float)));
  if (!out.flush()) throw ropewalk::Error(ropewalk::ErrorCode::kIo, "cannot write an output file");
}

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
  Write(job, states);
}

void RunBoth(const nlohmann::json& job, const ropewalk::EncoderDecoder& model) {
  const auto ids = job.at("ids").get<std::vector<int32_t>>();
  const auto prefix = job.at("prefix").get<std::vector<int32_t>>();
  const ropewalk::Decoder& decoder = model.decoder();
  const auto tokens = static_cast<int64_t>(ids.size());
  std::vector<int32_t> fed = {model.start_id()};
  fed.insert(fed.end(), ids.begin(), ids.end() - 1);
  ropewalk::Sequence sequence(decoder, decoder.config().plan, tokens,
                              ropewalk::AnglePrecision::kExact);
  model.Read(prefix, sequence);
  std::vector<float> states(ids.size() * decoder.config().hidden);
  decoder.Forward(sequence, fed, states.data(), tokens);
  std::vector<float> logits(ids.size() * decoder.config().vocab);
  decoder.Logits(states.data(), tokens, logits.data());
  Write(job, logits);
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
    if (!job.at("prefix").is_null()) {
      RunBoth(job, *ropewalk::EncoderDecoder::Load(ropewalk::OpenModel(path)));
      continue;
    }
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
