// Attention over keys that come in parts against attention over all of them at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/attention/attention_cases.h"
#include "tests/support/message_of.h"

namespace ropewalk {
namespace parts_test {

using test::MessageOf;
using testing::HasSubstr;

constexpr int64_t kHeads = 4, kKvHeads = 2, kDim = 24, kKeys = 700, kQueries = 90;
constexpr double kLimit = 3e-6;

std::vector<int64_t> Rising(int64_t first, int64_t count) {
  std::vector<int64_t> all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), first);
  return all;
}

// Keys first .. end - 1 of a case.
KvCache CacheOf(const AttentionCase& c, int64_t first, int64_t end) {
  KvCache cache(c.kv_heads, c.head_dim, end - first, KvType::kF32, c.ValueDim());
  const auto from = [&](const std::vector<float>& all, int64_t dim) {
    return TensorView::Of(const_cast<float*>(all.data()) + first * c.kv_heads * dim,
                          {end - first, c.kv_heads, dim});
  };
  cache.Append(from(c.k, c.head_dim), from(c.v, c.ValueDim()));
  return cache;
}

struct Results {
  std::vector<float> out, log_sum_exp, entropy;
};

double Largest(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = a.size() == b.size() ? 0 : NAN;
  for (size_t i = 0; i < b.size(); ++i) largest = std::max(largest, std::abs(double(a[i]) - b[i]));
  return largest;
}

// The parts [first, end) in this order; queries are the last kQueries tokens.
Results InParts(const AttentionCase& c, const AttentionArgs& whole,
                const std::vector<std::pair<int64_t, int64_t>>& parts) {
  const size_t rows = static_cast<size_t>(c.queries * c.heads);
  Results r{std::vector<float>(rows * c.ValueDim()), std::vector<float>(rows),
            std::vector<float>(rows)};
  AttentionSums sums(c.queries + 3, c.heads, c.ValueDim());  // from row 2 on
  const auto query_positions = Rising(c.keys - c.queries, c.queries);
  const auto* running = c.form ? std::get_if<RunningForm>(&*c.form) : nullptr;
  std::vector<double> all_gates(static_cast<size_t>(c.keys * c.heads));
  for (size_t i = 0; running != nullptr && i < running->log_gates.size(); ++i) {
    const auto before = static_cast<int64_t>(i) - c.heads;
    all_gates[i] = running->log_gates[i] + (before < 0 ? 0.0 : all_gates[before]);
  }
  std::vector<double> nearer(rows);
  for (const auto& [first, end] : parts) {
    const KvCache cache = CacheOf(c, first, end);
    const auto key_positions = Rising(first, end - first);
    AttentionArgs args = whole;
    args.cache = &cache;
    args.query_positions = query_positions;
    args.key_positions = key_positions;
    std::vector<double> all(rows);
    if (running != nullptr && running->kind == RunningForm::Kind::kGates) {
      const std::span<const double> gates = all_gates;
      args.gate_sums.queries = gates.last(rows);
      args.gate_sums.keys = gates.subspan(first * c.heads, (end - first) * c.heads);
    } else if (running != nullptr) {
      args.contextual_sums = {nearer, all};
    }
    AttendPart(args, sums, 2, true);
    if (running != nullptr) nearer = all;
  }
  FinishParts(sums, 2,
              {.out = TensorView::Of(r.out.data(), {c.queries, c.heads, c.ValueDim()}),
               .sinks = whole.sinks,
               .log_sum_exp = r.log_sum_exp,
               .entropy = r.entropy});
  return r;
}

// From the nearest keys to the farthest, as CoPE needs them; and in any order.
const std::vector<std::pair<int64_t, int64_t>> kNearestFirst = {
    {640, 700}, {320, 640}, {319, 320}, {64, 319}, {0, 64}};
const std::vector<std::pair<int64_t, int64_t>> kAnyOrder = {
    {64, 319}, {640, 700}, {0, 64}, {319, 320}, {320, 640}};

void ExpectSame(const AttentionCase& c) {
  CaseMemory memory(c);
  memory.args.entropy = memory.entropy;
  Attention(memory.args);
  const bool contextual = c.form && std::holds_alternative<RunningForm>(*c.form) &&
                          std::get<RunningForm>(*c.form).kind == RunningForm::Kind::kContextual;
  for (const auto& parts : {kNearestFirst, kAnyOrder}) {
    if (contextual && parts == kAnyOrder) continue;
    const Results r = InParts(c, memory.args, parts);
    EXPECT_LE(Largest(r.out, memory.out), kLimit);
    EXPECT_LE(Largest(r.log_sum_exp, memory.log_sum_exp), 2 * kLimit);
    EXPECT_LE(Largest(r.entropy, memory.entropy), 10 * kLimit);
    const Results again = InParts(c, memory.args, parts);
    EXPECT_EQ(again.out, r.out);
    EXPECT_EQ(again.log_sum_exp, r.log_sum_exp);
  }
}

