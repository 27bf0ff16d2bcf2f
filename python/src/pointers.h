// Ops on raw pointers, for ropewalk.torch: it passes data_ptr(), shape and stride() of tensors,
// which costs a tenth of a microsecond where a tensor made into an ndarray costs five to ten. What a
// pointer points to is the caller's business (dtype, device, contiguity); sizes and positions are
// checked by the library.
#pragma once

#include <nanobind/nanobind.h>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ropewalk/attention/backward.h"
#include "ropewalk/base/error.h"
#include "ropewalk/base/tensor_view.h"
#include "ropewalk/relative/forms.h"
#include "ropewalk/rotary/frequencies.h"

namespace ropewalk::python {

namespace nb = nanobind;

using Pointer = uint64_t;  // data_ptr()

template <class T>
T* At(Pointer pointer) {
  return reinterpret_cast<T*>(static_cast<uintptr_t>(pointer));
}

template <class T>
std::span<const T> SpanAt(Pointer pointer, int64_t size) {
  return {At<const T>(pointer), pointer == 0 ? 0 : static_cast<std::size_t>(size)};
}

// A view without strides is row-major.
inline TensorView ViewOf(Pointer data, const nb::tuple& shape, const nb::tuple& strides,
                         int dtype) {
  TensorView view;
  view.data = At<void>(data);
  view.dtype = static_cast<DType>(dtype);
  const auto rank = static_cast<int>(nb::len(shape));
  if (rank > 4 || (nb::len(strides) != 0 && static_cast<int>(nb::len(strides)) != rank)) {
    throw Error(ErrorCode::kInvalidArgument,
                "tensor: expected at most 4 dimensions, got " + std::to_string(rank));
  }
  view.rank = rank;
  int64_t stride = 1;
  for (int i = rank - 1; i >= 0; --i) {
    view.shape[i] = nb::cast<int64_t>(shape[i]);
    view.strides[i] = nb::len(strides) == 0 ? stride : nb::cast<int64_t>(strides[i]);
    stride *= std::max<int64_t>(1, view.shape[i]);
  }
  return view;
}

// Row-major memory that PyTorch has just allocated, for a result of this shape. PyTorch gives large
// blocks back to the system, so that each call meets pages without memory: as huge pages, where the
// system has them for those who ask, they are 512 times fewer.
inline TensorView NewRowMajor(const TensorView& like, Pointer data) {
  TensorView view = like;
  view.data = At<void>(data);
  int64_t stride = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    view.strides[i] = stride;
    stride *= std::max<int64_t>(1, view.shape[i]);
  }
#if defined(__linux__)
  constexpr uint64_t kPage = 4096, kMany = uint64_t{4} << 20;
  const auto bytes = static_cast<uint64_t>(view.NumElements() * SizeOf(view.dtype));
  if (bytes >= kMany) {
    const uint64_t begin = (data + kPage - 1) / kPage * kPage;
    // Advice, so no error.
    (void)madvise(At<void>(begin), (data + bytes - begin) / kPage * kPage, MADV_HUGEPAGE);
  }
#endif
  return view;
}

// Elements that the 50 us of a call without the interpreter's lock are worth.
inline constexpr int64_t kManyElements = 1 << 18;

template <class F>
void WithoutLockIf(bool much, F&& work) {
  if (!much) return work();
  const nb::gil_scoped_release release;
  work();
}

// Frequencies given as float64, [pairs] or as sums of two, with the axis of each pair.
inline Frequencies FrequenciesOf(Pointer high, Pointer low, int64_t pairs, double amplitude,
                                 Pointer axis) {
  Frequencies f;
  for (int64_t i = 0; i < pairs; ++i) {
    const DoubleDouble x{At<double>(high)[i], low == 0 ? 0 : At<double>(low)[i]};
    f.inv_freq.push_back(x);
    f.inv_freq_f32.push_back(static_cast<float>(x.hi));
  }
  f.amplitude = amplitude;
  const std::span<const uint8_t> axes = SpanAt<uint8_t>(axis, pairs);
  f.axis.assign(axes.begin(), axes.end());
  if (!axes.empty()) f.axes = *std::max_element(axes.begin(), axes.end()) + 1;
  return f;
}

// A score bias as lists: its kind, float32 tensors in the order of the fields of its struct (row_of
// of content is int32), then whole numbers.
struct PointerBias {
  int kind = 0;  // as ropewalk.torch numbers them; 0: none
  std::vector<Pointer> data;
  std::vector<int64_t> sizes, numbers;

  bool given() const { return kind != 0; }
  bool by_sequence() const;  // gates, which differ from one sequence of a batch to the next
};

// Of sequence `b` of the batch.
ScoreForm FormOf(const PointerBias& bias, int64_t heads, int64_t keys, int64_t b);

// d_bias: where the gradient of each tensor of the bias is added, in their order; 0: nowhere. `sum`:
// that of the parameters of a function of pairs, over the batch.
void AddBiasGradient(const PointerBias& bias, const FormGradient& g, const std::vector<double>& sum,
                     const std::vector<Pointer>& d_bias);

template <class T>
void AddTo(Pointer out, const std::vector<T>& gradient) {
  if (out == 0) return;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    At<float>(out)[i] += static_cast<float>(gradient[i]);
  }
}

void BindAttentionPointers(nb::module_& pointers);  // attention_pointers.cc

}  // namespace ropewalk::python
