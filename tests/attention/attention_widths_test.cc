// Values that are wider or narrower than keys, as latent attention has them, against the N x N
// reference in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "ropewalk/attention/backward.h"
#include "ropewalk/base/error.h"
#include "src/attention/kernel/tile.h"
#include "tests/attention/attention_cases.h"
#include "tests/attention/attention_reference.h"
#include "tests/support/message_of.h"
#include "tests/support/targets.h"

namespace ropewalk {
namespace attention_widths_test {

using test::MessageOf;

// As attention_forms_test.cc has it.
constexpr double kTolerance = 2e-5;

struct Widths {
  int64_t key, value;
};
constexpr Widths kWidths[] = {{192, 128}, {64, 32}, {80, 96}, {5, 3}, {33, 50}, {1, 17}, {20, 1}};

void ExpectReference(const AttentionCase& c, const std::string& what) {
  CaseMemory m(c);
  m.args.entropy = m.entropy;
  Attention(m.args);
  const auto expected = reference::Attention(c);
  const std::string of = what + ", keys of " + std::to_string(c.head_dim) + ", values of " +
                         std::to_string(c.ValueDim()) + ", " + std::to_string(c.queries) + " of " +
                         std::to_string(c.keys) + " tokens";
  EXPECT_LE(MaxDifference(m.out, expected.out), kTolerance) << of;
  EXPECT_LE(MaxDifference(m.log_sum_exp, expected.log_sum_exp), kTolerance) << of;
  EXPECT_LE(MaxDifference(m.entropy, expected.entropy), kTolerance) << of;
}

void ExpectEveryForm(AttentionCase c, bool running) {
  ExpectReference(c, "no form");
  for (const NamedForm& f : EveryForm(c, running)) {
    if (NeedsEqualWidths(f.form)) continue;
    c.form = f.form;
    ExpectReference(c, f.name);
  }
}

TEST(AttentionWidths, EveryForm) {
  for (const auto& [key, value] : kWidths) {
    for (const int64_t keys : {1, 7, 65}) {
      ExpectReference(MakeCase(4, 2, key, keys, keys, value), "no form");
    }
    ExpectEveryForm(MakeCase(4, 2, key, 70, 70, value), true);
  }
  ExpectEveryForm(MakeCase(4, 2, 24, 530, 270, 40), true);  // across tiles
}

TEST(AttentionWidths, MasksAndWhatElseACallHas) {
  AttentionCase c = MakeCase(4, 2, 24, 400, 270, 16);
  c.window = 65;
  c.sinks = Normal(4, 8);
  c.temperatures = Normal(270, 9, 0.3f);
  c.soft_cap = 4;
  ExpectEveryForm(c, true);
  c.causal = false;
  ExpectEveryForm(c, false);
  AttentionCase packed = MakeCase(2, 1, 16, 199, 199, 33);
  for (int64_t j = 0; j < 199; ++j) packed.key_documents.push_back(j / 67);
  packed.query_documents = packed.key_documents;
  ExpectReference(packed, "documents");
}

// Single tokens: keys are cut into spans, whose sums are merged.
TEST(AttentionWidths, DecodingInSpans) {
  ExpectReference(MakeCase(9, 3, 64, 3001, 1, 32), "one query");
  ExpectReference(MakeCase(2, 1, 192, 1537, 3, 128), "three queries");
  ExpectReference(MakeCase(2, 2, 80, 1100, 1, 96), "one query");
}

TEST(AttentionWidths, FarPositions) {
  for (const int64_t first : {0, 255, 256, 257, 131071, 1048575}) {
    AttentionCase c = MakeCase(2, 1, 48, 90, 90, 32);
    for (int64_t j = 0; j < c.keys; ++j) c.key_positions.push_back(first + j);
    c.form = SlopeForm{{0.03f, 0.1f}, {}};
    ExpectReference(c, "positions from " + std::to_string(first));
  }
}

// What latent attention did before: values padded with zeros to the keys' width, whose sums have the
// same bits.
TEST(AttentionWidths, BitsOfPaddedValues) {
  for (const int64_t queries : {1, 3, 300}) {
    AttentionCase c = MakeCase(4, 4, 192, 1100, queries, 128);
    AttentionCase padded = c;
    padded.value_dim = 192;
    padded.v.assign(static_cast<size_t>(c.keys * 4 * 192), 0.0f);
    for (int64_t row = 0; row < c.keys * 4; ++row) {
      std::copy_n(c.v.data() + row * 128, 128, padded.v.data() + row * 192);
    }
    for (const KvType type : kKvTypes) {
      for (const ComputeType compute : {ComputeType::kFloat32, ComputeType::kBFloat16}) {
        CaseMemory own(c, nullptr, type), other(padded, nullptr, type);
        own.args.compute = other.args.compute = compute;
        Attention(own.args);
        Attention(other.args);
        for (int64_t row = 0; row < queries * 4; ++row) {
          for (int64_t i = 0; i < 128; ++i) {
            ASSERT_EQ(own.out[row * 128 + i], other.out[row * 192 + i])
                << Name(type) << ", " << Name(compute) << ", row " << row << ", element " << i;
          }
        }
        EXPECT_EQ(own.log_sum_exp, other.log_sum_exp);
      }
    }
  }
}

TEST(AttentionWidths, EveryTarget) {
  ForEachTarget(internal::AttentionTarget, [&](const char* name) {
    SCOPED_TRACE(name);
    ExpectEveryForm(MakeCase(4, 2, 40, 130, 70, 18), true);
  });
}

TEST(AttentionWidths, BytesOfACache) {
  const auto bytes = [](KvType type) { return KvCache(3, 192, 640, type, 128).bytes(); };
  EXPECT_EQ(bytes(KvType::kF32), 3 * 640 * (192 + 128) * 4);
  EXPECT_EQ(bytes(KvType::kBf16), 3 * 640 * (192 + 128) * 2);
  EXPECT_EQ(bytes(KvType::kQ8_0), 3 * 640 * (192 + 128) / 32 * 34);
}

TEST(AttentionWidths, Refusals) {
  const auto says = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  says(MessageOf([] { KvCache(1, 64, 8, KvType::kF32, 0); }), "value_dim: expected 1 to 32768");
  says(MessageOf([] { KvCache(1, 64, 8, KvType::kQ8_0, 40); }),
       "values of a head of this model have 40, no multiple of 32");
  AttentionCase c = MakeCase(2, 1, 16, 9, 9, 8);
  CaseMemory m(c);
  KvCache other(1, 16, 9, KvType::kF32, 8);
  const TensorView k = TensorView::Of(c.k.data(), {9, 1, 16});
  says(MessageOf([&] { other.Append(k, k); }), "v: expected float32 [9, 1, 8]");
  AttentionArgs args = m.args;
  args.out = args.q;
  says(MessageOf([&] { Attention(args); }), "out: expected float32 [tokens, heads, 8]");
  args.out.shape[2] = 8;  // within q, whose rows it does not have
  says(MessageOf([&] { Attention(args); }), "out: overlaps q");
  const ScoreForm rows = MakeContent(c, false, 4, 4, "qv");
  args = m.args;
  args.form = &rows;
  says(MessageOf([&] { Attention(args); }), "ContentForm.value_rows: have head_dim = 16");
  const PreparedForm prepared(rows, 2, 16);
  args.form = nullptr;
  args.prepared = &prepared;
  says(MessageOf([&] { Attention(args); }), "values of this cache 8");
}

}  // namespace attention_widths_test
}  // namespace ropewalk
