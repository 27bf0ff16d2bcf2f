// Weights that stay in their file. Many rows of x: bands of output features are decoded into memory
// that stays in cache, and multiplied by oneDNN, each thread its own. A few rows: each row of the
// weight is decoded in registers, or in the first cache, and multiplied at once.
#include <algorithm>
#include <cstddef>
#include <exception>
#include <utility>

#include "ropewalk/base/threads.h"
#include "src/base/parallel.h"
#include "src/io/bytes.h"
#include "src/io/dequantize.h"
#include "src/linear/band_layout.h"
#include "src/linear/fixed_dots.h"
#include "src/linear/form.h"
#include "src/linear/onednn.h"
#include "src/linear/round_bf16.h"
#include "src/linear/rows_cpu.h"
#include "src/linear/scratch.h"
#include "src/linear/transpose_cpu.h"
#include "src/linear/word_dots.h"

namespace ropewalk::internal {
namespace {

using dnnl::memory;

// Below, oneDNN would spend more on arranging a decoded band than on multiplying with it.
constexpr int64_t kFewRows = 12;
// Bands: what a second-level cache holds. Larger ones were slower (Ice Lake).
constexpr int64_t kBandBytes = int64_t{1} << 20;
// Decoded at a time, where oneDNN takes panels; whole blocks.
constexpr int64_t kPanelRows = 16, kPanelColumns = 256;
// Rows of x at a time where they are copied.
constexpr int64_t kCopyRows = 4096, kDenseRows = 512;

class Packed final : public LinearForm {
 public:
  Packed(int64_t out_features, int64_t in_features, std::vector<FileRows> rows,
         const float* bias_of_all, ComputeType type)
      : LinearForm(out_features, in_features, bias_of_all, type), parts_(std::move(rows)) {
    for (const FileRows& part : parts_) {
      const int64_t bytes = part.rows * RowBytes(part);
      (part.mapped ? mapped_ : held_) += bytes;
      held_ += static_cast<int64_t>(part.order.size() * sizeof(int64_t));
      if (part.owner != nullptr && part.mapped) {
        ExpectReuse(part.data, static_cast<std::size_t>(bytes));
      }
    }
  }

  void Apply(const float* x, int64_t rows, int64_t x_stride, float* y, int64_t y_stride,
             bool accumulate) const override {
    if (rows <= kFewRows) return ApplyFew(x, rows, x_stride, y, y_stride, accumulate);
    for (int64_t r = 0; r < rows; r += kCopyRows) {
      const int64_t count = std::min(kCopyRows, rows - r);
      const void* dense = DenseX(compute, x + r * x_stride, count, in, x_stride);
      ApplyBands(dense, count, y + r * y_stride, y_stride, accumulate);
    }
  }

  int64_t weight_bytes() const override { return held_; }
  int64_t mapped_bytes() const override { return mapped_; }

 private:
  int64_t RowBytes(const FileRows& part) const {
    const WeightTypeInfo& info = Info(part.type);
    return in / info.block_elements * info.block_bytes;
  }

  // f(number of the part, its first output feature, those of [first, first + count) in it).
  template <class F>
  void EachPart(int64_t first, int64_t count, F f) const {
    int64_t begin = 0;
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      const int64_t end = begin + parts_[p].rows;
      const int64_t from = std::max(first, begin), to = std::min(first + count, end);
      if (from < to) f(p, begin, from, to);
      begin = end;
    }
  }

  static int64_t RowOf(const FileRows& part, int64_t i) {
    return part.order.empty() ? i : part.order[static_cast<std::size_t>(i)];
  }

  // f(o, part, row of the part) for output features [first, first + count).
  template <class F>
  void EachRow(int64_t first, int64_t count, F f) const {
    EachPart(first, count, [&](std::size_t p, int64_t begin, int64_t from, int64_t to) {
      for (int64_t o = from; o < to; ++o) f(o, parts_[p], RowOf(parts_[p], o - begin));
    });
  }

