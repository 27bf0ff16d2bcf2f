#include "tests/io/files.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>

namespace {

std::atomic<std::size_t> largest_allocation{0};

void* Allocate(std::size_t bytes) {
  std::size_t seen = largest_allocation;
  while (bytes > seen && !largest_allocation.compare_exchange_weak(seen, bytes)) {
  }
  if (void* p = std::malloc(std::max<std::size_t>(bytes, 1))) return p;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) { return Allocate(bytes); }
void* operator new[](std::size_t bytes) { return Allocate(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return std::malloc(bytes); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }

namespace ropewalk::testing {

namespace fs = std::filesystem;

TempFolder::TempFolder() {
  // Thousands of tiny files are written; in memory that takes 0.2 s, on a slow disk 20.
  const fs::path memory = "/dev/shm";
  const bool writable = ::access(memory.c_str(), W_OK | X_OK) == 0;
  const fs::path base = writable ? memory : fs::temp_directory_path();
  std::string pattern = (base / "ropewalk_io_XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  path_ = pattern;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string TempFolder::Write(const std::string& name, std::string_view bytes) const {
  const std::string path = (fs::path(path_) / name).string();
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out) throw std::runtime_error("cannot write " + path);
  return path;
}

AllocationWatch::AllocationWatch() { largest_allocation = 0; }
std::size_t AllocationWatch::largest() const { return largest_allocation; }

std::string Safetensors(std::string_view header, std::string_view data) {
  std::string bytes;
  Append(&bytes, uint64_t{header.size()});
  return bytes.append(header).append(data);
}

GgufWriter::GgufWriter(uint64_t tensors, uint64_t keys, uint32_t version) : bytes("GGUF") {
  Value(version).Value(tensors).Value(keys);
}

GgufWriter& GgufWriter::String(std::string_view text) {
  Append(&bytes, uint64_t{text.size()});
  bytes.append(text);
  return *this;
}

GgufWriter& GgufWriter::Tensor(std::string_view name, const std::vector<uint64_t>& inner_first,
                               uint32_t type, uint64_t offset) {
  String(name).Value(static_cast<uint32_t>(inner_first.size()));
  for (const uint64_t extent : inner_first) Value(extent);
  return Value(type).Value(offset);
}

GgufWriter& GgufWriter::Data(std::size_t count, std::size_t alignment) {
  while (bytes.size() % alignment != 0) bytes += '\0';
  for (std::size_t i = 0; i < count; ++i) bytes += static_cast<char>(i);
  return *this;
}

std::string Llama2c(const std::vector<int32_t>& header, std::size_t floats) {
  std::string bytes;
  for (const int32_t value : header) Append(&bytes, value);
  for (std::size_t i = 0; i < floats; ++i) Append(&bytes, static_cast<float>(i));
  return bytes;
}

void ExpectRefused(const std::function<void()>& call, ErrorCode code,
                   const std::vector<std::string>& parts) {
  const AllocationWatch watch;
  try {
    call();
    ADD_FAILURE() << "accepted; a refusal with '" << (parts.empty() ? "" : parts[0])
                  << "' was expected";
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
    for (const std::string& part : parts) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "'" << part << "' is not in: " << error.what();
    }
  }
  EXPECT_LE(watch.largest(), std::size_t{1} << 20);
}

}  // namespace ropewalk::testing
