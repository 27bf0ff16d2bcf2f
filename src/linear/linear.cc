#include "ropewalk/linear/linear.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <dnnl.hpp>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ropewalk/base/buffer.h"
#include "ropewalk/base/error.h"
#include "ropewalk/base/threads.h"
#include "src/base/parallel.h"
#include "src/linear/round_bf16.h"

namespace ropewalk {
namespace {

using dnnl::memory;
constexpr auto kFloat = memory::data_type::f32;
constexpr auto kBf16 = memory::data_type::bf16;

// Weights are packed in bands of output features: beside the packed weights only one plain band
// exists.
constexpr int64_t kBandBytes = int64_t{32} << 20;
constexpr int64_t kBandMultiple = 64;  // features; blocks of packed weights have up to 64
constexpr int64_t kSourceRows = 64;    // rows asked from the source at a time
constexpr int64_t kLayoutRows = 512;   // rows of x that the layout is chosen for
constexpr int64_t kCopyRows = 512;     // rows of input or output that are copied at a time
constexpr size_t kCachedPrimitives = 16;

const dnnl::engine& Engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::stream& Stream() {
  thread_local dnnl::stream stream(Engine());
  return stream;
}

memory::desc Dense(int64_t rows, int64_t columns, memory::data_type type = kFloat) {
  return memory::desc({rows, columns}, type, memory::format_tag::ab);
}

// The one place where oneDNN 2 and 3 differ.
dnnl::matmul::primitive_desc Describe(const memory::desc& x, const memory::desc& weight,
                                      const memory::desc* bias, const memory::desc& y,
                                      bool accumulate) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (accumulate) {
    dnnl::post_ops ops;
    ops.append_sum(1.0f);
    attr.set_post_ops(ops);
  }
#if DNNL_VERSION_MAJOR >= 3
  return bias != nullptr ? dnnl::matmul::primitive_desc(Engine(), x, weight, *bias, y, attr)
                         : dnnl::matmul::primitive_desc(Engine(), x, weight, y, attr);
#else
  const auto desc =
      bias != nullptr ? dnnl::matmul::desc(x, weight, *bias, y) : dnnl::matmul::desc(x, weight, y);
  return dnnl::matmul::primitive_desc(desc, attr, Engine());
#endif
}

// A primitive for one number of rows and of threads: oneDNN cuts the work when it makes one.
struct Plan {
  int64_t rows;
  bool accumulate;
  int threads;
  dnnl::matmul::primitive_desc desc;
  dnnl::matmul primitive;
};

// Memory of a thread that lasts from call to call; one buffer a purpose.
enum class Purpose : uint8_t { kOneDnn, kX, kY };
template <class T>
T* Scratch(Purpose purpose, size_t count) {
  thread_local std::array<AlignedBuffer<std::byte>, 3> buffers;
  AlignedBuffer<std::byte>& buffer = buffers[static_cast<size_t>(purpose)];
  if (buffer.size() < count * sizeof(T)) buffer = AlignedBuffer<std::byte>(count * sizeof(T));
  return reinterpret_cast<T*>(buffer.data());
}

void CopyRows(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float* to,
              int64_t to_stride, bool add) {
  const int threads = internal::ThreadsFor(rows * columns / 2);
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t r = 0; r < rows; ++r) {
    const float* source = from + r * from_stride;
    float* target = to + r * to_stride;
    if (add) {
      for (int64_t i = 0; i < columns; ++i) target[i] += source[i];
    } else {
      std::copy_n(source, columns, target);
    }
  }
}

[[noreturn]] void Refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, "Linear: " + message);
}

void CheckCompute(ComputeType compute) {
  if (compute == ComputeType::kFloat32 || FindBf16Unit() != Bf16Unit::kNone) return;
  throw Error(ErrorCode::kUnsupported,
              "Linear: oneDNN multiplies no bf16 on this CPU: expected AVX-512, better "
              "avx512_bf16 or amx_bf16; compute in float32 (--compute float32)");
}

}  // namespace

Bf16Unit FindBf16Unit() {
  static const Bf16Unit unit = [] {
    const internal::ScopedNumThreads threads(1);
    try {
      const auto desc = Describe(Dense(16, 64, kBf16), {{64, 64}, kBf16, memory::format_tag::any},
                                 nullptr, Dense(16, 64), /*accumulate=*/false);
      // oneDNN's reference code is some hundred times slower than float32.
      if (std::string_view(desc.impl_info_str()).starts_with("ref")) return Bf16Unit::kNone;
    } catch (const dnnl::error&) {
      return Bf16Unit::kNone;
    }
    // An instruction set is a mask that holds those of the sets below it.
    const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
    const auto has = [isa](dnnl::cpu_isa set) {
      return (isa & static_cast<unsigned>(set)) == static_cast<unsigned>(set);
    };
    if (has(dnnl::cpu_isa::avx512_core_amx)) return Bf16Unit::kAmx;
    return has(dnnl::cpu_isa::avx512_core_bf16) ? Bf16Unit::kAvx512 : Bf16Unit::kEmulated;
  }();
  return unit;
}

