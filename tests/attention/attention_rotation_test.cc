// Rotation on load and distance maps, against the N x N reference in double with each map's formula
// typed again.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "reference/relative.h"
#include "ropewalk/attention/backward.h"
#include "ropewalk/base/error.h"
#include "ropewalk/base/threads.h"
#include "ropewalk/rotary/rotate.h"
#include "src/attention/kernel/tile.h"
#include "tests/attention/attention_cases.h"
#include "tests/attention/attention_reference.h"
#include "tests/support/message_of.h"
#include "tests/support/targets.h"

namespace ropewalk {
namespace attention_rotation_test {

using test::MessageOf;

// As attention_forms_test.cc has it: scores reach some 15, |v| is below 5.
constexpr double kTolerance = 2e-5;

double Floor(double x) { return std::floor(x); }

// Self-Extend with the group of the pair's share.
double DpeDistance(const Dpe& m, double i, double j, int64_t pair, int64_t pairs) {
  const int64_t groups[] = {m.group1, m.group2, m.group3, m.group4,
                            m.group5, m.group6, m.group7, m.group8};
  const auto g = double(groups[8 * pair / pairs]), w = double(m.window);
  return i - j < w ? i - j : Floor(i / g) + w - Floor(w / g) - Floor(j / g);
}

// Whole and fractional distances, from the papers; NaN where a pair is not scored.
double Distance(const DistanceMap& map, double i, double j) {
  const double d = i - j;
  if (d < 0) return NAN;
  if (const auto* m = std::get_if<Rerope>(&map)) return std::min(d, double(m->window));
  if (const auto* m = std::get_if<LeakyRerope>(&map)) {
    const auto w = static_cast<double>(m->window), k = static_cast<double>(m->factor);
    return d < w ? d : w + (d - w) / k;
  }
  if (const auto* m = std::get_if<SelfExtend>(&map)) {
    const auto w = static_cast<double>(m->window), g = static_cast<double>(m->group);
    return d < w ? d : Floor(i / g) + w - Floor(w / g) - Floor(j / g);
  }
  if (const auto* m = std::get_if<DualChunk>(&map)) {
    const auto s = static_cast<double>(m->chunk), c = static_cast<double>(m->limit);
    const double at = std::fmod(i, s), key = std::fmod(j, s), chunks = Floor(i / s) - Floor(j / s);
    return (chunks == 0 ? at : chunks == 1 ? std::min(at + s, c) : c) - key;
  }
  if (const auto* m = std::get_if<StringMap>(&map)) {
    return d < double(m->shift) ? d : d - double(m->shift) + double(m->window);
  }
  if (const auto* m = std::get_if<Lampe>(&map)) {
    return double(reference::Lampe(int64_t(i), int64_t(j), m->head, m->mapped, m->tail, m->length));
  }
  if (const auto* m = std::get_if<Dpe>(&map)) return DpeDistance(*m, i, j, 0, 8);
  const auto& m = std::get<AttentionSinks>(map);
  const auto sinks = static_cast<double>(m.sinks), window = static_cast<double>(m.window);
  if (j < sinks) return std::min(i, sinks + window - 1) - j;
  return d < window ? d : NAN;
}

RotarySpec Spec(int64_t head_dim, PairLayout layout, int64_t rotary_dim = 0,
                int64_t first_dim = 0) {
  RotarySpec spec(layout);
  spec.head_dim = head_dim;
  spec.rotary_dim = rotary_dim == 0 ? head_dim : rotary_dim;
  spec.first_dim = first_dim;
  spec.base = 500;
  return spec;
}

// Both the library's rotation and the reference's.
struct Turning {
  LoadRotation rotation;
  std::function<void(AttentionCase&)> describe;

