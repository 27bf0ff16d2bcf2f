// Cases of the biases of include/ropewalk/relative: at distances or pairs of positions where the
// bias knows no content, and through attention for all.
#include <algorithm>
#include <cstdlib>

#include "ropewalk/relative/alibi.h"
#include "ropewalk/relative/deberta.h"
#include "ropewalk/relative/distance_bias.h"
#include "ropewalk/relative/fire.h"
#include "ropewalk/relative/fope.h"
#include "ropewalk/relative/kerple.h"
#include "ropewalk/relative/pope.h"
#include "ropewalk/relative/running.h"
#include "ropewalk/relative/sandwich.h"
#include "ropewalk/relative/shaw.h"
#include "ropewalk/relative/swin.h"
#include "ropewalk/relative/t5.h"
#include "ropewalk/relative/transformer_xl.h"
#include "ropewalk/relative/tupe.h"
#include "tools/conformance/conformance.h"

namespace ropewalk::conformance {
namespace {

constexpr int64_t kFar = 1048575;

Json Case(const char* id, const char* method, Json parameters) {
  return {{"id", id}, {"method", method}, {"parameters", std::move(parameters)}};
}

// As forms.h defines the two forms that know nothing but the distance.
float At(const SlopeForm& f, int64_t head, int64_t d) {
  const auto h = static_cast<std::size_t>(head);
  return -(d < 0 ? f.ahead[h] : f.behind[h]) * static_cast<float>(std::abs(d));
}
float At(const DistanceForm& f, int64_t head, int64_t d) {
  const int64_t column = std::clamp<int64_t>(d - f.first, 0, f.columns - 1);
  return f.values[static_cast<std::size_t>(head * f.columns + column)];
}

// "bias": [[distance, value of head 0, ..]]
template <class Form>
Json ByDistance(const Form& form, int64_t heads, bool ahead) {
  Json rows = Json::array();
  for (const bool negative : {false, true}) {
    if (negative && !ahead) continue;
    for (const int64_t p : kGoldenPositions) {
      if (negative && p == 0) continue;
      const int64_t d = negative ? -p : p;
      Json row = {d};
      for (int64_t h = 0; h < heads; ++h) row.push_back(Digits(At(form, h, d)));
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

// "bias": [[position of the query, of the key, value of head 0, ..]]
Json ByPair(const PairForm& form, std::span<const std::pair<int64_t, int64_t>> pairs) {
  Json rows = Json::array();
  for (const auto& [i, j] : pairs) {
    Json row = {i, j};
    for (int64_t h = 0; h < form.function->heads(); ++h) {
      float bias = 0;
      form.function->Evaluate(h, {&i, 1}, {&j, 1}, &bias, 1);
      row.push_back(Digits(bias));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

void AddAlibi(std::vector<Json>& cases) {
  const auto add = [&](const char* id, int64_t heads, const AlibiBias& alibi) {
    constexpr const char* kRules[] = {"powers-of-two", "geometric"};
    constexpr const char* kAhead[] = {"causal", "symmetric", "signed", "zero"};
    const bool causal = alibi.ahead == AlibiAhead::kCausal;
    Json c = Case(id, "alibi",
                  {{"heads", heads},
                   {"rule", kRules[static_cast<std::size_t>(alibi.rule)]},
                   {"ahead", kAhead[static_cast<std::size_t>(alibi.ahead)]},
                   {"max_bias", alibi.max_bias},
                   {"scale", alibi.scale}});
    if (!alibi.slopes.empty()) c["parameters"]["slopes"] = Numbers(alibi.slopes);
    c["bias"] = ByDistance(alibi.Lower(heads, kFar), heads, !causal);
    c["attention"] = AttentionJson({.heads = heads, .causal = causal},
                                   [&](int64_t) { return alibi.Lower(heads, kFar); });
    cases.push_back(std::move(c));
  };
  add("alibi", 8, {});
  add("alibi.twelve-heads", 12, {});
  add("alibi.twelve-heads-geometric", 12, {.rule = AlibiSlopes::kGeometric});
  add("alibi.symmetric", 3, {.ahead = AlibiAhead::kSymmetric});
  add("alibi.signed", 3, {.ahead = AlibiAhead::kSigned});
  add("alibi.one-sided", 3, {.ahead = AlibiAhead::kZero});
  add("alibi.max-bias", 2, {.max_bias = 16});
  add("alibi.before-the-scale", 2, {.scale = 0.125});
  add("alibi.learned", 2, {.slopes = {0.75f, 0.0625f}});
}

void AddTables(std::vector<Json>& cases) {
  for (const auto& [id, buckets, last, bidirectional] : {std::tuple{"t5", 32, 128, true},
                                                         {"t5.decoder", 32, 128, false},
                                                         {"t5.odd", 7, 20, false}}) {
    const MadeTensor embedding = Make({buckets, 2}, 5);
    const T5Bias t5{buckets, last, bidirectional, embedding.values};
    Json c = Case(id, "t5",
                  {{"heads", 2},
                   {"buckets", buckets},
                   {"last_distance", last},
                   {"bidirectional", bidirectional},
                   {"embedding", embedding.json}});
    for (int64_t d = bidirectional ? -140 : 0; d <= 140; ++d)
      c["bucket"].push_back({d, t5.Bucket(d)});
    c["bias"] = ByDistance(t5.Lower(2, kFar), 2, bidirectional);
    c["attention"] = AttentionJson({.causal = !bidirectional, .scale = 1},
                                   [&](int64_t) { return t5.Lower(2, kFar); });
    cases.push_back(std::move(c));
  }
  for (const auto& [id, kernel] :
       {std::pair{"kerple.log", KerpleKernel::kLog}, {"kerple.power", KerpleKernel::kPower}}) {
    const KerpleBias kerple{kernel, {0.5f, 1.25f}, {0.25f, 0.75f}, false};
    Json c = Case(id, "kerple",
                  {{"heads", 2},
                   {"kernel", kernel == KerpleKernel::kLog ? "log" : "power"},
                   {"r1", Numbers(kerple.r1)},
                   {"r2", Numbers(kerple.r2)}});
    c["bias"] = ByDistance(kerple.Lower(2, kFar), 2, true);
    c["attention"] =
        AttentionJson({.causal = false}, [&](int64_t) { return kerple.Lower(2, kFar); });
    cases.push_back(std::move(c));
  }
  const SandwichBias sandwich{.causal = false};
  Json c =
      Case("sandwich", "sandwich", {{"heads", 2}, {"dim", sandwich.dim}, {"base", sandwich.base}});
  c["bias"] = ByDistance(sandwich.Lower(2, kFar), 2, true);
  c["attention"] =
      AttentionJson({.causal = false}, [&](int64_t) { return sandwich.Lower(2, kFar); });
  cases.push_back(std::move(c));
}

// What a number, a flag, an enum or a list is in a case.
template <class T>
Json Value(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return static_cast<int>(value);
  } else {
    return value;
  }
}
Json Value(const std::vector<float>& list) { return Numbers(list); }

// A bias over distance that no function above has cases of: with its defaults and made numbers
// above 0 in the place of learned ones.
void AddOtherDistanceBiases(std::vector<Json>& cases) {
  for (const DistanceBiasInfo& info : DistanceBiases()) {
    const auto has = [&](const Json& c) { return c.at("method") == info.name; };
    if (std::any_of(cases.begin(), cases.end(), has)) continue;
    DistanceBias bias = info.make();
    std::vector<float> learned = Make({LearnedNumbers(bias, 2)}, 5).values;
    for (float& x : learned) x = std::abs(x) + 0.25f;
    SetLearned(learned, 2, bias);
    Json parameters = {{"heads", 2}};
    std::visit(
        [&]<class B>(const B& b) {
          VisitFields<B>([&](const auto& f) { parameters[f.name] = Value(b.*f.member); });
        },
        bias);
    Json c = Case(info.name, info.name, std::move(parameters));
    const ScoreForm form = Lower(bias, 2, kFar);
    bool ahead = false;
    if (const auto* slopes = std::get_if<SlopeForm>(&form)) {
      ahead = !slopes->ahead.empty();
      c["bias"] = ByDistance(*slopes, 2, ahead);
    } else {
      const auto& table = std::get<DistanceForm>(form);
      ahead = table.first < 0;
      c["bias"] = ByDistance(table, 2, ahead);
    }
    c["attention"] = AttentionJson({.causal = !ahead}, [&](int64_t) { return ScoreForm(form); });
    cases.push_back(std::move(c));
  }
}

void AddShaw(std::vector<Json>& cases) {
  for (const int64_t table_heads : {1, 2}) {
    const MadeTensor keys = Make({table_heads, 6, 4}, 5), values = Make({table_heads, 6, 4}, 6);
    const ShawBias shaw{3, 2, 4, table_heads, keys.values, values.values};
    Json c = Case(table_heads == 1 ? "shaw" : "shaw.tables-per-head", "shaw",
                  {{"left", shaw.left},
                   {"right", shaw.right},
                   {"key_rows", keys.json},
                   {"value_rows", values.json}});
    c["attention"] = AttentionJson({.queries = {0, 3, 6, 4097, kFar}, .causal = false},
                                   [&](int64_t) { return shaw.Lower(2, kFar); });
    cases.push_back(std::move(c));
  }
  Json c = Case("shaw.sinusoidal", "shaw-sinusoidal", {{"left", 3}, {"right", 2}, {"head_dim", 6}});
  c["rows"] = Numbers(ShawSinusoidalRows(3, 2, 6));
  cases.push_back(std::move(c));
}

void AddTransformerXl(std::vector<Json>& cases) {
  const MadeTensor w = Make({2, 4, 6}, 5, 0.5f), u = Make({2, 4}, 6), v = Make({2, 4}, 7);
  for (const auto& [id, causal, clamp] : {std::tuple{"transformer-xl", true, int64_t{0}},
                                          {"xlnet", false, int64_t{0}},
                                          {"xlnet.clamped", false, int64_t{3}}}) {
    const TransformerXlBias xl{6, 4, causal, clamp, w.values, u.values, v.values};
    Json c = Case(id, "transformer-xl",
                  {{"model_dim", 6},
                   {"clamp_distance", clamp},
                   {"projection", w.json},
                   {"content_bias", u.json},
                   {"position_bias", v.json}});
    GoldenAttention a{.causal = causal};
    a.queries = {0, 3, 6, 255, 256, 257, 4097, 131071};
    c["attention"] = AttentionJson(a, [&](int64_t) { return xl.Lower(2, 131071); });
    cases.push_back(std::move(c));
  }
}

void AddDeberta(std::vector<Json>& cases) {
  for (const auto& [id, buckets, max_position] :
       {std::tuple{"deberta", int64_t{0}, int64_t{10}}, {"deberta.v2", int64_t{4}, int64_t{12}}}) {
    DebertaBias deberta{buckets, max_position, 6, 4};
    const MadeTensor embedding = Make({2 * deberta.Span(), 6}, 5, 0.5f);
    const MadeTensor key = Make({2, 4, 6}, 6, 0.5f), key_bias = Make({2, 4}, 7, 0.5f);
    const MadeTensor query = Make({2, 4, 6}, 8, 0.5f), query_bias = Make({2, 4}, 9, 0.5f);
    deberta.embedding = embedding.values;
    deberta.key_projection = key.values;
    deberta.key_projection_bias = key_bias.values;
    deberta.query_projection = query.values;
    deberta.query_projection_bias = query_bias.values;
    Json c = Case(id, "deberta",
                  {{"buckets", buckets},
                   {"max_position", max_position},
                   {"embedding", embedding.json},
                   {"key_projection", key.json},
                   {"key_projection_bias", key_bias.json},
                   {"query_projection", query.json},
                   {"query_projection_bias", query_bias.json}});
    for (int64_t d = -30; d <= 30; ++d) c["row"].push_back({d, deberta.Row(d)});
    GoldenAttention a{.causal = false, .scale = static_cast<float>(deberta.Scale())};
    a.queries = {0, 3, 6, 4097, kFar};
    c["attention"] = AttentionJson(a, [&](int64_t) { return deberta.Lower(2, kFar); });
    cases.push_back(std::move(c));
  }
  Json c = Case("deberta.buckets", "deberta-buckets", {{"buckets", 256}, {"max_position", 512}});
  for (const int64_t d : {0,   1,   127, 128, 129, 130,  200,  255,  256,    257,
                          300, 400, 510, 511, 512, 4095, 4096, 4097, 131071, 1048575}) {
    c["bucket"].push_back({d, DebertaBucket(d, 256, 512)});
    c["bucket"].push_back({-d, DebertaBucket(-d, 256, 512)});
  }
  cases.push_back(std::move(c));
}

void AddPairs(std::vector<Json>& cases) {
  const MadeTensor w1 = Make({8}, 5, 4), b1 = Make({8}, 6), w2 = Make({2, 8}, 7), b2 = Make({2}, 8);
  const FireBias fire{w1.values, b1.values, w2.values, b2.values, 0.25, 300};
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (const int64_t i : kGoldenPositions) {
    for (const int64_t j : {int64_t{0}, i / 3, i - 8, i - 1, i, i + 5}) {
      if (j >= 0 && (pairs.empty() || pairs.back() != std::pair{i, j})) pairs.emplace_back(i, j);
    }
  }
  Json c = Case("fire", "fire",
                {{"w1", w1.json},
                 {"b1", b1.json},
                 {"w2", w2.json},
                 {"b2", b2.json},
                 {"c", fire.c},
                 {"threshold", fire.threshold}});
  c["bias"] = ByPair(fire.Lower(2, 4096), pairs);
  c["attention"] = AttentionJson({}, [&](int64_t) { return fire.Lower(2, 4096); });
  cases.push_back(std::move(c));

  const MadeTensor s1 = Make({8, 2}, 5, 2), s2 = Make({8}, 6), s3 = Make({2, 8}, 7);
  for (const int64_t pretrained : {0, 2}) {
    const SwinBias swin{3, 4, pretrained, pretrained, s1.values, s2.values, s3.values};
    pairs.clear();
    for (const int64_t i : {0, 5, 11}) {
      for (int64_t j = 0; j < 12; ++j) pairs.emplace_back(i, j);
    }
    Json s = Case(pretrained == 0 ? "swin" : "swin.larger-window", "swin",
                  {{"height", 3},
                   {"width", 4},
                   {"pretrained", pretrained},
                   {"w1", s1.json},
                   {"b1", s2.json},
                   {"w2", s3.json}});
    s["bias"] = ByPair(swin.Lower(2, 12), pairs);
    s["attention"] = AttentionJson({.causal = false}, [&](int64_t) { return swin.Lower(2, 12); });
    cases.push_back(std::move(s));
  }
}

void AddTupe(std::vector<Json>& cases) {
  const MadeTensor embedding = Make({300, 6}, 5), t5 = Make({32, 2}, 6);
  const MadeTensor query = Make({2, 4, 6}, 7, 0.5f), query_bias = Make({2, 4}, 8);
  const MadeTensor key = Make({2, 4, 6}, 9, 0.5f), key_bias = Make({2, 4}, 10);
  TupeBias tupe{
      300, 6, 4, embedding.values, query.values, query_bias.values, key.values, key_bias.values};
  const std::pair<int64_t, int64_t> pairs[] = {{0, 0},   {0, 5},   {5, 0},     {1, 1},     {7, 3},
                                               {3, 7},   {255, 1}, {255, 256}, {256, 257}, {299, 0},
                                               {299, 2}, {2, 299}, {257, 129}};
  for (const bool relative : {false, true}) {
    Json c = Case(relative ? "tupe.relative" : "tupe", "tupe",
                  {{"embedding", embedding.json},
                   {"query_projection", query.json},
                   {"query_projection_bias", query_bias.json},
                   {"key_projection", key.json},
                   {"key_projection_bias", key_bias.json}});
    if (relative) {
      tupe.relative = T5Bias{32, 128, true, t5.values};
      tupe.from_cls = {0.5f, -0.25f};
      tupe.to_cls = {-1, 0.75f};
      c["parameters"]["relative"] = {
          {"buckets", 32}, {"last_distance", 128}, {"embedding", t5.json}};
      c["parameters"]["from_cls"] = Numbers(tupe.from_cls);
      c["parameters"]["to_cls"] = Numbers(tupe.to_cls);
    }
    c["bias"] = ByPair(tupe.Lower(2, 300), pairs);
    c["attention"] = AttentionJson({.causal = false, .scale = static_cast<float>(tupe.Scale())},
                                   [&](int64_t) { return tupe.Lower(2, 300); });
    cases.push_back(std::move(c));
  }
}

void AddRunning(std::vector<Json>& cases) {
  constexpr int64_t kKeys = 131072;
  GoldenAttention a{.keys = kKeys};
  a.queries = {0, 1, 6, 255, 256, 257, 4095, 4096, 4097, 16384, kKeys - 1};
  const MadeTensor x = Make({kKeys, 3}, 5), w = Make({2, 3}, 6, 0.5f);
  const ForgetGateBias gate{3, w.values, {6, 12}};
  Json c = Case("forgetting-gate", "forgetting-gate",
                {{"weight", w.json}, {"bias", Numbers(gate.bias)}, {"x", x.json}});
  c["attention"] = AttentionJson(a, [&](int64_t keys) {
    return gate.Lower(2, std::span(x.values).first(static_cast<std::size_t>(keys * 3)));
  });
  cases.push_back(std::move(c));
  a.keys = 4098;
  a.queries.resize(9);
  for (const int64_t table_heads : {1, 2}) {
    const MadeTensor rows = Make({table_heads, 130, 4}, 5);
    const CopeBias cope{130, 4, table_heads, rows.values};
    Json d = Case(table_heads == 1 ? "cope" : "cope.tables-per-head", "cope",
                  {{"position_rows", rows.json}});
    d["attention"] = AttentionJson(a, [&](int64_t keys) { return cope.Lower(2, keys); });
    cases.push_back(std::move(d));
  }
}

// Encodings of queries and keys themselves.
void AddEncoded(std::vector<Json>& cases) {
  std::vector<int64_t> positions = kGoldenPositions;
  positions.push_back(2147483647);
  const auto tokens = static_cast<int64_t>(positions.size());
  const MadeTensor x = Make({tokens, 2, 4}, 1), phase = Make({2, 4}, 5, 8);
  for (const bool key : {false, true}) {
    PopeEncoding pope{2, 4};
    Json c = Case(key ? "pope.keys" : "pope.queries", "pope", {{"base", pope.base}});
    if (key) {
      pope.phase = phase.values;
      c["parameters"]["phase"] = phase.json;
    }
    c["x"] = x.json;
    c["positions"] = positions;
    c["out"] = Numbers(pope.Encode(x.values, positions));
    cases.push_back(std::move(c));
  }
  const MadeTensor wide = Make({tokens, 2, 8}, 1);
  for (const int64_t table_heads : {1, 2}) {
    FopeEncoding fope{2, 8, 10000, 512};
    fope.table_heads = table_heads;
    const int64_t kept = fope.Kept();
    const MadeTensor cosines = Make({table_heads, kept, kept}, 5);
    const MadeTensor sines = Make({table_heads, kept, kept}, 6);
    fope.cosines = cosines.values;
    fope.sines = sines.values;
    Json c = Case(table_heads == 1 ? "fope" : "fope.tables-per-head", "fope",
                  {{"base", fope.base},
                   {"trained_length", fope.trained_length},
                   {"cosines", cosines.json},
                   {"sines", sines.json}});
    c["x"] = wide.json;
    c["positions"] = positions;
    c["out"] = Numbers(fope.Encode(wide.values, positions));
    cases.push_back(std::move(c));
  }
}

}  // namespace

void AddRelativeCases(std::vector<Json>& cases) {
  AddAlibi(cases);
  AddTables(cases);
  AddOtherDistanceBiases(cases);
  AddShaw(cases);
  AddTransformerXl(cases);
  AddDeberta(cases);
  AddPairs(cases);
  AddTupe(cases);
  AddRunning(cases);
  AddEncoded(cases);
}

}  // namespace ropewalk::conformance
