#include "cli/input.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/progress.h"
#include "cli/threads.h"
#include "ropewalk/absolute/hierarchical.h"
#include "ropewalk/base/error.h"
#include "ropewalk/plan/method.h"
#include "ropewalk/tokenizer/utf8_text.h"

namespace ropewalk::cli {

void SayNotHonoured(const ModelConfig& config) {
  for (const std::string& line : config.not_honoured) Message("ropewalk: warning: " + line);
}

ModelFiles OpenModelFor(const Options& options, bool need_weights) {
  UseThreads(options);
  OpenOptions open;
  open.allow_unknown = options.allow_unknown;
  open.need_weights = need_weights;
  ModelFiles files = OpenModel(options.model, open);
  SayNotHonoured(files.config);
  return files;
}

ModelFiles OpenRunnable(const Options& options) {
  ModelFiles files = OpenModelFor(options, true);
  RequireRunnable(files);
  return files;
}

void RequireRunnable(const ModelFiles& files) {
  if (files.config.not_runnable.empty()) return;
  throw Error(ErrorCode::kUnsupported, files.path + ": " + files.config.not_runnable);
}

ComputeType ComputeOf(const Options& options) {
  const bool bf16 = options.compute == Name(ComputeType::kBFloat16);
  if (bf16 && FindBf16Unit() == Bf16Unit::kEmulated) {
    Message(
        "ropewalk: --compute bf16: this CPU has no bf16 instructions (avx512_bf16, amx_bf16); they "
        "are emulated, which is correct but slower than float32");
  }
  return bf16 ? ComputeType::kBFloat16 : ComputeType::kFloat32;
}

WeightStorage WeightsOf(const Options& options) {
  for (const auto form : {WeightStorage::kPacked, WeightStorage::kUnpacked}) {
    if (options.weights == Name(form)) return form;
  }
  return WeightStorage::kAuto;
}

std::unique_ptr<Decoder> LoadDecoder(const Options& options, const ModelFiles& files) {
  auto decoder =
      Decoder::Load(files, {.compute = ComputeOf(options), .weights = WeightsOf(options)});
  if (WeightsOf(options) == WeightStorage::kAuto && decoder->weights() == WeightStorage::kPacked) {
    Message(
        "ropewalk: weights stay in the file and are decoded as they are needed, because there is "
        "too little memory to convert them; --weights unpacked does so all the same");
  }
  return decoder;
}

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  if (path == "-") {
    text << std::cin.rdbuf();
    if (std::ferror(stdin) != 0) throw Error(ErrorCode::kIo, "standard input cannot be read");
    return text.str();
  }
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    throw Error(ErrorCode::kIo, path + ": expected a file, it is a folder");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(ErrorCode::kIo, path + ": no such file, or not readable");
  text << file.rdbuf();
  if (file.bad()) throw Error(ErrorCode::kIo, path + ": cannot be read");
  return text.str();
}

std::string TextOf(const std::string& bytes, const std::string& name) {
  const Utf8Text taken = TakeUtf8(bytes, name);
  for (const std::string& note : taken.notes) Message("ropewalk: " + note);
  return std::string(taken.text);
}

std::string ReadText(const std::string& path) {
  return TextOf(ReadFile(path), path == "-" ? "standard input" : path);
}

namespace {

std::vector<int32_t> IdsOf(const nlohmann::json& json, const std::string& expected) {
  if (!json.is_array()) throw Error(ErrorCode::kInvalidFile, expected);
  std::vector<int32_t> ids;
  ids.reserve(json.size());
  for (const auto& item : json) {
    if (!item.is_number_integer() || item < 0 || item > std::numeric_limits<int32_t>::max()) {
      throw Error(ErrorCode::kInvalidFile, expected + "; item " + std::to_string(ids.size()) +
                                               " is " + item.dump().substr(0, 40));
    }
    ids.push_back(item.get<int32_t>());
  }
  if (ids.empty()) throw Error(ErrorCode::kInvalidFile, expected + "; the array is empty");
  return ids;
}

}  // namespace

std::vector<int32_t> ReadIds(const std::string& path) {
  return IdsOf(nlohmann::json::parse(ReadFile(path), nullptr, false),
               path + ": expected a JSON array of token ids, such as [1, 403, 7]");
}

std::vector<std::vector<int32_t>> ReadIdLists(const std::string& path) {
  const auto json = nlohmann::json::parse(ReadFile(path), nullptr, false);
  if (!json.is_array() || json.empty() || !json[0].is_array()) {
    return {IdsOf(json, path + ": expected a JSON array of token ids, such as [1, 403, 7], or an "
                               "array of such arrays")};
  }
  std::vector<std::vector<int32_t>> lists;
  for (const auto& list : json) {
    lists.push_back(IdsOf(list, path + ": text " + std::to_string(lists.size()) +
                                    ": expected a JSON array of token ids"));
  }
  return lists;
}

const Tokenizer& RequireTokenizer(const ModelFiles& files) {
  if (files.tokenizer != nullptr) return *files.tokenizer;
  throw Error(ErrorCode::kUnsupported, files.path + " has no tokenizer that can be read (" +
                                           files.tokenizer_error +
                                           "); give token ids with --ids FILE");
}

TokenText ReadTokenText(const Options& options, const ModelFiles& files, std::string* bytes) {
  if (options.text.empty() == options.ids.empty()) {
    throw UsageError("give a text with --text FILE, or token ids with --ids FILE (one of the two)");
  }
  if (!options.ids.empty()) return TextOfIds(ReadIds(options.ids));
  const Tokenizer& tokenizer = RequireTokenizer(files);
  std::string read = ReadText(options.text);
  TokenText text = TokenizeText(tokenizer, read, {options.special});
  if (bytes != nullptr) *bytes = std::move(read);
  if (text.ids.empty()) throw Error(ErrorCode::kInvalidFile, options.text + ": the text is empty");
  return text;
}

