#include "ropewalk/attention/linear.h"

#include <algorithm>
#include <dnnl.hpp>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ropewalk/base/buffer.h"
#include "ropewalk/base/error.h"

namespace ropewalk {
namespace {

using dnnl::memory;
constexpr auto kFloat = memory::data_type::f32;

// Weights are packed in bands of output features: oneDNN reorders a whole tensor at once, and a
// plain copy of a band is all that exists beside the packed one.
constexpr int64_t kBandBytes = int64_t{32} << 20;
constexpr int64_t kBandMultiple = 64;  // features; oneDNN pads to blocks of up to 64
constexpr int64_t kSourceRows = 64;    // rows asked from the source at a time
constexpr int64_t kPackingRows = 512;  // rows of x that the layout is chosen for
constexpr size_t kCachedPrimitives = 16;

const dnnl::engine& Engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::stream& Stream() {
  thread_local dnnl::stream stream(Engine());
  return stream;
}

memory::desc Rows(int64_t rows, int64_t columns, int64_t stride) {
  return memory::desc({rows, columns}, kFloat, memory::dims{stride, 1});
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

struct Band {
  int64_t first, rows;
  memory::desc weight_desc;
  AlignedBuffer<float> weight;
};

struct Shape {
  int64_t rows, x_stride, y_stride;
  bool accumulate;
  bool operator==(const Shape&) const = default;
};

struct Plan {
  Shape shape;
  std::vector<std::pair<dnnl::matmul, dnnl::matmul::primitive_desc>> bands;
  size_t scratch_bytes = 0;
};

float* Scratch(size_t bytes) {
  thread_local AlignedBuffer<float> buffer;
  const size_t floats = (bytes + sizeof(float) - 1) / sizeof(float);
  if (buffer.size() < floats) buffer = AlignedBuffer<float>(floats);
  return buffer.data();
}

[[noreturn]] void Refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, "Linear: " + message);
}

}  // namespace

struct Linear::Impl {
  int64_t out = 0, in = 0;
  std::vector<Band> bands;
  AlignedBuffer<float> bias;  // [out] or empty
  mutable std::mutex mutex;
  mutable std::vector<std::shared_ptr<const Plan>> plans;  // most recently used last

  void Pack(const RowSource& source);
  std::shared_ptr<const Plan> Find(const Shape& shape) const;
  std::shared_ptr<const Plan> Make(const Shape& shape) const;
};

void Linear::Impl::Pack(const RowSource& source) {
  const int64_t fit = kBandBytes / static_cast<int64_t>(sizeof(float)) / in;
  const int64_t most = std::max(kBandMultiple, fit / kBandMultiple * kBandMultiple);
  const int64_t count = (out + most - 1) / most;
  const int64_t size =
      ((out + count - 1) / count + kBandMultiple - 1) / kBandMultiple * kBandMultiple;
  AlignedBuffer<float> plain(static_cast<size_t>(std::min(size, out) * in));
  for (int64_t first = 0; first < out; first += size) {
    const int64_t rows = std::min(size, out - first);
    for (int64_t r = 0; r < rows; r += kSourceRows) {
      source(first + r, std::min(kSourceRows, rows - r), plain.data() + r * in);
    }
    const memory::desc any({in, rows}, kFloat, memory::format_tag::any);
    const memory::desc bias_desc({1, rows}, kFloat, memory::dims{rows, 1});
    const auto pd =
        Describe(Rows(kPackingRows, in, in), any, bias.size() != 0 ? &bias_desc : nullptr,
                 Rows(kPackingRows, rows, out), /*accumulate=*/false);
    Band band{first, rows, pd.weights_desc(), {}};
    band.weight = AlignedBuffer<float>((band.weight_desc.get_size() + 3) / sizeof(float));
    memory from({{in, rows}, kFloat, memory::dims{1, in}}, Engine(), plain.data());
    memory to(band.weight_desc, Engine(), band.weight.data());
    dnnl::reorder(from, to).execute(Stream(), from, to);
    Stream().wait();
    bands.push_back(std::move(band));
  }
}

std::shared_ptr<const Plan> Linear::Impl::Make(const Shape& s) const {
  auto plan = std::make_shared<Plan>();
  plan->shape = s;
  for (const Band& band : bands) {
    const memory::desc bias_desc({1, band.rows}, kFloat, memory::dims{band.rows, 1});
    auto pd = Describe(Rows(s.rows, in, s.x_stride), band.weight_desc,
                       bias.size() != 0 ? &bias_desc : nullptr, Rows(s.rows, band.rows, s.y_stride),
                       s.accumulate);
    plan->scratch_bytes = std::max(plan->scratch_bytes, pd.scratchpad_desc().get_size());
    plan->bands.emplace_back(dnnl::matmul(pd), pd);
  }
  return plan;
}

std::shared_ptr<const Plan> Linear::Impl::Find(const Shape& shape) const {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found =
      std::find_if(plans.begin(), plans.end(), [&](const auto& p) { return p->shape == shape; });
  if (found != plans.end()) {
    std::rotate(found, found + 1, plans.end());
  } else {
    if (plans.size() == kCachedPrimitives) plans.erase(plans.begin());
    plans.push_back(Make(shape));
  }
  return plans.back();
}

Linear::Linear() = default;
Linear::~Linear() = default;
Linear::Linear(Linear&&) noexcept = default;
Linear& Linear::operator=(Linear&&) noexcept = default;

Linear::Linear(int64_t out_features, int64_t in_features, const RowSource& weight,
               const float* bias) {
  constexpr int64_t kMost = int64_t{1} << 30;
  if (out_features < 1 || in_features < 1 || out_features > kMost || in_features > kMost) {
    Refuse("expected 1 to 2^30 features, got out " + std::to_string(out_features) + ", in " +
           std::to_string(in_features));
  }
  impl_ = std::make_unique<Impl>();
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

int64_t Linear::bytes() const {
  if (!impl_) return 0;
  size_t floats = impl_->bias.size();
  for (const Band& band : impl_->bands) floats += band.weight.size();
  return static_cast<int64_t>(floats * sizeof(float));
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
  // The stride of a single row is never used; equal strides find the same primitive.
  if (rows == 1) x_stride = m.in, y_stride = m.out;
  try {
    const auto plan = m.Find({rows, x_stride, y_stride, accumulate});
    float* scratch = Scratch(plan->scratch_bytes);
    for (size_t i = 0; i < m.bands.size(); ++i) {
      const Band& band = m.bands[i];
      const auto& [primitive, pd] = plan->bands[i];
      const auto view = [](const memory::desc& desc, const float* data) {
        return memory(desc, Engine(), const_cast<float*>(data));
      };
      std::unordered_map<int, memory> args = {
          {DNNL_ARG_SRC, view(pd.src_desc(), x)},
          {DNNL_ARG_WEIGHTS, view(band.weight_desc, band.weight.data())},
          {DNNL_ARG_DST, view(pd.dst_desc(), y + band.first)},
          {DNNL_ARG_SCRATCHPAD, view(pd.scratchpad_desc(), scratch)}};
      if (m.bias.size() != 0) {
        args.emplace(DNNL_ARG_BIAS,
                     memory({{1, band.rows}, kFloat, memory::dims{band.rows, 1}}, Engine(),
                            const_cast<float*>(m.bias.data() + band.first)));
      }
      primitive.execute(Stream(), args);
    }
    Stream().wait();
  } catch (const dnnl::error& e) {
    throw Error(ErrorCode::kUnsupported, std::string("Linear: oneDNN: ") + e.what());
  }
}

}  // namespace ropewalk
