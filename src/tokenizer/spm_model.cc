#include "src/tokenizer/spm_model.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <string_view>
#include <unordered_set>

#include "ropewalk/base/error.h"

namespace ropewalk::internal {
namespace {

// Field numbers of sentencepiece_model.proto.
constexpr int kPieces = 1, kTrainer = 2, kNormalizer = 3;
constexpr int kPiece = 1, kScore = 2, kType = 3;
constexpr int kModelType = 3, kSuffix = 24, kByteFallback = 35, kUnkSurface = 44, kBosPiece = 46,
              kEosPiece = 47;
constexpr int kCharsmap = 2, kDummyPrefix = 3, kExtraSpaces = 4, kEscapeSpaces = 5;

// Wire types of protocol buffers.
enum Wire { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct Field {
  int number = 0, wire = 0;
  uint64_t value = 0;      // kVarint, kFixed32
  std::string_view bytes;  // kBytes
};

class Reader {
 public:
  Reader(std::string_view bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  bool Next(Field* field) {
    if (bytes_.empty()) return false;
    const uint64_t tag = Varint();
    field->number = static_cast<int>(tag >> 3 & 0x1FFFFFFF);
    field->wire = static_cast<int>(tag & 7);
    switch (field->wire) {
      case kVarint:
        field->value = Varint();
        break;
      case kFixed64:
        Take(8);
        break;
      case kBytes:
        field->bytes = Take(Varint());
        break;
      case kFixed32: {
        uint32_t value = 0;
        const std::string_view four = Take(4);
        for (std::size_t i = 0; i < 4; ++i)
          value |= uint32_t{static_cast<uint8_t>(four[i])} << 8 * i;
        field->value = value;
        break;
      }
      default:
        Fail();
    }
    return true;
  }

  [[noreturn]] void Fail() const {
    throw Error(
        ErrorCode::kInvalidFile,
        fmt::format("{}: no SentencePiece model (a truncated or foreign file); expected the "
                    "tokenizer.model of the original, or a tokenizer.json beside it",
                    file_));
  }

 private:
  uint64_t Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<uint8_t>(Take(1)[0]);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    Fail();
  }
  std::string_view Take(uint64_t count) {
    if (count > bytes_.size()) Fail();
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }

  std::string_view bytes_;
  const std::string& file_;
};

float FloatOf(uint64_t bits) {
  const auto narrow = static_cast<uint32_t>(bits);
  float value;
  std::memcpy(&value, &narrow, sizeof(value));
  return value;
}

SpmPiece ParsePiece(Reader reader) {
  SpmPiece piece;
  for (Field field; reader.Next(&field);) {
    if (field.number == kPiece && field.wire == kBytes) piece.piece = field.bytes;
    if (field.number == kScore && field.wire == kFixed32) piece.score = FloatOf(field.value);
    if (field.number == kType && field.wire == kVarint) {
      if (field.value < 1 || field.value > 6) reader.Fail();
      piece.type = static_cast<SpmType>(field.value);
    }
  }
  return piece;
}

void ParseTrainer(Reader reader, SpmModel* model) {
  for (Field field; reader.Next(&field);) {
    if (field.wire == kVarint) {
      if (field.number == kModelType) model->model_type = static_cast<int>(field.value & 0xFFFF);
      if (field.number == kSuffix) model->whitespace_suffix = field.value != 0;
      if (field.number == kByteFallback) model->byte_fallback = field.value != 0;
    } else if (field.wire == kBytes) {
      if (field.number == kUnkSurface) model->unk_surface = field.bytes;
      if (field.number == kBosPiece) model->bos_piece = field.bytes;
      if (field.number == kEosPiece) model->eos_piece = field.bytes;
    }
  }
}

void ParseNormalizer(Reader reader, SpmModel* model) {
  for (Field field; reader.Next(&field);) {
    if (field.number == kCharsmap && field.wire == kBytes) model->charsmap = field.bytes;
    if (field.wire != kVarint) continue;
    if (field.number == kDummyPrefix) model->add_dummy_prefix = field.value != 0;
    if (field.number == kExtraSpaces) model->remove_extra_whitespaces = field.value != 0;
    if (field.number == kEscapeSpaces) model->escape_whitespaces = field.value != 0;
  }
}

void PutVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}
void PutNumber(int field, uint64_t value, std::string* out) {
  PutVarint(static_cast<uint64_t>(field) << 3 | kVarint, out);
  PutVarint(value, out);
}
void PutBytes(int field, std::string_view bytes, std::string* out) {
  PutVarint(static_cast<uint64_t>(field) << 3 | kBytes, out);
  PutVarint(bytes.size(), out);
  out->append(bytes);
}
void PutFloat(int field, float value, std::string* out) {
  PutVarint(static_cast<uint64_t>(field) << 3 | kFixed32, out);
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  for (int i = 0; i < 4; ++i) out->push_back(static_cast<char>(bits >> 8 * i));
}

uint32_t WordAt(std::string_view bytes, std::size_t at) {
  uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i)
    value |= uint32_t{static_cast<uint8_t>(bytes[at + i])} << 8 * i;
  return value;
}

// The rules are the size of a double-array trie, the trie (32-bit units), and the texts that its
// values point into, each ended by a NUL. The library follows its links unchecked, so each must
// stay inside: unit i leads to i ^ offset with any low byte, and a unit with the top bit set is a
// value.
bool CharsmapHolds(std::string_view map) {
  if (map.size() <= 4) return false;
  const uint64_t trie_bytes = WordAt(map, 0);
  if (trie_bytes % 1024 != 0 || trie_bytes == 0 || trie_bytes >= map.size() - 4) return false;
  const std::string_view texts = map.substr(4 + trie_bytes);
  if (texts.back() != '\0') return false;
  const uint64_t units = trie_bytes / 4;
  for (uint64_t i = 0; i < units; ++i) {
    const uint32_t unit = WordAt(map, 4 + 4 * i);
    if (unit >> 31 != 0) {
      if ((unit & 0x7FFFFFFF) >= texts.size()) return false;
      continue;
    }
    const uint64_t offset = uint64_t{unit >> 10} << ((unit & (1u << 9)) >> 6);
    if ((i ^ offset) >= units) return false;
  }
  // A leaf's link must lead to a value, else its bits are read as one.
  for (uint64_t i = 0; i < units; ++i) {
    const uint32_t unit = WordAt(map, 4 + 4 * i);
    if (unit >> 31 != 0 || (unit >> 8 & 1) == 0) continue;
    const uint64_t offset = uint64_t{unit >> 10} << ((unit & (1u << 9)) >> 6);
    if ((WordAt(map, 4 + 4 * (i ^ offset)) & 0x7FFFFFFF) >= texts.size()) return false;
  }
  return true;
}

}  // namespace

