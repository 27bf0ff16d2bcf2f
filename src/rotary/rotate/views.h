// What every rotation asks of the tensors that it is given.
#pragma once

#include <cstdint>
#include <string>

#include "ropewalk/base/tensor_view.h"

namespace ropewalk::internal {

[[noreturn]] void BadRotate(const std::string& message);  // Error: "Rotate: " + message

// [tokens, heads, head_dim] as [1, tokens, heads, head_dim]; Error for another rank.
TensorView WithBatch(const TensorView& view, const char* name);

// Error for a type that nothing computes in.
void CheckComputes(const TensorView& view, const char* name);

// `view` has four dimensions: on the device, contiguous heads, addressable.
void CheckView(const TensorView& view, const char* name, Device device = Device::kCpu);

// The same batch, tokens and head_dim, and heads if asked.
void CheckSameShape(const TensorView& a, const char* a_name, const TensorView& b,
                    const char* b_name, bool heads_too);
void CheckSameType(const TensorView& a, const char* a_name, const TensorView& b,
                   const char* b_name);

}  // namespace ropewalk::internal
