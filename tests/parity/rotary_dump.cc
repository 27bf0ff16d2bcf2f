// Frequencies, amplitudes, cos and sin that this library makes of Hugging Face configurations, for
// tests/parity/rotary.py.
//
//   rotary_dump JOBS.json > RESULTS.json
//
// JOBS: [{"config": {...}, "layer": 0, "length": tokens, "positions": [[axis 0 ...], ...]}]
#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "ropewalk/base/error.h"
#include "ropewalk/model/model.h"
#include "ropewalk/rotary/table.h"

namespace ropewalk {
namespace {

using nlohmann::json;

json Rows(const Frequencies& f, const std::vector<std::vector<int64_t>>& positions) {
  const std::size_t pairs = f.inv_freq.size(), tokens = positions.at(0).size();
  std::vector<std::vector<float>> tables;  // one per axis: [tokens, 2, pairs]
  for (int a = 0; a < f.axes; ++a) {
    const auto& p = positions.at(std::min<std::size_t>(a, positions.size() - 1));
    tables.emplace_back(tokens * 2 * pairs);
    FillCosSin(f, p, AnglePrecision::kFloat32, tables.back().data());
  }
  json cos = json::array(), sin = json::array();
  for (std::size_t t = 0; t < tokens; ++t) {
    std::vector<float> c(pairs), s(pairs);
    for (std::size_t i = 0; i < pairs; ++i) {
      const float* row = tables[f.axis.empty() ? 0 : f.axis[i]].data() + t * 2 * pairs;
      c[i] = row[i];
      s[i] = row[pairs + i];
    }
    cos.push_back(c);
    sin.push_back(s);
  }
  return {{"cos", cos}, {"sin", sin}};
}

json Result(const json& job) {
  const ModelConfig config = ParseHfConfig(job.at("config").dump(), "config.json");
  const LayerPlan& layer = config.plan.layers.at(job.at("layer").get<std::size_t>());
  if (!layer.rotation) return {{"rotation", nullptr}};
  const Frequencies f = Resolve(*layer.rotation, job.at("length").get<int64_t>());
  json out = {{"inv_freq", f.inv_freq_f32},
              {"amplitude", f.amplitude},
              {"layout", layer.rotation->layout == PairLayout::kHalf ? "half" : "interleaved"},
              {"first_dim", layer.rotation->first_dim}};
  if (job.contains("positions")) {
    out.update(Rows(f, job["positions"].get<std::vector<std::vector<int64_t>>>()));
  }
  return out;
}

int Main(const char* path) {
  std::ifstream file(path);
  const json jobs = json::parse(file);
  json results = json::array();
  for (const json& job : jobs) {
    try {
      results.push_back(Result(job));
    } catch (const Error& e) {
      results.push_back({{"error", e.what()}});
    }
  }
  std::cout << results.dump() << '\n';
  return 0;
}

}  // namespace
}  // namespace ropewalk

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: rotary_dump JOBS.json > RESULTS.json\n");
    return 2;
  }
  return ropewalk::Main(argv[1]);
}
