#include "src/rotary/gradient/check.h"

#include <algorithm>

#include "ropewalk/base/error.h"
#include "src/base/addressable.h"

namespace ropewalk::internal {
namespace {

void CheckAddressable(const TensorView& v) {
  for (int i = 0; i < v.rank; ++i) {
    if (!Addressable(v.shape[i], v.strides[i])) {
      BadGradient("shape " + v.ShapeString() + " with stride " + std::to_string(v.strides[i]) +
                  " is not addressable");
    }
  }
}

void CheckFrequencies(const Frequencies* f) {
  if (f == nullptr) BadGradient("frequencies: expected those of the rotation, got null");
  const bool named = f->axis.empty() || f->axis.size() == f->inv_freq.size();
  if (!named ||
      std::any_of(f->axis.begin(), f->axis.end(), [&](uint8_t a) { return a >= f->axes; })) {
    BadGradient("frequencies: axis must be empty or name one of the axes for each pair");
  }
}

}  // namespace

void BadGradient(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, "FrequencyGradient: " + message);
}

void CheckGradient(const RotaryGradientArgs& args, Device device) {
  const TensorView* views[] = {&args.value, &args.gradient};
  for (const TensorView* v : views) {
    if (v->rank != 3 && v->rank != 4) {
      BadGradient("expected [tokens, heads, head_dim] or [batch, tokens, heads, head_dim], got " +
                  v->ShapeString());
    }
    if (v->device != device) {
      BadGradient(device == Device::kCpu
                      ? "expected memory of the CPU; for a GPU there is FrequencyGradientOnDevice"
                      : "expected memory of a GPU; for the CPU there is FrequencyGradient");
    }
    if (v->strides[v->rank - 1] != 1) BadGradient("the elements of a head must be contiguous");
    if (!std::equal(v->shape, v->shape + v->rank, args.value.shape) || v->rank != args.value.rank ||
        v->dtype != args.value.dtype) {
      BadGradient("gradient: expected the shape and dtype of value, " + args.value.ShapeString() +
                  " " + Name(args.value.dtype) + ", got " + v->ShapeString() + " " +
                  Name(v->dtype));
    }
    CheckAddressable(*v);
    if (v->data == nullptr && v->NumElements() != 0) BadGradient("data is null");
  }
  CheckFrequencies(args.frequencies);
  const int64_t dim = 2 * static_cast<int64_t>(args.frequencies->inv_freq.size());
  const int64_t head_dim = args.value.shape[args.value.rank - 1];
  if (dim == 0 || args.first_dim < 0 || args.first_dim > head_dim - dim) {
    BadGradient("first_dim " + std::to_string(args.first_dim) + " and rotary_dim " +
                std::to_string(dim) + " do not fit head_dim " + std::to_string(head_dim));
  }
}

}  // namespace ropewalk::internal
