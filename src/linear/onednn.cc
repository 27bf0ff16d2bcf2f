#include "src/linear/onednn.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "ropewalk/base/error.h"
#include "ropewalk/base/threads.h"
#include "src/base/parallel.h"
#include "src/linear/round_bf16.h"
#include "src/linear/scratch.h"

namespace ropewalk {
namespace internal {
namespace {

using dnnl::memory;
constexpr std::size_t kCachedPrimitives = 16;

}  // namespace

const dnnl::engine& Engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::stream& Stream() {
  thread_local dnnl::stream stream(Engine());
  return stream;
}

AlignedBuffer<std::byte>& ScratchOf(Purpose purpose) {
  thread_local std::array<AlignedBuffer<std::byte>, static_cast<std::size_t>(Purpose::kOne) + 1>
      buffers;
  return buffers[static_cast<std::size_t>(purpose)];
}

memory::desc Dense(int64_t rows, int64_t columns, memory::data_type type) {
  return memory::desc({rows, columns}, type, memory::format_tag::ab);
}

// Here and in PanelOf oneDNN 2 and 3 differ.
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

int64_t PanelOf(const memory::desc& weights) {
#if DNNL_VERSION_MAJOR >= 3
  if (weights.get_format_kind() != memory::format_kind::blocked) return 0;
  const int count = weights.get_inner_nblks();
  const auto sizes = weights.get_inner_blks(), of = weights.get_inner_idxs();
  const auto padded = weights.get_padded_dims(), strides = weights.get_strides();
#else
  if (weights.data.format_kind != dnnl_blocked) return 0;
  const auto& blocking = weights.data.format_desc.blocking;
  const int count = blocking.inner_nblks;
  const auto &sizes = blocking.inner_blks, &of = blocking.inner_idxs;
  const auto &padded = weights.data.padded_dims, &strides = blocking.strides;
#endif
  if (count != 2 || of[0] != 0 || of[1] != 1) return 0;  // [.., in of a block, out of a block]
  const int64_t panel = sizes[1];
  return strides[0] == sizes[0] * panel && strides[1] == padded[0] * panel ? panel : 0;
}

bool Product::IsReference() const {
  return std::string_view(desc.impl_info_str()).starts_with("ref");
}

void Product::Run(const void* x, const void* weight, const float* bias, float* y) const {
  const auto view = [](const memory::desc& of, const void* data) {
    return memory(of, Engine(), const_cast<void*>(data));
  };
  const memory::desc scratch = desc.scratchpad_desc();
  std::unordered_map<int, memory> args = {
      {DNNL_ARG_SRC, view(desc.src_desc(), x)},
      {DNNL_ARG_WEIGHTS, view(desc.weights_desc(), weight)},
      {DNNL_ARG_DST, view(desc.dst_desc(), y)},
      {DNNL_ARG_SCRATCHPAD,
       view(scratch, Scratch<std::byte>(Purpose::kOneDnn, scratch.get_size() + 1))}};
  if (bias != nullptr) args.emplace(DNNL_ARG_BIAS, view(Dense(1, out), bias));
  primitive.execute(Stream(), args);
  Stream().wait();
}

Product Products::Find(
    Product wanted,
    const std::function<dnnl::matmul::primitive_desc(const Product&)>& describe) const {
  wanted.threads = NumThreads();
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = std::find_if(made_.begin(), made_.end(),
                                  [&](const Product& made) { return made.IsFor(wanted); });
  if (found != made_.end()) {
    std::rotate(found, found + 1, made_.end());
  } else {
    const ScopedNumThreads threads(wanted.threads);
    wanted.desc = describe(wanted);
    wanted.primitive = dnnl::matmul(wanted.desc);
    if (made_.size() == kCachedPrimitives) made_.erase(made_.begin());
    made_.push_back(std::move(wanted));
  }
  return made_.back();  // handles, counted
}

int64_t ProductNs(ComputeType compute, int64_t rows, int64_t out, int64_t in) {
  const int64_t per_ns = compute == ComputeType::kFloat32   ? 50
                         : FindBf16Unit() == Bf16Unit::kAmx ? 500
                                                            : 100;
  return out * in * std::max(rows, per_ns * TypeBytes(compute) / 20) / per_ns;
}

void CopyRows(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float* to,
              int64_t to_stride, bool add) {
  const int threads = ThreadsFor(rows * columns / 2);
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

// oneDNN 2.6 takes strided rows too, but with packed weights only by its reference code: copy what
// is strided. A single row never is.
const void* DenseX(ComputeType compute, const float* x, int64_t rows, int64_t columns,
                   int64_t stride) {
  const auto count = static_cast<std::size_t>(rows * columns);
  if (compute == ComputeType::kBFloat16) {
    auto* rounded = Scratch<BFloat16>(Purpose::kX, count);
    RoundToBf16(x, stride, rows, columns, rounded);
    return rounded;
  }
  if (stride == columns || rows == 1) return x;
  auto* dense = Scratch<float>(Purpose::kX, count);
  CopyRows(x, stride, rows, columns, dense, columns, /*add=*/false);
  return dense;
}

}  // namespace internal

Bf16Unit FindBf16Unit() {
  static const Bf16Unit unit = [] {
    using internal::Dense;
    constexpr auto kBf16 = dnnl::memory::data_type::bf16;
    const internal::ScopedNumThreads threads(1);
    try {
      const auto desc =
          internal::Describe(Dense(16, 64, kBf16), {{64, 64}, kBf16, dnnl::memory::format_tag::any},
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

}  // namespace ropewalk
