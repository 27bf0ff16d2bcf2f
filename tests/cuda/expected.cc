#include "tests/cuda/expected.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "reference/rotary.h"
#include "tests/cuda/check.h"

namespace ropewalk::gpu {
namespace {

using random_call::Call;
using random_call::Element;
using random_call::Lists;
using random_call::Tensor;

struct Side {
  const char* name;
  Tensor Call::*in;
  Tensor Call::*out;
  int decay;
};
constexpr Side kSides[] = {{"q", &Call::q, &Call::q_out, 1},
                           {"k", &Call::k, &Call::k_out, -1},
                           {"v", &Call::v, &Call::v_out, 0}};

int64_t PackedPosition(const Positions& p, int64_t index) {
  const auto* boundaries = static_cast<const int64_t*>(p.data());
  int64_t start = 0;
  for (int64_t s = 0; s + 1 < p.size(); ++s) {
    if (boundaries[s] <= index && index < boundaries[s + 1]) start = boundaries[s];
  }
  return index - start;
}

int64_t PositionOf(const Positions& p, int64_t batch, int64_t token, int64_t tokens, int axis) {
  const int64_t entries = p.size() / p.axes();
  const int64_t index = batch * tokens + token;
  const int64_t at = (p.axes() > 1 ? axis * entries : 0) + (entries == tokens ? token : index);
  const auto* list = static_cast<const int64_t*>(p.data());
  switch (p.kind()) {
    case Positions::Kind::kStart:
      return p.start() + token;
    case Positions::Kind::kEach32:
      return static_cast<const int32_t*>(p.data())[at];
    case Positions::Kind::kEach64:
      return list[at];
    case Positions::Kind::kStarts:
      return list[batch] + token;
    case Positions::Kind::kLeftPadded:
      return std::max<int64_t>(0, token - list[batch]);
    case Positions::Kind::kPacked:
      return PackedPosition(p, index);
  }
  return -1;
}

// The call from one of its tensors: one head at a time.
class SideCheck {
 public:
  SideCheck(const Call& before, const Call& after, const Lists& lists, const Side& side,
            const std::string& what)
      : args_(before.args),
        f_(lists.frequencies),
        side_(side),
        in_(before.*side.in),
        in_place_((before.*side.out).view.rank == 0),
        before_(before.*(in_place_ ? side.in : side.out)),
        after_(after.*(in_place_ ? side.in : side.out)),
        what_(what + " " + side.name),
        written_(after_.memory.size(), false) {}

  double Run() {
    const int64_t* shape = in_.view.shape;
    for (int64_t b = 0; b < shape[0]; ++b) {
      for (int64_t t = 0; t < shape[1]; ++t) {
        int64_t block = b, slot = t;
        if (!args_.slots.empty() && side_.decay != 1) {
          const int64_t given = args_.slots[static_cast<std::size_t>(b * shape[1] + t)];
          if (given < 0) continue;
          block = given / before_.view.shape[1];
          slot = given % before_.view.shape[1];
        }
        for (int64_t h = 0; h < shape[2]; ++h) Head(b, t, h, block, slot);
      }
    }
    for (std::size_t i = 0; i < written_.size(); ++i) {
      if (!written_[i] && before_.memory[i] != after_.memory[i]) {
        throw Failure(what_ + ": byte " + std::to_string(i) + " is no result and was written");
      }
    }
    return worst_;
  }

 private:
  static std::byte* At(const Tensor& x, int64_t a, int64_t b, int64_t c, int64_t d) {
    const int64_t* s = x.view.strides;
    return static_cast<std::byte*>(x.view.data) +
           (a * s[0] + b * s[1] + c * s[2] + d * s[3]) * SizeOf(x.view.dtype);
  }

  void Normalise(const HeadNorm& norm, std::vector<double>& x) const {
    if (norm.weight.empty()) return;
    double sum = 0;
    for (const double value : x) sum += value * value;
    const double scale = 1 / std::sqrt(sum / static_cast<double>(x.size()) + norm.eps);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] *= scale * static_cast<double>(norm.weight[i]);
  }

