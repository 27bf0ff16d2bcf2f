// Combines the rows of a position encoding with the embeddings: adds them, or multiplies element by
// element.
//
//   add        y[b, t] = x[b, t] + scale rows[t]
//   multiply   y[b, t] = x[b, t] * rows[t]        (multiplicative encoding, Su 2021, kexue.fm/8130)
//
// All tensors are row-major without gaps: x [batch, tokens, dim], rows [tokens, dim]; sizes follow
// from batch and the spans. Gradients with respect to rows are summed over the batch in double and
// added to d_rows. All functions throw Error(kInvalidArgument) where sizes do not fit.
#pragma once

#include <cstdint>
#include <span>

namespace ropewalk {

void AddRows(std::span<float> x, int64_t batch, std::span<const float> rows, float scale = 1);
// dL/dx is dy. d_rows += scale sum over b of dy[b].
void AddRowsBackward(std::span<const float> dy, int64_t batch, std::span<double> d_rows,
                     float scale = 1);

void MultiplyRows(std::span<float> x, int64_t batch, std::span<const float> rows);
// x: as before MultiplyRows. dx = dy * rows (dx may be dy), d_rows += sum over b of dy[b] * x[b].
void MultiplyRowsBackward(std::span<const float> x, std::span<const float> dy, int64_t batch,
                          std::span<const float> rows, std::span<float> dx,
                          std::span<double> d_rows);

}  // namespace ropewalk
