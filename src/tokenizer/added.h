// Tokens that are found in the text before anything else looks at it: special ones, and plain ones
// such as runs of spaces.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ropewalk::internal {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool special = false;
  bool normalized = false;   // matched after normalisation, against the normalised content
  bool single_word = false;  // not inside a word
  bool lstrip = false, rstrip = false;  // takes the white space before, after it along
};

// One piece of a text: an added token, or text between them (id -1).
struct AddedPiece {
  std::string_view text;
  int32_t id;
};

// Finds added tokens, leftmost first and the longest of those.
class AddedMatcher {
 public:
  // Contents are at most this long, which bounds the search by text size x this.
  static constexpr std::size_t kMaxBytes = 4096;

  // Matches `pattern` (the content, normalised where the token says so).
  void Add(const AddedToken& token, std::string_view pattern);
  // A special token takes its place in the search but stays text unless `special`.
  std::vector<AddedPiece> Split(std::string_view text, bool special) const;

 private:
  struct Node {
    std::vector<std::pair<char, uint32_t>> next;
    int32_t token = -1;
  };
  struct Match {
    std::size_t end;
    int32_t token;
  };
  const Node* Step(const Node& node, char byte) const;
  Match LongestAt(std::string_view text, std::size_t at) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_ = std::vector<Node>(1);
};

}  // namespace ropewalk::internal
