// A member of a row that the row may not leave out: designated initializers without it do not
// compile.
#pragma once

namespace ropewalk::internal {

template <class T>
class Required {
 public:
  constexpr Required(T value) : value_(value) {}   // NOLINT(google-explicit-constructor): in rows
  constexpr operator T() const { return value_; }  // NOLINT(google-explicit-constructor)

 private:
  T value_;
};

}  // namespace ropewalk::internal
