// Pictures of what meets content: Shaw, Transformer-XL, DeBERTa, forgetting gate, CoPE, PoPE,
// FoPE; and of distance maps.
#include <algorithm>

#include "ropewalk/relative/deberta.h"
#include "ropewalk/relative/distance_map.h"
#include "ropewalk/relative/fope.h"
#include "ropewalk/relative/pope.h"
#include "ropewalk/relative/running.h"
#include "ropewalk/relative/shaw.h"
#include "ropewalk/relative/transformer_xl.h"
#include "tests/docs/chart_numbers.h"

namespace ropewalk::charts {
namespace {

int32_t RowOf(const ContentForm& f, int64_t d) {
  return f.row_of[std::clamp<int64_t>(d - f.first, 0, static_cast<int64_t>(f.row_of.size()) - 1)];
}

Json Shaw() {
  ShawBias shaw{4, 2, 32};
  shaw.key_rows = ShawSinusoidalRows(4, 2, 32);
  const ContentForm form = shaw.Lower(1, 32);
  const std::vector<float> rows = ShawSinusoidalRows(16, 16, 32);
  return {Heat("Row of query and key, left 4, right 2", "key", "query", 24, 24,
               [&](int64_t i, int64_t j) { return RowOf(form, i - j); }),
          Heat("Sinusoidal rows (NEZHA)", "element", "key less query", 33, 32,
               [&](int64_t r, int64_t e) { return rows[r * 32 + e]; }, {0, -16})};
}

Json TransformerXl() {
  constexpr int64_t kDim = 32;
  TransformerXlBias xl{kDim, kDim};
  xl.projection.resize(kDim * kDim);
  for (int64_t e = 0; e < kDim; ++e) xl.projection[e * kDim + e] = 1;
  xl.content_bias.resize(kDim);
  // Equal numbers for the cosines alone: v . R_d is their sum.
  xl.position_bias.resize(kDim);
  std::fill(xl.position_bias.begin() + kDim / 2, xl.position_bias.end(), 2.0f / kDim);
  const ContentForm form = xl.Lower(1, 1024);
  const auto term = [&](int64_t d) {
    double sum = 0;
    for (int64_t e = 0; e < kDim; ++e) {
      sum += static_cast<double>(xl.position_bias[e]) * form.query_rows[RowOf(form, d) * kDim + e];
    }
    return sum;
  };
  return {Heat("R by distance: sines, then cosines", "element", "distance", 48, kDim,
               [&](int64_t d, int64_t e) { return form.query_rows[RowOf(form, d) * kDim + e]; }),
          Lines("Term d with v even on the cosines", "distance, tokens",
                {{"v . W R", "c0", Octaves(1, 1024, term)}}, {.x_log = true})};
}

Json Deberta() {
  const DebertaBias first{0, 256}, third{256, 512};
  return {Lines("Row by distance", "distance: query less key, tokens",
                {{"clipped at 256 (v1)", "c1",
                  Sampled(-640, 640, 4, [&](int64_t d) { return first.Row(d); })},
                 {"256 buckets to 512 (v3)", "c0",
                  Sampled(-640, 640, 4, [&](int64_t d) { return third.Row(d); })}}),
          Heat("Row of query and key, 8 buckets to 32", "key", "query", 40, 40,
               [](int64_t i, int64_t j) {
                 return DebertaBias{8, 32}.Row(i - j);
               })};
}

// Sentences of a text of 40 tokens end here.
constexpr int64_t kTokens = 40, kEnds[] = {6, 13, 17, 26, 34};
bool IsEnd(int64_t t) {
  return std::find(std::begin(kEnds), std::end(kEnds), t) != std::end(kEnds);
}

Json ForgettingGate() {
  ForgetGateBias gate{2, {1, 0}, {0}};
  std::vector<float> x(kTokens * 2);
  // Gates of 0.95, and of 0.02 at the token after an end.
  for (int64_t t = 0; t < kTokens; ++t) {
    const double open = t > 0 && IsEnd(t - 1) ? 0.02 : 0.95;
    x[t * 2] = static_cast<float>(std::log(open / (1 - open)));
  }
  const RunningForm form = gate.Lower(1, x);
  const std::vector<double> scores = Scores(form, kTokens);
  return {
      Lines(
          "Gate of each token", "token",
          {{"", "c0",
            Sampled(0, kTokens - 1, 1,
                    [&](int64_t t) { return std::exp(static_cast<double>(form.log_gates[t])); })}},
          {.y_range = {0, 1}}),
      Heat("Bias", "key", "query", kTokens, kTokens,
           [&](int64_t i, int64_t j) { return std::max(scores[i * kTokens + j], -12.0); }),
      WeightsHeat("Weights, even scores", form, kTokens)};
}

Json Cope() {
  // Element 0 says whether a key ends a sentence, which is what queries count; element 1 is 1 in
  // queries and meets the rows.
  std::vector<float> q(kTokens * kTokens), k(kTokens * kTokens);
  for (int64_t t = 0; t < kTokens; ++t) {
    q[t * kTokens] = q[t * kTokens + 1] = 1;
    k[t * kTokens] = IsEnd(t) ? 5 : -6;
  }
  constexpr int64_t kRows = 8;
  const auto heat = [&](const char* title, const std::vector<float>& rows) {
    CopeBias cope{kRows, kTokens};
    cope.position_rows.resize(kRows * kTokens);
    for (int64_t r = 0; r < kRows; ++r) cope.position_rows[r * kTokens + 1] = rows[r];
    const std::vector<double> scores = Scores(cope.Lower(1, kTokens), kTokens, 1, q, k);
    return Heat(title, "key", "query", kTokens, kTokens, [&](int64_t i, int64_t j) {
      return scores[i * kTokens + j] - k[j * kTokens];  // q . k
    });
  };
  return {heat("Position: ends of sentences counted", {0, 1, 2, 3, 4, 5, 6, 7}),
          heat("Bias that likes the sentence before", {0, 2, 0, -1, -1, -1, -1, -1})};
}

Json Pope() {
  constexpr int64_t kDim = 32;
  const auto product = [](const std::vector<float>& a, const std::vector<float>& b) {
    double sum = 0;
    for (std::size_t e = 0; e < a.size(); ++e) sum += static_cast<double>(a[e]) * b[e];
    return sum;
  };
  const std::vector<float> q = Wave(kDim, 1, 2);
  std::vector<Line> polar, rotary;
  for (const int64_t seed : {2, 5, 9}) {
    const std::vector<float> k = Wave(kDim, seed, 2);
    const std::string name = "key " + std::to_string(polar.size() + 1),
                      colour = "c" + std::to_string(polar.size());
    PopeEncoding query{1, kDim}, key{1, kDim};
    key.phase.resize(kDim);
    const std::vector<int64_t> zero = {0};
    const auto at = [&](int64_t d) { return std::vector<int64_t>{d}; };
    polar.push_back({name, colour, Sampled(0, 96, 1, [&](int64_t d) {
                       return product(query.Encode(q, at(d)), key.Encode(k, zero));
                     })});
    // Rotary, as FoPE with nothing mixed.
    FopeEncoding rope{1, kDim, 10000, 0, kDim / 2};
    rope.cosines.resize(kDim / 2 * kDim / 2);
    for (int64_t w = 0; w < kDim / 2; ++w) rope.cosines[w * kDim / 2 + w] = 1;
    rope.sines = rope.cosines;
    rotary.push_back({name, colour, Sampled(0, 96, 1, [&](int64_t d) {
                        return product(rope.Encode(q, at(d)), rope.Encode(k, zero));
                      })});
  }
  return {Lines("PoPE: score by distance, three keys", "distance, tokens", polar),
          Lines("RoPE: the same vectors", "distance, tokens", rotary)};
}

Json Fope() {
  constexpr int64_t kDim = 16;
  FopeEncoding fope{1, kDim, 10000, 512};
  const int64_t kept = fope.Kept();
  fope.cosines = Wave(kept * kept, 3, 0.25f);
  for (int64_t w = 0; w < kept; ++w) fope.cosines[w * kept + w] = 1;
  fope.sines = fope.cosines;
  FopeEncoding plain = fope;
  std::fill(plain.cosines.begin(), plain.cosines.end(), 0.0f);
  for (int64_t w = 0; w < kept; ++w) plain.cosines[w * kept + w] = 1;
  plain.sines = plain.cosines;
  // The vector that is 1 in element `pair` becomes cos' there.
  const auto lines = [&](int64_t pair) {
    std::vector<float> x(kDim);
    x[pair] = 1;
    const auto of = [&](const FopeEncoding& encoding) {
      return Sampled(0, 200, 1,
                     [&](int64_t n) { return encoding.Encode(x, std::vector<int64_t>{n})[pair]; });
    };
    std::vector<Line> both = {{"alone", "rest", of(plain)}};
    if (pair < kept) both.push_back({"mixed", "c0", of(fope)});
    if (pair >= kept) both = {{"no rotation within 512: zero", "c1", of(fope)}};
    return both;
  };
  const Axes axes{.y_range = {-1.5, 1.5}};
  return {Lines("What pair 1 is multiplied by", "position", lines(1), axes),
          Lines("Pair 3", "position", lines(3), axes), Lines("Pair 7", "position", lines(7), axes)};
}

Json MapPanels(const std::string& title, const DistanceMap& drawn, int64_t tokens,
               const std::vector<std::pair<std::string, DistanceMap>>& lines) {
  std::vector<Line> by_distance;
  constexpr int64_t kQuery = 4095;
  for (const auto& [name, map] : lines) {
    Points points;
    for (int64_t d = 0; d <= kQuery; d += 15) {
      if (ViewOf(map, kQuery, kQuery - d) < 0) continue;
      points.emplace_back(d, RelativePosition(map, kQuery, kQuery - d));
    }
    by_distance.push_back({name, "c" + std::to_string(by_distance.size()), points});
  }
  by_distance.push_back({"true distance", "rest", {{0, 0}, {kQuery, kQuery}}});
  return {Heat(title, "key", "query", tokens, tokens,
               [&](int64_t i, int64_t j) {
                 return ViewOf(drawn, i, j) < 0 ? NAN : RelativePosition(drawn, i, j);
               }),
          Lines("What the query at 4095 sees", "distance, tokens", by_distance)};
}

}  // namespace

void AddRelative(Json& pages) {
  pages["relative/shaw"] = Shaw();
  pages["relative/transformer-xl"] = TransformerXl();
  pages["relative/deberta"] = Deberta();
  pages["relative/forgetting-gate"] = ForgettingGate();
  pages["relative/cope"] = Cope();
  pages["relative/pope"] = Pope();
  pages["relative/fope"] = Fope();
}

void AddMaps(Json& pages) {
  pages["relative/rerope"] =
      MapPanels("Leaky ReRoPE, window 8, factor 4", LeakyRerope{8, 4}, 40,
                {{"ReRoPE, 512", Rerope{512}}, {"leaky, 512, 16", LeakyRerope{512, 16}}});
  pages["relative/self-extend"] =
      MapPanels("Window 8, groups of 4", SelfExtend{8, 4}, 40,
                {{"512, groups of 8", SelfExtend{512, 8}}, {"groups of 16", SelfExtend{512, 16}}});
  pages["relative/dual-chunk"] = MapPanels("Chunks of 12, limit 15", DualChunk{12, 15}, 48,
                                           {{"chunks of 768, to 1023", DualChunk{768, 1023}}});
  pages["relative/sinks"] = MapPanels("4 sinks, window 16", AttentionSinks{4, 16}, 48,
                                      {{"4 sinks, window 1020", AttentionSinks{4, 1020}}});
  pages["relative/lampe"] = MapPanels("Head 8, tail 6, 40 of 48", Lampe{8, 20, 6, 48}, 48,
                                      {{"head 512, 2573 of 4096", Lampe{512, 2573, 200, 4096}},
                                       {"head 512, 1024 of 4096", Lampe{512, 1024, 200, 4096}}});
  pages["relative/dpe"] =
      MapPanels("Window 8, the fastest eighth in groups of 4", Dpe{.window = 8, .group1 = 4}, 40,
                {{"window 1024, groups of 2", Dpe{.group1 = 2}},
                 {"of 8", Dpe{.group1 = 8}},
                 {"of 32", Dpe{.group1 = 32}}});
  pages["relative/string"] =
      MapPanels("Shift 16, window 4", StringMap{16, 4}, 48,
                {{"1365, window 128", StringMap{1365, 128}}, {"1638, 512", StringMap{1638, 512}}});
}

}  // namespace ropewalk::charts
