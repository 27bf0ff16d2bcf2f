#include "src/tokenizer/spm_tokenizer.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <limits>
#include <unordered_set>

#include "ropewalk/base/error.h"
#include "ropewalk/base/hash.h"
#include "src/tokenizer/unicode.h"

namespace ropewalk::internal {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581

class SpmTokenizer : public Tokenizer {
 public:
  explicit SpmTokenizer(SpmParts parts) : parts_(std::move(parts)) {
    CheckSpmModel(parts_.model, parts_.file);
    kind_ = parts_.kind;
    hash_ = parts_.hash;
    bos_id_ = parts_.bos;
    eos_id_ = parts_.eos;
    adds_bos_ = parts_.adds_bos;
    back_ = parts_.back;
    LoadProcessor();
    for (std::size_t id = 0; id < parts_.model.pieces.size(); ++id) {
      const SpmPiece& piece = parts_.model.pieces[id];
      if (piece.type != SpmType::kControl && piece.type != SpmType::kUnknown) continue;
      AddMatch({.content = piece.piece, .id = static_cast<int32_t>(id), .special = true});
    }
    for (const AddedToken& token : parts_.added) AddMatch(token);
  }

  using Tokenizer::Encode;
  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions& options) const override {
    if (text.size() > std::numeric_limits<int32_t>::max() / 4) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("text: {} bytes at once; at most {} can be tokenized", text.size(),
                              std::numeric_limits<int32_t>::max() / 4));
    }
    std::string repaired;
    if (!IsValidUtf8(text)) text = repaired = ValidUtf8(text);
    std::vector<int32_t> ids;
    std::vector<int> some;
    for (const AddedPiece& piece : matcher_.Split(text, options.special)) {
      if (piece.id >= 0) {
        ids.push_back(piece.id);
        continue;
      }
      const auto status = processor_.Encode(piece.text, &some);
      if (!status.ok()) {
        throw Error(ErrorCode::kInvalidArgument, parts_.file + ": " + status.ToString());
      }
      ids.insert(ids.end(), some.begin(), some.end());
    }
    return ids;
  }

  std::string Decode(std::span<const int32_t> ids) const override {
    const SpmModel& model = parts_.model;
    std::string out;
    // The space in front of the text is the tokenizer's own.
    bool strip = model.add_dummy_prefix || model.remove_extra_whitespaces;
    for (const int32_t id : ids) {
      if (const AddedToken* token = FindAdded(id)) {
        out += token->content;
        continue;
      }
      const SpmPiece& piece = PieceAt(id);
      if (piece.type == SpmType::kControl) continue;
      if (piece.type == SpmType::kUnknown) {
        out += model.unk_surface;
      } else if (piece.type == SpmType::kByte) {
        out += static_cast<char>(std::stoi(piece.piece.substr(3, 2), nullptr, 16));
      } else {
        std::string_view text = piece.piece;
        if (strip && out.empty() && text.starts_with(kSpace)) {
          text.remove_prefix(kSpace.size());
          strip = model.remove_extra_whitespaces;
        }
        AppendSpaced(text, &out);
      }
    }
    return out;
  }

  std::string Piece(int32_t id) const override {
    if (const AddedToken* token = FindAdded(id)) return token->content;
    return PieceAt(id).piece;
  }
  int64_t vocab_size() const override { return end_id_; }

 private:
  void LoadProcessor() {
    const std::string proto = SerializeSpmModel(parts_.model);
    std::string problem;
    try {
      const auto status = processor_.LoadFromSerializedProto(proto);
      if (!status.ok()) problem = status.ToString();
    } catch (const std::exception& error) {  // its trie builder throws
      problem = error.what();
    }
    if (!problem.empty()) {
      throw Error(ErrorCode::kInvalidFile,
                  fmt::format("{}: the SentencePiece library refuses this model: {}", parts_.file,
                              problem));
    }
    end_id_ = static_cast<int64_t>(parts_.model.pieces.size());
    const int64_t limit = 2 * end_id_ + 65536;
    for (const AddedToken& token : parts_.added) {
      if (token.id < static_cast<int64_t>(parts_.model.pieces.size()) || token.id >= limit) {
        throw Error(
            ErrorCode::kInvalidFile,
            fmt::format("{}: the added token '{}' has id {}; ids from {} to {} are expected",
                        parts_.file, token.content.substr(0, 80), token.id,
                        parts_.model.pieces.size(), limit - 1));
      }
      end_id_ = std::max(end_id_, int64_t{token.id} + 1);
    }
  }
  void AddMatch(const AddedToken& token) {
    if (token.content.size() <= AddedMatcher::kMaxBytes) matcher_.Add(token, token.content);
  }
  const AddedToken* FindAdded(int32_t id) const {
    for (const AddedToken& token : parts_.added) {
      if (token.id == id) return &token;
    }
    return nullptr;
  }
  const SpmPiece& PieceAt(int32_t id) const {
    if (id < 0 || id >= static_cast<int64_t>(parts_.model.pieces.size())) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("token id {} is not in the vocabulary of {} (ids below {})", id,
                              parts_.file, end_id_));
    }
    return parts_.model.pieces[static_cast<std::size_t>(id)];
  }
  static void AppendSpaced(std::string_view text, std::string* out) {
    while (!text.empty()) {
      if (text.starts_with(kSpace)) {
        out->push_back(' ');
        text.remove_prefix(kSpace.size());
      } else {
        out->push_back(text.front());
        text.remove_prefix(1);
      }
    }
  }

  SpmParts parts_;
  sentencepiece::SentencePieceProcessor processor_;
  AddedMatcher matcher_;
  int64_t end_id_ = 0;
};

std::optional<int32_t> FindPiece(const SpmModel& model, std::string_view piece) {
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    if (model.pieces[id].piece == piece) return static_cast<int32_t>(id);
  }
  return std::nullopt;
}

}  // namespace

std::unique_ptr<Tokenizer> MakeSpmTokenizer(SpmParts parts) {
  return std::make_unique<SpmTokenizer>(std::move(parts));
}

std::unique_ptr<Tokenizer> ReadTokenizerModel(std::string_view proto, const std::string& file,
                                              const SpecialTokens& special,
                                              std::vector<AddedToken> added) {
  SpmParts parts;
  parts.model = ParseSpmModel(proto, file);
  parts.file = file;
  const auto id_of = [&](const std::optional<std::string>& token,
                         const std::string& otherwise) -> std::optional<int32_t> {
    if (!token) return FindPiece(parts.model, otherwise);
    auto found = FindPiece(parts.model, *token);
    for (const AddedToken& one : added) {
      if (!found && one.content == *token) found = one.id;
    }
    if (!found) {
      throw Error(ErrorCode::kInvalidFile,
                  fmt::format("{}: '{}', which tokenizer_config.json names, is no piece", file,
                              token->substr(0, 80)));
    }
    return found;
  };
  parts.bos = id_of(special.bos_token, parts.model.bos_piece);
  parts.eos = id_of(special.eos_token, parts.model.eos_piece);
  parts.adds_bos = special.add_bos.value_or(true) && parts.bos.has_value();
  parts.added = std::move(added);
  std::erase_if(parts.added, [&](const AddedToken& token) {  // restates a piece of the model
    return token.id >= 0 && token.id < static_cast<int64_t>(parts.model.pieces.size()) &&
           parts.model.pieces[static_cast<std::size_t>(token.id)].piece == token.content;
  });
  parts.kind = "SentencePiece (tokenizer.model)";
  parts.hash = HashHex(proto);
  return MakeSpmTokenizer(std::move(parts));
}

}  // namespace ropewalk::internal