SpmModel ParseSpmModel(std::string_view proto, const std::string& file) {
  SpmModel model;
  Reader reader(proto, file);
  for (Field field; reader.Next(&field);) {
    if (field.wire != kBytes) continue;
    const Reader inner(field.bytes, file);
    if (field.number == kPieces) model.pieces.push_back(ParsePiece(inner));
    if (field.number == kTrainer) ParseTrainer(inner, &model);
    if (field.number == kNormalizer) ParseNormalizer(inner, &model);
  }
  if (model.pieces.empty()) reader.Fail();
  return model;
}

void CheckSpmModel(const SpmModel& model, const std::string& file) {
  const auto fail = [&](const std::string& what) {
    throw Error(ErrorCode::kInvalidFile, file + ": " + what);
  };
  if (model.model_type != SpmModel::kBpe && model.model_type != SpmModel::kUnigram) {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("{}: SentencePiece model type {} (word or character) is not known here; "
                    "tokenize elsewhere and give the ids with --ids",
                    file, model.model_type));
  }
  if (model.whitespace_suffix) {
    throw Error(ErrorCode::kUnsupported,
                file +
                    ": treat_whitespace_as_suffix is not known here; tokenize elsewhere and give "
                    "the ids with --ids");
  }
  std::unordered_set<std::string> byte_names;
  for (int byte = 0; byte < 256; ++byte) byte_names.insert(fmt::format("<0x{:02X}>", byte));
  std::unordered_set<std::string_view> seen;
  int unknown = 0, bytes = 0;
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    const SpmPiece& piece = model.pieces[id];
    if (piece.piece.empty() || piece.piece.find('\0') != std::string::npos) {
      fail(fmt::format("piece {} is empty or holds a NUL", id));
    }
    if (!std::isfinite(piece.score)) fail(fmt::format("the score of piece {} is not finite", id));
    if (!seen.insert(piece.piece).second) {
      fail(fmt::format("piece {}, '{}', appears twice", id, piece.piece.substr(0, 80)));
    }
    unknown += piece.type == SpmType::kUnknown;
    if (piece.type == SpmType::kByte && !byte_names.contains(piece.piece)) {
      fail(fmt::format("the byte piece {} is spelled '{}'; '<0x00>' to '<0xFF>' are expected", id,
                       piece.piece.substr(0, 80)));
    }
    bytes += piece.type == SpmType::kByte;
  }
  if (unknown != 1)
    fail(fmt::format("{} pieces of type unknown; exactly one is expected", unknown));
  if (bytes != (model.byte_fallback ? 256 : 0)) {
    fail(fmt::format("{} byte pieces; {} are expected", bytes, model.byte_fallback ? 256 : 0));
  }
  if (!model.charsmap.empty() && !CharsmapHolds(model.charsmap)) {
    fail("the normalisation rules (precompiled_charsmap) are corrupt");
  }
}

std::string SerializeSpmModel(const SpmModel& model) {
  std::string out, inner;
  for (const SpmPiece& piece : model.pieces) {
    inner.clear();
    PutBytes(kPiece, piece.piece, &inner);
    PutFloat(kScore, piece.score, &inner);
    PutNumber(kType, static_cast<uint64_t>(piece.type), &inner);
    PutBytes(kPieces, inner, &out);
  }
  inner.clear();
  PutNumber(kModelType, static_cast<uint64_t>(model.model_type), &inner);
  PutNumber(kByteFallback, model.byte_fallback, &inner);
  PutBytes(kTrainer, inner, &out);
  inner.clear();
  PutBytes(kCharsmap, model.charsmap, &inner);
  PutNumber(kDummyPrefix, model.add_dummy_prefix, &inner);
  PutNumber(kExtraSpaces, model.remove_extra_whitespaces, &inner);
  PutNumber(kEscapeSpaces, model.escape_whitespaces, &inner);
  PutBytes(kNormalizer, inner, &out);
  return out;
}

}  // namespace ropewalk::internal
