// Every tolerance of the numerical tests, with where it comes from. None is widened to pass.
#pragma once

namespace ropewalk::tolerances {

// Frequencies in double-double against MPFR: relative. "Right to 100 bits."
inline constexpr double kFrequencyRelative = 0x1p-100;
// Golden frequencies of other programs are printed with 10 digits.
inline constexpr double kPrintedFrequency = 1e-9;

// Tables, the contract of include/ropewalk/rotary/table.h: in ULP of float32 where the value is at
// least kTableUlpFrom in magnitude; below, the larger of kTableAbsolute and kTableSmallUlp.
inline constexpr double kTableUlp = 0.5001;
inline constexpr double kTableUlpFrom = 0x1p-14;
inline constexpr double kTableAbsolute = 0x1p-40;
inline constexpr double kTableSmallUlp = 0.501;
// kFloat32 tables: ULP of cos and sin of the float32 angle.
inline constexpr double kFloat32TableUlp = 1.0;

// One rotated element against double, in units of the type's epsilon (2^-24, 2^-11, 2^-8, 2^-53 of
// the pair's length): twice what the plain formula y = x1 c - x2 s gets in that precision, that is
// rounded c and s (1/2 each), two products and a sum (1/2 each, at most the pair's length) and, for
// the 16-bit types, the final rounding instead, beside which float32 arithmetic does not show.
inline constexpr double kRotateF32 = 5.0;
inline constexpr double kRotateF64 = 5.0;
inline constexpr double kRotate16 = 1.01;

// Rerotate, the contract of include/ropewalk/rotary/rerotate.h: root mean square of the error over
// that of the keys, a move (f32) or a square root of a move (where rounding the stored key is what
// accumulates).
inline constexpr double kMoveF32 = 2.5 * 0x1p-24;
inline constexpr double kMoveF16 = 0x1p-12;
inline constexpr double kMoveBF16 = 0x1p-9;
inline constexpr double kMoveQ8 = 0x1p-7;

// Attention in bf16: root mean square of the error against double, in units of what the plain formula
// gets that rounds the scaled queries, the keys, the weights and the values.
inline constexpr double kAttentionBf16 = 2.0;

}  // namespace ropewalk::tolerances