  Turning(const RotarySpec& spec, const std::optional<DistanceMap>& map, int64_t tokens,
          double amplitude = 1)
      : rotation(spec, Make(spec, amplitude), AnglePrecision::kExact, map) {
    rotation.Grow(tokens);
    describe = [=](AttentionCase& c) {
      c.relative = [map](int64_t i, int64_t j) {
        return map ? Distance(*map, static_cast<double>(i), static_cast<double>(j))
                   : static_cast<double>(i - j);  // masks are the case's own
      };
      if (map && std::holds_alternative<Dpe>(*map)) {
        c.relative_of_pair = [map, n = spec.rotary_dim / 2](int64_t i, int64_t j, int64_t pair) {
          return DpeDistance(std::get<Dpe>(*map), double(i), double(j), pair, n);
        };
      }
      c.amplitude = amplitude;
      c.pairs.clear(), c.frequencies.clear();
      const int64_t pairs = spec.rotary_dim / 2;
      for (int64_t p = 0; p < pairs; ++p) {
        const bool half = spec.layout == PairLayout::kHalf;
        c.pairs.push_back(spec.first_dim + (half ? p : 2 * p));
        c.pairs.push_back(spec.first_dim + (half ? p + pairs : 2 * p + 1));
        c.frequencies.push_back(std::pow(spec.base, -2.0 * double(p) / double(spec.rotary_dim)));
      }
    };
  }

