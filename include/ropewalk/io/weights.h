// Named tensors and metadata of a model on disk, memory-mapped and read-only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ropewalk {

// Element or block types of weight files; Info has the properties of each.
enum class WeightType : uint8_t {
  kF64,
  kF32,
  kF16,
  kBF16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kIQ4_NL,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_XS,
  kIQ2_XXS,
  kIQ2_XS,
  kIQ2_S,
  kIQ3_XXS,
  kIQ3_S,
  kIQ1_S,
  kIQ1_M,
  kTQ1_0,
  kTQ2_0,
  kMXFP4,
  kMXFP4Pair  // of safetensors: scales in a tensor of their own (Weight::scales)
};
struct WeightTypeInfo {
  const char* name;                 // "Q4_1"
  int block_elements;               // along a row; 1 for plain types
  int block_bytes;                  // without scales in a tensor of their own
  std::optional<uint32_t> ggml_id;  // its number in GGUF files; none: those cannot hold it
  int scale_bytes = 0;              // of a block, in a tensor of their own
};
const WeightTypeInfo& Info(WeightType type);

// A read-only file mapping. Empty files are legal.
class MappedFile {
 public:
  static std::shared_ptr<const MappedFile> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  const std::string& path() const { return path_; }
  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

  // The path of the mapping that holds `address`; null: none of the first 1024 does. For a handler of
  // SIGBUS, the signal of a file that another process has shortened: it takes no lock and no memory.
  static const char* PathAt(const void* address) noexcept;

 private:
  MappedFile() = default;
  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// A tensor in a mapped file. shape is outer dimension first (row-major); a weight is [out, in].
struct Weight {
  std::string name;
  WeightType type = WeightType::kF32;
  std::vector<int64_t> shape;
  std::shared_ptr<const MappedFile> file;
  const std::byte* data = nullptr;  // may be unaligned
  int64_t bytes = 0;
  // Where the type has scales in a tensor of their own: these, block by block, maybe in another
  // shard.
  std::shared_ptr<const MappedFile> scales_file = {};
  const std::byte* scales = nullptr;

  int64_t rows() const;  // product of all dimensions but the last; 1 for rank 0
  int64_t cols() const;  // last dimension; 1 for rank 0
  // Decodes rows [first, first + count) to float32, row-major [count, cols()].
  void ReadRows(int64_t first, int64_t count, float* out) const;
};

// The type of a metadata value in a GGUF file, numbered as in the format.
enum class GgufType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};

// Metadata value of a GGUF file. Arrays hold one element type.
struct GgufValue {
  std::variant<int64_t, uint64_t, double, bool, std::string, std::vector<int64_t>,
               std::vector<double>, std::vector<std::string>>
      value;
  // The type in the file, of the value or of an array's elements. Absent (for a value that is not
  // from a file): the widest of its kind.
  std::optional<GgufType> type = {};
  // Typed access. Throws Error that names `key` and the type found.
  int64_t AsInt(std::string_view key) const;
  double AsDouble(std::string_view key) const;
  bool AsBool(std::string_view key) const;
  const std::string& AsString(std::string_view key) const;
};

struct GgufFile {
  std::shared_ptr<const MappedFile> file;
  uint32_t version = 0;
  std::map<std::string, GgufValue> metadata;
  std::map<std::string, Weight> tensors;
};

// The functions below throw Error(kInvalidFile), naming file, offset and key or tensor, for
// malformed files: truncated, overlapping or unaligned data, counts that exceed the file, duplicate
// names, names with NUL, products that overflow. They never allocate by a size that the file only
// declares.
//
// GGUF versions 2 and 3, little endian. Any shard of a split model (NAME-00001-of-00003.gguf) opens
// all of them; file and metadata are then those of the first.
GgufFile OpenGguf(const std::string& path);

// safetensors have F64, F32, F16, BF16, and MXFP4 as published gpt-oss folders do: experts X are two
// uint8 tensors, `X_blocks` [experts, rows, columns / 32, 16] and `X_scales` [experts, rows,
// columns / 32], which are read as one tensor X of kMXFP4Pair, [experts, rows, columns].
std::map<std::string, Weight> OpenSafetensors(const std::string& path);  // one file
// A folder: model.safetensors, or model.safetensors.index.json and its shards, or the only
// *.safetensors file.
std::map<std::string, Weight> OpenSafetensorsFolder(const std::string& folder);

// llama2.c legacy checkpoint ("run.c" format): int32 dim, hidden_dim, n_layers, n_heads,
// n_kv_heads, vocab_size (negative: untied head), seq_len, then float32 tensors. The names given
// here are those of a Hugging Face llama (model.layers.0.self_attn.q_proj.weight, ...).
struct Llama2cFile {
  std::shared_ptr<const MappedFile> file;
  int64_t dim = 0, hidden_dim = 0, layers = 0, heads = 0, kv_heads = 0, vocab_size = 0;
  int64_t trained_length = 0;
  bool tied_head = true;
  std::map<std::string, Weight> tensors;
};
Llama2cFile OpenLlama2c(const std::string& path);

// XXH3-128 of all bytes of the files of the tensors, in order of their paths.
std::string ContentHash(const std::map<std::string, Weight>& tensors);

}  // namespace ropewalk
