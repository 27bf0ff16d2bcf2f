#include "src/tokenizer/json_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ropewalk/base/error.h"

namespace ropewalk::internal {

using nlohmann::json;

bool JsonNode::Has(const std::string& name) const {
  if (!value.is_object()) Fail("an object is expected");
  const auto found = value.find(name);
  return found != value.end() && !found->is_null();
}
JsonNode JsonNode::At(const std::string& name) const {
  if (!Has(name)) Fail(fmt::format("the key '{}' is missing", name.substr(0, 80)));
  return {value[name], file, key.empty() ? name : key + "." + name.substr(0, 80)};
}
const std::string& JsonNode::String() const {
  if (!value.is_string()) Fail("a string is expected");
  return value.get_ref<const std::string&>();
}
int64_t JsonNode::Integer(int64_t low, int64_t high) const {
  if (!value.is_number_integer() || value.get<double>() < static_cast<double>(low) ||
      value.get<double>() > static_cast<double>(high)) {
    Fail(fmt::format("{} is no integer from {} to {}", value.dump().substr(0, 40), low, high));
  }
  return value.get<int64_t>();
}
bool JsonNode::Bool(const std::string& name, bool otherwise) const {
  if (!Has(name)) return otherwise;
  if (!value[name].is_boolean()) At(name).Fail("true or false is expected");
  return value[name].get<bool>();
}
const json& JsonNode::Object() const {
  if (!value.is_object()) Fail("an object is expected");
  return value;
}
const json::array_t& JsonNode::Array() const {
  if (!value.is_array()) Fail("an array is expected");
  return value.get_ref<const json::array_t&>();
}
void JsonNode::Only(std::initializer_list<const char*> names) const {
  for (const auto& item : Object().items()) {
    const std::string& name = item.key();
    if (std::none_of(names.begin(), names.end(),
                     [&](const char* known) { return name == known; })) {
      Unsupported(fmt::format("the key '{}'", name.substr(0, 80)));
    }
  }
}
std::string JsonNode::Where() const { return key.empty() ? file : file + ": " + key; }
void JsonNode::Fail(const std::string& what) const {
  throw Error(ErrorCode::kInvalidFile, Where() + ": " + what);
}
void JsonNode::Unsupported(const std::string& what) const {
  throw Error(
      ErrorCode::kUnsupported,
      fmt::format("{}: {} is not known here; tokenize elsewhere and give the ids with --ids",
                  Where(), what));
}

namespace {

// Words and what is neither word nor space. A word is Unicode's (UTS 18), which is not what \w is
// in a pattern: the original takes this one from another regex library.
#define WORD_CLASS                                                   \
  R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200c}\x{200d}\x{24b6}-\x{24e9})" \
  R"(\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})"
constexpr char kWordsAndSymbols[] = "[" WORD_CLASS "]+|[^" WORD_CLASS R"(\s]+)";
#undef WORD_CLASS

Regex ReadPattern(const JsonNode& node) {
  node.Only({"String", "Regex"});
  if (node.Has("String")) {
    const JsonNode text = node.At("String");
    if (text.String().empty()) text.Unsupported("an empty pattern");
    return Regex::Literal(text.String(), text.Where());
  }
  const JsonNode regex = node.At("Regex");
  return Regex(regex.String(), regex.Where());
}

// A pattern given as one string (a Metaspace replacement, a Strip content).
const std::string& OneChar(const JsonNode& node) {
  const std::string& text = node.String();
  if (text.empty() || CharBytes(text[0]) != text.size()) node.Fail("one character is expected");
  return text;
}

SplitBehavior ReadBehavior(const JsonNode& node) {
  static constexpr std::pair<const char*, SplitBehavior> kBehaviors[] = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"Contiguous", SplitBehavior::kContiguous},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext}};
  for (const auto& [name, behavior] : kBehaviors) {
    if (node.String() == name) return behavior;
  }
  node.Unsupported(fmt::format("the behavior '{}'", node.String().substr(0, 80)));
}

