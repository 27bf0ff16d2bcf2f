// Owned, 64-byte aligned memory: one cache line, one AVX-512 vector.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>

namespace ropewalk {

inline constexpr std::size_t kAlignment = 64;

// Fixed-size array of trivial T, not initialised unless asked.
template <class T>
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(std::size_t size)
      : data_(static_cast<T*>(Allocate(size, sizeof(T)))), size_(size) {}
  AlignedBuffer(std::size_t size, T value) : AlignedBuffer(size) {
    for (std::size_t i = 0; i < size; ++i) data_.get()[i] = value;
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  T& operator[](std::size_t i) { return data_.get()[i]; }
  const T& operator[](std::size_t i) const { return data_.get()[i]; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  std::span<T> span() { return {data(), size_}; }
  std::span<const T> span() const { return {data(), size_}; }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  static void* Allocate(std::size_t count, std::size_t item_bytes) {
    if (count == 0) return nullptr;
    if (count > (PTRDIFF_MAX - kAlignment) / item_bytes) throw std::bad_alloc();
    const std::size_t bytes = (count * item_bytes + kAlignment - 1) / kAlignment * kAlignment;
    void* p = std::aligned_alloc(kAlignment, bytes);
    if (p == nullptr) throw std::bad_alloc();
    return p;
  }
  std::unique_ptr<T, Free> data_;
  std::size_t size_ = 0;
};

}  // namespace ropewalk
