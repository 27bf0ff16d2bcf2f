// The layout that oneDNN prefers for a band of decoded rows, and how rows get there.
#pragma once

#include <cstdint>
#include <dnnl.hpp>
#include <vector>

#include "ropewalk/linear/linear.h"

namespace ropewalk::internal {

// Tiles: rows whose decoded elements fit a second-level cache until they are arranged. kTileColumns
// is a multiple of every block.
inline constexpr int64_t kTileRows = 64, kTileColumns = 1024;

struct BandLayout {
  dnnl::memory::desc weights;  // of the band, [in, rows]
  bool padded = false;         // parts of it are no tile's
  int64_t panel = 0;           // of float32 weights, see PanelOf; then there are no reorders
  int64_t padded_in = 0;       // input features of a panel
  int64_t row_tiles = 0, column_tiles = 0;
  std::vector<dnnl::reorder> reorders;         // of each tile, those of the first rows first
  std::vector<dnnl::memory::desc> from, into;  // of each

  // A decoded tile [its rows, its columns], dense, to its place in `band`.
  void Arrange(int64_t tile, const void* decoded, void* band) const;
};

// Made once for each shape.
const BandLayout& LayoutFor(ComputeType compute, int64_t in, int64_t rows);

}  // namespace ropewalk::internal
