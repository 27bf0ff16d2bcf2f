#include "src/rotary/rotate/views.h"

#include <cstdlib>

#include "ropewalk/base/error.h"

namespace ropewalk::internal {

void BadRotate(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, "Rotate: " + message);
}

TensorView WithBatch(const TensorView& view, const char* name) {
  if (view.rank == 4) return view;
  if (view.rank != 3) {
    BadRotate(std::string(name) +
              ": expected [tokens, heads, head_dim] or [batch, tokens, heads, head_dim], got " +
              view.ShapeString());
  }
  TensorView out = view;
  out.rank = 4;
  for (int i = 3; i > 0; --i) {
    out.shape[i] = view.shape[i - 1];
    out.strides[i] = view.strides[i - 1];
  }
  out.shape[0] = 1;
  out.strides[0] = 0;
  return out;
}

void CheckComputes(const TensorView& view, const char* name) {
  if (view.dtype != DType::kF8E4M3) return;
  BadRotate(std::string(name) + ": nothing computes in f8_e4m3, it is for caches to write");
}

void CheckView(const TensorView& view, const char* name, Device device) {
  if (view.device != device) {
    BadRotate(std::string(name) + ": expected memory of the " +
              (device == Device::kCpu ? "CPU" : "GPU, as q"));
  }
  if (view.strides[3] != 1 && view.shape[3] > 1) {
    BadRotate(std::string(name) + ": the elements of a head must be contiguous, got last stride " +
              std::to_string(view.strides[3]));
  }
  for (int i = 0; i < 4; ++i) {  // a footprint of over 2^56 bytes is no memory, and could overflow
    int64_t span = 0;
    if (view.shape[i] < 0 || view.strides[i] == INT64_MIN ||
        __builtin_mul_overflow(view.shape[i], std::abs(view.strides[i]), &span) ||
        span > int64_t{1} << 53) {
      BadRotate(std::string(name) + ": shape " + view.ShapeString() + " with stride " +
                std::to_string(view.strides[i]) + " is not addressable");
    }
  }
}

void CheckSameShape(const TensorView& a, const char* a_name, const TensorView& b,
                    const char* b_name, bool heads_too) {
  const bool same = a.shape[0] == b.shape[0] && a.shape[1] == b.shape[1] &&
                    a.shape[3] == b.shape[3] && (!heads_too || a.shape[2] == b.shape[2]);
  if (!same) {
    BadRotate(std::string(b_name) + ": shape " + b.ShapeString() + " does not fit that of " +
              a_name + ", " + a.ShapeString());
  }
}

void CheckSameType(const TensorView& a, const char* a_name, const TensorView& b,
                   const char* b_name) {
  if (a.dtype != b.dtype) {
    BadRotate(std::string(b_name) + ": expected " + Name(a.dtype) + " as " + a_name + ", got " +
              Name(b.dtype));
  }
}

}  // namespace ropewalk::internal
