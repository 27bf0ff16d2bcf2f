// safetensors: 8 bytes of header length, a JSON header, then the tensors without gaps. The rules
// are those of the reference implementation (huggingface/safetensors, tensor.rs): offsets begin at
// 0, follow each other without hole or overlap, and end at the end of the file.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "ropewalk/base/error.h"
#include "ropewalk/io/weights.h"
#include "src/io/bytes.h"
#include "src/io/fail.h"
#include "src/io/files.h"
#include "src/io/json.h"
#include "src/io/mxfp4_pairs.h"

namespace ropewalk {
namespace {

namespace fs = std::filesystem;
using internal::Fail;
using internal::Quote;
using nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's limit

// uint8, of which only MXFP4 is made.
bool IsHalfOfPair(const std::string& name, const std::string& dtype) {
  return dtype == "U8" && internal::IsHalfOfPair(name);
}

WeightType TypeOf(const std::string& file, const std::string& tensor, const std::string& dtype) {
  for (const WeightType type :
       {WeightType::kF64, WeightType::kF32, WeightType::kF16, WeightType::kBF16}) {
    if (dtype == Info(type).name) return type;
  }
  Fail(file,
       fmt::format("{} has dtype {}; F64, F32, F16 and BF16 are read: convert the model to one of "
                   "them (quantised checkpoints have to be dequantised first)",
                   tensor, Quote(dtype)),
       ErrorCode::kUnsupported);
}

int64_t NonNegative(const std::string& file, const std::string& what, const json& value) {
  if (!value.is_number_unsigned() ||
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    Fail(file, what + ": integers from 0 to 2^63 - 1 expected");
  }
  return value.get<int64_t>();
}

const json& Member(const std::string& file, const std::string& tensor, const json& object,
                   const char* key, json::value_t type) {
  const auto it = object.find(key);
  if (it == object.end()) Fail(file, fmt::format("{}: key '{}' is missing", tensor, key));
  if (it->type() != type) {
    Fail(file, fmt::format("{}: '{}' is {}, {} expected", tensor, key, it->type_name(),
                           json(type).type_name()));
  }
  return *it;
}

// 0, 1, 2, ... as int64: older versions of transformers wrote them beside BERT's weights. They are
// passed over: their bytes are looked for, but they are no weight.
bool IsPositionIds(const std::string& name) {
  return name == "position_ids" || name.ends_with(".position_ids");
}
bool IsPositionIds(const std::string& name, const std::string& dtype) {
  return dtype == "I64" && IsPositionIds(name);
}

struct Span {
  int64_t begin, end;
  Weight* weight;
};

// One entry of the header; the tensor's bytes are not looked at.
Span ReadEntry(const std::shared_ptr<const MappedFile>& file, const std::string& name,
               const json& entry, Weight* weight) {
  const std::string& path = file->path();
  const std::string what = "tensor " + Quote(name);
  if (name.empty() || name.find('\0') != name.npos) {
    Fail(path, what + ": a name is not empty and holds no NUL");
  }
  if (!entry.is_object()) Fail(path, what + ": an object expected");
  weight->name = name;
  weight->file = file;
  const json& dtype = Member(path, what, entry, "dtype", json::value_t::string);
  const auto& type = dtype.get_ref<const std::string&>();
  const bool half = IsHalfOfPair(name, type);
  weight->type = half                        ? WeightType::kMXFP4Pair
                 : IsPositionIds(name, type) ? WeightType::kF64
                                             : TypeOf(path, what, type);
  for (const json& extent : Member(path, what, entry, "shape", json::value_t::array)) {
    weight->shape.push_back(NonNegative(path, what + ": shape", extent));
  }
  const json& offsets = Member(path, what, entry, "data_offsets", json::value_t::array);
  if (offsets.size() != 2) Fail(path, what + ": data_offsets: two integers expected");
  const int64_t begin = NonNegative(path, what + ": data_offsets", offsets[0]);
  const int64_t end = NonNegative(path, what + ": data_offsets", offsets[1]);
  const auto bytes = half ? internal::Uint8Bytes(weight->shape)
                          : internal::TensorBytes(weight->type, weight->shape);
  if (!bytes) {
    Fail(path, fmt::format("{}: shape {} overflows", what, internal::ShapeString(weight->shape)));
  }
  if (end < begin || end - begin != *bytes) {
    Fail(path, fmt::format("{}: data_offsets [{}, {}] do not span the {} bytes of shape {} in {}",
                           what, begin, end, *bytes, internal::ShapeString(weight->shape), type));
  }
  weight->bytes = *bytes;
  return {begin, end, weight};
}

void CheckMetadata(const std::string& path, const json& metadata) {
  if (!metadata.is_object()) Fail(path, "'__metadata__': an object of strings expected");
  for (const auto& [key, value] : metadata.items()) {
    if (!value.is_string()) Fail(path, "'__metadata__': key " + Quote(key) + " is not a string");
  }
}

// Halves of pairs are yet to be joined.
std::map<std::string, Weight> Parse(const std::shared_ptr<const MappedFile>& file) {
  const std::string& path = file->path();
  if (file->size() < 8) Fail(path, "too short for a safetensors file; is it truncated?");
  const auto header_bytes = internal::Load<uint64_t>(file->data());
  if (header_bytes > kMaxHeaderBytes || header_bytes > file->size() - 8) {
    Fail(path, fmt::format("the header claims {} bytes; the file has {} and the format allows {}; "
                           "is it a safetensors file, and whole?",
                           header_bytes, file->size() - 8, kMaxHeaderBytes));
  }
  const std::string_view text = file->text().substr(8, header_bytes);
  if (!text.starts_with('{')) Fail(path, "byte 8: the header does not begin with '{'");
  const json header = internal::ParseJson(text, path + " (header)");
  std::map<std::string, Weight> tensors;
  std::vector<Span> spans;
  std::vector<std::string> passed_over;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      CheckMetadata(path, entry);
      continue;
    }
    spans.push_back(ReadEntry(file, name, entry, &tensors[name]));
    if (IsPositionIds(name, entry["dtype"])) passed_over.push_back(name);
  }
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  int64_t end = 0;
  const auto data_bytes = static_cast<int64_t>(file->size() - 8 - header_bytes);
  for (const Span& span : spans) {
    const std::string what = "tensor " + Quote(span.weight->name);
    if (span.begin != end) {
      Fail(path, fmt::format("{}: data_offsets begin at {}, where {} was expected: tensors {}",
                             what, span.begin, end, span.begin < end ? "overlap" : "leave a hole"));
    }
    if (span.end > data_bytes) {
      Fail(path, fmt::format("{}: data_offsets end at {}, but the file holds {} bytes of tensor "
                             "data; is it truncated?",
                             what, span.end, data_bytes));
    }
    span.weight->data = file->data() + 8 + header_bytes + span.begin;
    end = span.end;
  }
  if (end != data_bytes) {
    Fail(path,
         fmt::format("{} bytes of tensor data, of which the header names {}", data_bytes, end));
  }
  for (const std::string& name : passed_over) tensors.erase(name);
  return tensors;
}

