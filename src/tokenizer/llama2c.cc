// llama2.c's tokenizer.bin: int32 longest token, then for each token float32 score, int32 length,
// bytes. Greedy: of all neighbours that form a token, those with the best score merge first.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "ropewalk/base/error.h"
#include "ropewalk/base/hash.h"
#include "ropewalk/tokenizer/tokenizer.h"
#include "src/tokenizer/bpe.h"
#include "src/tokenizer/unicode.h"

namespace ropewalk {
namespace internal {
namespace {

constexpr int32_t kBos = 1, kEos = 2, kFirstByte = 3;  // fixed by the format
constexpr int32_t kByteEnd = kFirstByte + 256;
constexpr float kLowestScore = -1e10f;  // scores that are not above it never merge, as in run.c

class Llama2cTokenizer : public Tokenizer {
 public:
  Llama2cTokenizer(const MappedFile& file, int64_t vocab_size) : path_(file.path()) {
    Read(file.text(), vocab_size);
    kind_ = "llama2.c (tokenizer.bin)";
    hash_ = HashHex(file.text());
    bos_id_ = kBos;
    eos_id_ = kEos;
    adds_bos_ = true;
  }

  using Tokenizer::Encode;
  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions& options) const override {
    std::vector<int32_t> ids;
    std::string repaired;
    if (!IsValidUtf8(text)) text = repaired = ValidUtf8(text);
    for (std::size_t at = 0; at < text.size();) {
      std::size_t next = std::string_view::npos;
      int32_t id = -1;
      for (const int32_t special : {kBos, kEos}) {
        const std::size_t found =
            options.special ? text.find(Spelling(special), at) : std::string_view::npos;
        if (found < next) next = found, id = special;
      }
      EncodeText(text.substr(at, next == std::string_view::npos ? next : next - at), &ids);
      if (id < 0) break;
      ids.push_back(id);
      at = next + Spelling(id).size();
    }
    return ids;
  }

  std::string Decode(std::span<const int32_t> ids) const override {
    std::string out;
    bool first = true;
    for (const int32_t id : ids) {
      std::string_view piece = PieceAt(id);
      if (id == kBos || id == kEos) continue;
      // The space in front of the text is the tokenizer's own.
      if (first && piece.starts_with(' ')) piece.remove_prefix(1);
      first = false;
      if (id >= kFirstByte && id < kByteEnd && piece == ByteName(id - kFirstByte)) {
        out.push_back(static_cast<char>(id - kFirstByte));
      } else {
        out.append(piece);
      }
    }
    return out;
  }

  std::string Piece(int32_t id) const override { return PieceAt(id); }
  int64_t vocab_size() const override { return static_cast<int64_t>(pieces_.size()); }

 private:
  struct Symbol {
    int32_t id, prev, next;
    bool gone;
  };
  struct Candidate {
    float score;
    int32_t at, merged, left, right;  // ids at the time: stale when they have changed
  };

  static std::string ByteName(int32_t byte) { return fmt::format("<0x{:02X}>", byte); }
  // The file spells them with line breaks around ("\n<s>\n"), which no text would.
  static std::string_view Spelling(int32_t id) { return id == kBos ? "<s>" : "</s>"; }

  [[noreturn]] void Fail(const std::string& what) const {
    throw Error(ErrorCode::kInvalidFile, path_ + ": " + what);
  }

  void Read(std::string_view bytes, int64_t vocab_size) {
    if (vocab_size < kByteEnd) {
      Fail(fmt::format("a vocabulary of {} tokens; at least {} are expected (three and the bytes)",
                       vocab_size, kByteEnd));
    }
    std::size_t at = 0;
    const auto take = [&](void* out, const char* what) {
      if (bytes.size() - at < 4) {
        Fail(
            fmt::format("the file ends in {} of token {} of {}; it belongs to another checkpoint "
                        "or is truncated",
                        what, pieces_.size(), vocab_size));
      }
      std::memcpy(out, bytes.data() + at, 4);
      at += 4;
    };
    int32_t longest = 0;
    take(&longest, "the header");
    for (int64_t i = 0; i < vocab_size; ++i) {
      float score = 0;
      int32_t length = 0;
      take(&score, "the score");
      take(&length, "the length");
      if (length < 0 || static_cast<std::size_t>(length) > bytes.size() - at) {
        Fail(fmt::format("token {} has a length of {} bytes; {} are left in the file", i, length,
                         bytes.size() - at));
      }
      if (std::isnan(score)) Fail(fmt::format("the score of token {} is not a number", i));
      pieces_.emplace_back(bytes.substr(at, static_cast<std::size_t>(length)));
      scores_.push_back(score);
      at += static_cast<std::size_t>(length);
      ids_.emplace(pieces_.back(), static_cast<int32_t>(i));
    }
    if (at != bytes.size()) {
      Fail(
          fmt::format("{} bytes follow the {} tokens of the checkpoint's vocabulary; the two files "
                      "do not belong together",
                      bytes.size() - at, vocab_size));
    }
    const auto space = ids_.find(" ");
    if (space == ids_.end()) Fail("no token is a single space");
    space_ = space->second;
  }

