#include "src/tokenizer/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "ropewalk/base/error.h"
#include "src/tokenizer/unicode.h"

namespace ropewalk::internal {
namespace {

// Order of a max-heap: the smallest rank, then the leftmost, on top.
bool Later(const Bpe::Candidate& a, const Bpe::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
}

}  // namespace

Bpe::Bpe(Vocab vocab, const std::vector<BpeMerge>& merges, const BpeOptions& options)
    : vocab_(std::move(vocab)), slots_(std::bit_ceil(2 * merges.size() + 2)), options_(options) {
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const BpeMerge& merge = merges[rank];
    const uint64_t pair =
        static_cast<uint64_t>(merge.left) << 32 | static_cast<uint32_t>(merge.right);
    slots_[SlotOf(pair)] = {pair, static_cast<uint32_t>(rank), merge.merged};
  }
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = vocab_.find(fmt::format("<0x{:02X}>", byte));
    byte_ids_[static_cast<std::size_t>(byte)] = found == vocab_.end() ? -1 : found->second;
  }
  if (options_.scores.empty()) return;
  for (const auto& [piece, id] : vocab_) longest_piece_ = std::max(longest_piece_, piece.size());
  constexpr double kPenalty = 10;  // of an unknown character, below the least likely piece
  unknown_score_ = *std::min_element(options_.scores.begin(), options_.scores.end()) - kPenalty;
}

std::size_t Bpe::SlotOf(uint64_t pair) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = (pair * 0x9E3779B97F4A7C15u) >> 20 & mask;
  while (slots_[at].pair != kEmpty && slots_[at].pair != pair) at = (at + 1) & mask;
  return at;
}

const Bpe::Slot* Bpe::Find(int32_t left, int32_t right) const {
  const Slot& slot =
      slots_[SlotOf(static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right))];
  return slot.pair == kEmpty ? nullptr : &slot;
}

void Bpe::Push(int32_t at, Scratch* scratch) const {
  const Symbol& symbol = scratch->symbols[static_cast<std::size_t>(at)];
  const Slot* slot = Find(symbol.id, scratch->symbols[static_cast<std::size_t>(symbol.next)].id);
  if (slot == nullptr) return;
  scratch->queue.push_back({slot->rank, at, slot->merged});
  std::push_heap(scratch->queue.begin(), scratch->queue.end(), Later);
}

void Bpe::ReadSymbols(std::string_view word, std::vector<Symbol>* symbols) const {
  symbols->clear();
  const auto add = [&](int32_t id) {
    const auto index = static_cast<int32_t>(symbols->size());
    symbols->push_back({id, index - 1, index + 1, false});
  };
  bool unknown = false;  // an unknown token that waits: more characters may fuse with it
  for (std::size_t at = 0; at < word.size();) {
    const std::string_view c = word.substr(at, CharBytes(word[at]));
    at += c.size();
    if (const auto found = vocab_.find(c); found != vocab_.end()) {
      if (unknown) add(options_.unk_id);
      unknown = false;
      add(found->second);
      continue;
    }
    if (options_.byte_fallback && std::all_of(c.begin(), c.end(), [&](char byte) {
          return byte_ids_[static_cast<uint8_t>(byte)] >= 0;
        })) {
      for (const char byte : c) add(byte_ids_[static_cast<uint8_t>(byte)]);
      continue;
    }
    if (options_.unk_id < 0) continue;
    if (unknown && !options_.fuse_unk) add(options_.unk_id);
    unknown = true;
  }
  if (unknown) add(options_.unk_id);
  if (!symbols->empty()) symbols->back().next = -1;
}

void Bpe::EncodeWordPieces(std::string_view word, std::vector<int32_t>* out) const {
  const std::size_t start = out->size();
  const auto characters =
      std::count_if(word.begin(), word.end(), [](char byte) { return !IsContinuation(byte); });
  bool known = characters <= options_.longest_word;
  std::string piece;
  for (std::size_t at = 0; known && at < word.size();) {
    std::size_t end = word.size();
    for (; end > at; --end) {
      if (end < word.size() && IsContinuation(word[end])) continue;  // inside a character
      piece.assign(at > 0 ? options_.continuation : "").append(word, at, end - at);
      if (const auto found = vocab_.find(piece); found != vocab_.end()) {
        out->push_back(found->second);
        break;
      }
    }
    known = end > at;
    at = end;
  }
  if (known) return;
  out->resize(start);
  out->push_back(options_.unk_id);
}

