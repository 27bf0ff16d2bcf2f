// GGUF versions 2 and 3 (ggml/docs/gguf.md): magic, version, counts, metadata, tensor infos,
// padding to the alignment, tensor data.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "ropewalk/base/error.h"
#include "ropewalk/io/weights.h"
#include "src/io/bytes.h"
#include "src/io/dequantize.h"
#include "src/io/gguf_file.h"

namespace ropewalk {
namespace {

using internal::Quote;

// Types of ggml without a reader, so that a refusal can name them.
struct UnreadType {
  uint32_t id;
  const char* name;
};
constexpr UnreadType kUnreadTypes[] = {
    {9, "Q8_1"}, {15, "Q8_K"},  {24, "I8"},   {25, "I16"},  {26, "I32"},
    {27, "I64"}, {40, "NVFP4"}, {41, "Q1_0"}, {42, "Q2_0"},
};

class Parser {
 public:
  explicit Parser(std::shared_ptr<const MappedFile> file) : file_(std::move(file)) {}

  GgufFile Run() {
    result_.file = file_;
    ReadHeader();
    ReadMetadata();
    ReadTensorInfos();
    PlaceTensors();
    return std::move(result_);
  }

 private:
  [[noreturn]] void Fail(const std::string& what, ErrorCode code = ErrorCode::kInvalidFile) const {
    throw Error(code, fmt::format("{}: byte {}: {}", file_->path(), at_, what));
  }
  uint64_t remaining() const { return file_->size() - at_; }

  template <class T>
  T Take(std::string_view what) {
    if (remaining() < sizeof(T)) Fail(fmt::format("file ends inside {}", what));
    const T value = internal::Load<T>(file_->data() + at_);
    at_ += sizeof(T);
    return value;
  }
  std::string_view TakeString(std::string_view what) {
    const auto length = Take<uint64_t>(what);
    if (length > remaining()) {
      Fail(fmt::format("{} claims {} bytes, {} are left in the file", what, length, remaining()));
    }
    const std::string_view text = file_->text().substr(at_, length);
    at_ += length;
    return text;
  }
  std::string TakeName(std::string_view what) {
    const std::string_view name = TakeString(what);
    if (name.empty() || name.size() > 65535 || name.find('\0') != name.npos) {
      Fail(fmt::format("{} {}: 1 to 65535 bytes without NUL expected", what, Quote(name)));
    }
    return std::string(name);
  }
  // Every count is checked against the bytes that its items need at least, before any allocation.
  void CheckCount(uint64_t count, uint64_t item_bytes, std::string_view what) const {
    if (count > remaining() / item_bytes) {
      Fail(fmt::format("{} {} claimed, but only {} bytes are left in the file", count, what,
                       remaining()));
    }
  }

  void ReadHeader();
  void ReadMetadata();
  GgufType TakeValueType(const std::string& what) {
    const auto type = Take<uint32_t>(what);
    if (type > static_cast<uint32_t>(GgufType::kF64)) {
      Fail(fmt::format("{}: value type {} does not exist", what, type));
    }
    return static_cast<GgufType>(type);
  }
  GgufValue ReadValue(GgufType type, const std::string& what);
  GgufValue ReadArray(const std::string& what);
  int64_t ReadInteger(GgufType type, const std::string& what);
  double ReadFloat(GgufType type, const std::string& what);
  bool ReadBool(const std::string& what);
  void ReadTensorInfos();
  WeightType TakeType(const std::string& name);
  void PlaceTensors();

