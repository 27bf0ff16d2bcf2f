// Owned, 64-byte aligned memory: one cache line, one AVX-512 vector.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>

namespace ropewalk {

inline constexpr std::size_t kAlignment = 64;

namespace internal {
// count * item_bytes bytes; null for 0. Throws std::bad_alloc. Blocks of a megabyte or more are
// mapped and return to the system when freed: on the heap, caches of growing length would leave
// holes that are too small for later ones.
void* AllocateAligned(std::size_t count, std::size_t item_bytes);
void FreeAligned(void* data, std::size_t bytes) noexcept;
}  // namespace internal

// Fixed-size array of trivial T; not initialised unless a value is given.
template <class T>
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(std::size_t size)
      : data_(static_cast<T*>(internal::AllocateAligned(size, sizeof(T))), Free{size * sizeof(T)}),
        size_(size) {}
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
    std::size_t bytes = 0;
    void operator()(T* p) const { internal::FreeAligned(p, bytes); }
  };
  std::unique_ptr<T, Free> data_;
  std::size_t size_ = 0;
};

}  // namespace ropewalk