struct Linear::Impl {
  int64_t out = 0, in = 0;
  ComputeType compute = ComputeType::kFloat32;
  memory::desc weight_desc;
  AlignedBuffer<std::byte> weight;  // packed
  AlignedBuffer<float> bias;        // [out] or empty
  mutable std::mutex mutex;
  mutable std::vector<Plan> plans;  // most recently used last

  Plan Make(int64_t rows, bool accumulate, const memory::desc& weights) const;
  Plan Find(int64_t rows, bool accumulate) const;
  void Pack(const RowSource& source);
  void ApplyDense(const void* x, int64_t rows, float* y, bool accumulate) const;
  bool bf16() const { return compute == ComputeType::kBFloat16; }
  memory::data_type type() const { return bf16() ? kBf16 : kFloat; }  // of x and of the weights
  int64_t type_bytes() const { return bf16() ? 2 : 4; }
  int64_t WorkNs(int64_t rows) const;
};

Plan Linear::Impl::Make(int64_t rows, bool accumulate, const memory::desc& weights) const {
  const internal::ScopedNumThreads threads(NumThreads());
  const memory::desc bias_desc = Dense(1, out);
  auto desc = Describe(Dense(rows, in, type()), weights, bias.size() != 0 ? &bias_desc : nullptr,
                       Dense(rows, out), accumulate);
  dnnl::matmul primitive(desc);
  return {rows, accumulate, NumThreads(), std::move(desc), std::move(primitive)};
}

Plan Linear::Impl::Find(int64_t rows, bool accumulate) const {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = std::find_if(plans.begin(), plans.end(), [&](const Plan& p) {
    return p.rows == rows && p.accumulate == accumulate && p.threads == NumThreads();
  });
  if (found != plans.end()) {
    std::rotate(found, found + 1, plans.end());
  } else {
    if (plans.size() == kCachedPrimitives) plans.erase(plans.begin());
    plans.push_back(Make(rows, accumulate, weight_desc));
  }
  return plans.back();  // handles, counted
}

void Linear::Impl::Pack(const RowSource& source) {
  weight_desc =
      Make(kLayoutRows, false, {{in, out}, type(), memory::format_tag::any}).desc.weights_desc();
  // Zeros, because packing a band leaves the padding of its blocks alone.
  weight = AlignedBuffer<std::byte>(weight_desc.get_size(), std::byte{0});
  const int64_t fit = kBandBytes / type_bytes() / in;
  const int64_t size = std::max(kBandMultiple, fit / kBandMultiple * kBandMultiple);
  AlignedBuffer<std::byte> plain(static_cast<size_t>(std::min(size, out) * in * type_bytes()));
  AlignedBuffer<float> unrounded(bf16() ? static_cast<size_t>(std::min(kSourceRows, out) * in) : 0);
  const internal::ScopedNumThreads limit(internal::ThreadsFor(out * in));  // for the reorders
  for (int64_t first = 0; first < out; first += size) {
    const int64_t rows = std::min(size, out - first);
    for (int64_t r = 0; r < rows; r += kSourceRows) {
      const int64_t count = std::min(kSourceRows, rows - r);
      std::byte* to = plain.data() + r * in * type_bytes();
      source(first + r, count, bf16() ? unrounded.data() : reinterpret_cast<float*>(to));
      if (!bf16()) continue;
      internal::RoundToBf16(unrounded.data(), in, count, in, reinterpret_cast<BFloat16*>(to));
    }
    memory from({{in, rows}, type(), memory::format_tag::ba}, Engine(), plain.data());
    memory to(weight_desc.submemory_desc({in, rows}, {0, first}), Engine(), weight.data());
    dnnl::reorder(from, to).execute(Stream(), from, to);
    Stream().wait();
  }
}

// Some 50 multiplications a nanosecond, 100 in bf16, 500 and more with AMX; but with few rows the
// time goes into reading the weights: 20 bytes a nanosecond.
int64_t Linear::Impl::WorkNs(int64_t rows) const {
  const int64_t per_ns = !bf16() ? 50 : FindBf16Unit() == Bf16Unit::kAmx ? 500 : 100;
  return out * in * std::max(rows, per_ns * type_bytes() / 20) / per_ns;
}

