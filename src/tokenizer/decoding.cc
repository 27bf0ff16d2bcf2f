#include "src/tokenizer/decoding.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>
#include <utility>

#include "src/tokenizer/pipeline.h"
#include "src/tokenizer/unicode.h"

namespace ropewalk::internal {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// The byte that "<0x0A>" spells, or -1.
int SpelledByte(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return -1;
  const int high = HexDigit(piece[3]), low = HexDigit(piece[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

std::string Replaced(std::string_view text, const std::string& from, const std::string& to) {
  std::string out;
  for (std::size_t at = 0;;) {
    const std::size_t found = text.find(from, at);
    out.append(text.substr(at, found == std::string_view::npos ? found : found - at));
    if (found == std::string_view::npos) return out;
    out.append(to);
    at = found + from.size();
  }
}

using Pieces = std::vector<std::string>;

void Run(const FuseDecode&, Pieces* pieces) {
  std::string all;
  for (const std::string& piece : *pieces) all += piece;
  pieces->assign(1, all);
}

void Run(const ByteLevelDecode&, Pieces* pieces) {
  for (std::string& piece : *pieces) {
    std::string bytes;
    bool known = IsValidUtf8(piece);
    for (std::size_t at = 0; known && at < piece.size(); at += CharBytes(piece[at])) {
      const int byte = CharToByte(DecodeChar(std::string_view(piece).substr(at)));
      known = byte >= 0;
      bytes.push_back(static_cast<char>(byte));
    }
    if (known) piece = std::move(bytes);  // else it stands for itself
  }
  Run(FuseDecode{}, pieces);
}

void Run(const ByteFallbackDecode&, Pieces* pieces) {
  Pieces out;
  bool bytes = false;  // the last piece is of bytes, which more may follow
  for (std::string& piece : *pieces) {
    const int byte = SpelledByte(piece);
    if (byte < 0) {
      out.push_back(std::move(piece));
    } else if (bytes) {
      out.back().push_back(static_cast<char>(byte));
    } else {
      out.emplace_back(1, static_cast<char>(byte));
    }
    bytes = byte >= 0;
  }
  *pieces = std::move(out);
}

void Run(const ReplaceDecode& step, Pieces* pieces) {
  for (std::string& piece : *pieces) piece = Replaced(piece, step.from, step.to);
}

void Run(const StripDecode& step, Pieces* pieces) {
  for (std::string& piece : *pieces) {
    std::size_t start = 0;
    for (int64_t i = 0;
         i < step.most && piece.compare(start, step.content.size(), step.content) == 0; ++i) {
      start += step.content.size();
    }
    piece.erase(0, start);
  }
}

void Run(const MetaspaceDecode& step, Pieces* pieces) {
  for (std::size_t i = 0; i < pieces->size(); ++i) {
    (*pieces)[i] = Replaced((*pieces)[i], step.mark, i == 0 && step.prefix ? "" : " ");
  }
}

void Run(const WordPieceDecode& step, Pieces* pieces) {
  // In the original's order; each is looked for in every piece.
  static constexpr std::pair<const char*, const char*> kCleanup[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (std::size_t i = 0; i < pieces->size(); ++i) {
    std::string& piece = (*pieces)[i];
    if (i > 0 && piece.starts_with(step.continuation)) {
      piece.erase(0, step.continuation.size());
    } else if (i > 0) {
      piece.insert(0, " ");
    }
    for (const auto& [from, to] : kCleanup) {
      if (step.cleanup) piece = Replaced(piece, from, to);
    }
  }
}

}  // namespace

std::string DecodePieces(const BpeDecoding& decoding, std::vector<std::string> pieces) {
  for (const DecodeStep& step : decoding.steps) {
    std::visit([&](const auto& s) { Run(s, &pieces); }, step);
  }
  return fmt::format("{}", fmt::join(pieces, decoding.between));
}

}  // namespace ropewalk::internal
