// From the states of a text to one vector, as a sentence-transformers folder says it.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "ropewalk/base/error.h"
#include "ropewalk/model/encoder.h"
#include "src/config/json_object.h"
#include "src/io/files.h"
#include "src/io/json.h"

namespace ropewalk {
namespace {

namespace fs = std::filesystem;
using internal::JsonObject;
using nlohmann::json;

[[noreturn]] void Refuse(const std::string& where, const std::string& why) {
  throw Error(ErrorCode::kUnsupported,
              fmt::format("{}: {}; sentence vectors are computed of the mean of all tokens or of "
                          "the first one, normalised or not",
                          where, why));
}

// 1_Pooling/config.json: exactly one mode is on.
SentencePooling::Kind ReadMode(const fs::path& path) {
  const std::string where = path.string();
  const json value = internal::ParseJsonObject(MappedFile::Open(where)->text(), where);
  const JsonObject top(value, where);
  std::vector<std::string> on;
  for (const auto& [key, item] : value.items()) {
    if (key.starts_with("pooling_mode_") && top.Bool(key).value_or(false)) on.push_back(key);
  }
  if (const auto name = top.String("pooling_mode")) on.push_back("pooling_mode_" + *name);
  if (on.size() != 1) Refuse(where, fmt::format("{} pooling modes are on", on.size()));
  if (on[0] == "pooling_mode_mean_tokens" || on[0] == "pooling_mode_mean") {
    return SentencePooling::Kind::kMean;
  }
  if (on[0] == "pooling_mode_cls_token" || on[0] == "pooling_mode_cls") {
    return SentencePooling::Kind::kFirst;
  }
  Refuse(where, on[0] + " is not computed");
}

void ReadModule(const fs::path& folder, const JsonObject& module, SentencePooling& pooling) {
  const std::string type = module.Require(module.String("type"), "type", "a string");
  const std::string name = type.substr(type.rfind('.') + 1);
  const fs::path path = folder / module.String("path").value_or("");
  if (name == "Transformer") return;
  if (name == "Pooling") {
    pooling.kind = ReadMode(path / "config.json");
  } else if (name == "Normalize") {
    pooling.normalize = true;
  } else {
    Refuse(module.where(), fmt::format("a module of type {} is not computed", type));
  }
}

// A text that sentence-transformers puts in front of every other.
void RefusePrompt(const fs::path& path) {
  const std::string where = path.string();
  if (!internal::FileExists(where)) return;
  const json value = internal::ParseJsonObject(MappedFile::Open(where)->text(), where);
  const auto name = JsonObject(value, where).String("default_prompt_name");
  if (!name) return;
  throw Error(ErrorCode::kUnsupported,
              fmt::format("{}: default_prompt_name is \"{}\": put the prompt in front of the text "
                          "and remove the key",
                          where, *name));
}

}  // namespace

const char* Name(SentencePooling::Kind kind) {
  return kind == SentencePooling::Kind::kMean ? "mean" : "first";
}

SentencePooling ReadSentencePooling(const std::string& folder) {
  SentencePooling pooling;
  const fs::path modules = fs::path(folder) / "modules.json";
  if (!internal::FileExists(modules.string())) {
    pooling.source = "no modules.json: the mean";
    return pooling;
  }
  pooling.source = modules.string();
  const json value = internal::ParseJson(MappedFile::Open(pooling.source)->text(), pooling.source);
  if (!value.is_array() || value.empty()) {
    throw Error(ErrorCode::kInvalidConfig, fmt::format("{}: expected an array of modules, got {}",
                                                       pooling.source, internal::Shown(value)));
  }
  for (std::size_t i = 0; i < value.size(); ++i) {
    ReadModule(folder, JsonObject(value[i], fmt::format("{}: module {}", pooling.source, i)),
               pooling);
  }
  const fs::path lengths = fs::path(folder) / "sentence_bert_config.json";
  if (internal::FileExists(lengths.string())) {
    const json object =
        internal::ParseJsonObject(MappedFile::Open(lengths.string())->text(), lengths.string());
    const JsonObject top(object, lengths.string());
    pooling.trained_tokens = top.Int("max_seq_length", 1, INT32_MAX).value_or(0);
    if (top.Bool("do_lower_case").value_or(false)) {
      throw Error(ErrorCode::kUnsupported,
                  lengths.string() +
                      ": do_lower_case: texts are not lowered here but by the tokenizer; lower "
                      "the text and say false");
    }
  }
  RefusePrompt(fs::path(folder) / "config_sentence_transformers.json");
  return pooling;
}

std::vector<float> SentenceVector(const SentencePooling& pooling, std::span<const float> hidden,
                                  int64_t dim) {
  const auto size = static_cast<int64_t>(hidden.size());
  if (dim < 1 || size < dim || size % dim != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("SentenceVector: hidden: expected [tokens, {}] with a token at least, "
                            "got {} numbers",
                            dim, size));
  }
  const int64_t tokens = pooling.kind == SentencePooling::Kind::kMean ? size / dim : 1;
  std::vector<double> sum(dim);
  for (int64_t i = 0; i < tokens * dim; ++i) sum[i % dim] += hidden[i];
  double length = 0;
  for (double& x : sum) {
    x /= static_cast<double>(tokens);
    length += x * x;
  }
  // 1e-12 is torch.nn.functional.normalize's least length.
  const double divisor = pooling.normalize ? std::max(std::sqrt(length), 1e-12) : 1;
  std::vector<float> out(dim);
  for (int64_t i = 0; i < dim; ++i) out[i] = static_cast<float>(sum[i] / divisor);
  return out;
}

}  // namespace ropewalk
