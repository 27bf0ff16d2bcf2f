// Tokenizers inside GGUF files: byte-level BPE ("gpt2") and SentencePiece, of pairs ("llama") or by
// probabilities ("t5").
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "ropewalk/base/error.h"
#include "ropewalk/base/hash.h"
#include "src/io/gguf_file.h"
#include "src/tokenizer/bpe_patterns.h"
#include "src/tokenizer/bpe_tokenizer.h"
#include "src/tokenizer/export.h"
#include "src/tokenizer/json.h"
#include "src/tokenizer/spm_tokenizer.h"

namespace ropewalk {
namespace internal {
namespace {

constexpr char kModelKey[] = "tokenizer.ggml.model";
constexpr char kTokens[] = "tokenizer.ggml.tokens";
constexpr char kMerges[] = "tokenizer.ggml.merges";
constexpr char kScores[] = "tokenizer.ggml.scores";
constexpr char kTypes[] = "tokenizer.ggml.token_type";
constexpr char kRules[] = "tokenizer.ggml.precompiled_charsmap";

// The metadata under names, with errors that name file and key.
class Metadata {
 public:
  explicit Metadata(const GgufFile& gguf)
      : gguf_(gguf), file_(gguf.file ? gguf.file->path() : "GGUF metadata") {}

  const std::string& file() const { return file_; }
  std::string Where(const std::string& key) const { return file_ + ": " + key; }
  const GgufValue* Find(const std::string& key) const {
    const auto found = gguf_.metadata.find(key);
    return found == gguf_.metadata.end() ? nullptr : &found->second;
  }
  std::string Text(const std::string& key, const std::string& otherwise) const {
    const GgufValue* value = Find(key);
    return value == nullptr ? otherwise : WithFile(file_, [&] { return value->AsString(key); });
  }
  bool Flag(const std::string& key, bool otherwise) const {
    const GgufValue* value = Find(key);
    return value == nullptr ? otherwise : WithFile(file_, [&] { return value->AsBool(key); });
  }
  // An array, empty where absent; `count` elements are expected where it is there.
  template <class T>
  const std::vector<T>& List(const std::string& key, std::size_t count) const {
    static const std::vector<T> none;
    const GgufValue* value = Find(key);
    if (value == nullptr) return none;
    const auto* list = std::get_if<std::vector<T>>(&value->value);
    if (list == nullptr) {
      throw Error(ErrorCode::kInvalidFile, Where(key) + ": an array of another type is expected");
    }
    if (count != 0 && list->size() != count) {
      throw Error(ErrorCode::kInvalidFile,
                  fmt::format("{}: {} elements for {} tokens", Where(key), list->size(), count));
    }
    return *list;
  }
  const std::vector<std::string>& Tokens() const {
    const auto& tokens = List<std::string>(kTokens, 0);
    if (tokens.empty()) {
      throw Error(ErrorCode::kInvalidFile, Where(kTokens) + ": missing or empty");
    }
    return tokens;
  }
  SpmType TypeOf(const std::vector<int64_t>& types, std::size_t id) const {
    if (types.empty()) return SpmType::kNormal;
    // 0 (undefined) is what some converters write for tokens that nothing produces.
    if (types[id] == 0) return SpmType::kUnused;
    if (types[id] < 1 || types[id] > 6) {
      throw Error(ErrorCode::kInvalidFile,
                  fmt::format("{}: token {} has type {}; 1 to 6 are expected", Where(kTypes), id,
                              types[id]));
    }
    return static_cast<SpmType>(types[id]);
  }
  std::optional<int32_t> SpecialId(const std::string& key, std::optional<int64_t> otherwise,
                                   std::size_t count) const {
    const GgufValue* value = Find(key);
    const auto size = static_cast<int64_t>(count);
    if (value != nullptr) {
      return CheckedId(WithFile(file_, [&] { return value->AsInt(key); }), size, Where(key));
    }
    if (!otherwise || *otherwise >= size) return std::nullopt;
    return static_cast<int32_t>(*otherwise);
  }
  // An array of bytes, signed or not; empty where absent.
  std::string Bytes(const std::string& key) const {
    std::string bytes;
    for (const int64_t byte : List<int64_t>(key, 0)) {
      if (byte < -128 || byte > 255) {
        throw Error(ErrorCode::kInvalidFile, fmt::format("{}: {} is no byte", Where(key), byte));
      }
      bytes.push_back(static_cast<char>(byte));
    }
    return bytes;
  }
  // Of everything that decides the ids.
  std::string Hash() const {
    Hasher hasher;
    const auto add = [&](const std::string& text) {
      hasher.UpdateValue(text.size());
      hasher.Update(text);
    };
    for (const char* key : {"tokenizer.ggml.model", "tokenizer.ggml.pre"}) add(Text(key, ""));
    for (const char* key : {kTokens, kMerges}) {
      hasher.UpdateValue(List<std::string>(key, 0).size());
      for (const std::string& text : List<std::string>(key, 0)) add(text);
    }
    for (const double score : List<double>(kScores, 0)) hasher.UpdateValue(score);
    for (const int64_t type : List<int64_t>(kTypes, 0)) hasher.UpdateValue(type);
    hasher.UpdateValue(Flag("tokenizer.ggml.add_space_prefix", true));
    if (const std::string rules = Bytes(kRules); !rules.empty()) add(rules);
    return hasher.Hex();
  }

