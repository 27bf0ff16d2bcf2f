// The rotation on NVIDIA GPUs by raw pointers, for ropewalk.torch: data_ptr(), shape and stride() of
// tensors, and the stream of the caller. Sizes are checked here, on the host; what a pointer points
// to is the caller's business. In a module without kernels, or on a machine without a GPU, calls
// throw Error with the reason.
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "python/src/register.h"
#include "ropewalk/base/cuda.h"
#include "ropewalk/base/error.h"
#include "ropewalk/rotary/rotate.h"
#include "src/base/cuda.h"

namespace ropewalk::python {
namespace {

template <class T>
T* OnGpu(uint64_t pointer) {
  return reinterpret_cast<T*>(static_cast<uintptr_t>(pointer));
}

// The GPU of a call, current in this thread while it lives: the runtime in this module and that of
// the caller may be two copies.
class CallDevice {
 public:
  explicit CallDevice(int device) : before_(internal::CurrentDevice()), other_(device != before_) {
    if (other_) internal::SetDevice(device);
  }
  ~CallDevice() {
    if (!other_) return;
    try {
      internal::SetDevice(before_);
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): it was current before
    }
  }
  CallDevice(const CallDevice&) = delete;
  CallDevice& operator=(const CallDevice&) = delete;

 private:
  int before_;
  bool other_;
};

// Without strides: row-major.
TensorView GpuView(const char* name, uint64_t data, const nb::tuple& shape,
                   const nb::tuple& strides, int dtype) {
  const auto rank = static_cast<int>(nb::len(shape));
  const auto given = static_cast<int>(nb::len(strides));
  if (rank > 4 || (given != 0 && given != rank) || dtype < 0 || dtype > 3) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string(name) +
                    ": expected at most 4 axes, a stride for each and a dtype of 0 "
                    "to 3, got " +
                    std::to_string(rank) + " axes, " + std::to_string(given) +
                    " strides and dtype " + std::to_string(dtype));
  }
  TensorView view;
  view.data = OnGpu<void>(data);
  view.dtype = static_cast<DType>(dtype);
  view.device = Device::kCuda;
  view.rank = rank;
  int64_t stride = 1;
  for (int i = rank - 1; i >= 0; --i) {
    view.shape[i] = nb::cast<int64_t>(shape[i]);
    view.strides[i] = given == 0 ? stride : nb::cast<int64_t>(strides[i]);
    if (__builtin_mul_overflow(stride, std::max<int64_t>(1, view.shape[i]), &stride)) stride = 0;
  }
  return view;
}

// Lists of 4 or 8 bytes a position; 0: consecutive ones from `start` on.
Positions GpuPositions(uint64_t data, int bytes, int64_t size, int axes, int64_t start) {
  if (bytes == 0) return Positions::From(start);
  if ((bytes != 4 && bytes != 8) || size < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "positions: expected 4 or 8 bytes each, got " + std::to_string(bytes));
  }
  const auto count = static_cast<std::size_t>(size);
  if (bytes == 4) return Positions::Each(std::span(OnGpu<const int32_t>(data), count), axes);
  return Positions::Each(std::span(OnGpu<const int64_t>(data), count), axes);
}

// q_out and k_out are row-major; 0: in place. rows: [count, 2, pairs] of positions from `first` on.
// axis: the position axis of each pair, in memory of the CPU; empty: one axis.
void RotateOnGpu(int device, uint64_t stream, uint64_t q, const nb::tuple& q_shape,
                 const nb::tuple& q_strides, uint64_t k, const nb::tuple& k_shape,
                 const nb::tuple& k_strides, uint64_t q_out, uint64_t k_out, int dtype,
                 uint64_t rows, int64_t first, int64_t count, int64_t pairs, double amplitude,
                 const nb::bytes& axis, uint64_t positions, int position_bytes,
                 int64_t position_count, int axes, int64_t start, int layout, int64_t first_dim,
                 int64_t rotated_heads, int direction) {
  if (layout < 0 || layout > 1 || direction < 0 || direction > 2) {
    throw Error(ErrorCode::kInvalidArgument, "layout and direction: not values of theirs");
  }
  RotateArgs args{.layout = static_cast<PairLayout>(layout),
                  .positions = GpuPositions(positions, position_bytes, position_count, axes, start),
                  .q = GpuView("q", q, q_shape, q_strides, dtype),
                  .first_dim = first_dim,
                  .direction = static_cast<Direction>(direction),
                  .rotated_heads = rotated_heads,
                  .stream = OnGpu<void>(stream)};
  if (nb::len(k_shape) != 0) args.k = GpuView("k", k, k_shape, k_strides, dtype);
  if (q_out != 0) args.q_out = GpuView("q_out", q_out, q_shape, nb::tuple(), dtype);
  if (k_out != 0) args.k_out = GpuView("k_out", k_out, k_shape, nb::tuple(), dtype);
  const std::span<const uint8_t> axis_of(static_cast<const uint8_t*>(axis.data()), axis.size());
  if (!axis_of.empty() && static_cast<int64_t>(axis_of.size()) != pairs) {
    throw Error(ErrorCode::kInvalidArgument, "axis: expected one of each of the " +
                                                 std::to_string(pairs) + " pairs, got " +
                                                 std::to_string(axis_of.size()));
  }
  const nb::gil_scoped_release release;
  const CallDevice current(device);
  const CosSinTable table = CosSinTable::View(OnGpu<const float>(rows), first, count, pairs,
                                              amplitude, axis_of, Device::kCuda);
  args.table = &table;
  Rotate(args);
}

nb::dict FoundCuda() {
  CudaInfo info;
  {
    const nb::gil_scoped_release release;
    info = FindCuda();
  }
  nb::list devices;
  for (const CudaDevice& d : info.devices) {
    nb::dict device;
    device["name"] = d.name;
    device["capability"] = nb::make_tuple(d.major, d.minor);
    device["memory_bytes"] = d.memory_bytes;
    device["multiprocessors"] = d.multiprocessors;
    devices.append(device);
  }
  nb::dict found;
  found["toolkit"] = info.toolkit;
  found["targets"] = info.targets;
  found["driver"] = info.driver;
  found["devices"] = devices;
  found["why_none"] = info.why_none;
  return found;
}

}  // namespace

void RegisterCuda(nb::module_& m) {
  nb::module_ cuda = m.def_submodule("cuda");
#ifdef ROPEWALK_HAVE_CUDA
  cuda.attr("built") = true;
#else
  cuda.attr("built") = false;
#endif
  cuda.def("find", &FoundCuda);
  cuda.def("synchronize", [](int device, uint64_t stream) {
    const nb::gil_scoped_release release;
    const CallDevice current(device);
    CudaSynchronize(OnGpu<void>(stream));
  });
  cuda.def("rotate", &RotateOnGpu);
}

}  // namespace ropewalk::python