// A run of unknown characters: their bytes where all are pieces, else one unknown token.
void Bpe::AddUnknown(std::string_view text, std::vector<int32_t>* out) const {
  const auto id_of = [&](char byte) { return byte_ids_[static_cast<uint8_t>(byte)]; };
  if (const auto found = vocab_.find(text); found != vocab_.end()) {  // "<unk>" itself
    out->push_back(found->second);
  } else if (options_.byte_fallback &&
             std::all_of(text.begin(), text.end(), [&](char byte) { return id_of(byte) >= 0; })) {
    for (const char byte : text) out->push_back(id_of(byte));
  } else {
    out->push_back(options_.unk_id);
  }
}

// Viterbi over the characters. Of equal sums the shorter last piece wins, as in the original.
void Bpe::EncodeUnigram(std::string_view word, std::vector<int32_t>* out) const {
  struct Node {
    double score = 0;
    int64_t from = -1;  // -1: not reached
    int32_t id = 0;
  };
  std::vector<Node> nodes(word.size() + 1);
  const auto reach = [&](std::size_t from, std::size_t to, int32_t id, double score) {
    score += nodes[from].score;
    if (nodes[to].from < 0 || score > nodes[to].score) {
      nodes[to] = {score, static_cast<int64_t>(from), id};
    }
  };
  for (std::size_t at = 0; at < word.size(); at += CharBytes(word[at])) {
    const std::size_t one = CharBytes(word[at]);
    bool known = false;  // the character alone
    const std::size_t most = std::min(word.size() - at, longest_piece_);
    for (std::size_t bytes = one; bytes <= most; ++bytes) {
      if (at + bytes < word.size() && IsContinuation(word[at + bytes])) continue;
      const auto found = vocab_.find(word.substr(at, bytes));
      if (found == vocab_.end()) continue;
      known |= bytes == one;
      reach(at, at + bytes, found->second,
            options_.scores[static_cast<std::size_t>(found->second)]);
    }
    if (known) continue;
    if (options_.unk_id < 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("the text has '{}', which is no piece of the vocabulary, and the "
                              "tokenizer has no unknown token (unk_id)",
                              word.substr(at, one)));
    }
    reach(at, at + one, options_.unk_id, unknown_score_);
  }
  std::vector<std::size_t> ends;  // of the pieces, from the last
  for (std::size_t end = word.size(); end > 0; end = static_cast<std::size_t>(nodes[end].from)) {
    ends.push_back(end);
  }
  std::size_t unknown = 0, begin = 0;  // a run of unknown characters: [unknown, begin)
  for (auto end = ends.rbegin(); end != ends.rend(); begin = *end++) {
    if (nodes[*end].id == options_.unk_id) continue;
    if (unknown < begin) AddUnknown(word.substr(unknown, begin - unknown), out);
    out->push_back(nodes[*end].id);
    unknown = *end;
  }
  if (unknown < begin) AddUnknown(word.substr(unknown), out);
}

void Bpe::EncodeWord(std::string_view word, Scratch* scratch, std::vector<int32_t>* out) const {
  if (options_.word_piece) return EncodeWordPieces(word, out);
  if (!options_.scores.empty()) return EncodeUnigram(word, out);
  if (options_.ignore_merges) {
    if (const auto found = vocab_.find(word); found != vocab_.end()) {
      out->push_back(found->second);
      return;
    }
  }
  std::vector<Symbol>& symbols = scratch->symbols;
  ReadSymbols(word, &symbols);
  scratch->queue.clear();
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) Push(static_cast<int32_t>(i), scratch);
  while (!scratch->queue.empty()) {
    std::pop_heap(scratch->queue.begin(), scratch->queue.end(), Later);
    const Candidate top = scratch->queue.back();
    scratch->queue.pop_back();
    Symbol& left = symbols[static_cast<std::size_t>(top.at)];
    if (left.gone || left.next < 0) continue;
    Symbol& right = symbols[static_cast<std::size_t>(left.next)];
    // Stale when either side has grown since; compared by what it would become.
    const Slot* slot = Find(left.id, right.id);
    if (slot == nullptr || slot->merged != top.merged) continue;
    left.id = top.merged;
    left.next = right.next;
    right.gone = true;
    if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].prev = top.at;
    if (left.prev >= 0) Push(left.prev, scratch);
    if (left.next >= 0) Push(top.at, scratch);
  }
  for (const Symbol& symbol : symbols) {
    if (!symbol.gone) out->push_back(symbol.id);
  }
}

}  // namespace ropewalk::internal