 private:
  const GgufFile& gguf_;
  std::string file_;
};

const BpePattern& PatternOf(const Metadata& metadata) {
  const std::string key = "tokenizer.ggml.pre";
  std::string pre = metadata.Text(key, "");
  if (pre.empty()) {
    // Converted before the key existed. Two architectures only ever had one pattern.
    const std::string architecture = metadata.Text("general.architecture", "");
    pre = architecture == "gptneox" ? "gpt-neox" : architecture == "gpt2" ? "gpt-2" : "";
  }
  if (pre.empty()) {
    throw Error(ErrorCode::kInvalidFile,
                metadata.Where(key) +
                    ": missing, so how this tokenizer cuts words is unknown; convert "
                    "the model again, or tokenize elsewhere and give the ids with "
                    "--ids");
  }
  const BpePattern* pattern = FindBpePattern(pre);
  if (pattern == nullptr) {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("{}: '{}' is not known here (known: {}); tokenize elsewhere and give the "
                    "ids with --ids",
                    metadata.Where(key), pre.substr(0, 80), fmt::join(BpePatternNames(), ", ")));
  }
  return *pattern;
}

std::vector<BpeMerge> ReadMerges(const Metadata& metadata, const Vocab& vocab) {
  const auto& lines = metadata.List<std::string>(kMerges, 0);
  if (lines.empty()) {
    throw Error(ErrorCode::kInvalidFile, metadata.Where(kMerges) + ": missing or empty");
  }
  std::vector<BpeMerge> merges;
  merges.reserve(lines.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    // From 1: the left token may itself begin with a space in vocabularies of plain text.
    const std::size_t space = line.find(' ', 1);
    const auto id = [&](const std::string& token) {
      const auto found = vocab.find(token);
      if (space == std::string::npos || found == vocab.end()) {
        throw Error(ErrorCode::kInvalidFile,
                    fmt::format("{}[{}]: '{}' is not two known tokens that make a third",
                                metadata.Where(kMerges), i, line.substr(0, 80)));
      }
      return found->second;
    };
    const std::string left = line.substr(0, space);
    const std::string right = space == std::string::npos ? "" : line.substr(space + 1);
    merges.push_back({id(left), id(right), id(left + right)});
  }
  return merges;
}

std::unique_ptr<Tokenizer> ReadByteLevel(const Metadata& metadata) {
  const BpePattern& pattern = PatternOf(metadata);
  const auto& tokens = metadata.Tokens();
  const auto& types = metadata.List<int64_t>(kTypes, tokens.size());
  BpeParts parts;
  parts.file = metadata.file();
  Vocab vocab;
  vocab.reserve(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    const std::string piece = tokens[i].empty() ? fmt::format("[EMPTY_{}]", i) : tokens[i];
    if (!vocab.emplace(piece, id).second) {
      throw Error(ErrorCode::kInvalidFile,
                  fmt::format("{}: '{}' is token {} and token {}", metadata.Where(kTokens),
                              piece.substr(0, 80), vocab.find(piece)->second, id));
    }
    const SpmType type = metadata.TypeOf(types, i);
    if (type == SpmType::kControl || type == SpmType::kUserDefined || type == SpmType::kUnknown) {
      parts.added.push_back({.content = piece, .id = id, .special = type != SpmType::kUserDefined});
    }
  }
  const std::vector<BpeMerge> merges = ReadMerges(metadata, vocab);
  // A word that happens to be spelled like an added token is not that token.
  Vocab words = std::move(vocab);
  for (const AddedToken& token : parts.added) words.erase(token.content);
  parts.bpe = Bpe(std::move(words), merges, {.ignore_merges = pattern.ignore_merges});
  if (pattern.nfc) parts.normalizer.emplace_back(NormalForm::kNfc);
  for (const char* cut : pattern.cuts) {
    parts.words.push_back(SplitStep{Regex(cut, metadata.Where("tokenizer.ggml.pre"))});
  }
  parts.words.push_back(ByteMapStep{});
  parts.decoding = {.steps = {ByteLevelDecode{}}, .added_as_are = true};
  auto tokenizer =
      std::make_unique<BpeTokenizer>(std::move(parts), "byte-level BPE (GGUF)", metadata.Hash());
  const auto bos = metadata.SpecialId("tokenizer.ggml.bos_token_id", {}, tokens.size());
  tokenizer->SetSpecial(
      bos, metadata.SpecialId("tokenizer.ggml.eos_token_id", {}, tokens.size()),
      metadata.Flag("tokenizer.ggml.add_bos_token", pattern.add_bos && bos.has_value()));
  return tokenizer;
}

std::string Escaped(std::string text) {
  for (std::size_t at = 0; (at = text.find(' ', at)) != std::string::npos;) {
    text.replace(at, 1, "\xE2\x96\x81");
  }
  return text;
}

SpmModel ReadSpmModel(const Metadata& metadata, bool unigram) {
  const auto& tokens = metadata.Tokens();
  const auto& types = metadata.List<int64_t>(kTypes, tokens.size());
  const auto& scores = metadata.List<double>(kScores, tokens.size());
  if (scores.empty()) {
    throw Error(ErrorCode::kInvalidFile, metadata.Where(kScores) + ": missing or empty");
  }
  SpmModel model;
  model.model_type = unigram ? SpmModel::kUnigram : SpmModel::kBpe;
  model.charsmap = metadata.Bytes(kRules);
  model.add_dummy_prefix = metadata.Flag("tokenizer.ggml.add_space_prefix", true);
  model.remove_extra_whitespaces = metadata.Flag("tokenizer.ggml.remove_extra_whitespaces", false);
  const auto unknown =
      metadata.SpecialId("tokenizer.ggml.unknown_token_id", unigram ? 2 : 0, tokens.size());
  model.pieces.reserve(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    SpmType type = metadata.TypeOf(types, i);
    // SentencePiece has one unknown piece. Converters mark padding as unknown too, and the true one
    // as control.
    if (unknown == static_cast<int32_t>(i)) {
      type = SpmType::kUnknown;
    } else if (type == SpmType::kUnknown) {
      type = SpmType::kUnused;
    }
    model.byte_fallback |= type == SpmType::kByte;
    // llama.cpp's converter writes these as they stand in a text, the SentencePiece model with
    // U+2581 for each space (Gemma's runs of spaces).
    std::string piece = type == SpmType::kUserDefined ? Escaped(tokens[i]) : tokens[i];
    model.pieces.push_back({std::move(piece), static_cast<float>(scores[i]), type});
  }
  return model;
}

std::unique_ptr<Tokenizer> ReadSentencePiece(const Metadata& metadata, bool unigram) {
  SpmParts parts;
  parts.file = metadata.file();
  parts.model = ReadSpmModel(metadata, unigram);
  const std::size_t tokens = parts.model.pieces.size();
  parts.kind = "SentencePiece (GGUF)";
  parts.hash = metadata.Hash();
  // What llama.cpp takes where the file does not say.
  const auto otherwise = [&](int64_t id) { return unigram ? std::nullopt : std::optional(id); };
  parts.bos = metadata.SpecialId("tokenizer.ggml.bos_token_id", otherwise(1), tokens);
  parts.eos = metadata.SpecialId("tokenizer.ggml.eos_token_id", unigram ? 1 : 2, tokens);
  parts.adds_bos = metadata.Flag("tokenizer.ggml.add_bos_token", parts.bos.has_value());
  if (unigram && parts.eos && metadata.Flag("tokenizer.ggml.add_eos_token", true)) {
    parts.back = {*parts.eos};
  }
  return MakeSpmTokenizer(std::move(parts));
}

}  // namespace

SpmModel SpmModelOfGguf(const GgufFile& gguf) {
  const Metadata metadata(gguf);
  return ReadSpmModel(metadata, metadata.Text(kModelKey, "") == "t5");
}

}  // namespace internal

std::unique_ptr<Tokenizer> LoadTokenizerGguf(const GgufFile& gguf) {
  const internal::Metadata metadata(gguf);
  const std::string key = internal::kModelKey;
  const std::string model = metadata.Text(key, "");
  if (model == "gpt2") return internal::ReadByteLevel(metadata);
  if (model == "llama" || model == "t5") {
    return internal::ReadSentencePiece(metadata, model == "t5");
  }
  if (model.empty() || model == "no_vocab" || model == "none") {
    throw Error(ErrorCode::kInvalidFile,
                metadata.Where(key) + (model.empty() ? ": missing" : ": " + model) +
                    ": this file holds no tokenizer; give the ids with --ids");
  }
  throw Error(
      ErrorCode::kUnsupported,
      fmt::format(
          "{}: '{}' is not known here (known: gpt2, llama, t5); tokenize elsewhere and give "
          "the ids with --ids",
          metadata.Where(key), model.substr(0, 80)));
}

}  // namespace ropewalk