  std::shared_ptr<const MappedFile> file_;
  uint64_t at_ = 0;
  uint64_t tensor_count_ = 0, metadata_count_ = 0;
  struct Placed {
    uint64_t offset;
    Weight* weight;
  };
  std::vector<Placed> placed_;
  GgufFile result_;
};

void Parser::ReadHeader() {
  if (file_->text().substr(0, 4) != "GGUF") Fail("not a GGUF file: it does not begin with 'GGUF'");
  at_ = 4;
  const auto version = Take<uint32_t>("the version");
  if (version != 0 && (version & 0xffff) == 0) {
    Fail("a big-endian GGUF file; convert it to little endian (gguf-py's gguf-convert-endian)",
         ErrorCode::kUnsupported);
  }
  if (version != 2 && version != 3) {
    Fail(fmt::format("GGUF version {}; versions 2 and 3 are read", version),
         ErrorCode::kUnsupported);
  }
  result_.version = version;
  tensor_count_ = Take<uint64_t>("the tensor count");
  metadata_count_ = Take<uint64_t>("the metadata count");
  CheckCount(tensor_count_, 24, "tensors");          // name length, rank, type, offset
  CheckCount(metadata_count_, 13, "metadata keys");  // key length, type, one byte
}

void Parser::ReadMetadata() {
  for (uint64_t i = 0; i < metadata_count_; ++i) {
    const std::string key = TakeName("metadata key");
    const std::string what = "key " + Quote(key);
    const auto type = TakeValueType(what);
    GgufValue value = type == GgufType::kArray ? ReadArray(what) : ReadValue(type, what);
    if (!result_.metadata.emplace(key, std::move(value)).second) Fail(what + " occurs twice");
  }
}

int64_t Parser::ReadInteger(GgufType type, const std::string& what) {
  switch (type) {
    case GgufType::kU8:
      return Take<uint8_t>(what);
    case GgufType::kI8:
      return Take<int8_t>(what);
    case GgufType::kU16:
      return Take<uint16_t>(what);
    case GgufType::kI16:
      return Take<int16_t>(what);
    case GgufType::kU32:
      return Take<uint32_t>(what);
    case GgufType::kI32:
      return Take<int32_t>(what);
    default:
      return Take<int64_t>(what);
  }
}

double Parser::ReadFloat(GgufType type, const std::string& what) {
  return type == GgufType::kF32 ? Take<float>(what) : Take<double>(what);
}

bool Parser::ReadBool(const std::string& what) {
  const auto byte = Take<uint8_t>(what);
  if (byte > 1) Fail(fmt::format("{}: a bool is 0 or 1, found {}", what, byte));
  return byte == 1;
}

GgufValue Parser::ReadValue(GgufType type, const std::string& what) {
  switch (type) {
    case GgufType::kU64:
      return {Take<uint64_t>(what), type};
    case GgufType::kF32:
    case GgufType::kF64:
      return {ReadFloat(type, what), type};
    case GgufType::kBool:
      return {ReadBool(what), type};
    case GgufType::kString:
      return {std::string(TakeString(what)), type};
    default:
      return {ReadInteger(type, what), type};
  }
}

GgufValue Parser::ReadArray(const std::string& what) {
  const auto type = TakeValueType("the elements of " + what);
  const auto count = Take<uint64_t>(what);
  if (type == GgufType::kArray) {
    Fail(what + ": arrays of arrays are not read", ErrorCode::kUnsupported);
  }
  constexpr int kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 0, 8, 8, 8};
  CheckCount(count, kBytes[static_cast<uint32_t>(type)], "elements of " + what);
  if (type == GgufType::kString) {
    std::vector<std::string> items;
    items.reserve(count);
    for (uint64_t i = 0; i < count; ++i) items.emplace_back(TakeString(what));
    return {std::move(items), type};
  }
  if (type == GgufType::kF32 || type == GgufType::kF64) {
    std::vector<double> items(count);
    for (double& item : items) item = ReadFloat(type, what);
    return {std::move(items), type};
  }
  std::vector<int64_t> items(count);
  for (int64_t& item : items) {
    item = type == GgufType::kBool ? int64_t{ReadBool(what)} : ReadInteger(type, what);
    if (type == GgufType::kU64 && item < 0) Fail(what + ": an element above 2^63 - 1 is not read");
  }
  return {std::move(items), type};
}

WeightType Parser::TakeType(const std::string& name) {
  const auto id = Take<uint32_t>("the type of tensor " + Quote(name));
  if (const auto type = internal::FindGgmlType(id)) return *type;
  for (const UnreadType& unread : kUnreadTypes) {
    if (unread.id != id) continue;
    Fail(fmt::format("tensor {} has type {}, which is not read; {} are: convert with "
                     "llama-quantize",
                     Quote(name), unread.name, internal::GgmlTypeNames()),
         ErrorCode::kUnsupported);
  }
  Fail(fmt::format("tensor {}: type {} is not a known ggml type", Quote(name), id));
}

void Parser::ReadTensorInfos() {
  CheckCount(tensor_count_, 24, "tensors");
  placed_.reserve(tensor_count_);
  for (uint64_t i = 0; i < tensor_count_; ++i) {
    Weight weight;
    weight.name = TakeName("tensor name");
    const std::string what = "tensor " + Quote(weight.name);
    const auto rank = Take<uint32_t>(what);
    if (rank > 4) Fail(fmt::format("{}: rank {}; at most 4 expected", what, rank));
    weight.shape.resize(rank);
    for (uint32_t d = rank; d-- > 0;) {  // the file lists the innermost dimension first
      const auto extent = Take<uint64_t>(what);
      if (extent > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        Fail(fmt::format("{}: dimension of {} overflows", what, extent));
      }
      weight.shape[d] = static_cast<int64_t>(extent);
    }
    weight.type = TakeType(weight.name);
    const auto offset = Take<uint64_t>(what);
    const auto bytes = internal::TensorBytes(weight.type, weight.shape);
    if (!bytes) {
      Fail(fmt::format("{}: shape {} of {} overflows or is not a whole number of blocks of {}",
                       what, internal::ShapeString(weight.shape), Info(weight.type).name,
                       Info(weight.type).block_elements));
    }
    weight.bytes = *bytes;
    weight.file = file_;
    const std::string name = weight.name;
    const auto [slot, inserted] = result_.tensors.emplace(name, std::move(weight));
    if (!inserted) Fail(what + " occurs twice");
    placed_.push_back({offset, &slot->second});
  }
}

void Parser::PlaceTensors() {
  if (placed_.empty()) return;
  uint64_t alignment = 0;
  try {
    alignment = internal::GgufAlignment(result_.metadata);
  } catch (const Error& e) {
    Fail(e.what());
  }
  const uint64_t start = (at_ + alignment - 1) / alignment * alignment;
  std::sort(placed_.begin(), placed_.end(), [](const Placed& a, const Placed& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.weight->bytes < b.weight->bytes;
  });
  uint64_t end = 0;  // of the tensor before, from start
  const std::string* before = nullptr;
  const uint64_t available = file_->size() > start ? file_->size() - start : 0;
  for (const auto& [offset, weight] : placed_) {
    const auto bytes = static_cast<uint64_t>(weight->bytes);
    const std::string what = "tensor " + Quote(weight->name);
    if (offset % alignment != 0) {
      Fail(
          fmt::format("{}: offset {} is no multiple of the alignment {}", what, offset, alignment));
    }
    if (offset > available || bytes > available - offset) {
      Fail(
          fmt::format("{}: {} bytes at offset {} pass the end of the file, which has {} bytes of "
                      "tensor data; is it truncated?",
                      what, bytes, offset, available));
    }
    if (offset < end) Fail(fmt::format("{} overlaps tensor {}", what, Quote(*before)));
    weight->data = file_->data() + start + offset;
    end = offset + bytes;
    before = &weight->name;
  }
}

}  // namespace

namespace internal {

GgufFile ParseGguf(const std::string& path) { return Parser(MappedFile::Open(path)).Run(); }

}  // namespace internal
}  // namespace ropewalk
