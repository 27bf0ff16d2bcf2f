// safetensors: 8 bytes of header length, a JSON header, the tensors without gaps. Order and padding
// are those of the reference implementation (huggingface/safetensors, tensor.rs).
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ropewalk/base/error.h"
#include "src/io/bytes.h"
#include "src/io/write_tensors.h"

namespace ropewalk::internal {

void WriteSafetensors(const ByteSink& sink, const std::vector<TensorSource>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  const std::vector<int64_t> bytes = CheckedBytes(tensors);
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorSource& t = tensors[i];
    if (Info(t.type).block_elements != 1) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("tensor {}: safetensors has no type {}; dequantise it, or write GGUF",
                              Quote(t.name), Info(t.type).name));
    }
    if (t.name == "__metadata__") {
      throw Error(ErrorCode::kInvalidArgument,
                  "tensor '__metadata__': safetensors keeps this name for its metadata");
    }
    order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return Info(tensors[a].type).block_bytes > Info(tensors[b].type).block_bytes;
  });

  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t at = 0;
  for (const std::size_t i : order) {
    const TensorSource& t = tensors[i];
    header[t.name] = {
        {"dtype", Info(t.type).name}, {"shape", t.shape}, {"data_offsets", {at, at + bytes[i]}}};
    if (__builtin_add_overflow(at, bytes[i], &at)) {
      throw Error(ErrorCode::kInvalidArgument, "the tensors have more than 2^63 bytes in all");
    }
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    throw Error(ErrorCode::kInvalidArgument,
                "safetensors: names and metadata have to be valid UTF-8");
  }
  while (text.size() % 8 != 0) text += ' ';
  const uint64_t length = text.size();
  sink(&length, sizeof(length));
  sink(text.data(), text.size());
  for (const std::size_t i : order) CopyRows(tensors[i], bytes[i], sink);
}

}  // namespace ropewalk::internal