  // out [count], of which `first` and `count` are whole blocks.
  void DecodeColumns(const FileRows& part, int64_t row, int64_t first, int64_t count,
                     float* to) const {
    const WeightTypeInfo& info = Info(part.type);
    const int64_t block = first / info.block_elements;
    const std::byte* blocks = part.data + row * RowBytes(part) + block * info.block_bytes;
    if (part.scales == nullptr) return DecodeRow(part.type, blocks, count, to);
    const int64_t before = row * (in / info.block_elements) + block;
    Dequantize(part.type, blocks, count / info.block_elements, to,
               part.scales + before * info.scale_bytes);
  }

  void ApplyFew(const float* x, int64_t rows, int64_t x_stride, float* y, int64_t y_stride,
                bool accumulate) const;
  // One row of x as a product of one row takes it; null where DotRow multiplies it as it is.
  struct Written {
    const std::byte* x = nullptr;
    decltype(&DotFixed) dot = nullptr;
  };
  void OneOf(int64_t first, int64_t count, const float* x, const std::vector<Written>& written,
             float* y) const;
  std::vector<Written> Write(const float* x) const;
  void FewOf(int64_t first, int64_t count, const float* x, int64_t rows, int64_t x_stride, float* y,
             int64_t y_stride) const;
  void DecodePanels(const BandLayout& layout, int64_t first, int64_t count, float* band) const;
  void Decode(const BandLayout& layout, int64_t first, int64_t count, std::byte* band) const;
  int64_t BandRows() const;
  void ApplyBands(const void* x, int64_t rows, float* y, int64_t y_stride, bool accumulate) const;
  void Multiply(const BandLayout& layout, const void* x, int64_t rows, const std::byte* band,
                int64_t first, int64_t count, float* y, int64_t y_stride, bool accumulate) const;
  Product Find(const BandLayout& layout, int64_t rows, int64_t count, int64_t y_stride,
               bool accumulate) const;

  std::vector<FileRows> parts_;
  int64_t mapped_ = 0, held_ = 0;  // bytes of files, and of memory
  Products products_;
};

// For each part; parts of one type share theirs.
std::vector<Packed::Written> Packed::Write(const float* x) const {
  std::vector<Written> written(parts_.size());
  const int64_t bytes = std::max(FixedBytes(in), WordBytes(in));
  auto* next = Scratch<std::byte>(Purpose::kOne, parts_.size() * static_cast<std::size_t>(bytes));
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const WeightType type = parts_[i].type;
    const bool fixed = HasFixedDots(type);
    const bool words = !fixed && HasWordDots(type) && WordDotsPay();
    if (parts_[i].scales != nullptr || !(fixed || words)) continue;
    const auto same = std::find_if(parts_.begin(), parts_.begin() + static_cast<std::ptrdiff_t>(i),
                                   [&](const FileRows& part) { return part.type == type; });
    const auto before = static_cast<std::size_t>(same - parts_.begin());
    if (before < i) {
      written[i] = written[before];
    } else if (fixed ? WriteFixed(type, x, in, next) : WriteWords(type, x, in, next)) {
      written[i] = {next, fixed ? &DotFixed : &DotWords};
      next += bytes;
    }
  }
  return written;
}

// Of one row of x; y has what the sums are added to.
void Packed::OneOf(int64_t first, int64_t count, const float* x,
                   const std::vector<Written>& written, float* y) const {
  EachPart(first, count, [&](std::size_t p, int64_t begin, int64_t from, int64_t to) {
    if (written[p].x == nullptr) return FewOf(from, to - from, x, 1, in, y, out);
    const FileRows& part = parts_[p];
    const int64_t* order = part.order.empty() ? nullptr : part.order.data();
    const FixedRows rows = {part.data, order, from - begin, to - from};
    written[p].dot(part.type, rows, in, written[p].x, y + from);
  });
}

