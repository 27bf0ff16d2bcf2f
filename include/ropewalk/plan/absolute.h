// What a model does with positions in front of its layers, as data: an absolute encoding of its
// token embeddings, and a recurrent layer. Neither depends on the length of a sequence. Learned
// numbers are tensors that the model reads.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <variant>

#include "ropewalk/absolute/complex_order.h"
#include "ropewalk/absolute/convolutional.h"
#include "ropewalk/absolute/recurrent.h"
#include "ropewalk/absolute/sinusoidal.h"
#include "ropewalk/base/fields.h"
#include "ropewalk/base/hash.h"

namespace ropewalk {

// Settings of the encodings of ropewalk/absolute/; names are those of config.json. x [tokens, hidden]
// are the token embeddings. One row per position in a table that is added is LearnedPositions
// (plan.h).

// x plus scale times the sinusoids of its positions.
struct SinusoidalEmbedding {
  SinusoidalLayout layout = SinusoidalLayout::kInterleaved;
  double base = 10000;
  SinusoidalLadder ladder = SinusoidalLadder::kPaper;
  bool cosine_first = false;
  double scale = 1;

  static constexpr auto Fields() {
    using S = SinusoidalEmbedding;
    return std::tuple{Field{"layout", &S::layout, Written::kValue}, Field{"base", &S::base},
                      Field{"ladder", &S::ladder, Written::kUnlessDefault},
                      Field{"cosine_first", &S::cosine_first, Written::kUnlessDefault},
                      Field{"scale", &S::scale, Written::kUnlessDefault}};
  }
  bool operator==(const SinusoidalEmbedding&) const = default;
};

// x plus the row of each position, of which there are rows^2.
struct HierarchicalEmbedding {
  int64_t rows = 0;
  double alpha = 0.4;

  static constexpr auto Fields() {
    using S = HierarchicalEmbedding;
    return std::tuple{Field{"rows", &S::rows}, Field{"alpha", &S::alpha}};
  }
  bool operator==(const HierarchicalEmbedding&) const = default;
};

// x times the learned row of each position.
struct MultiplicativeEmbedding {
  int64_t rows = 0;

  static constexpr auto Fields() {
    return std::tuple{Field{"rows", &MultiplicativeEmbedding::rows}};
  }
  bool operator==(const MultiplicativeEmbedding&) const = default;
};

// x plus a matrix times the digits of each position.
struct DigitsEmbedding {
  int64_t base = 10;
  int64_t digits = 3;
  double factor = 1;

  static constexpr auto Fields() {
    using S = DigitsEmbedding;
    return std::tuple{Field{"base", &S::base}, Field{"digits", &S::digits},
                      Field{"factor", &S::factor, Written::kUnlessDefault}};
  }
  bool operator==(const DigitsEmbedding&) const = default;
};

// x plus the states of a cell that has no input, one step per position.
struct RecurrentEmbedding {
  RecurrentCell cell = RecurrentCell::kTanh;

  static constexpr auto Fields() {
    return std::tuple{Field{"cell", &RecurrentEmbedding::cell, Written::kValue}};
  }
  bool operator==(const RecurrentEmbedding&) const = default;
};

// x plus the path of a learned differential equation.
struct FloaterEmbedding {
  int64_t hidden = 64;   // width of the layer that gives the path its direction
  double spacing = 0.1;  // time between neighbouring positions
  int64_t substeps = 10;

  static constexpr auto Fields() {
    using S = FloaterEmbedding;
    return std::tuple{Field{"hidden", &S::hidden}, Field{"spacing", &S::spacing},
                      Field{"substeps", &S::substeps}};
  }
  bool operator==(const FloaterEmbedding&) const = default;
};

// A convolution over neighbouring tokens. In a decoder tap t reads the token t - (kernel - 1) behind,
// so that it reads none ahead; in an encoder the one t - kernel / 2 away.
struct ConvolutionalEmbedding {
  int64_t kernel = 3;
  int64_t groups = 0;
  bool gelu = false;
  bool residual = true;
  ConvolutionBorder border = ConvolutionBorder::kZero;

  static constexpr auto Fields() {
    using S = ConvolutionalEmbedding;
    return std::tuple{Field{"kernel", &S::kernel}, Field{"groups", &S::groups},
                      Field{"gelu", &S::gelu, Written::kUnlessDefault},
                      Field{"residual", &S::residual, Written::kUnlessDefault},
                      Field{"border", &S::border}};
  }
  bool operator==(const ConvolutionalEmbedding&) const = default;
};

// In place of token embeddings: real parts, then imaginary parts, of hidden / 2 complex numbers.
struct ComplexOrderEmbedding {
  ComplexSharing frequency_shared = ComplexSharing::kNone;
  ComplexSharing phase_shared = ComplexSharing::kNone;

  static constexpr auto Fields() {
    using S = ComplexOrderEmbedding;
    return std::tuple{Field{"frequency_shared", &S::frequency_shared},
                      Field{"phase_shared", &S::phase_shared}};
  }
  bool operator==(const ComplexOrderEmbedding&) const = default;
};

// One alternative per encoding. A new one needs its row in src/plan/absolute.cc.
using AbsoluteEncoding =
    std::variant<SinusoidalEmbedding, HierarchicalEmbedding, MultiplicativeEmbedding,
                 DigitsEmbedding, RecurrentEmbedding, FloaterEmbedding, ConvolutionalEmbedding,
                 ComplexOrderEmbedding>;

// "sinusoidal", "complex_order", ...: the word of config.json.
const char* Name(const AbsoluteEncoding& encoding);
// "sinusoidal(interleaved, base 10000)".
std::string Describe(const AbsoluteEncoding& encoding);

// The number of positions that the encoding has a row for; INT64_MAX: they have no end.
int64_t PositionsOf(const AbsoluteEncoding& encoding);
// Whether it reads the tokens in front instead of the number of a position, which OffsetPositions
// of a sequence would not reach.
bool ReadsTokens(const AbsoluteEncoding& encoding);

// Throws Error(kInvalidArgument) for settings that the encoding of embeddings of `hidden` elements
// refuses.
void Check(const AbsoluteEncoding& encoding, int64_t hidden);

// A recurrent layer in front of the layers: x_t becomes its state h_t, from h_-1 = 0 on. kTanh is
// torch.nn.RNN, kGru torch.nn.GRU, both with states as wide as x.
struct RecurrentLayer {
  RecurrentCell cell = RecurrentCell::kTanh;

  static constexpr auto Fields() {
    return std::tuple{Field{"cell", &RecurrentLayer::cell, Written::kValue}};
  }
  bool operator==(const RecurrentLayer&) const = default;
};
std::string Describe(const RecurrentLayer& layer);

// Rows of the matrices of a cell, over the width of its state.
constexpr int64_t Gates(RecurrentCell cell) { return cell == RecurrentCell::kGru ? 3 : 1; }

void Hash(const AbsoluteEncoding& encoding, Hasher& hasher);

}  // namespace ropewalk
