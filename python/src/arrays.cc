#include "python/src/arrays.h"

#include <nanobind/stl/string.h>

namespace ropewalk::python {
namespace {

constexpr int kCpu = nb::device::cpu::value;

std::string TypeName(nb::handle object) {
  return nb::cast<std::string>(nb::handle(object.type()).attr("__name__"));
}

// What the array says of itself, for messages.
std::string DTypeOf(nb::handle object) {
  if (!nb::hasattr(object, "dtype")) return TypeName(object);
  return nb::cast<std::string>(nb::str(nb::handle(object.attr("dtype"))));
}

template <class Nd>
bool Import(nb::handle object, Nd& out) {
  return nb::try_cast<Nd>(object, out, false);
}

nb::ndarray<nb::ro> Read(nb::handle object, bool written) {
  nb::ndarray<nb::ro> out;
  if (!written) {
    Import(object, out);
    return out;
  }
  nb::ndarray<> writable;
  if (Import(object, writable)) out = nb::ndarray<nb::ro>(writable);
  return out;
}

std::string DTypeName(nb::dlpack::dtype t) {
  constexpr const char* kNames[] = {"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
  return (t.code < std::size(kNames) ? kNames[t.code] : "code " + std::to_string(t.code) + ", ") +
         std::string(t.code == 6 ? "" : std::to_string(t.bits));
}

}  // namespace

Array::Array(nb::handle given, const char* name, bool written) : name_(name) {
  if (given.is_none()) return;
  array_ = Read(given, written);
  if (!array_.is_valid() && nb::hasattr(given, "dtype")) {
    // numpy exports no type of ml_dtypes.
    const std::string type = DTypeOf(given);
    bfloat16_ = type == "bfloat16";
    float8_ = type == "float8_e4m3fn";
    if (bfloat16_ || float8_) {
      array_ = Read(given.attr("view")(bfloat16_ ? "uint16" : "uint8"), written);
    }
  }
  if (!array_.is_valid()) {
    if (written && Read(given, false).is_valid()) {
      Bad(std::string(name) + ": expected an array that may be written to; this one is read-only");
    }
    Bad(std::string(name) +
        ": expected an array of numbers in memory of the CPU (numpy, or a producer of DLPack) in "
        "native byte order and with strides of whole elements, got " +
        DTypeOf(given));
  }
  if (array_.device_type() == kCpu) return;
  Bad(std::string(name) + ": expected memory of the CPU, got device type " +
      std::to_string(array_.device_type()) + " of DLPack; for other devices use ropewalk.torch");
}

void* Array::Data() const { return const_cast<void*>(array_.data()); }

std::string Array::ShapeString() const {
  std::string text = "[";
  for (std::size_t i = 0; i < array_.ndim(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(array_.shape(i));
  }
  return text + "]";
}

TensorView Array::View() const {
  TensorView view;
  if (!given()) return view;
  const nb::dlpack::dtype t = array_.dtype();
  if (bfloat16_ ||
      (t.code == static_cast<uint8_t>(nb::dlpack::dtype_code::Bfloat) && t.bits == 16)) {
    view.dtype = DType::kBF16;
  } else if (float8_ || t.code == static_cast<uint8_t>(nb::dlpack::dtype_code::Float8_E4M3FN)) {
    view.dtype = DType::kF8E4M3;
  } else if (t == nb::dtype<double>()) {
    view.dtype = DType::kF64;
  } else if (t == nb::dtype<float>()) {
    view.dtype = DType::kF32;
  } else if (t.code == nb::dtype<float>().code && t.bits == 16) {
    view.dtype = DType::kF16;
  } else {
    Bad(std::string(name_) + ": expected float64, float32, float16 or bfloat16 elements, got " +
        DTypeName(t));
  }
  if (t.lanes != 1) Bad(std::string(name_) + ": expected one number an element");
  if (rank() > TensorView::kMaxRank) {
    Bad(std::string(name_) + ": expected at most " + std::to_string(TensorView::kMaxRank) +
        " axes, got " + ShapeString());
  }
  view.data = Data();
  view.rank = static_cast<int>(rank());
  // Strides of no elements say nothing.
  const bool dense = array_.stride_ptr() == nullptr || array_.size() == 0;
  int64_t stride = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    view.shape[i] = size(i);
    view.strides[i] = dense ? stride : array_.stride(i);
    stride *= view.shape[i];
  }
  return view;
}

void Array::CheckList(nb::dlpack::dtype expected) const {
  if (!given()) return;
  if (array_.dtype() != expected) {
    Bad(std::string(name_) + ": expected " + DTypeName(expected) + ", got " +
        DTypeName(array_.dtype()));
  }
  if (array_.stride_ptr() == nullptr || array_.size() == 0) return;
  int64_t stride = 1;
  for (int64_t i = rank() - 1; i >= 0; --i) {
    if (size(i) != 1 && array_.stride(i) != stride) {
      Bad(std::string(name_) + ": expected an array without gaps (numpy.ascontiguousarray)");
    }
    stride *= size(i);
  }
}

void Array::CheckShape(std::initializer_list<int64_t> shape) const {
  if (!given()) return;
  bool same = rank() == static_cast<int64_t>(shape.size());
  std::string expected;
  int64_t axis = 0;
  for (const int64_t n : shape) {
    expected += (axis == 0 ? "" : ", ") + (n < 0 ? std::string("any") : std::to_string(n));
    same = same && (n < 0 || size(axis) == n);
    ++axis;
  }
  if (!same) Bad(std::string(name_) + ": expected shape [" + expected + "], got " + ShapeString());
}

}  // namespace ropewalk::python