// y has what the sums are added to.
void Packed::FewOf(int64_t first, int64_t count, const float* x, int64_t rows, int64_t x_stride,
                   float* y, int64_t y_stride) const {
  EachRow(first, count, [&](int64_t o, const FileRows& part, int64_t row) {
    if (rows == 1 && part.scales == nullptr) {
      y[o] += DotRow(part.type, part.data + row * RowBytes(part), in, x);
      return;
    }
    auto* decoded = Scratch<float>(Purpose::kRow, static_cast<std::size_t>(in));
    DecodeColumns(part, row, 0, in, decoded);
    DotFloats(decoded, in, x, rows, x_stride, y + o, y_stride);
  });
}

void Packed::ApplyFew(const float* x, int64_t rows, int64_t x_stride, float* y, int64_t y_stride,
                      bool accumulate) const {
  // 0.1 ns to read and decode a weight, 0.025 ns to multiply it; in fixed point 0.04 ns for both, where
  // threads then begin at 16 us and not 50.
  const int threads = ThreadsForProduct(out * in * (rows + 4) / 40);
  const int64_t share = (out + threads - 1) / threads;
  std::vector<Written> written;
  if (rows == 1) written = Write(x);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int t = 0; t < threads; ++t) {
    const int64_t first = t * share, count = std::min(share, out - first);
    if (count <= 0) continue;
    for (int64_t r = 0; r < rows; ++r) {
      float* to = y + r * y_stride + first;
      for (int64_t o = 0; o < count; ++o) {
        to[o] = (accumulate ? to[o] : 0) + (bias.size() != 0 ? bias[first + o] : 0);
      }
    }
    if (rows == 1) {
      OneOf(first, count, x, written, y);
    } else {
      FewOf(first, count, x, rows, x_stride, y, y_stride);
    }
  }
}

// As many rows and columns at a time as stay in the first cache until they are transposed: oneDNN's
// own reordering took most of the time that decoding took.
void Packed::DecodePanels(const BandLayout& layout, int64_t first, int64_t count,
                          float* band) const {
  auto* decoded = Scratch<float>(Purpose::kRow, kPanelRows * kPanelColumns);
  for (int64_t panel = 0; panel < count; panel += layout.panel) {
    const int64_t panel_rows = std::min(layout.panel, count - panel);
    for (int64_t column = 0; column < in; column += kPanelColumns) {
      const int64_t columns = std::min(kPanelColumns, in - column);
      for (int64_t row = 0; row < panel_rows; row += kPanelRows) {
        const int64_t rows = std::min(kPanelRows, panel_rows - row);
        const int64_t begin = first + panel + row;
        EachRow(begin, rows, [&](int64_t o, const FileRows& part, int64_t from) {
          DecodeColumns(part, from, column, columns, decoded + (o - begin) * columns);
        });
        float* to = band + panel * layout.padded_in + column * layout.panel + row;
        Transpose(decoded, rows, columns, to, layout.panel);
      }
    }
  }
}

// Tile by tile, to the layout that oneDNN takes.
void Packed::Decode(const BandLayout& layout, int64_t first, int64_t count, std::byte* band) const {
  if (layout.padded) std::fill_n(band, layout.weights.get_size(), std::byte{0});
  if (layout.panel != 0) {
    return DecodePanels(layout, first, count, reinterpret_cast<float*>(band));
  }
  for (int64_t tile = 0; tile < layout.row_tiles * layout.column_tiles; ++tile) {
    const int64_t row = tile / layout.column_tiles * kTileRows;
    const int64_t column = tile % layout.column_tiles * kTileColumns;
    const int64_t rows = std::min(kTileRows, count - row);
    const int64_t columns = std::min(kTileColumns, in - column);
    auto* decoded = Scratch<float>(Purpose::kRow, static_cast<std::size_t>(rows * columns));
    EachRow(first + row, rows, [&](int64_t o, const FileRows& part, int64_t from) {
      DecodeColumns(part, from, column, columns, decoded + (o - first - row) * columns);
    });
    const void* tile_data = decoded;
    if (compute == ComputeType::kBFloat16) {
      auto* rounded = Scratch<BFloat16>(Purpose::kTile, static_cast<std::size_t>(rows * columns));
      RoundToBf16(decoded, columns, rows, columns, rounded);
      tile_data = rounded;
    }
    layout.Arrange(tile, tile_data, band);
  }
}

