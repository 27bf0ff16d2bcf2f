#include "src/linear/band_layout.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "ropewalk/base/threads.h"
#include "src/base/parallel.h"
#include "src/linear/onednn.h"

namespace ropewalk::internal {
namespace {

using dnnl::memory;
constexpr int64_t kLayoutRows = 512;  // rows of x that the layout is chosen for

std::unique_ptr<const BandLayout> MakeLayout(ComputeType compute, int64_t in, int64_t rows) {
  const memory::data_type type = TypeOf(compute);
  auto layout = std::make_unique<BandLayout>();
  layout->weights =
      Describe(Dense(kLayoutRows, in, type), {{in, rows}, type, memory::format_tag::any}, nullptr,
               Dense(kLayoutRows, rows), /*accumulate=*/false)
          .weights_desc();
  layout->padded =
      static_cast<int64_t>(layout->weights.get_size()) != in * rows * TypeBytes(compute);
  if (compute == ComputeType::kFloat32) layout->panel = PanelOf(layout->weights);
  if (layout->panel != 0) {
    const int64_t panels = (rows + layout->panel - 1) / layout->panel;
    layout->padded_in = static_cast<int64_t>(layout->weights.get_size()) /
                        (panels * layout->panel * TypeBytes(compute));
    return layout;
  }
  layout->row_tiles = (rows + kTileRows - 1) / kTileRows;
  layout->column_tiles = (in + kTileColumns - 1) / kTileColumns;
  const ScopedNumThreads one(1);  // tiles are what threads share
  for (int64_t row = 0; row < rows; row += kTileRows) {
    for (int64_t column = 0; column < in; column += kTileColumns) {
      const memory::dims size = {std::min(kTileColumns, in - column),
                                 std::min(kTileRows, rows - row)};
      layout->from.emplace_back(size, type, memory::format_tag::ba);
      layout->into.push_back(layout->weights.submemory_desc(size, {column, row}));
      layout->reorders.emplace_back(dnnl::reorder::primitive_desc(Engine(), layout->from.back(),
                                                                  Engine(), layout->into.back()));
    }
  }
  return layout;
}

}  // namespace

void BandLayout::Arrange(int64_t tile, const void* decoded, void* band) const {
  const auto i = static_cast<std::size_t>(tile);
  memory source(from[i], Engine(), const_cast<void*>(decoded));
  memory target(into[i], Engine(), band);
  reorders[i].execute(Stream(), source, target);
  Stream().wait();
}

const BandLayout& LayoutFor(ComputeType compute, int64_t in, int64_t rows) {
  static std::mutex mutex;
  static std::map<std::tuple<ComputeType, int64_t, int64_t, int>, std::unique_ptr<const BandLayout>>
      layouts;
  const std::lock_guard<std::mutex> lock(mutex);
  auto& layout = layouts[{compute, in, rows, NumThreads()}];
  if (layout == nullptr) layout = MakeLayout(compute, in, rows);
  return *layout;
}

}  // namespace ropewalk::internal
