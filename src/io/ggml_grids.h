// The grids of ggml's IQ1, IQ2 and IQ3 types: data of the format, from ggml (ggml-common.h, MIT;
// LICENSE.ggml). A point is what a group of 8 or 4 elements may be, before signs and scale.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ropewalk::internal {

template <std::size_t kPoints, std::size_t kElements>
using Grid = std::array<std::array<int8_t, kElements>, kPoints>;

extern const Grid<256, 8> kGridIQ2_XXS;
extern const Grid<512, 8> kGridIQ2_XS;
extern const Grid<1024, 8> kGridIQ2_S;
extern const Grid<256, 4> kGridIQ3_XXS;
extern const Grid<512, 4> kGridIQ3_S;
extern const Grid<2048, 8> kGridIQ1;  // of IQ1_S and IQ1_M

}  // namespace ropewalk::internal
