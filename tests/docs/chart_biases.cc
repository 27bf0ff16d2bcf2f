// Pictures of what depends on distance or positions alone: ALiBi, T5, KERPLE, Sandwich, FIRE,
// Swin, TUPE.
#include <algorithm>

#include "ropewalk/absolute/sinusoidal.h"
#include "ropewalk/relative/alibi.h"
#include "ropewalk/relative/fire.h"
#include "ropewalk/relative/kerple.h"
#include "ropewalk/relative/sandwich.h"
#include "ropewalk/relative/swin.h"
#include "ropewalk/relative/t5.h"
#include "ropewalk/relative/tupe.h"
#include "tests/docs/chart_numbers.h"

namespace ropewalk::charts {
namespace {

double At(const DistanceForm& f, int64_t head, int64_t d) {
  return f.values[head * f.columns + std::clamp<int64_t>(d - f.first, 0, f.columns - 1)];
}

double At(const PairForm& f, int64_t head, int64_t i, int64_t j) {
  float bias = 0;
  f.function->Evaluate(head, {&i, 1}, {&j, 1}, &bias, 1);
  return bias;
}

Json Alibi() {
  const SlopeForm form = AlibiBias{}.Lower(8, 64);
  std::vector<Line> lines;
  for (const int h : {1, 3, 5, 6, 0, 2, 4, 7}) {
    const bool named = h == 0 || h == 2 || h == 4 || h == 7;
    const std::string name = "head " + std::to_string(h + 1);
    const char* colour = h == 0 ? "c0" : h == 2 ? "c1" : h == 4 ? "c2" : h == 7 ? "c3" : "rest";
    const double slope = form.behind[h];
    lines.push_back({named ? name : "", colour,
                     Points{{0, 0}, {std::min(64.0, 16 / slope), -std::min(64 * slope, 16.0)}}});
  }
  const SlopeForm third{{form.behind[2]}, {}};
  return {Lines("Bias by distance, 8 heads", "distance, tokens", lines),
          WeightsHeat("Head 3: weights, even scores", third, 32)};
}

Json T5() {
  const T5Bias encoder, decoder{.bidirectional = false};
  return {
      Lines(
          "Bucket by distance, 32 to 128", "distance: query less key, tokens",
          {{"encoder", "c0", Sampled(-144, 144, 1, [&](int64_t d) { return encoder.Bucket(d); })},
           {"decoder", "c1", Sampled(-144, 144, 1, [&](int64_t d) { return decoder.Bucket(d); })}}),
      Heat("Bucket of query and key, encoder", "key", "query", 40, 40,
           [&](int64_t i, int64_t j) { return encoder.Bucket(i - j); })};
}

Json Kerple() {
  const KerpleBias log{KerpleKernel::kLog, {0.5f, 1, 1}, {1, 0.1f, 10}};
  const KerpleBias power{KerpleKernel::kPower, {0.5f, 0.01f, 2}, {0.35f, 0.8f, 0.1f}};
  const auto lines = [](const DistanceForm& form, const std::vector<std::string>& labels) {
    std::vector<Line> out;
    for (int h = 0; h < 3; ++h) {
      out.push_back({labels[h], "c" + std::to_string(h),
                     Octaves(1, 16384, [&](int64_t d) { return At(form, h, d); })});
    }
    return out;
  };
  const DistanceForm form = log.Lower(3, 16384);
  const DistanceForm first{0, 32, {form.values.begin(), form.values.begin() + 32}};
  return {Lines("Logarithmic kernel", "distance, tokens",
                lines(form, {"r1 = 0.5, r2 = 1", "1, 0.1", "1, 10"}), {.x_log = true}),
          Lines("Power kernel", "distance, tokens",
                lines(power.Lower(3, 16384), {"r1 = 0.5, r2 = 0.35", "0.01, 0.8", "2, 0.1"}),
                {.x_log = true}),
          WeightsHeat("Weights, even scores, r1 = 0.5, r2 = 1", first, 32)};
}

Json Sandwich() {
  const DistanceForm form = SandwichBias{}.Lower(8, 8192);
  std::vector<Line> lines;
  for (const int h : {0, 1, 3, 7}) {
    lines.push_back({"head " + std::to_string(h + 1), "c" + std::to_string(lines.size()),
                     Octaves(1, 8192, [&](int64_t d) { return At(form, h, d) - At(form, h, 0); })});
  }
  const int64_t seventh = 7 * form.columns;
  const DistanceForm last{
      0, 32, {form.values.begin() + seventh, form.values.begin() + seventh + 32}};
  return {
      Lines("Bias by distance less that at 0, 8 heads", "distance, tokens", lines, {.x_log = true}),
      WeightsHeat("Head 8: weights, even scores", last, 32)};
}

// An invented network: falls, and falls faster from a third of the interval on.
FireBias InventedFire() { return {{1, 3}, {0, -1}, {-3, -1.5f}, {0}, 0.1, 512}; }

Json Fire() {
  const PairForm form = InventedFire().Lower(1, 16384);
  std::vector<Line> by_distance, by_part;
  int colour = 0;
  for (const int64_t i : {256, 1024, 4096, 16384}) {
    const std::string name = "query at " + std::to_string(i), c = "c" + std::to_string(colour++);
    by_distance.push_back(
        {name, c, Octaves(1, i, [&](int64_t d) { return At(form, 0, i, i - d); })});
    Points part;
    for (int64_t k = 0; k <= 64; ++k) {
      part.emplace_back(static_cast<double>(k) / 64, At(form, 0, i, i - i * k / 64));
    }
    by_part.push_back({name, c, part});
  }
  return {Lines("Bias by distance, invented f", "distance, tokens", by_distance, {.x_log = true}),
          Lines("The same by distance / position", "distance / position of the query", by_part)};
}

Json Swin() {
  // |y| and |x|, and a hint of y + x.
  const std::vector<float> w1 = {1, 0, -1, 0, 0, 1, 0, -1, 1, 1, 0, 0};
  const std::vector<float> b1 = {0, 0, 0, 0, -0.25f, 1};
  const std::vector<float> w2 = {-4, -4, -3, -3, 3, 2};
  const auto heat = [&](const char* title, int64_t side, int64_t pretrained) {
    const PairForm form = SwinBias{side, side, pretrained, pretrained, w1, b1, w2}.Lower(1, 0);
    const int64_t reach = 2 * side - 1;
    return Heat(title, "offset of columns", "offset of rows", reach, reach,
                [&](int64_t r, int64_t c) {
                  const int64_t y = r - side + 1, x = c - side + 1;
                  const int64_t i = std::max<int64_t>(y, 0) * side + std::max<int64_t>(x, 0);
                  const int64_t j = std::max<int64_t>(-y, 0) * side + std::max<int64_t>(-x, 0);
                  return At(form, 0, i, j);
                },
                {1 - side, 1 - side});
  };
  return {heat("Bias in a window of 8, invented net", 8, 0),
          heat("The same net, window of 16", 16, 8)};
}

Json Tupe() {
  constexpr int64_t kTokens = 32;
  SinusoidalSpec spec(SinusoidalLayout::kInterleaved);
  spec.dim = kTokens;
  TupeBias tupe{kTokens, kTokens, kTokens};
  tupe.embedding.resize(kTokens * kTokens);
  Sinusoidal(spec).Rows(0, tupe.embedding);
  std::vector<float> identity(kTokens * kTokens);
  for (int64_t e = 0; e < kTokens; ++e) identity[e * kTokens + e] = 1.5f;
  tupe.query_projection = tupe.key_projection = identity;
  const auto heat = [&](const char* title) {
    const PairForm form = tupe.Lower(1, kTokens);
    return Heat(title, "key", "query", kTokens, kTokens,
                [&](int64_t i, int64_t j) { return At(form, 0, i, j); });
  };
  Json panels = {heat("Positions with positions")};
  tupe.from_cls = {1};
  tupe.to_cls = {-1};
  panels.push_back(heat("CLS untied"));
  tupe.relative = T5Bias{};
  for (int64_t b = 0; b < 32; ++b) {
    tupe.relative->embedding.push_back(b < 16 ? 2 - 0.25f * static_cast<float>(b) : -2);
  }
  panels.push_back(heat("With T5's buckets (TUPE-R)"));
  return panels;
}

}  // namespace

void AddBiases(Json& pages) {
  pages["relative/alibi"] = Alibi();
  pages["relative/t5"] = T5();
  pages["relative/kerple"] = Kerple();
  pages["relative/sandwich"] = Sandwich();
  pages["relative/fire"] = Fire();
  pages["relative/swin"] = Swin();
  pages["relative/tupe"] = Tupe();
}

}  // namespace ropewalk::charts
