#include "src/tokenizer/export.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

#include "ropewalk/base/error.h"
#include "ropewalk/tokenizer/tokenizer.h"
#include "src/io/files.h"
#include "src/io/json.h"
#include "src/tokenizer/bpe_patterns.h"
#include "src/tokenizer/json_steps.h"

namespace ropewalk::internal {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Keys = std::map<std::string, GgufValue>;

// The tokenizer runs here, and GGUF has no place for a part of it.
[[noreturn]] void NotInGguf(const JsonNode& node, const std::string& what) {
  throw Error(ErrorCode::kUnsupported,
              fmt::format("{}: {}; --no-tokenizer converts the weights alone", node.Where(), what));
}

// What of a tokenizer.json decides the name in tokenizer.ggml.pre.
struct Pattern {
  std::vector<std::string> cuts;
  bool nfc = false, ignore_merges = false;
};

void AddCuts(const JsonNode& node, Pattern* pattern) {
  const std::string& type = node.At("type").String();
  if (type == "Sequence") {
    const JsonNode list = node.At("pretokenizers");
    for (std::size_t i = 0; i < list.Array().size(); ++i) {
      AddCuts({list.value[i], list.file, fmt::format("{}[{}]", list.key, i)}, pattern);
    }
  } else if (type == "ByteLevel") {
    if (node.Bool("add_prefix_space", true)) {
      NotInGguf(node, "add_prefix_space: GGUF cannot express that a space is prepended");
    }
    if (node.Bool("use_regex", true)) pattern->cuts.emplace_back(kGpt2Pattern);
  } else if (type == "Digits") {
    pattern->cuts.emplace_back(node.Bool("individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)");
  } else if (type == "Split") {
    const std::string& behavior = node.At("behavior").String();
    const bool invert = node.Bool("invert", false);
    // Both keep matches and what lies between them apart, given a pattern that leaves nothing.
    if (!(behavior == "Isolated" && !invert) && !(behavior == "Removed" && invert)) {
      NotInGguf(node, fmt::format("a Split with behavior {} has no name in GGUF", behavior));
    }
    if (!node.At("pattern").Has("Regex"))
      NotInGguf(node, "a Split by a string has no name in GGUF");
    pattern->cuts.push_back(node.At("pattern").At("Regex").String());
  } else {
    NotInGguf(node, fmt::format("the pre-tokenizer {} has no name in GGUF", type));
  }
}

// A line break written as itself is the one written \r or \n.
std::string Plain(std::string cut) {
  for (const auto& [escape, byte] : {std::pair("\\r", "\r"), std::pair("\\n", "\n")}) {
    for (std::size_t at; (at = cut.find(escape)) != std::string::npos;) cut.replace(at, 2, byte);
  }
  return cut;
}

// llama.cpp's name for the pattern; where several names mean the same, the best known.
std::string PreOf(const Pattern& pattern, const std::string& file) {
  static constexpr const char* kBestKnown[] = {"gpt-2",  "llama-bpe", "qwen2", "smollm",
                                               "gpt-4o", "tekken",    "mpt",   "dbrx"};
  std::vector<std::string> names;
  for (const std::string& name : BpePatternNames()) {
    const BpePattern& known = *FindBpePattern(name);
    if (known.nfc == pattern.nfc && known.ignore_merges == pattern.ignore_merges &&
        std::equal(known.cuts.begin(), known.cuts.end(), pattern.cuts.begin(), pattern.cuts.end(),
                   [](const char* a, const std::string& b) { return Plain(a) == Plain(b); })) {
      names.push_back(name);
    }
  }
  for (const char* best : kBestKnown) {
    if (std::find(names.begin(), names.end(), best) != names.end()) return best;
  }
  if (!names.empty()) return names.front();
  throw Error(ErrorCode::kUnsupported,
              fmt::format("{}: GGUF stores how words are cut as a name, and none is known for this "
                          "pattern ({}); --no-tokenizer converts the weights alone",
                          file, fmt::join(pattern.cuts, "  then  ")));
}

template <class T>
GgufValue List(std::vector<T> items, GgufType type) {
  return {std::move(items), type};
}
GgufValue Text(const char* text) { return {std::string(text), GgufType::kString}; }

struct Tokens {
  std::vector<std::string> pieces;
  std::vector<int64_t> types;
  std::vector<double> scores;

  void Set(int64_t id, const std::string& piece, SpmType type, const std::string& where) {
    const auto at = static_cast<std::size_t>(id);
    if (at >= pieces.size()) {
      throw Error(ErrorCode::kInvalidFile,
                  fmt::format("{}: token {} has id {}, the model has {} embeddings", where,
                              piece.substr(0, 80), id, pieces.size()));
    }
    pieces[at] = piece;
    types[at] = static_cast<int64_t>(type);
  }
  // Every id without a token yet.
  explicit Tokens(int64_t vocab_size) {
    for (int64_t i = 0; i < vocab_size; ++i) pieces.push_back(fmt::format("[PAD{}]", i));
    types.assign(pieces.size(), static_cast<int64_t>(SpmType::kUnused));
    scores.assign(pieces.size(), -10000);  // as llama.cpp's converter has it for SentencePiece
  }
};

void CheckMarks(const JsonNode& token) {
  for (const char* flag : {"single_word", "lstrip", "rstrip"}) {
    if (token.Bool(flag, false)) {
      NotInGguf(token, fmt::format("{}: GGUF has no such flag of a token", flag));
    }
  }
}

Keys ByteLevelKeys(const JsonNode& root, int64_t vocab_size) {
  const JsonNode model = root.At("model");
  if (model.Has("type") && model.At("type").String() != "BPE") {
    NotInGguf(model.At("type"), "GGUF is given BPE alone");
  }
  if (model.Bool("byte_fallback", false)) {
    NotInGguf(model,
              "byte_fallback: this is SentencePiece as BPE, which GGUF takes from tokenizer.model: "
              "put that file into the folder");
  }
  Pattern pattern;
  pattern.ignore_merges = model.Bool("ignore_merges", false);
  if (root.Has("normalizer")) {
    const JsonNode normalizer = root.At("normalizer");
    if (normalizer.At("type").String() != "NFC") {
      NotInGguf(normalizer, "GGUF has no normaliser but what tokenizer.ggml.pre implies (NFC)");
    }
    pattern.nfc = true;
  }
  AddCuts(root.At("pre_tokenizer"), &pattern);

  Tokens tokens(vocab_size);
  for (const auto& [piece, id] : model.At("vocab").Object().items()) {
    const JsonNode node{id, root.file, "model.vocab." + piece.substr(0, 80)};
    tokens.Set(node.Integer(0, INT32_MAX), piece, SpmType::kNormal, root.file);
  }
  if (root.Has("added_tokens")) {
    const JsonNode list = root.At("added_tokens");
    for (std::size_t i = 0; i < list.Array().size(); ++i) {
      const JsonNode token{list.value[i], root.file, fmt::format("added_tokens[{}]", i)};
      CheckMarks(token);
      tokens.Set(token.At("id").Integer(0, INT32_MAX), token.At("content").String(),
                 token.Bool("special", false) ? SpmType::kControl : SpmType::kUserDefined,
                 root.file);
    }
  }
  std::vector<std::string> merges;
  for (const auto& merge : model.At("merges").Array()) {
    const bool pair = merge.is_array();  // of two strings, or one: LoadTokenizerFolder checks it
    std::string line = pair ? merge[0].get<std::string>() + " " + merge[1].get<std::string>()
                            : merge.get<std::string>();
    if (!line.starts_with("#version")) merges.push_back(std::move(line));
  }
  return {{"tokenizer.ggml.model", Text("gpt2")},
          {"tokenizer.ggml.pre", {PreOf(pattern, root.file), GgufType::kString}},
          {"tokenizer.ggml.tokens", List(std::move(tokens.pieces), GgufType::kString)},
          {"tokenizer.ggml.token_type", List(std::move(tokens.types), GgufType::kI32)},
          {"tokenizer.ggml.merges", List(std::move(merges), GgufType::kString)}};
}

Keys SentencePieceKeys(const std::string& path, const Tokenizer& tokenizer, int64_t vocab_size) {
  const SpmModel model = ParseSpmModel(MappedFile::Open(path)->text(), path);
  const auto fail = [&](const std::string& what) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{}: {}; --no-tokenizer converts the weights alone", path, what));
  };
  if (model.model_type != SpmModel::kBpe) fail("GGUF's 'llama' tokenizer is BPE, this is unigram");
  if (!model.charsmap.empty()) fail("it normalises text by rules that GGUF cannot hold");
  if (tokenizer.vocab_size() > static_cast<int64_t>(model.pieces.size())) {
    fail("the folder adds tokens to it, whose kinds are not carried over");
  }
  Tokens tokens(vocab_size);
  int64_t unknown = 0;  // there is one
  for (std::size_t i = 0; i < model.pieces.size(); ++i) {
    tokens.Set(static_cast<int64_t>(i), model.pieces[i].piece, model.pieces[i].type, path);
    tokens.scores[i] = model.pieces[i].score;
    if (model.pieces[i].type == SpmType::kUnknown) unknown = static_cast<int64_t>(i);
  }
  return {{"tokenizer.ggml.model", Text("llama")},
          {"tokenizer.ggml.pre", Text("default")},
          {"tokenizer.ggml.tokens", List(std::move(tokens.pieces), GgufType::kString)},
          {"tokenizer.ggml.token_type", List(std::move(tokens.types), GgufType::kI32)},
          {"tokenizer.ggml.scores", List(std::move(tokens.scores), GgufType::kF32)},
          {"tokenizer.ggml.unknown_token_id", {unknown, GgufType::kU32}},
          {"tokenizer.ggml.add_space_prefix", {model.add_dummy_prefix, GgufType::kBool}},
          {"tokenizer.ggml.remove_extra_whitespaces",
           {model.remove_extra_whitespaces, GgufType::kBool}}};
}

template <class T>
const std::vector<T>& ListOf(const GgufFile& gguf, const char* key) {
  static const std::vector<T> none;
  const auto it = gguf.metadata.find(key);
  if (it == gguf.metadata.end()) return none;
  const auto* list = std::get_if<std::vector<T>>(&it->second.value);
  return list == nullptr ? none : *list;  // LoadTokenizerGguf has refused other types
}

Json PreTokenizerOf(const BpePattern& pattern) {
  Json steps = Json::array();
  for (const char* cut : pattern.cuts) {
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", cut}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  steps.push_back({{"type", "ByteLevel"},
                   {"add_prefix_space", false},
                   {"trim_offsets", true},
                   {"use_regex", false}});
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

// What stands before and behind a text.
Json PostProcessor(const Tokenizer& tokenizer, bool adds_eos) {
  const auto bos = tokenizer.adds_bos() ? tokenizer.bos_id() : std::nullopt;
  const auto eos = adds_eos ? tokenizer.eos_id() : std::nullopt;
  if (!bos && !eos) {
    return {{"type", "ByteLevel"},
            {"add_prefix_space", false},
            {"trim_offsets", false},
            {"use_regex", false}};
  }
  Json single = Json::array(), pair = Json::array(), special = Json::object();
  for (const char* name : {"A", "B"}) {
    Json parts = Json::array();
    const auto token = [&](const std::optional<int32_t>& id) {
      if (!id) return;
      const std::string piece = tokenizer.Piece(*id);
      parts.push_back({{"SpecialToken", {{"id", piece}, {"type_id", 0}}}});
      special[piece] = {{"id", piece}, {"ids", {*id}}, {"tokens", {piece}}};
    };
    token(bos);
    parts.push_back({{"Sequence", {{"id", name}, {"type_id", 0}}}});
    token(eos);
    if (*name == 'A') single = parts;
    pair.insert(pair.end(), parts.begin(), parts.end());
  }
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", pair},
          {"special_tokens", special}};
}

