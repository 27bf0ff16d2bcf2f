// Key spans as a file.
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "ropewalk/base/hash.h"
#include "ropewalk/eval/key_tokens.h"
#include "ropewalk/io/weights.h"
#include "src/io/atomic_file.h"
#include "src/io/fail.h"
#include "src/io/json.h"

namespace ropewalk {
namespace {

constexpr char kFormat[] = "ropewalk-key-tokens";

nlohmann::ordered_json ToJson(const std::vector<ByteSpan>& spans) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const ByteSpan& span : spans) json.push_back({span.begin, span.end});
  return json;
}

// The values of one object of a file; errors name the key.
class Reader {
 public:
  Reader(const nlohmann::json& object, std::string path) : object_(object), path_(std::move(path)) {
    if (!object.is_object()) internal::Fail(path_, "expected a JSON object");
  }
  Reader Object(const char* key) const { return {At(key), path_ + ": " + key}; }
  std::string Text(const char* key) const {
    if (!At(key).is_string()) Expected(key, "a string");
    return At(key).get<std::string>();
  }
  bool Bool(const char* key) const {
    if (!At(key).is_boolean()) Expected(key, "true or false");
    return At(key).get<bool>();
  }
  double Number(const char* key) const {
    if (!At(key).is_number()) Expected(key, "a number");
    return At(key).get<double>();
  }
  int64_t Count(const char* key) const {
    const int64_t count = Integer(At(key));
    if (count < 1) Expected(key, "a whole number of at least 1");
    return count;
  }
  // Ascending, not touching, within `bytes`.
  std::vector<ByteSpan> Spans(const char* key, int64_t bytes) const {
    if (!At(key).is_array()) Expected(key, "an array of [begin, end]");
    std::vector<ByteSpan> spans;
    int64_t least = 0;
    for (const nlohmann::json& item : At(key)) {
      const bool pair = item.is_array() && item.size() == 2;
      const ByteSpan span = pair ? ByteSpan{Integer(item[0]), Integer(item[1])} : ByteSpan{-1, -1};
      if (span.begin < least || span.end <= span.begin || span.end > bytes) {
        internal::Fail(path_, std::string(key) + "[" + std::to_string(spans.size()) +
                                  "]: expected [begin, end] with " + std::to_string(least) +
                                  " <= begin < end <= " + std::to_string(bytes) +
                                  ", bytes of the text in ascending spans that do not touch; got " +
                                  item.dump().substr(0, 60));
      }
      spans.push_back(span);
      least = span.end + 1;
    }
    return spans;
  }

 private:
  const nlohmann::json& At(const char* key) const {
    const auto it = object_.find(key);
    if (it == object_.end()) internal::Fail(path_, std::string("the key ") + key + " is missing");
    return *it;
  }
  [[noreturn]] void Expected(const char* key, const char* what) const {
    internal::Fail(
        path_, std::string(key) + ": expected " + what + ", got " + At(key).dump().substr(0, 60));
  }
  // -1 for what is no whole number from 0 to the largest of int64.
  static int64_t Integer(const nlohmann::json& json) {
    if (!json.is_number_unsigned()) return -1;
    const auto value = json.get<uint64_t>();
    return value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())
               ? static_cast<int64_t>(value)
               : -1;
  }

  const nlohmann::json& object_;
  std::string path_;
};

}  // namespace

void WriteKeySpans(const std::string& path, const KeySpans& keys) {
  const KeyTokenSettings& s = keys.settings;
  const nlohmann::ordered_json json = {{"format", kFormat},
                                       {"version", 1},
                                       {"text_hash", keys.text_hash},
                                       {"evaluator",
                                        {{"name", keys.evaluator.name},
                                         {"model_hash", keys.evaluator.model_hash},
                                         {"tokenizer", keys.evaluator.tokenizer},
                                         {"tokenizer_hash", keys.evaluator.tokenizer_hash}}},
                                       {"settings",
                                        {{"document", s.document},
                                         {"short_context", s.short_context},
                                         {"step", s.step},
                                         {"lsd", s.lsd},
                                         {"lcl", s.lcl},
                                         {"bos", s.bos}}},
                                       {"covered", ToJson(keys.covered)},
                                       {"spans", ToJson(keys.spans)}};
  internal::WriteFileAtomically(path, internal::DumpJson(json, -1, path) + "\n");
}

KeySpans ReadKeySpans(const std::string& path, std::string_view text) {
  const nlohmann::json json = internal::ParseJson(MappedFile::Open(path)->text(), path);
  const Reader file(json, path);
  if (file.Text("format") != kFormat || file.Count("version") != 1) {
    internal::Fail(path, "expected format ropewalk-key-tokens, version 1");
  }
  KeySpans keys;
  keys.text_hash = file.Text("text_hash");
  if (keys.text_hash != HashHex(text)) {
    internal::Fail(path,
                   "these are key tokens of another text, hash " + keys.text_hash.substr(0, 60) +
                       "; this one has " + HashHex(text) + ". Give that text, or another file",
                   ErrorCode::kMismatch);
  }
  const Reader evaluator = file.Object("evaluator"), settings = file.Object("settings");
  keys.evaluator = {evaluator.Text("name"), evaluator.Text("model_hash"),
                    evaluator.Text("tokenizer"), evaluator.Text("tokenizer_hash")};
  keys.settings = {.document = settings.Count("document"),
                   .short_context = settings.Count("short_context"),
                   .step = settings.Count("step"),
                   .lsd = settings.Number("lsd"),
                   .lcl = settings.Number("lcl"),
                   .bos = settings.Bool("bos")};
  keys.spans = file.Spans("spans", static_cast<int64_t>(text.size()));
  keys.covered = file.Spans("covered", static_cast<int64_t>(text.size()));
  return keys;
}

}  // namespace ropewalk
