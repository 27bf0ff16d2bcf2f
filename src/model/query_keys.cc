#include "src/model/query_keys.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "ropewalk/rotary/rotate.h"
#include "src/base/parallel.h"

namespace ropewalk::internal {
namespace {

constexpr float kTurn = 2 * std::numbers::pi_v<float>;
constexpr int64_t kElementNs = 10;  // of softplus

float Softplus(float x) { return std::max(x, 0.0f) + std::log1p(std::exp(-std::abs(x))); }

// x [tokens, heads, n] -> out [tokens, heads, 2 n]: softplus(x) times the cosines, then the sines,
// of each token's angles plus the phases [heads, n]; null: without.
struct PopeRows {
  const CosSinTable& table;
  int64_t first_position;
  const float* cos_phase;
  const float* sin_phase;

  void Fill(const TensorView& x, float* out) const {
    const int64_t tokens = x.shape[0], heads = x.shape[1], n = x.shape[2];
#pragma omp parallel for schedule(static) num_threads(ThreadsFor(tokens* heads* n* kElementNs))
    for (int64_t t = 0; t < tokens; ++t) {
      const float* row = table.Row(first_position + t);
      for (int64_t h = 0; h < heads; ++h) {
        const float* from = static_cast<const float*>(x.data) + t * x.strides[0] + h * x.strides[1];
        FillHead(from, row, h, n, out + (t * heads + h) * 2 * n);
      }
    }
  }

  void FillHead(const float* x, const float* row, int64_t head, int64_t n, float* out) const {
    for (int64_t e = 0; e < n; ++e) {
      const float length = Softplus(x[e]);
      float c = row[e], s = row[n + e];
      if (cos_phase != nullptr) {
        const float cp = cos_phase[head * n + e], sp = sin_phase[head * n + e];
        const float rotated = c * cp - s * sp;
        s = s * cp + c * sp;
        c = rotated;
      }
      out[e] = length * c;
      out[n + e] = length * s;
    }
  }
};

TensorView Encoded(float* data, const TensorView& x) {
  return TensorView::Of(data, {x.shape[0], x.shape[1], 2 * x.shape[2]});
}

// out[d] = sum over w of weights[w][d] values[w], of n each.
void Mix(const std::vector<float>& weights, const float* values, int64_t n, float* out) {
  std::fill_n(out, n, 0.0f);
  for (int64_t w = 0; w < n; ++w) {
    for (int64_t d = 0; d < n; ++d) out[d] += weights[w * n + d] * values[w];
  }
}

std::string Name(int64_t layer, const char* parameter) {
  return LayerParameter(layer, "rotation", parameter);
}

}  // namespace

void AddQueryKeyTensors(const ModelConfig& c, std::vector<EncodingTensor>& all) {
  for (int64_t l = 0; l < c.layers; ++l) {
    const auto& encoding = c.plan.layers[l].encoding;
    if (!encoding) continue;
    if (const auto* fope = std::get_if<FopeLayer>(&*encoding)) {
      const std::vector<int64_t> shape = {fope->frequencies, fope->frequencies};
      all.push_back({Name(l, "cosines"), l, shape});
      all.push_back({Name(l, "sines"), l, shape});
    } else {
      all.push_back({Name(l, "phase"), l, {c.kv_heads, c.head_dim}});
    }
  }
}

std::unique_ptr<const QueryKeyEncoder> QueryKeyEncoder::Load(const ModelConfig& c,
                                                             const TensorLoader& loader) {
  if (c.plan.layers.empty() || !c.plan.layers[0].encoding) return nullptr;
  std::unique_ptr<QueryKeyEncoder> encoder(new QueryKeyEncoder(c));
  for (int64_t l = 0; l < c.layers; ++l) {
    Learned& learned = encoder->layers_.emplace_back();
    if (std::holds_alternative<FopeLayer>(*c.plan.layers[l].encoding)) {
      learned.cosines = loader.ReadEncoding(Name(l, "cosines"));
      learned.sines = loader.ReadEncoding(Name(l, "sines"));
      continue;
    }
    for (const float phase : loader.ReadEncoding(Name(l, "phase"))) {
      const float clipped = std::clamp(phase, -kTurn, 0.0f);
      learned.cosines.push_back(std::cos(clipped));
      learned.sines.push_back(std::sin(clipped));
    }
  }
  return encoder;
}

void QueryKeyEncoder::Encode(std::size_t layer, const CosSinTable& table, int64_t first_position,
                             TensorView& q, TensorView& k, LayerScratch& s) const {
  const Learned& learned = layers_[layer];
  if (std::holds_alternative<FopeLayer>(*c_.plan.layers[layer].encoding)) {
    RotateFope(learned, table, first_position, q, k, s);
  } else {
    EncodePope(learned, table, first_position, q, k, s);
  }
}

void QueryKeyEncoder::EncodePope(const Learned& learned, const CosSinTable& table,
                                 int64_t first_position, TensorView& q, TensorView& k,
                                 LayerScratch& s) const {
  float* queries = s.encoded.data();
  float* keys = queries + q.shape[0] * q.shape[1] * 2 * q.shape[2];
  PopeRows{table, first_position, nullptr, nullptr}.Fill(q, queries);
  PopeRows{table, first_position, learned.cosines.data(), learned.sines.data()}.Fill(k, keys);
  q = Encoded(queries, q);
  k = Encoded(keys, k);
}

// A rotation whose rows of cos and sin are mixed first; pairs behind the kept ones stay.
void QueryKeyEncoder::RotateFope(const Learned& learned, const CosSinTable& table,
                                 int64_t first_position, const TensorView& q, const TensorView& k,
                                 LayerScratch& s) const {
  const int64_t tokens = q.shape[0], kept = table.pairs(), pairs = c_.head_dim / 2;
#pragma omp parallel for schedule(static) num_threads(ThreadsFor(tokens * 2 * kept * kept / 4))
  for (int64_t t = 0; t < tokens; ++t) {
    const float* row = table.Row(first_position + t);
    float* mixed = s.encoded.data() + t * 2 * pairs;
    std::fill_n(mixed, pairs, 1.0f);
    std::fill_n(mixed + pairs, pairs, 0.0f);
    Mix(learned.cosines, row, kept, mixed);
    Mix(learned.sines, row + kept, kept, mixed + pairs);
  }
  const CosSinTable rows = CosSinTable::View(s.encoded.data(), first_position, tokens, pairs);
  Rotate({.table = &rows,
          .layout = PairLayout::kHalf,
          .positions = Positions::From(first_position),
          .q = q,
          .k = k,
          .q_out = {},
          .k_out = {}});
}

int64_t QueryKeyEncoder::bytes() const {
  std::size_t numbers = 0;
  for (const Learned& learned : layers_) numbers += learned.cosines.size() + learned.sines.size();
  return static_cast<int64_t>(numbers * sizeof(float));
}

}  // namespace ropewalk::internal
