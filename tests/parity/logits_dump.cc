// Writes the logits of token sequences as float32: what compare.py holds against transformers.
//
//   logits_dump JOBS.json
//
// JOBS.json is an array of {"model", "ids", "out", "offset", "chunk", "final_length", "angles"}:
// token 0 stands at `offset`, ids go in by `chunk` at a time, length-dependent methods see
// `final_length`, `angles` is "exact" or "float32". `out` receives [ids, vocab] float32, little
// endian.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "ropewalk/base/error.h"
#include "ropewalk/model/model.h"

namespace {

struct Loaded {
  ropewalk::ModelFiles files;
  std::unique_ptr<ropewalk::Decoder> decoder;
};

void RunJob(const nlohmann::json& job, const Loaded& model) {
  const auto ids = job.at("ids").get<std::vector<int32_t>>();
  const int64_t chunk = job.at("chunk");
  const auto& c = model.decoder->config();
  ropewalk::Sequence sequence(*model.decoder, model.files.config.plan, job.at("final_length"),
                              job.at("angles") == "exact" ? ropewalk::AnglePrecision::kExact
                                                          : ropewalk::AnglePrecision::kFloat32);
  sequence.OffsetPositions(job.at("offset"));
  std::vector<float> hidden(ids.size() * c.hidden), logits(ids.size() * c.vocab);
  for (std::size_t t = 0; t < ids.size(); t += chunk) {
    const std::size_t n = std::min<std::size_t>(chunk, ids.size() - t);
    model.decoder->Forward(sequence, {ids.data() + t, n}, hidden.data() + t * c.hidden,
                           static_cast<int64_t>(n));
  }
  model.decoder->Logits(hidden.data(), static_cast<int64_t>(ids.size()), logits.data());
  std::ofstream out(job.at("out").get<std::string>(), std::ios::binary);
  out.write(reinterpret_cast<const char*>(logits.data()),
            static_cast<std::streamsize>(logits.size() * sizeof(float)));
  if (!out.flush()) throw ropewalk::Error(ropewalk::ErrorCode::kIo, "cannot write an output file");
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::fprintf(stderr, "usage: logits_dump JOBS.json\n");
    return 2;
  }
  std::ifstream in(argv[1]);
  const nlohmann::json jobs = nlohmann::json::parse(in);
  std::map<std::string, Loaded> models;
  for (const auto& job : jobs) {
    const std::string path = job.at("model");
    Loaded& model = models[path];
    if (!model.decoder) {
      model.files = ropewalk::OpenModel(path);
      model.decoder = ropewalk::Decoder::Load(model.files);
    }
    RunJob(job, model);
  }
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "logits_dump: %s\n", e.what());
  return 1;
}
