#include "src/tokenizer/bpe_tokenizer.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "ropewalk/base/error.h"

namespace ropewalk::internal {

void PieceTable::Add(int64_t id, std::string_view piece, const std::string& where) {
  // Real vocabularies have few gaps; a limit keeps an absurd id from becoming an allocation.
  const int64_t limit = 65536 + 8 * static_cast<int64_t>(expected_);
  if (id < 0 || id >= limit) {
    throw Error(ErrorCode::kInvalidFile,
                fmt::format("{}: token '{}' has id {}; {} tokens should have ids from 0 to {}",
                            where, piece.substr(0, 80), id, expected_, limit - 1));
  }
  const auto place = static_cast<std::size_t>(id);
  if (place >= index_.size()) index_.resize(place + 1, -1);
  if (index_[place] >= 0) {
    throw Error(ErrorCode::kInvalidFile,
                fmt::format("{}: tokens '{}' and '{}' have the same id {}", where,
                            pieces_[static_cast<std::size_t>(index_[place])].substr(0, 80),
                            piece.substr(0, 80), id));
  }
  index_[place] = static_cast<int32_t>(pieces_.size());
  pieces_.emplace_back(piece);
}

const std::string* PieceTable::Find(int32_t id) const {
  if (id < 0 || id >= end_id()) return nullptr;
  const int32_t place = index_[static_cast<std::size_t>(id)];
  return place < 0 ? nullptr : &pieces_[static_cast<std::size_t>(place)];
}

BpeTokenizer::BpeTokenizer(BpeParts parts, std::string kind, std::string hash)
    : parts_(std::move(parts)) {
  kind_ = std::move(kind);
  hash_ = std::move(hash);
  const Vocab& vocab = parts_.bpe.vocab();
  pieces_.Expect(vocab.size() + parts_.added.size());
  for (const auto& [piece, id] : vocab) pieces_.Add(id, piece, parts_.file + ": vocabulary");
  for (const AddedToken& token : parts_.added) {
    const std::string where = parts_.file + ": added_tokens";
    const auto same = vocab.find(token.content);
    if (same == vocab.end()) {
      pieces_.Add(token.id, token.content, where);
    } else if (same->second != token.id) {
      throw Error(ErrorCode::kInvalidFile,
                  fmt::format("{}: '{}' has id {} there and {} in the vocabulary", where,
                              token.content.substr(0, 80), token.id, same->second));
    }
    if (token.content.size() > AddedMatcher::kMaxBytes) {
      throw Error(ErrorCode::kInvalidFile,
                  fmt::format("{}: a token of {} bytes; at most {} are expected", where,
                              token.content.size(), AddedMatcher::kMaxBytes));
    }
    if (!added_ids_.emplace(token.content, token.id).second) {
      throw Error(ErrorCode::kInvalidFile,
                  fmt::format("{}: '{}' appears twice", where, token.content.substr(0, 80)));
    }
    if (token.normalized) {
      normalized_.Add(token, Normalize(parts_.normalizer, token.content));
    } else {
      raw_.Add(token, token.content);
    }
  }
  is_added_.resize(static_cast<std::size_t>(pieces_.end_id()));
  for (const AddedToken& token : parts_.added) is_added_[static_cast<std::size_t>(token.id)] = true;
}

std::vector<int32_t> BpeTokenizer::Encode(std::string_view text,
                                          const EncodeOptions& options) const {
  // Places in words are 32-bit, and normalisation may make text longer.
  if (text.size() > std::numeric_limits<int32_t>::max() / 4) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("text: {} bytes at once; at most {} can be tokenized", text.size(),
                            std::numeric_limits<int32_t>::max() / 4));
  }
  std::string repaired;
  if (!IsValidUtf8(text)) text = repaired = ValidUtf8(text);

  std::vector<int32_t> ids;
  Bpe::Scratch scratch;
  // Words repeat: their ids are kept as a range of `known`. Long words hardly ever do.
  constexpr std::size_t kLongestKept = 64;
  std::unordered_map<std::string, std::pair<std::size_t, std::size_t>, StringHash, std::equal_to<>>
      cache;
  std::vector<int32_t> known;
  const auto encode_word = [&](std::string_view word) {
    if (word.size() > kLongestKept) return parts_.bpe.EncodeWord(word, &scratch, &ids);
    auto found = cache.find(word);
    if (found == cache.end()) {
      const std::size_t begin = known.size();
      parts_.bpe.EncodeWord(word, &scratch, &known);
      found = cache.emplace(std::string(word), std::pair(begin, known.size())).first;
    }
    const auto [begin, end] = found->second;
    ids.insert(ids.end(), known.begin() + static_cast<std::ptrdiff_t>(begin),
               known.begin() + static_cast<std::ptrdiff_t>(end));
  };
  for (const AddedPiece& raw : raw_.Split(text, options.special)) {
    if (raw.id >= 0) {
      ids.push_back(raw.id);
      continue;
    }
    bool at_start = raw.text.data() == text.data();
    const std::string normal = Normalize(parts_.normalizer, std::string(raw.text));
    for (const AddedPiece& piece : normalized_.Split(normal, options.special)) {
      if (piece.id >= 0) {
        ids.push_back(piece.id);
      } else {
        const Words words = CutWords(parts_.words, std::string(piece.text), at_start);
        for (const auto& [begin, end] : words.spans) {
          encode_word(std::string_view(words.text).substr(begin, end - begin));
        }
      }
      at_start = false;
    }
  }
  return ids;
}

const std::string& BpeTokenizer::PieceOrThrow(int32_t id) const {
  const std::string* piece = pieces_.Find(id);
  if (piece == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("token id {} is not in the vocabulary of {} (ids below {})", id,
                            parts_.file, vocab_size()));
  }
  return *piece;
}

std::string BpeTokenizer::Decode(std::span<const int32_t> ids) const {
  std::string out;
  std::vector<std::string> pieces;
  for (const int32_t id : ids) {
    const std::string& piece = PieceOrThrow(id);
    if (!parts_.decoding.added_as_are || !is_added_[static_cast<std::size_t>(id)]) {
      pieces.push_back(piece);
      continue;
    }
    out += DecodePieces(parts_.decoding, std::exchange(pieces, {})) + piece;
  }
  return out + DecodePieces(parts_.decoding, std::move(pieces));
}

std::string BpeTokenizer::Piece(int32_t id) const { return PieceOrThrow(id); }

std::optional<int32_t> BpeTokenizer::IdOf(std::string_view token) const {
  if (const auto found = added_ids_.find(token); found != added_ids_.end()) return found->second;
  const Vocab& vocab = parts_.bpe.vocab();
  if (const auto found = vocab.find(token); found != vocab.end()) return found->second;
  return std::nullopt;
}

void BpeTokenizer::SetSpecial(std::optional<int32_t> bos, std::optional<int32_t> eos,
                              bool adds_bos) {
  bos_id_ = bos;
  eos_id_ = eos;
  adds_bos_ = adds_bos;
}

void BpeTokenizer::SetFrame(std::vector<int32_t> front, std::vector<int32_t> back) {
  front_ = std::move(front);
  back_ = std::move(back);
}

}  // namespace ropewalk::internal