// A shard lies beside its index: anything that could leave the folder is refused. (The file itself
// may be a symbolic link; model caches are made of them.)
void CheckShardName(const std::string& index, const std::string& shard) {
  if (!shard.ends_with(".safetensors") || shard.find_first_of("/\\") != shard.npos ||
      shard.find('\0') != shard.npos || shard.starts_with('.')) {
    Fail(index, fmt::format("weight_map names shard {}; a plain file name that ends in "
                            "'.safetensors' expected",
                            Quote(shard)));
  }
}

std::map<std::string, Weight> OpenSharded(const std::string& folder, const std::string& index) {
  const json document = internal::ParseJson(MappedFile::Open(index)->text(), index);
  if (!document.is_object() || !document.contains("weight_map") ||
      !document["weight_map"].is_object() || document["weight_map"].empty()) {
    Fail(index, "key 'weight_map': an object from tensor to shard expected");
  }
  std::map<std::string, std::map<std::string, Weight>> shards;
  std::map<std::string, Weight> tensors;
  const json& weight_map = document["weight_map"];
  for (const auto& [name, value] : weight_map.items()) {
    if (!value.is_string()) Fail(index, "weight_map: tensor " + Quote(name) + " names no shard");
    const auto& shard = value.get_ref<const std::string&>();
    CheckShardName(index, shard);
    auto it = shards.find(shard);
    if (it == shards.end()) {
      it =
          shards.emplace(shard, Parse(MappedFile::Open((fs::path(folder) / shard).string()))).first;
    }
    auto node = it->second.extract(name);
    if (node.empty()) {
      if (IsPositionIds(name)) continue;
      Fail(index, fmt::format("tensor {} is not in shard {}", Quote(name), Quote(shard)));
    }
    tensors.insert(std::move(node));
  }
  for (const auto& [shard, left] : shards) {
    if (!left.empty()) {
      Fail(index, fmt::format("shard {} holds tensor {}, which weight_map does not place there",
                              Quote(shard), Quote(left.begin()->first)));
    }
  }
  internal::JoinPairs(&tensors);  // which may lie in two shards
  return tensors;
}

}  // namespace

std::map<std::string, Weight> OpenSafetensors(const std::string& path) {
  auto tensors = Parse(MappedFile::Open(path));
  internal::JoinPairs(&tensors);
  return tensors;
}

std::map<std::string, Weight> OpenSafetensorsFolder(const std::string& folder) {
  const fs::path root(folder);
  std::error_code error;
  const fs::path single = root / "model.safetensors";
  if (fs::exists(single, error)) return OpenSafetensors(single.string());
  const fs::path index = root / "model.safetensors.index.json";
  if (fs::exists(index, error)) return OpenSharded(folder, index.string());
  std::vector<std::string> found;
  for (const std::string& name : internal::NamesIn(folder)) {
    if (fs::path(name).extension() == ".safetensors") found.push_back((root / name).string());
  }
  if (found.empty()) {
    Fail(folder, "no model.safetensors, model.safetensors.index.json or other *.safetensors file",
         ErrorCode::kIo);
  }
  if (found.size() > 1) {
    Fail(folder, fmt::format("{} *.safetensors files but no model.safetensors.index.json that says "
                             "what each holds",
                             found.size()));
  }
  return OpenSafetensors(found[0]);
}

}  // namespace ropewalk
