#include "ropewalk/relative/swin.h"

#include <algorithm>
#include <cmath>

#include "src/relative/check.h"

namespace ropewalk {
namespace {

// A table over offsets, [heads, 2 height - 1, 2 width - 1].
class OffsetTable final : public PairFunction {
 public:
  OffsetTable(int64_t heads, int64_t height, int64_t width, std::vector<float> values)
      : heads_(heads), height_(height), width_(width), values_(std::move(values)) {}

  int64_t heads() const override { return heads_; }
  int64_t positions() const override { return height_ * width_; }
  int64_t parameters() const override { return static_cast<int64_t>(values_.size()); }

  void Evaluate(int64_t head, std::span<const int64_t> queries, std::span<const int64_t> keys,
                float* out, int64_t stride) const override {
    Visit(head, queries, keys, [&](std::size_t r, std::size_t c, int64_t offset) {
      out[static_cast<int64_t>(r) * stride + static_cast<int64_t>(c)] = values_[offset];
    });
  }

  void Backward(int64_t head, std::span<const int64_t> queries, std::span<const int64_t> keys,
                const float* d_bias, int64_t stride, std::span<double> gradient) const override {
    Visit(head, queries, keys, [&](std::size_t r, std::size_t c, int64_t offset) {
      gradient[offset] += d_bias[static_cast<int64_t>(r) * stride + static_cast<int64_t>(c)];
    });
  }

 private:
  template <class Body>
  void Visit(int64_t head, std::span<const int64_t> queries, std::span<const int64_t> keys,
             const Body& body) const {
    if (queries.empty() || keys.empty()) return;
    internal::CheckTile("SwinBias", positions(), queries);
    internal::CheckTile("SwinBias", positions(), keys);
    const int64_t across = 2 * width_ - 1;
    // offset(query, key) = place(query) - place(key) + that of the offset (0, 0): one division
    // per token, none per pair.
    const auto place = [&](int64_t p) { return p / width_ * across + p % width_; };
    std::vector<int64_t> of_key(keys.size());
    for (std::size_t c = 0; c < keys.size(); ++c) of_key[c] = place(keys[c]);
    const int64_t middle = (head * (2 * height_ - 1) + height_ - 1) * across + width_ - 1;
    for (std::size_t r = 0; r < queries.size(); ++r) {
      const int64_t of_query = place(queries[r]) + middle;
      for (std::size_t c = 0; c < keys.size(); ++c) body(r, c, of_query - of_key[c]);
    }
  }

  int64_t heads_, height_, width_;
  std::vector<float> values_;
};

void CheckParameters(const SwinBias& swin, int64_t heads) {
  internal::CheckAtLeast("SwinBias.height", swin.height, 1);
  internal::CheckAtLeast("SwinBias.width", swin.width, 1);
  internal::CheckAtLeast("SwinBias.pretrained_height", swin.pretrained_height, 0);
  internal::CheckAtLeast("SwinBias.pretrained_width", swin.pretrained_width, 0);
  const auto hidden = static_cast<int64_t>(swin.b1.size());
  internal::CheckAtLeast("SwinBias.b1: size", hidden, 1);
  internal::CheckNumbers("SwinBias.w1", swin.w1, 2 * hidden);
  internal::CheckNumbers("SwinBias.b1", swin.b1, hidden);
  internal::CheckNumbers("SwinBias.w2", swin.w2, heads * hidden);
}

double LogSpaced(int64_t n, int64_t pretrained, int64_t window) {
  const int64_t reach = pretrained > 0 ? pretrained : window;
  // A window of one patch knows one offset, 0.
  const double far = reach > 1 ? 8.0 * std::abs(static_cast<double>(n)) / (reach - 1) : 0.0;
  return std::copysign(std::log2(1 + far) / 3, static_cast<double>(n));
}

// Calls body(offset index without the head, y, x) for every offset of the window.
template <class Body>
void VisitOffsets(const SwinBias& swin, const Body& body) {
  int64_t index = 0;
  for (int64_t dy = 1 - swin.height; dy < swin.height; ++dy) {
    for (int64_t dx = 1 - swin.width; dx < swin.width; ++dx) {
      body(index++, LogSpaced(dy, swin.pretrained_height, swin.height),
           LogSpaced(dx, swin.pretrained_width, swin.width));
    }
  }
}

// relu(W1 (y, x) + b1)
std::vector<double> Hidden(const SwinBias& swin, double y, double x) {
  std::vector<double> h(swin.b1.size());
  for (std::size_t k = 0; k < h.size(); ++k) {
    h[k] = std::max(0.0, swin.w1[2 * k] * y + swin.w1[2 * k + 1] * x + swin.b1[k]);
  }
  return h;
}

// sigmoid(w2 . hidden) of one head
double Activation(const SwinBias& swin, int64_t head, const std::vector<double>& hidden) {
  double sum = 0;
  for (std::size_t k = 0; k < hidden.size(); ++k) {
    sum += swin.w2[head * hidden.size() + k] * hidden[k];
  }
  return 1 / (1 + std::exp(-sum));
}

}  // namespace

PairForm SwinBias::Lower(int64_t heads, int64_t max_distance) const {
  internal::CheckLowering("SwinBias", heads, max_distance);
  CheckParameters(*this, heads);
  const int64_t offsets = (2 * height - 1) * (2 * width - 1);
  std::vector<float> values(heads * offsets);
  VisitOffsets(*this, [&](int64_t index, double y, double x) {
    const std::vector<double> hidden = Hidden(*this, y, x);
    for (int64_t h = 0; h < heads; ++h) {
      values[h * offsets + index] = static_cast<float>(16 * Activation(*this, h, hidden));
    }
  });
  return {std::make_shared<OffsetTable>(heads, height, width, std::move(values))};
}

SwinBias::Gradient SwinBias::Backward(std::span<const double> gradient) const {
  internal::CheckAtLeast("SwinBias.b1: size", static_cast<int64_t>(b1.size()), 1);
  const auto heads = static_cast<int64_t>(w2.size() / b1.size());
  CheckParameters(*this, heads);
  const int64_t offsets = (2 * height - 1) * (2 * width - 1);
  if (static_cast<int64_t>(gradient.size()) != heads * offsets) {
    internal::Refuse("SwinBias.Backward: gradient: expected " + std::to_string(heads * offsets) +
                     " numbers, got " + std::to_string(gradient.size()));
  }
  Gradient g{std::vector<double>(w1.size()), std::vector<double>(b1.size()),
             std::vector<double>(w2.size())};
  VisitOffsets(*this, [&](int64_t index, double y, double x) {
    const std::vector<double> hidden = Hidden(*this, y, x);
    for (int64_t h = 0; h < heads; ++h) {
      const double a = Activation(*this, h, hidden);
      const double d = gradient[h * offsets + index] * 16 * a * (1 - a);
      for (std::size_t k = 0; k < hidden.size(); ++k) {
        g.w2[h * hidden.size() + k] += d * hidden[k];
        if (hidden[k] == 0) continue;
        const double d_hidden = d * w2[h * hidden.size() + k];
        g.w1[2 * k] += d_hidden * y;
        g.w1[2 * k + 1] += d_hidden * x;
        g.b1[k] += d_hidden;
      }
    }
  });
  return g;
}

}  // namespace ropewalk
