// Checks of the arguments of Rotate, for the CPU and for a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <string>
#include <type_traits>

#include "ropewalk/rotary/rotate.h"

namespace ropewalk::internal {

[[noreturn]] void BadRotate(const std::string& message);  // Error: "Rotate: " + message

// [tokens, heads, head_dim] as [1, tokens, heads, head_dim]; Error for another rank.
TensorView WithBatch(const TensorView& view, const char* name);

// `view` has four dimensions: on the device, contiguous heads, addressable.
void CheckView(const TensorView& view, const char* name, Device device);

// What q, k and v differ in.
struct OperandKind {
  const char* name;
  const char* out_name;
  int decay;  // xPos: 1 grows (q), -1 shrinks (k), 0 neither (v)
};

// q, k or v, checked by itself.
struct Operand {
  // `call_out`: where the call says to write; in place if it has rank 0.
  Operand(const OperandKind& kind, const TensorView& given, const TensorView& call_out,
          const RotateArgs& args, bool rotates, const HeadNorm* head_norm);

  OperandKind kind;
  TensorView in;  // [batch, tokens, heads, head_dim]
  bool to_slots;  // out is a cache: [blocks, slots of a block, heads, head_dim]
  std::optional<TensorView> given_out;
  bool in_place;          // exactly
  bool empty;             // no tokens or no heads
  float inverse_scale;    // of what is stored in 8 bits
  int64_t rotated_heads;  // the first ones
  const HeadNorm* norm;   // null: none

  const TensorView& out() const { return given_out ? *given_out : in; }
};

// Up to three, without an allocation: one token takes a third of a microsecond.
class Operands {
 public:
  template <class... Args>
  void Add(const Args&... args) {
    new (storage_ + sizeof(Operand) * size_++) Operand(args...);
  }
  const Operand* begin() const { return std::launder(reinterpret_cast<const Operand*>(storage_)); }
  const Operand* end() const { return begin() + size_; }
  const Operand& operator[](std::size_t i) const { return begin()[i]; }

 private:
  alignas(Operand) std::byte storage_[3 * sizeof(Operand)];
  std::size_t size_ = 0;
};
static_assert(std::is_trivially_copyable_v<Operand>);

struct CheckedCall {
  Operands operands;                         // q, k, v, those that are given
  const Frequencies* frequencies = nullptr;  // of the table, or the call's own
  int64_t pairs = 0;
  int64_t tokens = 0;       // of the whole batch; 0: nothing to do, and the rest is not checked
  int64_t cache_slots = 0;  // where slots are given
};

// Throws Error, naming the argument. What the arguments point to is read on the CPU alone: lists of
// positions and slots in memory of a GPU are left to its kernels.
CheckedCall CheckRotate(const RotateArgs& args);

}  // namespace ropewalk::internal
