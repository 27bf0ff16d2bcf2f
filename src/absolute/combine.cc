#include "ropewalk/absolute/combine.h"

#include "src/absolute/check.h"
#include "src/base/parallel.h"

namespace ropewalk {
namespace {

// Elements per block of a thread: a few pages, so that threads do not share a cache line.
constexpr int64_t kBlock = 4096;

template <class T, class U>
int64_t CheckBatch(const char* op, std::span<T> x, int64_t batch, std::span<U> rows) {
  internal::CheckSize(std::string(op) + ": batch", batch);
  const int64_t size = static_cast<int64_t>(rows.size());
  internal::CheckSpan(std::string(op) + ": x of [batch, tokens * dim]", x, {batch, size});
  return size;
}

// f(first, last) over blocks of 0 .. size - 1.
template <class F>
void ForBlocks(int64_t size, int64_t work_ns, const F& f) {
  const int64_t blocks = (size + kBlock - 1) / kBlock;
  [[maybe_unused]] const int threads = internal::ThreadsFor(work_ns);
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t i = 0; i < blocks; ++i) {
    f(i * kBlock, i + 1 < blocks ? (i + 1) * kBlock : size);
  }
}

}  // namespace

void AddRows(std::span<float> x, int64_t batch, std::span<const float> rows, float scale) {
  const int64_t size = CheckBatch("AddRows", x, batch, rows);
  ForBlocks(size, batch * size / 4, [&](int64_t first, int64_t last) {
    for (int64_t b = 0; b < batch; ++b) {
      float* y = x.data() + b * size;
      for (int64_t i = first; i < last; ++i) y[i] += scale * rows.data()[i];
    }
  });
}

void AddRowsBackward(std::span<const float> dy, int64_t batch, std::span<double> d_rows,
                     float scale) {
  const int64_t size = CheckBatch("AddRowsBackward", dy, batch, d_rows);
  const double factor = static_cast<double>(scale);
  ForBlocks(size, batch * size / 2, [&](int64_t first, int64_t last) {
    for (int64_t b = 0; b < batch; ++b) {
      const float* g = dy.data() + b * size;
      for (int64_t i = first; i < last; ++i) d_rows.data()[i] += factor * static_cast<double>(g[i]);
    }
  });
}

void MultiplyRows(std::span<float> x, int64_t batch, std::span<const float> rows) {
  const int64_t size = CheckBatch("MultiplyRows", x, batch, rows);
  ForBlocks(size, batch * size / 4, [&](int64_t first, int64_t last) {
    for (int64_t b = 0; b < batch; ++b) {
      float* y = x.data() + b * size;
      for (int64_t i = first; i < last; ++i) y[i] *= rows.data()[i];
    }
  });
}

void MultiplyRowsBackward(std::span<const float> x, std::span<const float> dy, int64_t batch,
                          std::span<const float> rows, std::span<float> dx,
                          std::span<double> d_rows) {
  const int64_t size = CheckBatch("MultiplyRowsBackward", x, batch, rows);
  internal::CheckSpan("MultiplyRowsBackward: dy", dy, {batch, size});
  internal::CheckSpan("MultiplyRowsBackward: dx", dx, {batch, size});
  internal::CheckSpan("MultiplyRowsBackward: d_rows", d_rows, {size});
  ForBlocks(size, batch * size, [&](int64_t first, int64_t last) {
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t at = b * size;
      for (int64_t i = first; i < last; ++i) {
        const float g = dy.data()[at + i];
        d_rows.data()[i] += static_cast<double>(g) * static_cast<double>(x.data()[at + i]);
        dx.data()[at + i] = g * rows.data()[i];
      }
    }
  });
}

}  // namespace ropewalk
