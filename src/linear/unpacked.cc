// Weights in the layout that oneDNN prefers, in float32 or bf16.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "ropewalk/base/threads.h"
#include "src/base/parallel.h"
#include "src/linear/form.h"
#include "src/linear/onednn.h"
#include "src/linear/round_bf16.h"
#include "src/linear/scratch.h"

namespace ropewalk::internal {
namespace {

using dnnl::memory;

// Weights are packed in bands of output features: beside the packed weights only one plain band
// exists.
constexpr int64_t kUnpackedBandBytes = int64_t{32} << 20;
constexpr int64_t kBandMultiple = 64;         // features; blocks of packed weights have up to 64
constexpr int64_t kSourceRows = 64;           // rows asked from the source at a time
constexpr int64_t kUnpackedLayoutRows = 512;  // rows of x that the layout is chosen for
constexpr int64_t kUnpackedCopyRows = 512;    // rows of input or output that are copied at a time

class Unpacked final : public LinearForm {
 public:
  Unpacked(int64_t out_features, int64_t in_features, const Linear::RowSource& source,
           const float* bias_of_all, ComputeType type)
      : LinearForm(out_features, in_features, bias_of_all, type) {
    Fill(source);
  }

  void Apply(const float* x, int64_t rows, int64_t x_stride, float* y, int64_t y_stride,
             bool accumulate) const override {
    const bool copy_x = x_stride != in && rows > 1, copy_y = y_stride != out && rows > 1;
    const int64_t step = copy_x || copy_y || bf16() ? kUnpackedCopyRows : rows;
    for (int64_t r = 0; r < rows; r += step) {
      const int64_t count = std::min(step, rows - r);
      const void* from = DenseX(compute, x + r * x_stride, count, in, copy_x ? x_stride : in);
      float* to = y + r * y_stride;
      if (copy_y) to = Scratch<float>(Purpose::kY, static_cast<std::size_t>(count * out));
      Multiply(from, count, to, accumulate && !copy_y);
      if (copy_y) CopyRows(to, out, count, out, y + r * y_stride, y_stride, accumulate);
    }
  }

  int64_t weight_bytes() const override { return static_cast<int64_t>(weight_.size()); }
  int64_t mapped_bytes() const override { return 0; }

 private:
  bool bf16() const { return compute == ComputeType::kBFloat16; }

  dnnl::matmul::primitive_desc DescribeFor(const Product& wanted,
                                           const memory::desc& weights) const {
    const memory::desc bias_desc = Dense(1, out);
    return Describe(Dense(wanted.rows, in, TypeOf(compute)), weights,
                    bias.size() != 0 ? &bias_desc : nullptr, Dense(wanted.rows, out),
                    wanted.accumulate);
  }

  // x [rows, in] of the type of `compute`.
  void Multiply(const void* x, int64_t rows, float* y, bool accumulate) const {
    const ScopedNumThreads limit(ThreadsForProduct(ProductNs(compute, rows, out, in)));
    const Product product =
        products_.Find({rows, out, out, accumulate},
                       [&](const Product& wanted) { return DescribeFor(wanted, weight_desc_); });
    product.Run(x, weight_.data(), bias.size() != 0 ? bias.data() : nullptr, y);
  }

  void Fill(const Linear::RowSource& source);

  memory::desc weight_desc_;
  AlignedBuffer<std::byte> weight_;
  Products products_;
};

void Unpacked::Fill(const Linear::RowSource& source) {
  {
    const ScopedNumThreads threads(NumThreads());
    weight_desc_ = DescribeFor({kUnpackedLayoutRows, out, out, false},
                               {{in, out}, TypeOf(compute), memory::format_tag::any})
                       .weights_desc();
  }
  // Zeros, because packing a band leaves the padding of its blocks alone.
  weight_ = AlignedBuffer<std::byte>(weight_desc_.get_size(), std::byte{0});
  const int64_t type_bytes = TypeBytes(compute);
  const int64_t fit = kUnpackedBandBytes / type_bytes / in;
  const int64_t size = std::max(kBandMultiple, fit / kBandMultiple * kBandMultiple);
  AlignedBuffer<std::byte> plain(static_cast<std::size_t>(std::min(size, out) * in * type_bytes));
  AlignedBuffer<float> unrounded(bf16() ? static_cast<std::size_t>(std::min(kSourceRows, out) * in)
                                        : 0);
  const ScopedNumThreads limit(ThreadsFor(out * in));  // for the reorders
  for (int64_t first = 0; first < out; first += size) {
    const int64_t rows = std::min(size, out - first);
    for (int64_t r = 0; r < rows; r += kSourceRows) {
      const int64_t count = std::min(kSourceRows, rows - r);
      std::byte* to = plain.data() + r * in * type_bytes;
      source(first + r, count, bf16() ? unrounded.data() : reinterpret_cast<float*>(to));
      if (!bf16()) continue;
      RoundToBf16(unrounded.data(), in, count, in, reinterpret_cast<BFloat16*>(to));
    }
    memory from({{in, rows}, TypeOf(compute), memory::format_tag::ba}, Engine(), plain.data());
    memory to(weight_desc_.submemory_desc({in, rows}, {0, first}), Engine(), weight_.data());
    dnnl::reorder(from, to).execute(Stream(), from, to);
    Stream().wait();
  }
}

}  // namespace

std::unique_ptr<const LinearForm> MakeUnpacked(int64_t out, int64_t in,
                                               const Linear::RowSource& source, const float* bias,
                                               ComputeType compute) {
  return std::make_unique<Unpacked>(out, in, source, bias, compute);
}

}  // namespace ropewalk::internal
