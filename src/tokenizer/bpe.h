// One word in, ids out: the merge step of byte-pair encoding, where ranks decide and ties go to the
// left, WordPiece's longest match, or the likeliest pieces of a unigram model.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ropewalk::internal {

struct StringHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>{}(text);
  }
};
using Vocab = std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>>;

struct BpeMerge {
  int32_t left, right, merged;
};

struct BpeOptions {
  bool byte_fallback = false;  // unknown characters become <0xXX> tokens where all are there
  bool fuse_unk = false;       // one unknown token for a run of unknown characters
  bool ignore_merges = false;  // a word that is a token is that token
  int32_t unk_id = -1;  // -1: unknown characters are dropped, as the original does; Unigram: Error
  // WordPiece (Devlin et al. 2018): no merges; from the left the longest piece, those within a word
  // spelt with `continuation` before them; a word of which a part is unknown is unknown.
  bool word_piece = false;
  std::string continuation = {};
  int64_t longest_word = 100;  // characters; longer ones are unknown
  // Unigram (Kudo 2018, arXiv 1804.10959): no merges; log probability of each id. Not empty: this.
  std::vector<double> scores = {};
};

class Bpe {
 public:
  Bpe() = default;
  // A later merge of the same pair replaces an earlier one.
  Bpe(Vocab vocab, const std::vector<BpeMerge>& merges, const BpeOptions& options);

  const Vocab& vocab() const { return vocab_; }

  struct Symbol {
    int32_t id, prev, next;  // neighbours by index; -1: none
    bool gone;
  };
  struct Candidate {
    uint32_t rank;
    int32_t at, merged;
  };
  struct Scratch {  // reused between words
    std::vector<Symbol> symbols;
    std::vector<Candidate> queue;
  };
  void EncodeWord(std::string_view word, Scratch* scratch, std::vector<int32_t>* out) const;

 private:
  void EncodeWordPieces(std::string_view word, std::vector<int32_t>* out) const;
  void EncodeUnigram(std::string_view word, std::vector<int32_t>* out) const;
  void AddUnknown(std::string_view text, std::vector<int32_t>* out) const;
  struct Slot {
    uint64_t pair = kEmpty;
    uint32_t rank = 0;
    int32_t merged = 0;
  };
  static constexpr uint64_t kEmpty = ~uint64_t{0};

  std::size_t SlotOf(uint64_t pair) const;
  const Slot* Find(int32_t left, int32_t right) const;
  void Push(int32_t at, Scratch* scratch) const;
  void ReadSymbols(std::string_view word, std::vector<Symbol>* symbols) const;

  Vocab vocab_;
  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
  std::array<int32_t, 256> byte_ids_{};
  BpeOptions options_;
  std::size_t longest_piece_ = 0;  // bytes, of a unigram model
  double unknown_score_ = 0;
};

}  // namespace ropewalk::internal