MetaspaceStep::Prefix ReadPrefix(const JsonNode& node) {
  using Prefix = MetaspaceStep::Prefix;
  // Files from before prepend_scheme have add_prefix_space alone; where both are, they must agree.
  const bool add = node.Bool("add_prefix_space", true);
  if (!node.Has("prepend_scheme")) return add ? Prefix::kAlways : Prefix::kNever;
  const std::string& scheme = node.At("prepend_scheme").String();
  if (scheme != "never" && !add) node.At("add_prefix_space").Fail("contradicts prepend_scheme");
  if (scheme == "always") return Prefix::kAlways;
  if (scheme == "first") return Prefix::kFirst;
  if (scheme == "never") return Prefix::kNever;
  node.At("prepend_scheme").Unsupported(fmt::format("'{}'", scheme.substr(0, 80)));
}

// Calls `read` for each item of the array `name`.
template <class Read>
void ForEach(const JsonNode& node, const char* name, const Read& read) {
  const JsonNode list = node.At(name);
  for (std::size_t i = 0; i < list.Array().size(); ++i) {
    read(JsonNode{list.value[i], list.file, fmt::format("{}[{}]", list.key, i)});
  }
}

SplitStep Cut(const JsonNode& node, std::string_view pattern, SplitBehavior behavior) {
  return {Regex(pattern, node.Where()), behavior, false};
}

void ReadByteLevel(const JsonNode& node, std::vector<WordStep>* steps) {
  node.Only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  if (node.Bool("add_prefix_space", true)) steps->push_back(PrefixSpaceStep{});
  if (node.Bool("use_regex", true)) {
    steps->push_back(Cut(node, kGpt2Pattern, SplitBehavior::kIsolated));
  }
  steps->push_back(ByteMapStep{});
}

void ReadReplace(const JsonNode& node, std::vector<NormalizerStep>* steps) {
  node.Only({"type", "pattern", "content"});
  steps->push_back(ReplaceStep{ReadPattern(node.At("pattern")), node.At("content").String()});
}

}  // namespace