// x [rows, in] of type().
void Linear::Impl::ApplyDense(const void* x, int64_t rows, float* y, bool accumulate) const {
  const internal::ScopedNumThreads limit(internal::ThreadsForProduct(WorkNs(rows)));
  const Plan plan = Find(rows, accumulate);
  const auto view = [](const memory::desc& desc, const void* data) {
    return memory(desc, Engine(), const_cast<void*>(data));
  };
  const memory::desc scratch = plan.desc.scratchpad_desc();
  std::unordered_map<int, memory> args = {
      {DNNL_ARG_SRC, view(Dense(rows, in, type()), x)},
      {DNNL_ARG_WEIGHTS, view(weight_desc, weight.data())},
      {DNNL_ARG_DST, view(Dense(rows, out), y)},
      {DNNL_ARG_SCRATCHPAD,
       view(scratch, Scratch<std::byte>(Purpose::kOneDnn, scratch.get_size() + 1))}};
  if (bias.size() != 0) args.emplace(DNNL_ARG_BIAS, view(Dense(1, out), bias.data()));
  plan.primitive.execute(Stream(), args);
  Stream().wait();
}

Linear::Linear() = default;
Linear::~Linear() = default;
Linear::Linear(Linear&&) noexcept = default;
Linear& Linear::operator=(Linear&&) noexcept = default;

Linear::Linear(int64_t out_features, int64_t in_features, const RowSource& weight,
               const float* bias, ComputeType compute) {
  constexpr int64_t kMost = int64_t{1} << 30;
  if (out_features < 1 || in_features < 1 || out_features > kMost || in_features > kMost) {
    Refuse("expected 1 to 2^30 features, got out " + std::to_string(out_features) + ", in " +
           std::to_string(in_features));
  }
  CheckCompute(compute);
  impl_ = std::make_unique<Impl>();
  impl_->compute = compute;
  impl_->out = out_features;
  impl_->in = in_features;
  if (bias != nullptr) {
    impl_->bias = AlignedBuffer<float>(static_cast<size_t>(out_features));
    std::copy_n(bias, out_features, impl_->bias.data());
  }
  try {
    impl_->Pack(weight);
  } catch (const dnnl::error& e) {
    throw Error(ErrorCode::kUnsupported, std::string("Linear: oneDNN: ") + e.what());
  }
}

int64_t Linear::out_features() const { return impl_ ? impl_->out : 0; }
int64_t Linear::in_features() const { return impl_ ? impl_->in : 0; }

ComputeType Linear::compute() const { return impl_ ? impl_->compute : ComputeType::kFloat32; }

int64_t Linear::bytes() const {
  if (!impl_) return 0;
  return static_cast<int64_t>(impl_->weight.size() + impl_->bias.size() * sizeof(float));
}

void Linear::Apply(const float* x, int64_t rows, int64_t x_stride, float* y, int64_t y_stride,
                   bool accumulate) const {
  if (!impl_) Refuse("Apply: has no weights; construct it with some");
  if (rows == 0) return;
  const Impl& m = *impl_;
  if (rows < 0 || x_stride < m.in || y_stride < m.out || x == nullptr || y == nullptr) {
    Refuse("Apply: expected data, rows of at least 0 and row strides of at least " +
           std::to_string(m.in) + " and " + std::to_string(m.out) + ", got " +
           std::to_string(rows) + " rows and strides " + std::to_string(x_stride) + " and " +
           std::to_string(y_stride) + (x == nullptr || y == nullptr ? " and a null pointer" : ""));
  }
  // oneDNN 2.6 takes strided rows too, but with packed weights only by its reference code, some
  // hundred times slower: copy what is strided. A single row never is.
  const bool copy_x = x_stride != m.in && rows > 1, copy_y = y_stride != m.out && rows > 1;
  const int64_t step = copy_x || copy_y || m.bf16() ? kCopyRows : rows;
  try {
    for (int64_t r = 0; r < rows; r += step) {
      const int64_t count = std::min(step, rows - r);
      const void* from = x + r * x_stride;
      float* to = y + r * y_stride;
      if (m.bf16()) {
        auto* rounded = Scratch<BFloat16>(Purpose::kX, static_cast<size_t>(count * m.in));
        internal::RoundToBf16(x + r * x_stride, x_stride, count, m.in, rounded);
        from = rounded;
      } else if (copy_x) {
        auto* dense = Scratch<float>(Purpose::kX, static_cast<size_t>(count * m.in));
        CopyRows(x + r * x_stride, x_stride, count, m.in, dense, m.in, /*add=*/false);
        from = dense;
      }
      if (copy_y) to = Scratch<float>(Purpose::kY, static_cast<size_t>(count * m.out));
      m.ApplyDense(from, count, to, accumulate && !copy_y);
      if (copy_y) CopyRows(to, m.out, count, m.out, y + r * y_stride, y_stride, accumulate);
    }
  } catch (const dnnl::error& e) {
    throw Error(ErrorCode::kUnsupported, std::string("Linear: oneDNN: ") + e.what());
  }
}

}  // namespace ropewalk
