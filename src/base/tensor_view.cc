#include "ropewalk/base/tensor_view.h"

namespace ropewalk {

TensorView TensorView::Contiguous(void* data, DType dtype, std::initializer_list<int64_t> shape) {
  if (shape.size() > kMaxRank) {
    throw Error(ErrorCode::kInvalidArgument, "TensorView: rank " + std::to_string(shape.size()) +
                                                 " is over the limit of " +
                                                 std::to_string(kMaxRank));
  }
  TensorView view;
  view.data = data;
  view.dtype = dtype;
  for (const int64_t n : shape) view.shape[view.rank++] = n;
  view.NumElements();  // validates: the strides below cannot overflow after this
  int64_t stride = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    view.strides[i] = stride;
    stride *= view.shape[i] > 0 ? view.shape[i] : 1;
  }
  return view;
}

int64_t TensorView::NumElements() const {
  int64_t n = 1;
  bool zero = false;
  for (int i = 0; i < rank; ++i) {
    if (shape[i] < 0) {
      throw Error(ErrorCode::kInvalidArgument, "TensorView: negative size in " + ShapeString());
    }
    zero = zero || shape[i] == 0;
    if (__builtin_mul_overflow(n, shape[i] > 0 ? shape[i] : 1, &n)) {
      throw Error(ErrorCode::kInvalidArgument,
                  "TensorView: the number of elements of " + ShapeString() + " overflows int64");
    }
  }
  return zero ? 0 : n;
}

std::string TensorView::ShapeString() const {
  std::string s = "[";
  for (int i = 0; i < rank; ++i) {
    if (i > 0) s += ", ";
    s += std::to_string(shape[i]);
  }
  return s + "]";
}

}  // namespace ropewalk