void ReadNormalizer(const JsonNode& node, std::vector<NormalizerStep>* steps) {
  static constexpr std::pair<const char*, NormalForm> kForms[] = {{"NFC", NormalForm::kNfc},
                                                                  {"NFD", NormalForm::kNfd},
                                                                  {"NFKC", NormalForm::kNfkc},
                                                                  {"NFKD", NormalForm::kNfkd}};
  const std::string& type = node.At("type").String();
  for (const auto& [name, form] : kForms) {
    if (type == name) {
      node.Only({"type"});
      steps->push_back(form);
      return;
    }
  }
  if (type == "Sequence") {
    node.Only({"type", "normalizers"});
    ForEach(node, "normalizers", [&](const JsonNode& item) { ReadNormalizer(item, steps); });
  } else if (type == "Replace") {
    ReadReplace(node, steps);
  } else if (type == "Prepend") {
    node.Only({"type", "prepend"});
    steps->push_back(PrependStep{node.At("prepend").String()});
  } else if (type == "Strip") {
    node.Only({"type", "strip_left", "strip_right"});
    steps->push_back(StripStep{node.Bool("strip_left", true), node.Bool("strip_right", true)});
  } else if (type == "StripAccents") {
    node.Only({"type"});
    steps->push_back(StripAccentsStep{});
  } else if (type == "Lowercase") {
    node.Only({"type"});
    steps->push_back(LowercaseStep{});
  } else if (type == "Precompiled") {
    node.Only({"type", "precompiled_charsmap"});
    const JsonNode map = node.At("precompiled_charsmap");
    steps->push_back(Charsmap::OfBase64(map.String(), map.Where()));
  } else if (type == "BertNormalizer") {
    node.Only({"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
    const bool lowercase = node.Bool("lowercase", true);
    steps->push_back(BertStep{node.Bool("clean_text", true),
                              node.Bool("handle_chinese_chars", true),
                              node.Bool("strip_accents", lowercase), lowercase});
  } else {
    node.At("type").Unsupported(fmt::format("the normalizer '{}'", type.substr(0, 80)));
  }
}

void ReadPreTokenizer(const JsonNode& node, std::vector<WordStep>* steps) {
  const std::string& type = node.At("type").String();
  if (type == "Sequence") {
    node.Only({"type", "pretokenizers"});
    ForEach(node, "pretokenizers", [&](const JsonNode& item) { ReadPreTokenizer(item, steps); });
  } else if (type == "ByteLevel") {
    ReadByteLevel(node, steps);
  } else if (type == "Split") {
    node.Only({"type", "pattern", "behavior", "invert"});
    steps->push_back(SplitStep{ReadPattern(node.At("pattern")), ReadBehavior(node.At("behavior")),
                               node.Bool("invert", false)});
  } else if (type == "Digits") {
    node.Only({"type", "individual_digits"});
    steps->push_back(Cut(node, R"(\p{N})",
                         node.Bool("individual_digits", false) ? SplitBehavior::kIsolated
                                                               : SplitBehavior::kContiguous));
  } else if (type == "Punctuation") {
    node.Only({"type", "behavior"});
    steps->push_back(
        Cut(node, R"([\p{P}!-/:-@\[-`{-~])",
            node.Has("behavior") ? ReadBehavior(node.At("behavior")) : SplitBehavior::kIsolated));
  } else if (type == "WhitespaceSplit") {
    node.Only({"type"});
    steps->push_back(Cut(node, R"(\s)", SplitBehavior::kRemoved));
  } else if (type == "Whitespace") {
    node.Only({"type"});
    steps->push_back(
        SplitStep{Regex(kWordsAndSymbols, node.Where()), SplitBehavior::kRemoved, true});
  } else if (type == "Metaspace") {
    node.Only({"type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
    steps->push_back(
        MetaspaceStep{OneChar(node.At("replacement")), ReadPrefix(node), node.Bool("split", true)});
  } else if (type == "BertPreTokenizer") {
    node.Only({"type"});
    steps->push_back(Cut(node, R"(\s)", SplitBehavior::kRemoved));
    steps->push_back(Cut(node, R"([\p{P}!-/:-@\[-`{-~])", SplitBehavior::kIsolated));
  } else {
    node.At("type").Unsupported(fmt::format("the pre-tokenizer '{}'", type.substr(0, 80)));
  }
}

void ReadDecoder(const JsonNode& node, std::vector<DecodeStep>* steps) {
  const std::string& type = node.At("type").String();
  if (type == "Sequence") {
    node.Only({"type", "decoders"});
    ForEach(node, "decoders", [&](const JsonNode& item) { ReadDecoder(item, steps); });
  } else if (type == "ByteLevel") {
    steps->push_back(ByteLevelDecode{});
  } else if (type == "ByteFallback") {
    steps->push_back(ByteFallbackDecode{});
  } else if (type == "Fuse") {
    node.Only({"type"});
    steps->push_back(FuseDecode{});
  } else if (type == "Replace") {
    node.Only({"type", "pattern", "content"});
    const JsonNode pattern = node.At("pattern");
    pattern.Only({"String"});
    if (pattern.At("String").String().empty()) pattern.Unsupported("an empty pattern");
    steps->push_back(ReplaceDecode{pattern.At("String").String(), node.At("content").String()});
  } else if (type == "Strip") {
    node.Only({"type", "content", "start", "stop"});
    if (node.Has("stop") && node.At("stop").Integer(0, 1 << 20) != 0) {
      node.At("stop").Unsupported("stripping at the end");
    }
    steps->push_back(StripDecode{OneChar(node.At("content")),
                                 node.Has("start") ? node.At("start").Integer(0, 1 << 20) : 0});
  } else if (type == "Metaspace") {
    node.Only({"type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
    steps->push_back(MetaspaceDecode{OneChar(node.At("replacement")),
                                     ReadPrefix(node) != MetaspaceStep::Prefix::kNever});
  } else if (type == "WordPiece") {
    node.Only({"type", "prefix", "cleanup"});
    steps->push_back(WordPieceDecode{node.Has("prefix") ? node.At("prefix").String() : "##",
                                     node.Bool("cleanup", true)});
  } else {
    node.At("type").Unsupported(fmt::format("the decoder '{}'", type.substr(0, 80)));
  }
}

}  // namespace ropewalk::internal
