// 128-bit content hashes (XXH3): identities of models, texts, plans and cells. Not cryptographic.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace ropewalk {

class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;

  void Update(const void* data, std::size_t bytes);
  void Update(std::string_view text) { Update(text.data(), text.size()); }
  template <class T>
  void UpdateValue(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    Update(&value, sizeof(value));
  }
  std::string Hex() const;  // 32 lower-case hexadecimal digits of all bytes so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string HashHex(std::string_view bytes);

}  // namespace ropewalk