TEST(AttentionParts, EveryForm) {
  AttentionCase c = MakeCase(kHeads, kKvHeads, kDim, kKeys, kQueries);
  c.causal = true;
  for (const NamedForm& f : EveryForm(c, true)) {
    SCOPED_TRACE(f.name);
    c.form = f.form;
    ExpectSame(c);
  }
  c.causal = false;
  for (const NamedForm& f : EveryForm(c, false)) {
    SCOPED_TRACE(f.name + ", bidirectional");
    c.form = f.form;
    ExpectSame(c);
  }
}

TEST(AttentionParts, WhatBelongsToWholeRows) {
  AttentionCase c = MakeCase(kHeads, kKvHeads, kDim, kKeys, kQueries, 40);
  c.causal = true;
  ExpectSame(c);
  c.window = 100;
  c.soft_cap = 3;
  c.sinks = {0.5f, -1.0f, 2.0f, 0.0f};
  c.temperatures = Normal(kQueries, 3, 0.1f);
  for (float& x : c.temperatures) x += 1;
  ExpectSame(c);
  // Few queries against many keys, which one call cuts into spans itself.
  AttentionCase few = MakeCase(kHeads, kKvHeads, kDim, kKeys, 1);
  few.causal = true;
  ExpectSame(few);
}

TEST(AttentionParts, RowsThatSeeNothing) {
  AttentionSums sums(2, kHeads, kDim);
  std::vector<float> out(2 * kHeads * kDim, NAN), log_sum_exp(2 * kHeads), entropy(2 * kHeads);
  FinishParts(sums, 0,
              {.out = TensorView::Of(out.data(), {2, kHeads, kDim}),
               .log_sum_exp = log_sum_exp,
               .entropy = entropy});
  EXPECT_EQ(out, std::vector<float>(out.size(), 0.0f));
  EXPECT_EQ(log_sum_exp[3], -INFINITY);
  EXPECT_EQ(entropy[3], 0.0f);
}

TEST(AttentionParts, FusedRotationAtAnyPosition) {
  const Frequencies f = Resolve(
      [] {
        RotarySpec spec(PairLayout::kHalf);
        spec.head_dim = spec.rotary_dim = kDim;
        spec.trained_length = 4096;
        return spec;
      }(),
      kKeys);
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = kDim;
  spec.trained_length = 4096;
  AttentionCase c = MakeCase(kHeads, kKvHeads, kDim, kKeys, kQueries);
  c.causal = true;
  const std::vector<std::optional<DistanceMap>> maps = {
      std::nullopt, Rerope{20}, SelfExtend{30, 5}, AttentionSinks{70, 100}, DualChunk{90, 120}};
  for (const auto& map : maps) {
    LoadRotation rotation(spec, f, AnglePrecision::kExact, map);
    rotation.Grow(kKeys);
    CaseMemory memory(c, &rotation);
    memory.args.entropy = memory.entropy;
    Attention(memory.args);
    const Results r = InParts(c, memory.args, {{64, 320}, {640, 700}, {0, 64}, {320, 640}});
    EXPECT_LE(Largest(r.out, memory.out), kLimit);
    EXPECT_LE(Largest(r.entropy, memory.entropy), 10 * kLimit);
    EXPECT_THAT(MessageOf([&] {
                  InParts(c, memory.args, {{63, 320}});
                }),
                HasSubstr("a first key at a multiple of 64"));
  }
}

TEST(AttentionParts, Refusals) {
  AttentionCase c = MakeCase(kHeads, kKvHeads, kDim, kKeys, kQueries);
  c.causal = true;
  const CaseMemory memory(c);
  AttentionSums sums(kQueries, kHeads, kDim);
  EXPECT_THAT(MessageOf([&] { AttendPart(memory.args, sums, 0); }),
              HasSubstr("query_positions: expected those of the queries"));
  EXPECT_THAT(MessageOf([&] {
                InParts(c, memory.args, {{0, 64}}), AttentionSums(0, 1, 1);
              }),
              HasSubstr("AttentionSums: expected tokens"));
  const auto positions = Rising(kKeys - kQueries, kQueries);
  AttentionArgs args = memory.args;
  args.query_positions = positions;
  EXPECT_THAT(MessageOf([&] { AttendPart(args, sums, 1); }),
              HasSubstr("expected room for 90 tokens, 4 heads of 24 from row 1 on"));
  RunningForm gates;
  const ScoreForm form = gates;
  const std::vector<double> few(3), all(kQueries * kHeads);
  args.form = &form;
  args.gate_sums = {few, few};
  EXPECT_THAT(MessageOf([&] { AttendPart(args, sums, 0); }),
              HasSubstr("gate_sums.queries: expected 360 numbers"));
  args.gate_sums = {all, few};
  EXPECT_THAT(MessageOf([&] { AttendPart(args, sums, 0); }),
              HasSubstr("gate_sums.keys: expected 2800 numbers"));
}

}  // namespace parts_test
}  // namespace ropewalk
