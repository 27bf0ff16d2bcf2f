// GGUF version 3 (ggml/docs/gguf.md): magic, version, counts, metadata, tensor infos, tensors.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "ropewalk/base/error.h"
#include "src/io/bytes.h"
#include "src/io/gguf_file.h"
#include "src/io/write_tensors.h"

namespace ropewalk::internal {
namespace {

constexpr std::size_t kMaxRank = 4;

[[noreturn]] void Refuse(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, what);
}

class Writer {
 public:
  explicit Writer(const ByteSink& sink) : sink_(sink) {}

  uint64_t at() const { return at_; }
  void Bytes(const void* data, std::size_t bytes) {
    sink_(data, bytes);
    at_ += bytes;
  }
  template <class T>
  void Number(T value) {
    static_assert(std::is_arithmetic_v<T>);
    Bytes(&value, sizeof(value));
  }
  void Text(const std::string& text) {
    Number(uint64_t{text.size()});
    Bytes(text.data(), text.size());
  }
  void Pad(uint64_t alignment) {
    static constexpr char kZeros[4096] = {};
    for (uint64_t left = (alignment - at_ % alignment) % alignment; left > 0;) {
      const uint64_t piece = std::min<uint64_t>(left, sizeof(kZeros));
      Bytes(kZeros, piece);
      left -= piece;
    }
  }
  void Value(const std::string& key, const GgufValue& value);

 private:
  template <class T>
  void Integer(const std::string& key, int64_t value) {
    if (value < static_cast<int64_t>(std::numeric_limits<T>::min()) ||
        (sizeof(T) < 8 && value > static_cast<int64_t>(std::numeric_limits<T>::max()))) {
      Refuse(fmt::format("GGUF key {}: {} does not fit in its type of {} bytes", Quote(key), value,
                         sizeof(T)));
    }
    Number(static_cast<T>(value));
  }
  [[noreturn]] static void WrongType(const std::string& key, GgufType type) {
    Refuse(fmt::format("GGUF key {}: value type {} does not suit what it holds", Quote(key),
                       static_cast<uint32_t>(type)));
  }

  // What the variant may hold, each as one of the types of a file.
  void One(const std::string& key, GgufType type, int64_t value);
  void One(const std::string& key, GgufType type, uint64_t value) {
    if (type != GgufType::kU64) WrongType(key, type);
    Number(value);
  }
  void One(const std::string& key, GgufType type, double value);
  void One(const std::string& key, GgufType type, bool value) {
    if (type != GgufType::kBool) WrongType(key, type);
    Number(static_cast<uint8_t>(value));
  }
  void One(const std::string& key, GgufType type, const std::string& value) {
    if (type != GgufType::kString) WrongType(key, type);
    Text(value);
  }

  const ByteSink& sink_;
  uint64_t at_ = 0;
};

void Writer::One(const std::string& key, GgufType type, int64_t value) {
  switch (type) {
    case GgufType::kU8:
      return Integer<uint8_t>(key, value);
    case GgufType::kI8:
      return Integer<int8_t>(key, value);
    case GgufType::kU16:
      return Integer<uint16_t>(key, value);
    case GgufType::kI16:
      return Integer<int16_t>(key, value);
    case GgufType::kU32:
      return Integer<uint32_t>(key, value);
    case GgufType::kI32:
      return Integer<int32_t>(key, value);
    case GgufType::kU64:
      return Integer<uint64_t>(key, value);
    case GgufType::kI64:
      return Integer<int64_t>(key, value);
    case GgufType::kBool:  // in arrays
      if (value != 0 && value != 1) WrongType(key, type);
      return Number(static_cast<uint8_t>(value));
    default:
      WrongType(key, type);
  }
}

void Writer::One(const std::string& key, GgufType type, double value) {
  if (type == GgufType::kF64) return Number(value);
  if (type != GgufType::kF32) WrongType(key, type);
  const bool overflows =
      std::isfinite(value) && std::abs(value) > double{std::numeric_limits<float>::max()};
  const float narrow = overflows ? 0 : static_cast<float>(value);
  if (static_cast<double>(narrow) != value && !std::isnan(value)) {
    Refuse(fmt::format("GGUF key {}: {} is no float32; round it first", Quote(key), value));
  }
  Number(narrow);
}

template <class T>
constexpr GgufType kWidest = std::is_same_v<T, uint64_t>      ? GgufType::kU64
                             : std::is_same_v<T, double>      ? GgufType::kF64
                             : std::is_same_v<T, bool>        ? GgufType::kBool
                             : std::is_same_v<T, std::string> ? GgufType::kString
                                                              : GgufType::kI64;
template <class T>
struct ElementOf {
  using Type = T;
  static constexpr bool kArray = false;
};
template <class T>
struct ElementOf<std::vector<T>> {
  using Type = T;
  static constexpr bool kArray = true;
};

void Writer::Value(const std::string& key, const GgufValue& value) {
  std::visit(
      [&](const auto& held) {
        using Held = ElementOf<std::decay_t<decltype(held)>>;
        const GgufType type = value.type.value_or(kWidest<typename Held::Type>);
        if constexpr (Held::kArray) {
          Number(static_cast<uint32_t>(GgufType::kArray));
          Number(static_cast<uint32_t>(type));
          Number(uint64_t{held.size()});
          for (const auto& item : held) One(key, type, item);
        } else {
          Number(static_cast<uint32_t>(type));
          One(key, type, held);
        }
      },
      value.value);
}

}  // namespace

void WriteGguf(const ByteSink& sink, const std::map<std::string, GgufValue>& metadata,
               const std::vector<TensorSource>& tensors) {
  const std::vector<int64_t> bytes = CheckedBytes(tensors);
  const uint64_t alignment = GgufAlignment(metadata);
  Writer writer(sink);
  writer.Bytes("GGUF", 4);
  writer.Number(uint32_t{3});
  writer.Number(uint64_t{tensors.size()});
  writer.Number(uint64_t{metadata.size()});
  for (const auto& [key, value] : metadata) {
    if (key.empty() || key.size() > 65535 || key.find('\0') != std::string::npos) {
      Refuse(fmt::format("GGUF key {}: 1 to 65535 bytes without NUL expected", Quote(key)));
    }
    writer.Text(key);
    writer.Value(key, value);
  }
  uint64_t offset = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorSource& t = tensors[i];
    if (t.shape.size() > kMaxRank) {
      Refuse(fmt::format("tensor {}: GGUF holds at most {} dimensions, it has {}", Quote(t.name),
                         kMaxRank, t.shape.size()));
    }
    writer.Text(t.name);
    writer.Number(static_cast<uint32_t>(t.shape.size()));
    for (std::size_t d = t.shape.size(); d-- > 0;) writer.Number(static_cast<uint64_t>(t.shape[d]));
    writer.Number(*Info(t.type).ggml_id);  // CheckedBytes has refused what has none
    writer.Number(offset);
    offset += (static_cast<uint64_t>(bytes[i]) + alignment - 1) / alignment * alignment;
  }
  writer.Pad(alignment);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    CopyRows(tensors[i], bytes[i],
             [&](const void* data, std::size_t size) { writer.Bytes(data, size); });
    writer.Pad(alignment);  // behind the last one too: llama.cpp reads it
  }
}

}  // namespace ropewalk::internal