  const std::string& PieceAt(int32_t id) const {
    if (id < 0 || id >= vocab_size()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("token id {} is not in the vocabulary of {} (ids below {})", id,
                              path_, vocab_size()));
    }
    return pieces_[static_cast<std::size_t>(id)];
  }

  void EncodeText(std::string_view text, std::vector<int32_t>* out) const {
    if (text.empty()) return;
    if (text.size() > std::numeric_limits<int32_t>::max() / 4) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("text: {} bytes at once", text.size()));
    }
    std::vector<Symbol> symbols;
    symbols.reserve(text.size() + 1);
    const auto add = [&](int32_t id) {
      const auto index = static_cast<int32_t>(symbols.size());
      symbols.push_back({id, index - 1, index + 1, false});
    };
    add(space_);
    for (std::size_t at = 0; at < text.size();) {
      const std::string_view c = text.substr(at, CharBytes(text[at]));
      at += c.size();
      if (const auto found = ids_.find(c); found != ids_.end()) {
        add(found->second);
      } else {
        for (const char byte : c) add(kFirstByte + static_cast<uint8_t>(byte));
      }
    }
    symbols.back().next = -1;
    Merge(&symbols);
    for (const Symbol& symbol : symbols) {
      if (!symbol.gone) out->push_back(symbol.id);
    }
  }

  void Merge(std::vector<Symbol>* symbols) const {
    const auto worse = [](const Candidate& a, const Candidate& b) {
      return a.score != b.score ? a.score < b.score : a.at > b.at;
    };
    std::vector<Candidate> queue;
    std::string both;
    const auto push = [&](int32_t at) {
      const Symbol& left = (*symbols)[static_cast<std::size_t>(at)];
      const int32_t right = (*symbols)[static_cast<std::size_t>(left.next)].id;
      both = pieces_[static_cast<std::size_t>(left.id)];
      both += pieces_[static_cast<std::size_t>(right)];
      const auto found = ids_.find(both);
      if (found == ids_.end()) return;
      const float score = scores_[static_cast<std::size_t>(found->second)];
      if (!(score > kLowestScore)) return;
      queue.push_back({score, at, found->second, left.id, right});
      std::push_heap(queue.begin(), queue.end(), worse);
    };
    for (std::size_t i = 0; i + 1 < symbols->size(); ++i) push(static_cast<int32_t>(i));
    while (!queue.empty()) {
      std::pop_heap(queue.begin(), queue.end(), worse);
      const Candidate top = queue.back();
      queue.pop_back();
      Symbol& left = (*symbols)[static_cast<std::size_t>(top.at)];
      if (left.gone || left.next < 0 || left.id != top.left) continue;
      Symbol& right = (*symbols)[static_cast<std::size_t>(left.next)];
      if (right.id != top.right) continue;
      left.id = top.merged;
      left.next = right.next;
      right.gone = true;
      if (left.next >= 0) (*symbols)[static_cast<std::size_t>(left.next)].prev = top.at;
      if (left.prev >= 0) push(left.prev);
      if (left.next >= 0) push(top.at);
    }
  }

  std::string path_;
  std::vector<std::string> pieces_;
  std::vector<float> scores_;
  std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>> ids_;
  int32_t space_ = -1;
};

}  // namespace
}  // namespace internal

std::unique_ptr<Tokenizer> LoadTokenizerLlama2c(const std::string& path, int64_t vocab_size) {
  return std::make_unique<internal::Llama2cTokenizer>(*MappedFile::Open(path), vocab_size);
}

}  // namespace ropewalk
