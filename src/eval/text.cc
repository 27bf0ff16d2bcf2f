#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_map>

#include "ropewalk/base/hash.h"
#include "ropewalk/eval/eval.h"

namespace ropewalk {
namespace {

std::string HashIds(const std::vector<int32_t>& ids) {
  Hasher hasher;
  hasher.Update("ropewalk-ids-1");
  hasher.Update(ids.data(), ids.size() * sizeof(ids[0]));
  return hasher.Hex();
}

// Bytes of one token in the middle of a text. Decoded behind another token, because SentencePiece
// drops the space of a token that begins a text; a byte piece (<0xE2>) is one byte although it
// decodes to nothing readable on its own.
int32_t BytesOf(const Tokenizer& tokenizer, int32_t before, int32_t id) {
  const std::string piece = tokenizer.Piece(id);
  if (piece.size() == 6 && piece.starts_with("<0x") && piece.back() == '>') return 1;
  const int32_t alone[] = {before};
  const int32_t both[] = {before, id};
  return static_cast<int32_t>(tokenizer.Decode(both).size()) -
         static_cast<int32_t>(tokenizer.Decode(alone).size());
}

}  // namespace

TokenText TokenizeText(const Tokenizer& tokenizer, std::string_view text,
                       const EncodeOptions& options) {
  TokenText result = TextOfIds(tokenizer.Encode(text, options));
  result.tokenizer = tokenizer.kind();
  result.tokenizer_hash = tokenizer.hash();
  const std::vector<int32_t> x = tokenizer.Encode("x");
  std::unordered_map<int32_t, int32_t> bytes_of;
  int64_t sum = 0;
  for (const int32_t id : result.ids) {
    const auto [it, added] = bytes_of.try_emplace(id, 0);
    if (added) it->second = std::max(0, BytesOf(tokenizer, x.empty() ? id : x.back(), id));
    result.token_bytes.push_back(it->second);
    sum += it->second;
  }
  const int64_t bytes = static_cast<int64_t>(text.size());
  if (result.ids.empty() || sum == bytes) return result;
  // A space that the tokenizer put in front belongs to the first token.
  if (sum == bytes + 1 && result.token_bytes[0] > 0) {
    --result.token_bytes[0];
    return result;
  }
  // Normalised text (NFC, U+FFFD for invalid bytes, removed spaces) has other bytes than the file:
  // spread the difference in proportion, so that bits per byte count bytes of the file.
  int64_t before = 0, seen = 0;
  for (int32_t& n : result.token_bytes) {
    seen += sum > 0 ? n : 1;
    const double share =
        static_cast<double>(seen) / static_cast<double>(sum > 0 ? sum : result.ids.size());
    const int64_t until = std::llround(share * static_cast<double>(bytes));
    n = static_cast<int32_t>(until - before);
    before = until;
  }
  return result;
}

TokenText TextOfIds(std::vector<int32_t> ids) {
  TokenText result;
  result.ids = std::move(ids);
  result.hash = HashIds(result.ids);
  result.tokenizer = "ids given";
  return result;
}

}  // namespace ropewalk
