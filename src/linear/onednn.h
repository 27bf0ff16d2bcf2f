// What both forms of a linear layer share: products by oneDNN, kept for shapes that come again.
#pragma once

#include <cstdint>
#include <dnnl.hpp>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "ropewalk/linear/linear.h"

namespace ropewalk::internal {

const dnnl::engine& Engine();
dnnl::stream& Stream();

dnnl::memory::desc Dense(int64_t rows, int64_t columns,
                         dnnl::memory::data_type type = dnnl::memory::data_type::f32);

// Of x and of the weights.
inline dnnl::memory::data_type TypeOf(ComputeType compute) {
  return compute == ComputeType::kBFloat16 ? dnnl::memory::data_type::bf16
                                           : dnnl::memory::data_type::f32;
}
inline int64_t TypeBytes(ComputeType compute) { return compute == ComputeType::kBFloat16 ? 2 : 4; }

dnnl::matmul::primitive_desc Describe(const dnnl::memory::desc& x, const dnnl::memory::desc& weight,
                                      const dnnl::memory::desc* bias, const dnnl::memory::desc& y,
                                      bool accumulate);

// Of weights [in, out]: n where the numbers of n output features follow each other, those of each
// input feature behind those of the one before, and the next n features behind all of these; 0 for
// any other layout. What AVX-512 takes in float32, with n = 64.
int64_t PanelOf(const dnnl::memory::desc& weights);

// A primitive for one shape and one number of threads: oneDNN cuts the work when it makes one.
struct Product {
  int64_t rows, out, y_stride;
  bool accumulate;
  int threads = 0;
  dnnl::matmul::primitive_desc desc = {};
  dnnl::matmul primitive = {};

  bool IsFor(const Product& wanted) const {
    return rows == wanted.rows && out == wanted.out && y_stride == wanted.y_stride &&
           accumulate == wanted.accumulate && threads == wanted.threads;
  }
  // oneDNN's reference code, some hundred times slower than the rest.
  bool IsReference() const;
  void Run(const void* x, const void* weight, const float* bias, float* y) const;
};

class Products {
 public:
  // With NumThreads() threads. `describe` is called where none like it was made lately.
  Product Find(Product wanted,
               const std::function<dnnl::matmul::primitive_desc(const Product&)>& describe) const;

 private:
  mutable std::mutex mutex_;
  mutable std::vector<Product> made_;  // most recently used last
};

// Some 50 multiplications a nanosecond, 100 in bf16, 500 and more with AMX; but with few rows the
// time goes into reading the weights: 20 bytes a nanosecond.
int64_t ProductNs(ComputeType compute, int64_t rows, int64_t out, int64_t in);

void CopyRows(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float* to,
              int64_t to_stride, bool add);

// Rows of x as oneDNN takes them, dense and of the type of `compute`: x itself, or a copy that lasts
// until the next call.
const void* DenseX(ComputeType compute, const float* x, int64_t rows, int64_t columns,
                   int64_t stride);

}  // namespace ropewalk::internal
