// What a reader accepts, the writer of the same format writes, and both agree on what it is.
#include <cstdlib>
#include <cstring>

#include "fuzz/memory_file.h"
#include "ropewalk/base/error.h"
#include "src/io/gguf_file.h"
#include "src/io/write_tensors.h"

namespace {

using ropewalk::Weight;
using Tensors = std::map<std::string, Weight>;
using Metadata = std::map<std::string, ropewalk::GgufValue>;

std::vector<ropewalk::TensorSource> Sources(const Tensors& tensors) {
  std::vector<ropewalk::TensorSource> sources;
  for (const auto& [name, weight] : tensors) sources.push_back(CopyOf(weight));
  return sources;
}

std::string Gguf(const Metadata& metadata, const Tensors& tensors) {
  std::string out;
  ropewalk::internal::WriteGguf(
      [&](const void* data, std::size_t n) { out.append(static_cast<const char*>(data), n); },
      metadata, Sources(tensors));
  return out;
}

std::string Safetensors(const Tensors& tensors) {
  std::string out;
  ropewalk::internal::WriteSafetensors(
      [&](const void* data, std::size_t n) { out.append(static_cast<const char*>(data), n); },
      Sources(tensors), {});
  return out;
}

// Copies, since the one memory file is about to hold something else.
struct Copy {
  explicit Copy(const Tensors& from) : tensors(from) {
    for (auto& [name, weight] : tensors) {
      auto& own = bytes[name];
      own.assign(weight.data, weight.data + weight.bytes);
      weight.data = own.data();
      weight.file = nullptr;
    }
  }
  std::map<std::string, std::vector<std::byte>> bytes;
  Tensors tensors;
};

void ExpectSame(const Tensors& got, const Tensors& want) {
  if (got.size() != want.size()) std::abort();
  for (const auto& [name, w] : want) {
    const Weight& g = got.at(name);
    if (g.type != w.type || g.shape != w.shape || g.bytes != w.bytes) std::abort();
    if (w.bytes > 0 && std::memcmp(g.data, w.data, static_cast<std::size_t>(w.bytes)) != 0) {
      std::abort();
    }
  }
}

std::string Open(const std::string& bytes) {
  return ropewalk::fuzz::MemoryFile(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

void RoundTripGguf(const std::string& path) {
  const ropewalk::GgufFile first = ropewalk::OpenGguf(path);
  // Padding up to 2 GiB is legal and tests nothing.
  if (ropewalk::internal::GgufAlignment(first.metadata) > 65536) return;
  const Copy copy(first.tensors);
  const std::string once = Gguf(first.metadata, copy.tensors);
  const ropewalk::GgufFile second = ropewalk::internal::ParseGguf(Open(once));
  ExpectSame(second.tensors, copy.tensors);
  // Metadata by its bytes, since NaN equals nothing.
  if (Gguf(second.metadata, copy.tensors) != once) std::abort();
}

void RoundTripSafetensors(const std::string& path) {
  const Copy copy(ropewalk::OpenSafetensors(path));
  const std::string once = Safetensors(copy.tensors);
  ExpectSame(ropewalk::OpenSafetensors(Open(once)), copy.tensors);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  try {
    const std::string path = ropewalk::fuzz::MemoryFile(data, size);
    if (size >= 4 && std::memcmp(data, "GGUF", 4) == 0) {
      RoundTripGguf(path);
    } else {
      RoundTripSafetensors(path);
    }
  } catch (const ropewalk::Error& e) {
    // The readers refuse most inputs; a writer must not refuse what a reader let pass.
    if (e.code() == ropewalk::ErrorCode::kInvalidArgument) std::abort();
  }
  return 0;
}
