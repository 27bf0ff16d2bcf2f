// The fields of a struct of settings by name: descriptions, JSON, hashes and the parameters of the
// C interface are all derived from the list S::Fields().
#pragma once

#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

namespace ropewalk {

// How a description writes a field. An optional without a value is left out.
enum class Written : uint8_t {
  kNamed,          // "factor 4"; "truncate" or "no truncate"; "16 divisors"
  kUnlessDefault,  // the same, where the value is not the struct's default
  kValue,          // "500000"
  kWithPrevious,   // "beta 1.25 0.75": the second number, after that of the previous field
  kNot             // left out
};

template <class S, class T>
struct Field {
  const char* name;  // of the member
  T S::*member;
  Written written = Written::kNamed;
  const char* words = nullptr;  // replaces the name in a description
  int last = 0;                 // for an enum: its largest value
};
template <class S, class T>
Field(const char*, T S::*, Written = {}, const char* = nullptr, int = 0) -> Field<S, T>;

template <class S, class Visit>
constexpr void VisitFields(const Visit& visit) {
  std::apply([&](const auto&... field) { (visit(field), ...); }, S::Fields());
}

namespace internal {

// Whether these rows, each with a pointer `member`, have every member of S in the order of their
// declarations.
template <class S, class... Row>
constexpr bool ListsAll(const std::tuple<Row...>& /*rows*/) {
  return requires { S{std::declval<S>().*std::declval<Row>().member...}; }
  &&!requires { S{std::declval<S>().*std::declval<Row>().member..., {}}; };
}

}  // namespace internal

// Whether S::Fields() has every member of S, in the order of their declarations.
template <class S>
constexpr bool kListsAllFields = internal::ListsAll<S>(S::Fields());
template <class... S>
constexpr bool kListsAllFields<std::variant<S...>> = (kListsAllFields<S> && ...);

}  // namespace ropewalk