  static Frequencies Make(const RotarySpec& spec, double amplitude) {
    Frequencies f = Resolve(spec, 1024);
    f.amplitude = amplitude;
    return f;
  }
};

void ExpectReference(AttentionCase c, Turning& t, const std::string& what) {
  t.describe(c);
  CaseMemory m(c, &t.rotation);
  m.args.entropy = m.entropy;
  Attention(m.args);
  const auto expected = reference::Attention(c);
  double worst = MaxDifference(m.entropy, expected.entropy);
  for (size_t i = 0; i < m.out.size(); ++i) {
    const double difference = std::abs(m.out[i] - expected.out[i]);
    if (!(difference <= worst)) worst = difference;
  }
  for (size_t i = 0; i < m.log_sum_exp.size(); ++i) {
    const double difference = std::abs(m.log_sum_exp[i] - expected.log_sum_exp[i]);
    if (!(difference <= worst)) worst = difference;
  }
  EXPECT_LE(worst, kTolerance) << what << ", " << c.queries << " of " << c.keys << " tokens, heads "
                               << c.heads << "/" << c.kv_heads << " of " << c.head_dim;
}

std::vector<DistanceMap> Maps(int64_t w) {
  return {Rerope{w},
          LeakyRerope{w, 3},
          SelfExtend{w, 4},
          SelfExtend{w, 1},
          DualChunk{w, w + w / 2},
          DualChunk{w, 2 * w},
          AttentionSinks{4, w},
          AttentionSinks{0, w},
          StringMap{w, w / 3},
          StringMap{w, w},
          Lampe{w, w, w / 3, 3 * w + 5},
          Lampe{w, 1, 3 * w, 3 * w},
          Dpe{w, 3, 1, 5, 2, 7, 4, 9, 6}};
}

TEST(LoadRotation, EveryMapAtOddSizes) {
  for (const int64_t keys : {1, 2, 7, 63, 65, 257, 300}) {
    for (const int64_t window : {1, 2, 13, 64, 100, 1000}) {
      for (const DistanceMap& map : Maps(window)) {
        Turning t(Spec(20, PairLayout::kHalf), map, keys);
        ExpectReference(MakeCase(3, 1, 20, keys, keys), t, Describe(map));
      }
    }
  }
}

TEST(LoadRotation, LayoutsPartsAndAmplitude) {
  for (const PairLayout layout : {PairLayout::kHalf, PairLayout::kInterleaved}) {
    for (const auto& [dims, first] : {std::pair{24, 0}, std::pair{8, 0}, std::pair{8, 10}}) {
      std::vector<std::optional<DistanceMap>> maps{std::nullopt};
      for (const DistanceMap& map : Maps(50)) maps.emplace_back(map);
      for (const auto& map : maps) {
        Turning t(Spec(24, layout, dims, first), map, 333, 1.2);
        const int64_t value_dim = layout == PairLayout::kHalf ? 24 : 40;
        ExpectReference(MakeCase(4, 2, 24, 333, 210, value_dim), t,
                        map ? Describe(*map) : "no map");
      }
    }
  }
}

TEST(LoadRotation, GoesWithBiasesWindowsCapsSinksAndTemperatures) {
  for (const DistanceMap& map : Maps(60)) {
    Turning t(Spec(16, PairLayout::kHalf), map, 400);
    AttentionCase c = MakeCase(4, 2, 16, 400, 300);
    c.window = 150;
    ExpectReference(c, t, Describe(map) + " with a window");
    c.soft_cap = 3;
    c.sinks = Normal(4, 8);
    c.temperatures = Normal(300, 9, 0.3f);
    ExpectReference(c, t, Describe(map) + " with everything");
    c.window = 0;
    for (const NamedForm& f : EveryForm(c, true)) {
      const auto* running = std::get_if<RunningForm>(&f.form);
      if (std::holds_alternative<ContentForm>(f.form) ||
          (running != nullptr && running->kind == RunningForm::Kind::kContextual)) {
        continue;
      }
      c.form = f.form;
      ExpectReference(c, t, Describe(map) + " with " + f.name);
    }
  }
}

TEST(LoadRotation, EqualsTurningBeforehand) {
  const int64_t tokens = 321, heads = 2, dim = 32;
  AttentionCase c = MakeCase(heads, heads, dim, tokens, tokens);
  const RotarySpec spec = Spec(dim, PairLayout::kInterleaved);
  const Frequencies frequencies = Resolve(spec, tokens);
  LoadRotation rotation(spec, frequencies, AnglePrecision::kExact);
  rotation.Grow(tokens);
  for (const bool packed : {false, true}) {
    if (packed) {
      for (int64_t j = 0; j < tokens; ++j) c.key_documents.push_back(j / 100);
      c.query_documents = c.key_documents;
    }
    CaseMemory on_load(c, &rotation);
    Attention(on_load.args);
    AttentionCase turned = c;
    const CosSinTable table(frequencies, 0, tokens, AnglePrecision::kExact);
    Rotate({.table = &table,
            .layout = spec.layout,
            .positions = Positions::From(0),
            .q = TensorView::Of(turned.q.data(), {tokens, heads, dim}),
            .k = TensorView::Of(turned.k.data(), {tokens, heads, dim}),
            .q_out = {},
            .k_out = {}});
    CaseMemory before(turned);
    Attention(before.args);
    for (size_t i = 0; i < before.out.size(); ++i) {
      ASSERT_NEAR(on_load.out[i], before.out[i], 1e-5) << i;
    }
  }
}

TEST(LoadRotation, AMapThatNothingReachesChangesNothing) {
  AttentionCase c = MakeCase(2, 1, 16, 300, 300);
  LoadRotation plain(Spec(16, PairLayout::kHalf), Turning::Make(Spec(16, PairLayout::kHalf), 1),
                     AnglePrecision::kExact);
  plain.Grow(300);
  CaseMemory expected(c, &plain);
  Attention(expected.args);
  for (const DistanceMap& map : Maps(300)) {
    Turning t(Spec(16, PairLayout::kHalf), map, 300);
    CaseMemory m(c, &t.rotation);
    Attention(m.args);
    EXPECT_EQ(m.out, expected.out) << Describe(map);
  }
}

TEST(LoadRotation, CallsOfAnySizeAgree) {
  const AttentionCase c = MakeCase(4, 2, 16, 500, 500);
  for (const DistanceMap& map : Maps(70)) {
    Turning t(Spec(16, PairLayout::kHalf), map, 64);
    t.rotation.Grow(500);
    CaseMemory whole(c, &t.rotation);
    Attention(whole.args);
    for (const int64_t cut : {int64_t{1}, int64_t{77}}) {
      KvCache cache(2, 16, 500);
      std::vector<float> out(c.q.size(), NAN);
      LoadRotation growing(Spec(16, PairLayout::kHalf),
                           Turning::Make(Spec(16, PairLayout::kHalf), 1), AnglePrecision::kExact,
                           map);
      for (int64_t at = 0; at < 500; at += cut) {
        const int64_t n = std::min(cut, 500 - at);
        const auto view = [n](const std::vector<float>& x, int64_t first, int64_t heads) {
          return TensorView::Of(x.data() + first * heads * 16, {n, heads, 16});
        };
        cache.Append(view(c.k, at, 2), view(c.v, at, 2));
        growing.Grow(at + n);
        AttentionArgs args;
        args.q = view(c.q, at, 4), args.out = view(out, at, 4);
        args.cache = &cache;
        args.scale = static_cast<float>(c.scale);
        args.rotation = &growing;
        Attention(args);
      }
      for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], whole.out[i], 1e-5) << i;
    }
  }
}

