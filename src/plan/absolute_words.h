// The words of config.json for the choices of absolute encodings.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "ropewalk/plan/absolute.h"

namespace ropewalk::internal {

// In the order of the enumerators.
template <class E>
inline constexpr std::array<const char*, 0> kWords = {};
template <>
inline constexpr std::array kWords<SinusoidalLayout> = {"interleaved", "concatenated"};
template <>
inline constexpr std::array kWords<SinusoidalLadder> = {"paper", "to-base"};
template <>
inline constexpr std::array kWords<RecurrentCell> = {"tanh", "gru"};
template <>
inline constexpr std::array kWords<ConvolutionBorder> = {"zero", "circular"};
template <>
inline constexpr std::array kWords<ComplexSharing> = {"none", "words", "dims"};

template <class E>
const char* WordOf(E value) {
  return kWords<E>[static_cast<std::size_t>(value)];
}
template <class E>
std::optional<E> FindWord(std::string_view word) {
  for (std::size_t i = 0; i < kWords<E>.size(); ++i) {
    if (word == kWords<E>[i]) return static_cast<E>(i);
  }
  return std::nullopt;
}
// "one of interleaved, concatenated".
template <class E>
std::string ExpectedWords() {
  std::string text = "one of ";
  for (const char* word : kWords<E>) text += (word == kWords<E>[0] ? "" : ", ") + std::string(word);
  return text;
}

// What config.json calls an encoding's "type", in the order of the variant.
inline constexpr std::array<const char*, std::variant_size_v<AbsoluteEncoding>> kAbsoluteNames = {
    "sinusoidal", "hierarchical", "multiplicative", "digits",
    "recurrent",  "floater",      "convolutional",  "complex_order"};

}  // namespace ropewalk::internal
