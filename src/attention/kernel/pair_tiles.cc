// Products of pairs of bf16 in AMX's tiles: Intel's Architecture Instruction Set Extensions manual,
// TDPBF16PS.
#include <algorithm>
#include <array>

#include "ropewalk/attention/attention.h"
#include "src/attention/kernel/pairs.h"

#if defined(__x86_64__) && defined(__GNUC__) && defined(__linux__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#define ROPEWALK_AMX __attribute__((target("avx512f,amx-tile,amx-bf16")))
#endif

namespace ropewalk::internal {

#if defined(ROPEWALK_AMX)
namespace {

// Rows and columns of a tile of sums, and the most words of a tile's depth.
constexpr int kEdge = 16;

bool Find() {
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  if ((d & kAmxBf16) == 0 || (d & kAmxTile) == 0) return false;
  // Linux lends a process the 8 KiB of state only on request (ARCH_REQ_XCOMP_PERM of TILEDATA).
  return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
}

bool pair_tiles_allowed = true;

// What ldtilecfg reads: sums in tiles 0 to 3, those of a in 4 and 5, of b in 6 and 7.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  TileConfig() = default;
  explicit TileConfig(int words) {
    for (int i = 0; i < 8; ++i) {
      row_bytes[i] = static_cast<uint16_t>(4 * (i == 4 || i == 5 ? words : kEdge));
      rows[i] = static_cast<uint8_t>(i < 6 ? kEdge : words);
    }
  }
};
static_assert(sizeof(TileConfig) == 64);

const std::array<TileConfig, kEdge + 1>& Configs() {
  static const std::array<TileConfig, kEdge + 1> configs = [] {
    std::array<TileConfig, kEdge + 1> all;
    for (int words = 1; words <= kEdge; ++words) all[words] = TileConfig(words);
    return all;
  }();
  return configs;
}

// One or two tiles of rows by one or two of columns. Compilers do not know what the instructions
// read: callers write a and b in functions of their own.
template <int row_tiles, int column_tiles>
ROPEWALK_AMX void Block(const uint16_t* a, int64_t a_stride, const uint32_t* b, int64_t b_stride,
                        int64_t words, int64_t depth, bool accumulate, float* c, int64_t c_stride) {
  float* const c1 = c + kEdge * c_stride;
  const int64_t a_bytes = 2 * a_stride, b_bytes = 4 * b_stride, c_bytes = 4 * c_stride;
  if (accumulate) {
    _tile_loadd(0, c, c_bytes);
    if constexpr (column_tiles > 1) _tile_loadd(1, c + kEdge, c_bytes);
    if constexpr (row_tiles > 1) _tile_loadd(2, c1, c_bytes);
    if constexpr (row_tiles > 1 && column_tiles > 1) _tile_loadd(3, c1 + kEdge, c_bytes);
  } else {
    _tile_zero(0);
    if constexpr (column_tiles > 1) _tile_zero(1);
    if constexpr (row_tiles > 1) _tile_zero(2);
    if constexpr (row_tiles > 1 && column_tiles > 1) _tile_zero(3);
  }
  for (int64_t k = 0; k < depth; k += words) {
    _tile_loadd(6, b + k * b_stride, b_bytes);
    _tile_loadd(4, a + 2 * k, a_bytes);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (column_tiles > 1) {
      _tile_loadd(7, b + k * b_stride + kEdge, b_bytes);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (row_tiles > 1) {
      _tile_loadd(5, a + kEdge * a_stride + 2 * k, a_bytes);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (column_tiles > 1) _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, c, c_bytes);
  if constexpr (column_tiles > 1) _tile_stored(1, c + kEdge, c_bytes);
  if constexpr (row_tiles > 1) _tile_stored(2, c1, c_bytes);
  if constexpr (row_tiles > 1 && column_tiles > 1) _tile_stored(3, c1 + kEdge, c_bytes);
}

using BlockFunction = void (*)(const uint16_t*, int64_t, const uint32_t*, int64_t, int64_t, int64_t,
                               bool, float*, int64_t);
constexpr BlockFunction kBlocks[2][2] = {{Block<1, 1>, Block<1, 2>}, {Block<2, 1>, Block<2, 2>}};

ROPEWALK_AMX void Times(const float* from, int64_t from_stride, int64_t rows, int64_t width,
                        float factor, float* to, int64_t to_stride) {
  const __m512 by = _mm512_set1_ps(factor);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t x = 0; x < width; x += kEdge) {
      _mm512_storeu_ps(to + r * to_stride + x,
                       _mm512_mul_ps(_mm512_loadu_ps(from + r * from_stride + x), by));
    }
  }
}

}  // namespace

bool FindPairTiles() {
  static const bool found = Find();
  return found;
}

bool HasPairTiles() { return pair_tiles_allowed && HasBf16Attention() && FindPairTiles(); }

void AllowPairTiles(bool allowed) { pair_tiles_allowed = allowed; }

ROPEWALK_AMX void ConfigurePairTiles(int64_t words) {
  _tile_loadconfig(&Configs()[static_cast<size_t>(words)]);
}

ROPEWALK_AMX void ReleasePairTiles() { _tile_release(); }

void MultiplyPairTiles(int64_t rows, int64_t width, const uint16_t* a, int64_t a_stride,
                       const uint32_t* b, int64_t b_stride, int64_t words, int64_t depth,
                       float factor, float* c, int64_t c_stride) {
  const bool accumulate = factor == kAccumulatePairs, direct = accumulate || factor == 1;
  alignas(64) float sums[2 * kEdge * 2 * kEdge];
  for (int64_t x = 0; x < width; x += 2 * kEdge) {
    const int64_t columns = std::min<int64_t>(width - x, 2 * kEdge);
    const BlockFunction block = kBlocks[rows > kEdge ? 1 : 0][columns > kEdge ? 1 : 0];
    block(a, a_stride, b + x, b_stride, words, depth, accumulate, direct ? c + x : sums,
          direct ? c_stride : 2 * kEdge);
    if (!direct) Times(sums, 2 * kEdge, rows, columns, factor, c + x, c_stride);
  }
}

#else

bool FindPairTiles() { return false; }
bool HasPairTiles() { return false; }
void AllowPairTiles(bool) {}

// Never called.
void ConfigurePairTiles(int64_t) {}
void ReleasePairTiles() {}
void MultiplyPairTiles(int64_t, int64_t, const uint16_t*, int64_t, const uint32_t*, int64_t,
                       int64_t, int64_t, float, float*, int64_t) {}

#endif

int64_t WordsOfPairTiles(int64_t depth) {
  for (int64_t words = std::min<int64_t>(depth, 16); words >= kLeastPairWords; --words) {
    if (depth % words == 0) return words;
  }
  return 0;
}

}  // namespace ropewalk::internal