Json TokenizerJsonOf(const GgufFile& gguf, const Tokenizer& tokenizer, bool adds_eos) {
  const auto& pieces = ListOf<std::string>(gguf, "tokenizer.ggml.tokens");
  const auto& types = ListOf<int64_t>(gguf, "tokenizer.ggml.token_type");
  const auto pre = gguf.metadata.find("tokenizer.ggml.pre");
  const BpePattern* pattern =
      pre == gguf.metadata.end() ? nullptr : FindBpePattern(pre->second.AsString("pre"));
  if (pattern == nullptr) {
    throw Error(ErrorCode::kUnsupported,
                "tokenizer.ggml.pre: missing, so how words are cut has to be guessed; "
                "--no-tokenizer converts the weights alone");
  }
  Json added = Json::array(), vocab = Json::object();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const int64_t type = types.empty() ? 1 : types[i];
    vocab[pieces[i]] = i;
    if (type != static_cast<int64_t>(SpmType::kControl) &&
        type != static_cast<int64_t>(SpmType::kUserDefined) &&
        type != static_cast<int64_t>(SpmType::kUnknown)) {
      continue;
    }
    added.push_back({{"id", i},
                     {"content", pieces[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", type != static_cast<int64_t>(SpmType::kUserDefined)}});
  }
  Json j = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
  j["added_tokens"] = added;
  j["normalizer"] = pattern->nfc ? Json{{"type", "NFC"}} : Json(nullptr);
  j["pre_tokenizer"] = PreTokenizerOf(*pattern);
  j["post_processor"] = PostProcessor(tokenizer, adds_eos);
  j["decoder"] = {{"type", "ByteLevel"},
                  {"add_prefix_space", true},
                  {"trim_offsets", true},
                  {"use_regex", true}};
  j["model"] = {{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", nullptr},
                {"continuing_subword_prefix", nullptr},
                {"end_of_word_suffix", nullptr},
                {"fuse_unk", false},
                {"byte_fallback", false},
                {"ignore_merges", pattern->ignore_merges},
                {"vocab", vocab},
                {"merges", ListOf<std::string>(gguf, "tokenizer.ggml.merges")}};
  return j;
}

Json TemplatesOf(const std::map<std::string, std::string>& templates) {
  if (templates.size() == 1 && templates.begin()->first == "default") {
    return templates.begin()->second;
  }
  Json list = Json::array();
  for (const auto& [name, text] : templates) list.push_back({{"name", name}, {"template", text}});
  return list;
}

}  // namespace

Keys TokenizerKeysOfFolder(const std::string& folder, int64_t vocab_size) {
  const auto tokenizer = LoadTokenizerFolder(folder);
  const std::string as_json = (fs::path(folder) / "tokenizer.json").string();
  const std::string as_model = (fs::path(folder) / "tokenizer.model").string();
  Keys keys;
  if (FileExists(as_model)) {
    keys = SentencePieceKeys(as_model, *tokenizer, vocab_size);
  } else {
    const auto file = MappedFile::Open(as_json);
    const nlohmann::json document = ParseJson(file->text(), as_json);
    keys = ByteLevelKeys(JsonNode{document, as_json, ""}, vocab_size);
  }
  if (const auto bos = tokenizer->bos_id()) {
    keys["tokenizer.ggml.bos_token_id"] = {int64_t{*bos}, GgufType::kU32};
  }
  if (const auto eos = tokenizer->eos_id()) {
    keys["tokenizer.ggml.eos_token_id"] = {int64_t{*eos}, GgufType::kU32};
  }
  keys["tokenizer.ggml.add_bos_token"] = {tokenizer->adds_bos(), GgufType::kBool};
  return keys;
}

std::map<std::string, std::string> TokenizerFilesOfGguf(const GgufFile& gguf,
                                                        const TokenizerExtras& extras) {
  const auto tokenizer = LoadTokenizerGguf(gguf);
  const std::string file = gguf.file ? gguf.file->path() : "GGUF metadata";
  std::map<std::string, std::string> files;
  const std::string model = gguf.metadata.at("tokenizer.ggml.model").AsString("model");
  Json config = {{"add_bos_token", tokenizer->adds_bos()}};
  if (extras.adds_eos) config["add_eos_token"] = true;
  if (const auto bos = tokenizer->bos_id()) config["bos_token"] = tokenizer->Piece(*bos);
  if (const auto eos = tokenizer->eos_id()) config["eos_token"] = tokenizer->Piece(*eos);
  for (const auto& [role, id] : extras.ids) config[role + "_token"] = tokenizer->Piece(id);
  config["clean_up_tokenization_spaces"] = false;
  if (model == "llama") {
    files["tokenizer.model"] = SerializeSpmModel(SpmModelOfGguf(gguf));
    config["tokenizer_class"] = "LlamaTokenizer";
  } else {
    const Json json = TokenizerJsonOf(gguf, *tokenizer, extras.adds_eos);
    files["tokenizer.json"] = DumpJson(json, -1, file + ": tokenizer.ggml.tokens");
    config["tokenizer_class"] = "PreTrainedTokenizerFast";
  }
  if (!extras.chat_templates.empty()) config["chat_template"] = TemplatesOf(extras.chat_templates);
  files["tokenizer_config.json"] =
      DumpJson(config, 2, file + ": tokenizer.chat_template and special tokens") + "\n";
  return files;
}

}  // namespace ropewalk::internal
