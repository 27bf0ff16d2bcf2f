#include "src/tokenizer/added.h"

#include <algorithm>

#include "src/tokenizer/unicode.h"

namespace ropewalk::internal {
namespace {

std::size_t LastChar(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && IsContinuation(text[at])) --at;
  return at;
}

bool StandsAlone(std::string_view text, std::size_t begin, std::size_t end) {
  const bool before =
      begin > 0 && IsWordChar(DecodeChar(text.substr(LastChar(text.substr(0, begin)))));
  const bool after = end < text.size() && IsWordChar(DecodeChar(text.substr(end)));
  return !before && !after;
}

std::size_t SkipSpacesBack(std::string_view text, std::size_t at) {
  while (at > 0) {
    const std::size_t last = LastChar(text.substr(0, at));
    if (!IsWhiteSpace(DecodeChar(text.substr(last)))) break;
    at = last;
  }
  return at;
}

std::size_t SkipSpaces(std::string_view text, std::size_t at) {
  while (at < text.size() && IsWhiteSpace(DecodeChar(text.substr(at)))) at += CharBytes(text[at]);
  return at;
}

}  // namespace

void AddedMatcher::Add(const AddedToken& token, std::string_view pattern) {
  if (pattern.empty()) return;
  uint32_t at = 0;
  for (const char byte : pattern) {
    const Node* next = Step(nodes_[at], byte);
    if (next != nullptr) {
      at = static_cast<uint32_t>(next - nodes_.data());
    } else {
      const auto fresh = static_cast<uint32_t>(nodes_.size());
      nodes_[at].next.emplace_back(byte, fresh);
      nodes_.emplace_back();
      at = fresh;
    }
  }
  // Two tokens with one pattern (equal after normalisation): the first wins, as in the original.
  if (nodes_[at].token >= 0) return;
  nodes_[at].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
}

const AddedMatcher::Node* AddedMatcher::Step(const Node& node, char byte) const {
  for (const auto& [label, target] : node.next) {
    if (label == byte) return &nodes_[target];
  }
  return nullptr;
}

AddedMatcher::Match AddedMatcher::LongestAt(std::string_view text, std::size_t at) const {
  Match best{at, -1};
  const Node* node = nodes_.data();
  for (std::size_t i = at; i < text.size(); ++i) {
    node = Step(*node, text[i]);
    if (node == nullptr) break;
    if (node->token >= 0) best = {i + 1, node->token};
  }
  return best;
}

std::vector<AddedPiece> AddedMatcher::Split(std::string_view text, bool special) const {
  std::vector<AddedPiece> pieces;
  std::size_t done = 0;
  const auto add_text = [&](std::size_t end) {
    if (done < end) pieces.push_back({text.substr(done, end - done), -1});
  };
  for (std::size_t at = 0; !tokens_.empty() && at < text.size();) {
    const Match match = LongestAt(text, at);
    if (match.token < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<std::size_t>(match.token)];
    std::size_t begin = at, end = match.end;
    at = end;
    if (token.special && !special) continue;
    if (token.single_word && !StandsAlone(text, begin, end)) continue;
    if (token.lstrip) begin = std::max(SkipSpacesBack(text.substr(0, begin), begin), done);
    if (token.rstrip) end = SkipSpaces(text, end);
    add_text(begin);
    pieces.push_back({text.substr(std::min(begin, end), end - std::min(begin, end)), token.id});
    done = end;
  }
  add_text(text.size());
  return pieces;
}

}  // namespace ropewalk::internal
