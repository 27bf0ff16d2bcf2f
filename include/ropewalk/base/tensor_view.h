// A view is pointer + dtype + device + shape + strides. It never owns and is trivially copyable.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "ropewalk/base/dtype.h"

namespace ropewalk {

enum class Device : uint8_t { kCpu, kCuda };

struct TensorView {
  static constexpr int kMaxRank = 5;

  void* data = nullptr;
  DType dtype = DType::kF32;
  Device device = Device::kCpu;
  int rank = 0;
  int64_t shape[kMaxRank] = {};
  int64_t strides[kMaxRank] = {};  // in elements, may be negative or zero

  // Row-major view over `data`.
  static TensorView Contiguous(void* data, DType dtype, std::initializer_list<int64_t> shape);
  template <class T>
  static TensorView Of(T* data, std::initializer_list<int64_t> shape) {
    return Contiguous(const_cast<std::remove_const_t<T>*>(data),
                      DTypeOf<std::remove_const_t<T>>::value, shape);
  }

  int64_t NumElements() const;  // 1 for rank 0; throws Error when the product overflows int64
  bool empty() const { return data == nullptr || NumElements() == 0; }
  std::string ShapeString() const;  // "[2, 3, 4]"
};
static_assert(std::is_trivially_copyable_v<TensorView>);

}  // namespace ropewalk
