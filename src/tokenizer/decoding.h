// How pieces become text again: the decoders of Hugging Face's tokenizers.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace ropewalk::internal {

struct ByteLevelDecode {};     // characters stand for bytes
struct ByteFallbackDecode {};  // "<0x0A>" is a byte
struct FuseDecode {};          // one piece of all
struct ReplaceDecode {         // in every piece
  std::string from, to;
};
struct StripDecode {  // this, up to `most` times at the beginning of every piece
  std::string content;
  int64_t most;
};
struct MetaspaceDecode {  // the mark is a space; in the first piece nothing where `prefix` says so
  std::string mark;
  bool prefix;
};
// A space before each piece but the first and those that begin with `continuation`, which goes;
// cleanup: none before a point, and so on.
struct WordPieceDecode {
  std::string continuation;
  bool cleanup;
};
using DecodeStep = std::variant<ByteLevelDecode, ByteFallbackDecode, FuseDecode, ReplaceDecode,
                                StripDecode, MetaspaceDecode, WordPieceDecode>;

struct BpeDecoding {
  std::vector<DecodeStep> steps;
  std::string between = {};   // what stands between the pieces that the steps leave
  bool added_as_are = false;  // added tokens do not go through the steps
};

// Bytes that are no text stay as they are; the original has U+FFFD for each.
std::string DecodePieces(const BpeDecoding& decoding, std::vector<std::string> pieces);

}  // namespace ropewalk::internal
