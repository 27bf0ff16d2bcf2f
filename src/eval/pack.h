// Values to bytes and back, for ranks of one program: structs field by field without a list of their
// own, so that a field that is added travels as well. What is no aggregate has an overload here; a
// type that has none does not compile.
#pragma once

#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "ropewalk/base/error.h"
#include "ropewalk/plan/plan.h"

namespace ropewalk::internal {

class Packer {
 public:
  static constexpr bool kReads = false;
  void Raw(const void* from, std::size_t size) {
    const auto* bytes = static_cast<const std::byte*>(from);
    bytes_.insert(bytes_.end(), bytes, bytes + size);
  }
  std::vector<std::byte> Take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class Unpacker {
 public:
  static constexpr bool kReads = true;
  explicit Unpacker(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  void Raw(void* to, std::size_t size) {
    if (size > bytes_.size() - at_) {
      throw Error(ErrorCode::kMismatch, "ranks: a message ends early");
    }
    if (size > 0) std::memcpy(to, bytes_.data() + at_, size);
    at_ += size;
  }
  bool done() const { return at_ == bytes_.size(); }

 private:
  std::vector<std::byte> bytes_;
  std::size_t at_ = 0;
};

// Of an aggregate: how many initialisers it takes.
struct AnyField {
  template <class T>
  operator T() const;  // NOLINT(google-explicit-constructor)
};
template <class T, class... Fields>
constexpr std::size_t FieldsOf() {
  if constexpr (requires { T{std::declval<Fields>()..., std::declval<AnyField>()}; }) {
    return FieldsOf<T, Fields..., AnyField>();
  } else {
    return sizeof...(Fields);
  }
}

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};
template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <class T>
struct IsVariant : std::false_type {};
template <class... T>
struct IsVariant<std::variant<T...>> : std::true_type {};

template <class T>
T Empty() {
  if constexpr (std::is_same_v<T, RotarySpec>) {
    return RotarySpec(PairLayout::kHalf);
  } else if constexpr (std::is_same_v<T, ResolvedRotation>) {
    return {RotarySpec(PairLayout::kHalf), {}};
  } else {
    return T{};
  }
}

template <class Archive, class T>
void Travel(Archive& archive, T& x);

template <class Archive, class... T>
void TravelAll(Archive& archive, T&... fields) {
  (Travel(archive, fields), ...);
}

template <class Archive, class T>
void TravelFields(Archive& a, T& x) {
  constexpr std::size_t kFields = FieldsOf<T>();
  static_assert(kFields <= 13, "TravelFields knows structs of up to 13 fields");
  if constexpr (kFields == 1) {
    auto& [f0] = x;
    TravelAll(a, f0);
  } else if constexpr (kFields == 2) {
    auto& [f0, f1] = x;
    TravelAll(a, f0, f1);
  } else if constexpr (kFields == 3) {
    auto& [f0, f1, f2] = x;
    TravelAll(a, f0, f1, f2);
  } else if constexpr (kFields == 4) {
    auto& [f0, f1, f2, f3] = x;
    TravelAll(a, f0, f1, f2, f3);
  } else if constexpr (kFields == 5) {
    auto& [f0, f1, f2, f3, f4] = x;
    TravelAll(a, f0, f1, f2, f3, f4);
  } else if constexpr (kFields == 6) {
    auto& [f0, f1, f2, f3, f4, f5] = x;
    TravelAll(a, f0, f1, f2, f3, f4, f5);
  } else if constexpr (kFields == 7) {
    auto& [f0, f1, f2, f3, f4, f5, f6] = x;
    TravelAll(a, f0, f1, f2, f3, f4, f5, f6);
  } else if constexpr (kFields == 8) {
    auto& [f0, f1, f2, f3, f4, f5, f6, f7] = x;
    TravelAll(a, f0, f1, f2, f3, f4, f5, f6, f7);
  } else if constexpr (kFields == 9) {
    auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8] = x;
    TravelAll(a, f0, f1, f2, f3, f4, f5, f6, f7, f8);
  } else if constexpr (kFields == 10) {
    auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9] = x;
    TravelAll(a, f0, f1, f2, f3, f4, f5, f6, f7, f8, f9);
  } else if constexpr (kFields == 11) {
    auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10] = x;
    TravelAll(a, f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10);
  } else if constexpr (kFields == 12) {
    auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11] = x;
    TravelAll(a, f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11);
  } else if constexpr (kFields == 13) {
    auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12] = x;
    TravelAll(a, f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12);
  }
}

template <std::size_t index = 0, class... T>
void Become(std::variant<T...>& x, std::size_t wanted) {
  if constexpr (index < sizeof...(T)) {
    if (wanted == index) {
      x = Empty<std::variant_alternative_t<index, std::variant<T...>>>();
    } else {
      Become<index + 1>(x, wanted);
    }
  } else {
    throw Error(ErrorCode::kMismatch, "ranks: a message names no alternative");
  }
}

template <class Archive, class T>
void TravelMany(Archive& a, T& all) {
  std::size_t size = all.size();
  Travel(a, size);
  if constexpr (Archive::kReads) all.resize(size);
  using Item = typename T::value_type;
  if constexpr (std::is_arithmetic_v<Item> || std::is_enum_v<Item>) {
    a.Raw(all.data(), size * sizeof(Item));
  } else {
    for (Item& item : all) Travel(a, item);
  }
}

template <class Archive, class T>
void Travel(Archive& a, T& x) {
  if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
    a.Raw(&x, sizeof(x));
  } else if constexpr (std::is_same_v<T, std::string> || IsVector<T>::value) {
    TravelMany(a, x);
  } else if constexpr (IsOptional<T>::value) {
    bool there = x.has_value();
    Travel(a, there);
    if (!there) return x.reset();
    if constexpr (Archive::kReads) x = Empty<typename T::value_type>();
    Travel(a, *x);
  } else if constexpr (IsVariant<T>::value) {
    std::size_t index = x.index();
    Travel(a, index);
    if constexpr (Archive::kReads) Become(x, index);
    std::visit([&](auto& value) { Travel(a, value); }, x);
  } else if constexpr (std::is_same_v<T, LayerPlan>) {
    TravelAll(a, static_cast<LayerFacts&>(x), x.rotation, x.bias);
  } else if constexpr (std::is_same_v<T, RotarySpec>) {
    TravelAll(a, x.layout, x.head_dim, x.rotary_dim, x.first_dim, x.base, x.trained_length,
              x.scaling, x.dialect, x.axes, x.xpos, x.rotated_heads);
  } else {
    static_assert(std::is_aggregate_v<T>, "this type needs its branch in Travel");
    TravelFields(a, x);
  }
}

// The caller's value is not changed.
template <class T>
std::vector<std::byte> Pack(const T& x) {
  Packer packer;
  Travel(packer, const_cast<T&>(x));
  return packer.Take();
}

// Throws Error(kMismatch) for bytes that are no T.
template <class T>
T Unpack(std::vector<std::byte> bytes) {
  Unpacker unpacker(std::move(bytes));
  T x = Empty<T>();
  Travel(unpacker, x);
  if (!unpacker.done()) throw Error(ErrorCode::kMismatch, "ranks: a message goes on too long");
  return x;
}

}  // namespace ropewalk::internal