// With the weights `layout` of `count` features.
Product Packed::Find(const BandLayout& layout, int64_t rows, int64_t count, int64_t y_stride,
                     bool accumulate) const {
  return products_.Find({rows, count, y_stride, accumulate}, [&](const Product& wanted) {
    const memory::desc bias_desc = Dense(1, wanted.out);
    const memory::desc y({wanted.rows, wanted.out}, memory::data_type::f32, {wanted.y_stride, 1});
    return Describe(Dense(wanted.rows, in, TypeOf(compute)), layout.weights,
                    bias.size() != 0 ? &bias_desc : nullptr, y, wanted.accumulate);
  });
}

// Features [first, first + count), which are in `band`, of y.
void Packed::Multiply(const BandLayout& layout, const void* x, int64_t rows, const std::byte* band,
                      int64_t first, int64_t count, float* y, int64_t y_stride,
                      bool accumulate) const {
  const float* own_bias = bias.size() != 0 ? bias.data() + first : nullptr;
  const Product into_rows = Find(layout, rows, count, y_stride, accumulate);
  if (!into_rows.IsReference()) return into_rows.Run(x, band, own_bias, y + first);
  // oneDNN 2.6 writes dense rows alone; few of them stay in cache until they are copied.
  auto* made = Scratch<float>(Purpose::kY, static_cast<std::size_t>(kDenseRows * count));
  for (int64_t r = 0; r < rows; r += kDenseRows) {
    const int64_t n = std::min(kDenseRows, rows - r);
    const auto* from = static_cast<const std::byte*>(x) + r * in * TypeBytes(compute);
    Find(layout, n, count, count, /*accumulate=*/false).Run(from, band, own_bias, made);
    CopyRows(made, count, n, count, y + first + r * y_stride, y_stride, accumulate);
  }
}

// Every thread takes a band after the other, from its blocks to y: none waits for others before the
// end, and the bits do not depend on how many there are.
void Packed::ApplyBands(const void* x, int64_t rows, float* y, int64_t y_stride,
                        bool accumulate) const {
  const int threads = ThreadsForProduct(ProductNs(compute, rows, out, in));
  const int64_t size = BandRows();
  const int64_t bands = (out + size - 1) / size;
  std::exception_ptr error;
#pragma omp parallel for num_threads(threads) schedule(dynamic)
  for (int64_t b = 0; b < bands; ++b) {
    try {
      const ScopedNumThreads one(1);
      const int64_t first = b * size, count = std::min(size, out - first);
      const BandLayout& layout = LayoutFor(compute, in, count);
      auto* band = Scratch<std::byte>(Purpose::kBand, layout.weights.get_size());
      Decode(layout, first, count, band);
      Multiply(layout, x, rows, band, first, count, y, y_stride, accumulate);
    } catch (...) {
#pragma omp critical(ropewalk_packed)
      error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

// A band fits the second-level cache of its thread; and there is one for each of 16 threads, however
// many there are, or bits would depend on that.
int64_t Packed::BandRows() const {
  const int64_t fit = kBandBytes / (in * TypeBytes(compute)) / kTileRows * kTileRows;
  const int64_t share = out / 16 / kTileRows * kTileRows;
  return std::max(kTileRows, std::min(fit, share));
}

}  // namespace

std::unique_ptr<const LinearForm> MakePacked(int64_t in, std::vector<FileRows> rows,
                                             const float* bias, ComputeType compute) {
  int64_t out = 0;
  for (const FileRows& part : rows) out += part.rows;
  return std::make_unique<Packed>(out, in, std::move(rows), bias, compute);
}

}  // namespace ropewalk::internal
