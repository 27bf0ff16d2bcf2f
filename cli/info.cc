// ropewalk info: version and environment, for bug reports.
#include <dnnl.h>
#include <fmt/format.h>
#include <hwy/targets.h>

#include <CLI/Version.hpp>
#include <nlohmann/json.hpp>

#include "cli/options.h"
#include "cli/threads.h"
#include "ropewalk/attention/attention.h"
#include "ropewalk/base/cuda.h"
#include "ropewalk/base/threads.h"
#include "ropewalk/eval/results.h"
#include "ropewalk/linear/linear.h"

namespace ropewalk::cli {
namespace {

std::string OneDnnVersion() {
  const dnnl_version_t* v = dnnl_version();
  return fmt::format("{}.{}.{}", v->major, v->minor, v->patch);
}

// Highway's targets are bits, the best one lowest; dispatch takes the best that the CPU has.
std::string SimdTarget() {
  const int64_t targets = hwy::SupportedTargets();
  return hwy::TargetName(targets & -targets);
}

nlohmann::ordered_json CudaJson(const CudaInfo& info) {
  const auto or_null = [](const std::string& text) {
    return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
  };
  nlohmann::ordered_json json = {{"toolkit", or_null(info.toolkit)},
                                 {"targets", or_null(info.targets)},
                                 {"driver", or_null(info.driver)},
                                 {"devices", nlohmann::ordered_json::array()},
                                 {"why_none", or_null(info.why_none)}};
  for (const CudaDevice& d : info.devices) {
    json["devices"].push_back({{"name", d.name},
                               {"compute_capability", fmt::format("{}.{}", d.major, d.minor)},
                               {"memory_bytes", d.memory_bytes},
                               {"multiprocessors", d.multiprocessors}});
  }
  return json;
}

void Print(const CudaInfo& info) {
  std::string built = info.toolkit.empty() ? "none" : info.toolkit + " for " + info.targets;
  if (!info.driver.empty()) built += ", driver " + info.driver;
  fmt::print("{:13} {}\n", "cuda", built);
  for (const CudaDevice& d : info.devices) {
    fmt::print("  {}: compute capability {}.{}, {} multiprocessors, {:.1f} GiB\n", d.name, d.major,
               d.minor, d.multiprocessors, static_cast<double>(d.memory_bytes) / (1 << 30));
  }
  if (!info.why_none.empty()) fmt::print("  no GPU: {}\n", info.why_none);
}

}  // namespace

void RunInfo(const Options& options) {
  UseThreads(options);
  const CudaInfo cuda = FindCuda();
  const nlohmann::ordered_json json = {
      {"version", Version()},
      {"build_type", ROPEWALK_BUILD_TYPE},
      {"compiler", ROPEWALK_COMPILER},
      {"simd_target", SimdTarget()},
      {"bf16", Name(FindBf16Unit())},
      {"bf16_attention", HasBf16Attention()},
      {"threads", NumThreads()},
      {"cores", NumCores()},
      {"cuda", CudaJson(cuda)},
      {"libraries",
       {{"highway", ROPEWALK_HWY_VERSION},
        {"onednn", OneDnnVersion()},
        {"nlohmann_json", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR,
                                      NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH)},
        {"fmt",
         fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)},
        {"cli11", CLI11_VERSION},
        {"sentencepiece", ROPEWALK_SENTENCEPIECE_VERSION},
        {"pcre2", ROPEWALK_PCRE2_VERSION},
        {"utf8proc", ROPEWALK_UTF8PROC_VERSION},
        {"xxhash", ROPEWALK_XXHASH_VERSION}}}};
  if (options.json) {
    fmt::print("{}\n", json.dump(2));
    return;
  }
  for (const auto& [key, value] : json.items()) {
    if (!value.is_object()) {
      fmt::print("{:13} {}\n", key, value.is_string() ? value.get<std::string>() : value.dump());
    }
  }
  Print(cuda);
  fmt::print("libraries\n");
  for (const auto& [key, value] : json["libraries"].items()) {
    fmt::print("  {:13} {}\n", key, value.get<std::string>());
  }
}

}  // namespace ropewalk::cli
