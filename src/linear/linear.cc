#include "ropewalk/linear/linear.h"

#include <dnnl.hpp>
#include <string>
#include <utility>

#include "ropewalk/base/error.h"
#include "src/linear/form.h"

namespace ropewalk {
namespace {

[[noreturn]] void Refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, "Linear: " + message);
}

// Calls f, with oneDNN's errors as ours.
template <class F>
auto WithErrors(F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const dnnl::error& e) {
    throw Error(ErrorCode::kUnsupported, std::string("Linear: oneDNN: ") + e.what());
  }
}

void CheckSizes(int64_t out, int64_t in) {
  constexpr int64_t kMost = int64_t{1} << 30;
  if (out < 1 || in < 1 || out > kMost || in > kMost) {
    Refuse("expected 1 to 2^30 features, got out " + std::to_string(out) + ", in " +
           std::to_string(in));
  }
}

void CheckCompute(ComputeType compute) {
  if (compute == ComputeType::kFloat32 || FindBf16Unit() != Bf16Unit::kNone) return;
  throw Error(ErrorCode::kUnsupported,
              "Linear: oneDNN multiplies no bf16 on this CPU: expected AVX-512, better "
              "avx512_bf16 or amx_bf16; compute in float32 (--compute float32)");
}

// Returns the sum of their rows.
int64_t CheckRows(const std::vector<FileRows>& rows, int64_t in) {
  int64_t out = 0;
  for (const FileRows& part : rows) {
    const WeightTypeInfo& info = Info(part.type);
    if (part.data == nullptr || part.rows < 1 || in % info.block_elements != 0) {
      Refuse("rows of a file: expected data, at least one row and rows of whole blocks, got " +
             std::to_string(part.rows) + " rows of " + std::to_string(in) + " elements of " +
             info.name + (part.data == nullptr ? " and a null pointer" : ""));
    }
    if (!part.order.empty() && static_cast<int64_t>(part.order.size()) != part.rows) {
      Refuse("rows of a file: an order of " + std::to_string(part.order.size()) + " rows for " +
             std::to_string(part.rows));
    }
    out += part.rows;
  }
  return out;
}

}  // namespace

Linear::Linear() = default;
Linear::~Linear() = default;
Linear::Linear(Linear&&) noexcept = default;
Linear& Linear::operator=(Linear&&) noexcept = default;

Linear::Linear(int64_t out_features, int64_t in_features, const RowSource& weight,
               const float* bias, ComputeType compute) {
  CheckSizes(out_features, in_features);
  CheckCompute(compute);
  form_ = WithErrors(
      [&] { return internal::MakeUnpacked(out_features, in_features, weight, bias, compute); });
}

Linear::Linear(int64_t in_features, std::vector<FileRows> weight, const float* bias,
               ComputeType compute) {
  CheckSizes(1, in_features);
  CheckSizes(CheckRows(weight, in_features), in_features);
  CheckCompute(compute);
  form_ = internal::MakePacked(in_features, std::move(weight), bias, compute);
}

int64_t Linear::out_features() const { return form_ ? form_->out : 0; }
int64_t Linear::in_features() const { return form_ ? form_->in : 0; }

ComputeType Linear::compute() const { return form_ ? form_->compute : ComputeType::kFloat32; }

int64_t Linear::bytes() const {
  if (!form_) return 0;
  return form_->weight_bytes() + static_cast<int64_t>(form_->bias.size() * sizeof(float));
}

int64_t Linear::mapped_bytes() const { return form_ ? form_->mapped_bytes() : 0; }

void Linear::Apply(const float* x, int64_t rows, int64_t x_stride, float* y, int64_t y_stride,
                   bool accumulate) const {
  if (!form_) Refuse("Apply: has no weights; construct it with some");
  if (rows == 0) return;
  if (rows < 0 || x_stride < form_->in || y_stride < form_->out || x == nullptr || y == nullptr) {
    Refuse("Apply: expected data, rows of at least 0 and row strides of at least " +
           std::to_string(form_->in) + " and " + std::to_string(form_->out) + ", got " +
           std::to_string(rows) + " rows and strides " + std::to_string(x_stride) + " and " +
           std::to_string(y_stride) + (x == nullptr || y == nullptr ? " and a null pointer" : ""));
  }
  WithErrors([&] { form_->Apply(x, rows, x_stride, y, y_stride, accumulate); });
}

}  // namespace ropewalk