  void Turn(int64_t b, int64_t t, int64_t h, std::vector<double>& x) const {
    if (side_.decay == 0 && args_.values == ValueRotation::kCopy) return;
    if (args_.rotated_heads != 0 && h >= args_.rotated_heads) return;
    int64_t positions[4];
    for (int a = 0; a < 4; ++a) {
      positions[a] = PositionOf(args_.positions, b, t, in_.view.shape[1], std::min(a, f_.axes - 1));
    }
    const bool inverse = args_.direction == Direction::kInverse;
    reference::RotateHead(x.data(), f_, positions, args_.layout == PairLayout::kInterleaved,
                          args_.first_dim, args_.direction == Direction::kForward ? 1 : -1,
                          inverse ? -side_.decay : side_.decay);
    if (!inverse) return;
    const auto end = static_cast<std::size_t>(args_.first_dim) + 2 * f_.inv_freq.size();
    for (auto i = static_cast<std::size_t>(args_.first_dim); i < end; ++i) {
      x[i] /= f_.amplitude * f_.amplitude;
    }
  }

  // Of element i's pair, whose length the rotation keeps.
  double Length(const std::vector<double>& x, int64_t i) const {
    const auto pairs = static_cast<int64_t>(f_.inv_freq.size());
    const int64_t n = i - args_.first_dim;
    const auto at = [&](int64_t e) { return x[static_cast<std::size_t>(e)]; };
    if (n < 0 || n >= 2 * pairs) return std::abs(at(i));
    const bool interleaved = args_.layout == PairLayout::kInterleaved;
    const int64_t other = interleaved ? (n ^ 1) : n < pairs ? n + pairs : n - pairs;
    return std::hypot(at(i), at(args_.first_dim + other));
  }

  void Head(int64_t b, int64_t t, int64_t h, int64_t block, int64_t slot) {
    const int64_t dim = in_.view.shape[3];
    std::vector<double> x(static_cast<std::size_t>(dim));
    for (int64_t i = 0; i < dim; ++i) {
      x[static_cast<std::size_t>(i)] = Element(in_.view.dtype, At(in_, b, t, h, i));
    }
    const bool is_q = side_.decay == 1;
    if (side_.decay != 0) Normalise(is_q ? args_.q_norm : args_.k_norm, x);
    Turn(b, t, h, x);
    const DType type = before_.view.dtype;
    const double scale = type != DType::kF8E4M3 ? 1
                         : side_.decay == 0     ? static_cast<double>(args_.v_scale)
                                                : static_cast<double>(args_.k_scale);
    // Half a unit in the last place, and half the smallest number.
    constexpr double kRounding[] = {0x1p-53, 0x1p-24, 0x1p-11, 0x1p-8, 0x1p-4};
    constexpr double kSmallest[] = {0, 0x1p-149, 0x1p-25, 0x1p-134, 0x1p-10};
    for (int64_t i = 0; i < dim; ++i) {
      std::byte* const at = At(after_, block, slot, h, i);
      const double got = Element(type, at);
      double want = x[static_cast<std::size_t>(i)] / scale;
      if (type == DType::kF8E4M3) want = std::clamp(want, -448.0, 448.0);
      const double length = Length(x, i) / scale;
      const double limit = kRounding[static_cast<int>(type)] * std::abs(want) * 1.01 +
                           kSmallest[static_cast<int>(type)] + 0x1p-21 * length;
      if (!(std::abs(got - want) <= limit)) {
        throw Failure(what_ + " [" + std::to_string(b) + ", " + std::to_string(t) + ", " +
                      std::to_string(h) + ", " + std::to_string(i) + "]: expected " +
                      std::to_string(want) + ", got " + std::to_string(got) + " (" + Name(type) +
                      ", limit " + std::to_string(limit) + ")");
      }
      if (SizeOf(type) >= 4 && length > 0) {
        worst_ = std::max(worst_, std::abs(got - want) / length * 0x1p23);
      }
      const auto first = static_cast<std::size_t>(at - after_.memory.data());
      for (std::size_t k = 0; k < static_cast<std::size_t>(SizeOf(type)); ++k) {
        written_[first + k] = true;
      }
    }
  }

  const RotateArgs& args_;
  const Frequencies& f_;
  const Side& side_;
  const Tensor& in_;
  const bool in_place_;
  const Tensor& before_;
  const Tensor& after_;
  const std::string what_;
  std::vector<bool> written_;
  double worst_ = 0;
};

}  // namespace

double ExpectRotated(const Call& before, const Call& after, const Lists& lists,
                     const std::string& what) {
  double worst = 0;
  for (const Side& side : kSides) {
    if ((before.*side.in).view.rank == 0) continue;
    worst = std::max(worst, SideCheck(before, after, lists, side, what).Run());
  }
  return worst;
}

}  // namespace ropewalk::gpu