TEST(LoadRotation, SameBitsForAnyThreads) {
  const AttentionCase c = MakeCase(4, 2, 16, 900, 3);
  const int before = NumThreads();
  for (const DistanceMap& map : Maps(300)) {
    Turning t(Spec(16, PairLayout::kHalf), map, 900);
    SetNumThreads(1);
    CaseMemory one(c, &t.rotation);
    Attention(one.args);
    SetNumThreads(3);
    CaseMemory three(c, &t.rotation);
    Attention(three.args);
    SetNumThreads(before);
    EXPECT_EQ(one.out, three.out) << Describe(map);
  }
}

TEST(LoadRotation, FarPositions) {
  const auto expect = [](const DistanceMap& map, int64_t keys, int64_t queries) {
    Turning t(Spec(4, PairLayout::kHalf), map, keys);
    ExpectReference(MakeCase(1, 1, 4, keys, queries), t, Describe(map));
  };
  for (const DistanceMap& map : std::vector<DistanceMap>{
           Rerope{1000}, LeakyRerope{1000, 300}, SelfExtend{1024, 512}, DualChunk{3000, 4000},
           AttentionSinks{4, 1020}, StringMap{43253, 128}, Lampe{1024, 5000, 200, 131072}, Dpe{}}) {
    expect(map, 131072, 2);
  }
  expect(SelfExtend{1024, 512}, 1048576, 1);
  expect(StringMap{346030, 128}, 1048576, 1);
  expect(Lampe{1024, 82358, 200, 1048576}, 1048576, 1);
  expect(Dpe{1024, 16, 1, 32, 8, 128, 4, 256, 64}, 1048576, 1);
}

TEST(LoadRotation, EveryTargetEqualsTheReference) {
  ForEachTarget(internal::AttentionTarget, [&](const char* name) {
    SCOPED_TRACE(name);
    for (const DistanceMap& map : Maps(90)) {
      Turning t(Spec(20, PairLayout::kHalf), map, 301);
      ExpectReference(MakeCase(6, 2, 20, 301, 290), t, Describe(map));
    }
  });
}

