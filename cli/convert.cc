// ropewalk convert: Hugging Face folder <-> GGUF, and q and k between the pair layouts.
#include "ropewalk/convert/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/input.h"
#include "cli/json_text.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/write_proven.h"
#include "ropewalk/base/error.h"

namespace ropewalk::cli {
namespace {

namespace fs = std::filesystem;

std::optional<WeightType> TypeOf(const std::string& name) {
  if (name.empty()) return std::nullopt;
  for (const WeightType type :
       {WeightType::kF32, WeightType::kF16, WeightType::kBF16, WeightType::kQ8_0}) {
    std::string lower = Info(type).name;
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (lower == name) return type;
  }
  return std::nullopt;
}

using Logits = std::vector<float>;

bool SameBits(const Logits& a, const Logits& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

double LargestDifference(const Logits& a, const Logits& b) {
  double difference = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference = std::max(difference, std::abs(double{a[i]} - b[i]));
  }
  return difference;
}

// Of the largest logit.
double RelativeDifference(const Logits& before, const Logits& after) {
  double largest = 0;
  for (const float x : before) largest = std::max(largest, std::abs(double{x}));
  return largest > 0 ? LargestDifference(before, after) / largest : 0;
}

[[noreturn]] void FailLogits(double difference, const char* although) {
  throw Error(ErrorCode::kMismatch,
              fmt::format("the logits differ by up to {:g} although {}: the conversion is wrong, "
                          "please report it with the model's name",
                          difference, although));
}

// One line: whether the logits are bit-identical, or else the largest difference by rounding.
std::string CompareLogits(const Logits& before, const Logits& after, bool same_values) {
  if (SameBits(before, after)) {
    return fmt::format("{} logits are bit-identical before and after", before.size());
  }
  if (same_values || before.size() != after.size()) {
    FailLogits(LargestDifference(before, after), "no weight was rounded");
  }
  return fmt::format(
      "differ by at most {:.2e} of the largest, because weights were rounded to the "
      "requested type",
      RelativeDifference(before, after));
}

void Report(const Options& options, const Converted& written, const PlanProof* proof,
            const std::string& logits) {
  if (options.json) {
    nlohmann::ordered_json json = {{"output", options.output}, {"notes", written.notes}};
    if (proof != nullptr) {
      json["plan_hash"] = proof->read;
      json["plan_hash_before"] = proof->asked;
    }
    if (!logits.empty()) json["logits"] = logits;
    fmt::print("{}\n", JsonText(json));
    return;
  }
  fmt::print("wrote     {}\n", options.output);
  if (proof != nullptr) {
    fmt::print("plan      {} at {} tokens; {}\n", proof->read, proof->length,
               proof->asked == proof->read ? std::string("the same before and after")
               : proof->largest_difference == 0
                   ? fmt::format("before {}, with the same frequencies", proof->asked)
                   : fmt::format("before {}: GGUF stores float32, the relative difference of "
                                 "frequencies is at most {:.1e}",
                                 proof->asked, proof->largest_difference));
  }
  if (!logits.empty()) fmt::print("logits    {}\n", logits);
  for (const std::string& note : written.notes) fmt::print("note      {}\n", note);
}

// Of the source and of what was written alike: they would differ in rounding.
WeightStorage ProbeWeights(const Options& options, const ModelFiles& files) {
  return ChooseStorage(files, ComputeType::kFloat32, WeightsOf(options));
}

// Converts to another format.
void RunFormat(const Options& options) {
  const ModelFiles files = OpenModelFor(options, true);
  const bool to_gguf = options.output.ends_with(".gguf");
  const bool from_gguf = files.config.format == FileFormat::kGguf;
  std::error_code error;
  if (to_gguf == from_gguf || (!from_gguf && !fs::is_directory(files.path, error))) {
    throw UsageError(
        "convert goes from a Hugging Face folder to a name that ends in .gguf, or from a GGUF file "
        "to a folder; --layout converts within safetensors");
  }
  if (!files.config.not_runnable.empty()) {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("{}: {}; only models that the decoder runs are converted, because their "
                    "logits are compared",
                    files.path, files.config.not_runnable));
  }
  if (!options.no_tokenizer && files.tokenizer == nullptr) {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("{} has no readable tokenizer ({}); --no-tokenizer converts only the weights",
                    files.path, files.tokenizer_error));
  }
  const ConvertOptions how{TypeOf(options.type), !options.no_tokenizer};
  const PositionPlan& plan = files.config.plan;
  Converted written;
  PlanProof proof;
  std::string logits;
  WriteProven(options.output, [&](const std::string& path) {
    written = to_gguf ? FolderToGguf(files, path, how) : GgufToFolder(files, path, how);
    OpenOptions open;
    open.allow_unknown = options.allow_unknown;
    const ModelFiles read = OpenModel(path, open);
    proof = ProvePlan(plan, written.stored, read.config.plan, plan.configured_length);
    if (!options.no_tokenizer) {
      ProveTokenizer(*files.tokenizer, RequireTokenizer(read));
      ProveExtras(written.extras, read);
    }
    if (!options.no_verify) {
      const WeightStorage form = ProbeWeights(options, files);
      const Logits before = ProbeLogits(AsWritten(files, written), form);
      logits = CompareLogits(before, ProbeLogits(read, form), written.same_values);
      if (written.numbers.exist()) {
        logits += fmt::format(
            ", with the numbers that the format holds (see the note); by them alone they differ by "
            "at most {:.2e} of the largest",
            RelativeDifference(ProbeLogits(files, written.stored, form), before));
      }
    }
  });
  Report(options, written, &proof, logits);
}