std::optional<double> HierarchicalAlphaOf(const Options& options) {
  const std::string& text = options.positions;
  const std::string kHierarchical = "hierarchical";
  if (text == "model") return std::nullopt;
  if (text == kHierarchical) return HierarchicalSpec().alpha;
  double alpha = 0;
  if (text.starts_with(kHierarchical + ":")) {
    const char* begin = text.data() + kHierarchical.size() + 1;
    const char* end = text.data() + text.size();
    const auto [p, error] = std::from_chars(begin, end, alpha);
    if (error == std::errc() && p == end && alpha > 0 && alpha < 1 && alpha != 0.5) return alpha;
  }
  throw UsageError(
      "--positions: expected model, hierarchical or hierarchical:ALPHA (0 to 1, not 0.5), got '" +
      text + "'");
}

bool WantsBos(const Options& options, const ModelFiles& files) {
  const bool file_says = files.tokenizer != nullptr && files.tokenizer->adds_bos();
  const bool wanted = options.bos.value_or(file_says);
  if (wanted && (files.tokenizer == nullptr || !files.tokenizer->bos_id())) {
    throw Error(ErrorCode::kUnsupported,
                "--bos: " + files.path + " names no BOS token; use --no-bos");
  }
  return wanted;
}

std::vector<SweepMethod> NamedMethods(const std::vector<std::string>& names,
                                      const PositionPlan& shipped) {
  try {
    return ParseMethods(names, shipped);
  } catch (const Error& e) {
    throw UsageError(std::string("--methods: ") + e.what());
  }
}

const ModelConfig& ScoredConfig(const ModelFiles& files) {
  return files.config.decoder != nullptr ? files.config.decoder->config : files.config;
}

std::vector<SweepMethod> MethodsOf(const Options& options, const ModelFiles& files,
                                   const std::vector<std::string>& defaults) {
  const bool given = !options.methods.empty() || !options.rope_scaling.empty();
  std::vector<SweepMethod> methods =
      NamedMethods(given ? options.methods : defaults, ScoredConfig(files).plan);
  for (const std::string& dictionary : options.rope_scaling) {
    for (const std::string& note :
         AddDictionary(dictionary, "--rope-scaling", ScoredConfig(files).plan,
                       options.allow_unknown, methods)) {
      Message("ropewalk: " + note);
    }
  }
  return methods;
}

SweepSpec SpecOf(const Options& options, const ModelFiles& files) {
  SweepSpec spec;
  for (const std::string& length : options.lengths) spec.lengths.push_back(ParseLength(length));
  std::sort(spec.lengths.begin(), spec.lengths.end());
  spec.factors = options.factors;
  spec.trained_length =
      options.trained.empty() ? files.config.plan.trained_length : ParseLength(options.trained);
  try {
    spec.protocol = Protocol::Parse(options.protocol);
  } catch (const Error& e) {
    throw UsageError(std::string("--") + e.what());
  }
  if (options.anchors) {
    const bool aligned = spec.protocol.kind == Protocol::Kind::kAligned;
    if (*options.anchors < (aligned ? 1 : 0)) {
      throw UsageError("--anchors: expected at least 1, got " + std::to_string(*options.anchors));
    }
    spec.protocol.anchors = *options.anchors;
  }
  spec.protocol.seed = options.seed;
  spec.protocol.bos = WantsBos(options, files);
  if (files.tokenizer != nullptr) spec.bos_id = files.tokenizer->bos_id();
  spec.kv = ParseKvTypes(options.kv);
  spec.angles = options.angles == "exact" ? AnglePrecision::kExact : AnglePrecision::kFloat32;
  return spec;
}

SweepTask SingleTask(const Options& options, const ModelFiles& files, const SweepSpec& spec,
                     int64_t length) {
  const std::vector<SweepMethod> methods = MethodsOf(options, files, {kAsShipped});
  if (methods.size() != 1 || options.factors.size() > 1) {
    throw UsageError("this command computes one cell: give one method and one factor");
  }
  if (spec.kv.size() != 1) {
    throw UsageError("--kv: this command computes one cell: give one type; a sweep takes several");
  }
  double factor = 1;
  if (!options.factors.empty()) {
    factor = options.factors[0];
  } else if (spec.trained_length > 0) {
    factor = std::max(1.0, static_cast<double>(length) / static_cast<double>(spec.trained_length));
    const auto* named = std::get_if<PositionMethod>(&methods[0]);
    if (factor == 1 && named != nullptr && named->uses_factor()) {
      Message(fmt::format(
          "ropewalk: {} has factor 1, which is no scaling, because {} tokens are within "
          "the trained {}; give --factor F to measure its cost here",
          named->name(), length, spec.trained_length));
    }
  } else if (const auto* named = std::get_if<PositionMethod>(&methods[0]);
             named != nullptr && !named->is_none()) {
    throw UsageError("the trained length of the model is unknown; give --trained N or --factors F");
  }
  SweepTask task =
      MakeTask(methods[0], factor, length, spec.trained_length, ScoredConfig(files).plan);
  task.kv = spec.kv.front();
  return task;
}

std::string ModelName(const std::string& path) {
  std::filesystem::path p = std::filesystem::weakly_canonical(path);
  if (p.filename().empty()) p = p.parent_path();
  return p.filename().string();
}

}  // namespace ropewalk::cli