// The loss, sum of out times `weights`, along a direction: by fourth-order differences of the
// reference against the gradient.
TEST(LoadRotation, GradientsEqualDifferences) {
  std::vector<std::optional<DistanceMap>> maps{std::nullopt};
  for (const DistanceMap& map : Maps(40)) maps.emplace_back(map);
  for (const auto& map : maps) {
    for (const auto& [keys, queries, value_dim] : {std::tuple{9, 9, 8}, std::tuple{300, 130, 20}}) {
      AttentionCase c = MakeCase(4, 2, 8, keys, queries, value_dim);
      Turning t(Spec(8, PairLayout::kHalf, 6, 1), map, keys, 1.1);
      t.describe(c);
      const std::vector<float> weights = Normal(int64_t{4} * queries * value_dim, 99);
      CaseMemory m(c, &t.rotation);
      Attention(m.args);
      std::vector<float> d_q(c.q.size(), NAN), d_k(c.k.size(), NAN), d_v(c.v.size(), NAN);
      AttentionBackward({&m.args,
                         TensorView::Of(weights.data(), {queries, 4, value_dim}),
                         TensorView::Of(d_q.data(), {queries, 4, 8}),
                         TensorView::Of(d_k.data(), {keys, 2, 8}),
                         TensorView::Of(d_v.data(), {keys, 2, value_dim}),
                         nullptr,
                         {}});
      struct Learned {
        const char* name;
        std::vector<float>* values;
        const std::vector<float>* gradient;
      };
      for (const Learned& l :
           {Learned{"q", &c.q, &d_q}, Learned{"k", &c.k, &d_k}, Learned{"v", &c.v, &d_v}}) {
        const std::vector<float> before = *l.values;
        const std::vector<float> direction = Normal(static_cast<int64_t>(before.size()), 5);
        double expected = 0, size = 0;
        const auto loss = [&](float step) {
          double moved = 0;
          for (size_t i = 0; i < before.size(); ++i) {
            (*l.values)[i] = before[i] + step * direction[i];
          }
          const auto out = reference::Attention(c).out;
          for (size_t i = 0; i < out.size(); ++i) moved += out[i] * weights[i];
          return moved;
        };
        for (size_t i = 0; i < before.size(); ++i) {
          expected += double{(*l.gradient)[i]} * direction[i];
          size += std::abs(double{(*l.gradient)[i]} * direction[i]);
        }
        constexpr float h = 0x1p-6f;
        const double difference = (8 * (loss(h) - loss(-h)) - (loss(2 * h) - loss(-2 * h))) /
                                  (12 * static_cast<double>(h));
        *l.values = before;
        EXPECT_NEAR(expected, difference, 3e-5 * size + 3e-5)
            << (map ? Describe(*map) : "no map") << ": " << l.name << ", " << keys << " keys";
      }
    }
  }
}

TEST(LoadRotation, Refusals) {
  const RotarySpec spec = Spec(16, PairLayout::kHalf);
  const Frequencies f = Resolve(spec, 64);
  const auto make = [&](const RotarySpec& s, const std::optional<DistanceMap>& map = {}) {
    LoadRotation(s, Resolve(s, 64), AnglePrecision::kExact, map);
  };
  const auto expect = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  RotarySpec other = spec;
  other.xpos = XposDecay{};
  expect(MessageOf([&] { make(other); }), "xPos");
  other = spec, other.rotated_heads = 1;
  expect(MessageOf([&] { make(other); }), "all heads");
  other = spec, other.axes.sections = {4, 4};
  expect(MessageOf([&] { make(other); }), "one axis");
  expect(MessageOf([&] { make(spec, Rerope{0}); }), "Rerope.window");
  other = spec, other.rotary_dim = 8;
  expect(MessageOf([&] { LoadRotation(other, f, AnglePrecision::kExact); }), "4 pairs");

  AttentionCase c = MakeCase(2, 1, 16, 100, 50);
  LoadRotation rotation(spec, f, AnglePrecision::kExact, DistanceMap(Rerope{20}));
  CaseMemory m(c, &rotation);
  const auto attend = [&] { return MessageOf([&] { Attention(m.args); }); };
  expect(attend(), "call Grow first");
  expect(MessageOf([&] { rotation.Grow(int64_t{1} << 40); }), "2^30");
  rotation.Grow(100);
  EXPECT_EQ(attend(), "no error");
  m.args.mask = AttentionMask::kBidirectional;
  expect(attend(), "causal");
  m.args.mask = AttentionMask::kCausal;
  const std::vector<int64_t> starts{0, 40}, positions(100, 3);
  m.args.document_starts = starts;
  expect(attend(), "one document");
  m.args.document_starts = {};
  m.args.key_positions = positions;
  expect(attend(), "key_positions");
  m.args.key_positions = {};
  const ScoreForm content = MakeContent(c, false, 8, 8, "q");
  m.args.form = &content;
  expect(attend(), "products");
  m.args.form = nullptr;
  const RotarySpec wide = Spec(20, PairLayout::kHalf);
  const LoadRotation wrong(wide, Resolve(wide, 64), AnglePrecision::kExact);
  m.args.rotation = &wrong;
  expect(attend(), "heads of 16");
}

}  // namespace attention_rotation_test
}  // namespace ropewalk