// Of the two layouts the half one is opened as any other model is. The other one is read twice:
// with its rows put back at load, which has to give the same bits, and rotated as it is stored, as
// the code that it is for does it, which adds up the products of a head in another order.
std::string ProveLayout(const Options& options, const std::string& half,
                        const std::string& interleaved) {
  constexpr double kRounding = 1e-3;
  OpenOptions open;
  open.allow_unknown = options.allow_unknown;
  const ModelFiles plain = OpenModel(half, open);
  ModelFiles other = OpenEitherLayout(interleaved, options.allow_unknown);
  const WeightStorage form = ProbeWeights(options, plain);
  const Logits expected = ProbeLogits(plain, form);
  std::string line = CompareLogits(expected, ProbeLogits(other, form), true);
  const Logits rotated = ProbeLogits(RotatedAsStored(std::move(other)), form);
  const double difference = RelativeDifference(expected, rotated);
  if (!(difference <= kRounding)) {
    FailLogits(LargestDifference(expected, rotated), "rows were only put into another order");
  }
  return line +
         fmt::format(
             "; rotated as consecutive elements they differ by at most {:.1e} of the largest",
             difference);
}

// Permutes q and k of a folder for code with the other pair layout.
void RunFolderLayout(const Options& options, PairLayout to) {
  const ModelFiles files = OpenEitherLayout(options.model, options.allow_unknown);
  SayNotHonoured(files.config);
  Converted written;
  std::string logits;
  WriteProven(options.output, [&](const std::string& path) {
    written = PermuteFolder(files, path, to);
    if (options.no_verify) return;
    const bool half = to == PairLayout::kHalf;
    logits = ProveLayout(options, half ? path : options.model, half ? options.model : path);
  });
  Report(options, written, nullptr, logits);
}

void RunLayout(const Options& options) {
  const PairLayout to = options.layout == "half" ? PairLayout::kHalf : PairLayout::kInterleaved;
  if (!options.type.empty())
    throw UsageError("--layout cannot be combined with --type: it only permutes rows");
  std::error_code error;
  if (fs::exists(fs::path(options.model) / "config.json", error)) {
    return RunFolderLayout(options, to);
  }
  if (!options.model.ends_with(".safetensors")) {
    throw UsageError(
        "--layout takes a Hugging Face folder, or one .safetensors file (a model or a "
        "LoRA adapter) with --head-dim");
  }
  if (options.head_dim < 2)
    throw UsageError("--layout of one file: give --head-dim N of the model");
  const int64_t rotary_dim = options.rotary_dim > 0 ? options.rotary_dim : options.head_dim;
  Converted written;
  WriteProven(options.output, [&](const std::string& path) {
    written = PermuteSafetensors(options.model, path, {options.head_dim, rotary_dim}, to);
  });
  Report(options, written, nullptr, "");
}

}  // namespace

void RunConvert(const Options& options) {
  options.layout.empty() ? RunFormat(options) : RunLayout(options);
}

}  // namespace ropewalk::cli
