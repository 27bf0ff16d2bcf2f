// cuda_check [--quick] [--seconds S] [--only TEXT]... [--json FILE]
// Exit code 0: all passed, 1: some failed, 77: there is no GPU.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "ropewalk/base/cuda.h"
#include "tests/cuda/check.h"

namespace ropewalk::gpu {

namespace {

std::string Quoted(const std::string& s) {
  std::string out = "\"";
  for (const char c : s) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out + "\"";
}

struct Arguments {
  Options options;
  std::vector<std::string> only;  // any of these in its name; empty: all
  std::string json;
};

Arguments Parse(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool has_value = i + 1 < argc;
    if (word == "--quick") {
      a.options.quick = true;
    } else if (word == "--seconds" && has_value) {
      a.options.seconds = std::atof(argv[++i]);
    } else if (word == "--only" && has_value) {
      a.only.emplace_back(argv[++i]);
    } else if (word == "--json" && has_value) {
      a.json = argv[++i];
    } else {
      std::fprintf(stderr,
                   "usage: cuda_check [--quick] [--seconds S] [--only TEXT]... [--json FILE]\n");
      std::exit(2);
    }
  }
  return a;
}

bool Wanted(const std::string& name, const std::vector<std::string>& only) {
  return only.empty() || std::any_of(only.begin(), only.end(), [&](const std::string& text) {
           return name.find(text) != std::string::npos;
         });
}

struct Counts {
  int ok = 0, failed = 0, skipped = 0;
};

// Runs one check, prints its line, returns its JSON.
std::string RunCheck(const Check& check, const Options& options, Counts& counts) {
  const double start = Now();
  const char* result = "ok";
  std::string detail;
  try {
    detail = check.run(options);
    ++counts.ok;
  } catch (const Skipped& e) {
    result = "skipped";
    detail = e.what();
    ++counts.skipped;
  } catch (const std::exception& e) {
    result = "FAILED";
    detail = e.what();
    ++counts.failed;
  }
  const double seconds = Now() - start;
  std::printf("%-8s %-40s %6.2f s  %s\n", result, check.name, seconds, detail.c_str());
  std::fflush(stdout);
  return "{\"check\": " + Quoted(check.name) + ", \"result\": \"" + result +
         "\", \"seconds\": " + std::to_string(seconds) + ", \"detail\": " + Quoted(detail) + "}";
}

int Main(int argc, char** argv) {
  const Arguments arguments = Parse(argc, argv);
  std::vector<Check> checks;
  for (const auto& list : {StreamChecks(), RotateChecks(), OpChecks(), LargeChecks()}) {
    checks.insert(checks.end(), list.begin(), list.end());
  }
  const CudaInfo info = FindCuda();
  if (info.devices.empty()) {
    std::printf("no GPU: %s\nwould have run:\n", info.why_none.c_str());
    for (const Check& check : checks) std::printf("  %s\n", check.name);
    return 77;
  }
  std::printf("%s, CUDA %s, code for %s, driver for CUDA %s\n", info.devices[0].name.c_str(),
              info.toolkit.c_str(), info.targets.c_str(), info.driver.c_str());
  Counts counts;
  std::string lines;
  for (const Check& check : checks) {
    if (!Wanted(check.name, arguments.only)) continue;
    lines += (lines.empty() ? "" : ",\n  ") + RunCheck(check, arguments.options, counts);
  }
  std::printf("%d passed, %d failed, %d skipped\n", counts.ok, counts.failed, counts.skipped);
  if (!arguments.json.empty()) {
    std::ofstream(arguments.json) << "{\"gpu\": " << Quoted(info.devices[0].name)
                                  << ", \"passed\": " << counts.ok
                                  << ", \"failed\": " << counts.failed
                                  << ", \"skipped\": " << counts.skipped << ", \"checks\": [\n  "
                                  << lines << "]}\n";
  }
  return counts.failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ropewalk::gpu

int main(int argc, char** argv) { return ropewalk::gpu::Main(argc, argv); }
