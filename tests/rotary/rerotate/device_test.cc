// Kernels of Rerotate, run thread by thread on the CPU: the bits of the CPU's own.
#include "src/rotary/rerotate/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ropewalk/base/cuda.h"
#include "ropewalk/base/error.h"
#include "src/rotary/rotate/cpu.h"
#include "tests/rotary/rerotate/device_host.h"
#include "tests/rotary/rerotate/q8.h"
#include "tests/support/values.h"

namespace ropewalk {
namespace rerotate_device_test {

constexpr int64_t kFar[] = {0,    1,    255,  256,    257,     2047,      2048,
                            2049, 8192, 9000, 131071, 1048575, 2000000000};
constexpr PairLayout kLayouts[] = {PairLayout::kHalf, PairLayout::kInterleaved};
constexpr int kMultiprocessors[] = {1, 132};  // rows of many heads and tokens, and of few

// A kernel's fused multiply-add is the CPU's where that has one.
bool CpuFuses() { return !HWY_ARCH_X86 || internal::RotatePlainTarget() <= HWY_AVX2; }

void RunOnDevice(RerotateArgs args, int multiprocessors) {
  args.keys.device = args.q8_keys.device = Device::kCuda;
  const internal::RerotateLaunch launch = internal::PlanRerotate(args, multiprocessors);
  if (launch.q8) {
    EXPECT_EQ(launch.shared_bytes, launch.params.rows * internal::SharedFloats(launch.params) * 4);
    EXPECT_LE(launch.shared_bytes, 48 * 1024);  // more needs asking for
  }
  internal::RunOnHost(launch);
}

Frequencies FrequenciesOf(int64_t pairs, int axes = 1, const Scaling& scaling = YarnScaling{4}) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = 2 * pairs;
  spec.trained_length = 2048;
  spec.scaling = scaling;
  Frequencies f = Resolve(spec, 2048);
  f.axes = axes;
  for (int64_t i = 0; i < pairs && axes > 1; ++i) f.axis.push_back(static_cast<uint8_t>(i % axes));
  return f;
}

std::vector<int64_t> Positions(int64_t n, int64_t stride) {
  std::vector<int64_t> p;
  for (int64_t i = 0; i < n; ++i) p.push_back(kFar[static_cast<std::size_t>(i * stride % 13)]);
  return p;
}

// What moves and how, for batch * tokens keys on `axes` axes.
struct MoveCase {
  MoveCase(int64_t batch, int64_t tokens, int64_t axes)
      : before(Positions(axes * batch * tokens, 5)),
        after(Positions(axes * batch * tokens, 7)),
        sequences(static_cast<std::size_t>(axes * batch)) {
    for (std::size_t i = 0; i < before.size(); ++i) {
      deltas.push_back(i % 5 == 4 ? 0 : after[i] - before[i]);  // some stay
    }
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      sequences[i] = i == 1 ? 0 : 1000 - 999 * static_cast<int64_t>(i);
    }
  }
  std::vector<Moves> All() const {
    return {Moves::All(-1), Moves::All(2000000000), Moves::Sequences(sequences),
            Moves::Tokens(deltas), Moves::FromTo(before, after)};
  }
  std::vector<int64_t> before, after, deltas, sequences;
};

// All kinds of moves, without and with a change of method.
void ForEachMove(int64_t batch, int64_t tokens, const Frequencies& f, const Frequencies& old_f,
                 const std::function<void(const RerotateArgs&)>& body) {
  const MoveCase moves(batch, tokens, f.axes);
  for (const PairLayout layout : kLayouts) {
    for (const Moves& m : moves.All()) {
      body({.frequencies = &f, .layout = layout, .moves = m});
      if (m.kind() != Moves::Kind::kFromTo) continue;
      for (const AmplitudeChange change : {AmplitudeChange::kKeep, AmplitudeChange::kRatio}) {
        body(
            {.frequencies = &f, .layout = layout, .moves = m, .from = &old_f, .amplitude = change});
      }
    }
  }
}

struct Case {
  const char* what;
  int64_t batch, tokens, heads, head_dim, pairs, first_dim, gap, offset;
};

template <class T>
class RerotateDevice : public ::testing::Test {};
using Types = ::testing::Types<double, float, Float16, BFloat16>;
TYPED_TEST_SUITE(RerotateDevice, Types);

TYPED_TEST(RerotateDevice, HasTheBitsOfTheCpu) {
  if (!CpuFuses()) GTEST_SKIP() << "this CPU has no fused multiply-add";
  using T = TypeParam;
  const Case cases[] = {{"one key", 1, 1, 1, 32, 16, 0, 0, 0},
                        {"a batch", 3, 37, 8, 64, 32, 0, 0, 0},
                        {"more heads than a row, and gaps", 1, 11, 21, 32, 16, 0, 16, 0},
                        {"partial", 2, 11, 3, 80, 16, 16, 0, 0},
                        {"unaligned memory", 1, 11, 3, 32, 16, 0, 0, 1},
                        {"odd gap", 3, 11, 2, 32, 16, 0, 1, 0},
                        {"odd first element", 1, 11, 3, 41, 13, 7, 0, 0},
                        {"one pair", 1, 70, 2, 3, 1, 1, 0, 0},
                        {"many pairs", 1, 3, 2, 512, 256, 0, 0, 0},
                        {"long", 1, 5000, 2, 16, 8, 0, 0, 0}};
  for (const Case& c : cases) {
    for (const int axes : {1, 3}) {
      const Frequencies f = FrequenciesOf(c.pairs, axes);
      const Frequencies old_f = FrequenciesOf(c.pairs, axes, LinearScaling{2});
      const int64_t token = c.heads * c.head_dim + c.gap;
      const std::vector<T> keys =
          RandomValues<T>(static_cast<std::size_t>(c.offset + c.batch * c.tokens * token), 3);
      ForEachMove(c.batch, c.tokens, f, old_f, [&](const RerotateArgs& moves) {
        const auto rotated = [&](const std::function<void(const RerotateArgs&)>& rerotate) {
          std::vector<T> out = keys;
          RerotateArgs args = moves;
          args.first_dim = c.first_dim;
          args.keys =
              TensorView::Of(out.data() + c.offset, {c.batch, c.tokens, c.heads, c.head_dim});
          args.keys.strides[1] = token;
          args.keys.strides[0] = c.tokens * token;
          rerotate(args);
          return out;
        };
        const std::vector<T> want = rotated(Rerotate);
        for (const int multiprocessors : kMultiprocessors) {
          const std::vector<T> got =
              rotated([&](const RerotateArgs& args) { RunOnDevice(args, multiprocessors); });
          ASSERT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(T)), 0)
              << c.what << ", axes " << axes << ", kind of move "
              << static_cast<int>(moves.moves.kind());
        }
      });
    }
  }
}

TEST(RerotateDeviceQ8, HasTheBitsOfTheCpu) {
  if (!CpuFuses()) GTEST_SKIP() << "this CPU has no fused multiply-add";
  // gap: bytes behind a head, so that blocks have any alignment.
  const Case cases[] = {{"one key", 1, 1, 1, 32, 16, 0, 0, 0},
                        {"a batch", 3, 37, 8, 128, 64, 0, 0, 0},
                        {"more heads than a row, odd", 1, 11, 21, 64, 32, 0, 5, 3},
                        {"partial, across blocks", 2, 70, 2, 128, 20, 40, 1, 0},
                        {"one pair", 1, 11, 3, 32, 1, 7, 0, 1},
                        {"many pairs", 1, 3, 2, 544, 256, 17, 0, 0},
                        {"long", 1, 1500, 9, 32, 8, 0, 0, 0}};
  for (const Case& c : cases) {
    for (const int axes : {1, 3}) {
      const Frequencies f = FrequenciesOf(c.pairs, axes);
      const Frequencies old_f = FrequenciesOf(c.pairs, axes, LinearScaling{2});
      const int64_t heads = c.batch * c.tokens * c.heads, blocks = c.head_dim / 32;
      const int64_t head_bytes = blocks * 34 + c.gap;
      std::vector<double> values =
          RandomValues<double>(static_cast<std::size_t>(heads * c.head_dim), 8);
      if (heads > 1) std::fill_n(values.begin(), 32, 0.0);  // a scale of 0
      const std::vector<q8::Block> quantised = q8::Quantised(values);
      std::vector<char> keys(static_cast<std::size_t>(heads * head_bytes + c.offset), 99);
      for (int64_t h = 0; h < heads; ++h) {
        std::memcpy(keys.data() + c.offset + h * head_bytes,
                    &quantised[static_cast<std::size_t>(h * blocks)],
                    static_cast<std::size_t>(blocks * 34));
      }
      ForEachMove(c.batch, c.tokens, f, old_f, [&](const RerotateArgs& moves) {
        const auto rotated = [&](const std::function<void(const RerotateArgs&)>& rerotate) {
          std::vector<char> out = keys;
          RerotateArgs args = moves;
          args.first_dim = c.first_dim;
          args.q8_keys =
              Q8KeysView::Contiguous(out.data() + c.offset, c.batch, c.tokens, c.heads, c.head_dim);
          args.q8_keys.strides_bytes[2] = head_bytes;
          args.q8_keys.strides_bytes[1] = c.heads * head_bytes;
          args.q8_keys.strides_bytes[0] = c.tokens * c.heads * head_bytes;
          rerotate(args);
          return out;
        };
        const std::vector<char> want = rotated(Rerotate);
        EXPECT_TRUE(want != keys || c.tokens == 1);
        for (const int multiprocessors : kMultiprocessors) {
          const std::vector<char> got =
              rotated([&](const RerotateArgs& args) { RunOnDevice(args, multiprocessors); });
          ASSERT_TRUE(got == want) << c.what << ", axes " << axes << ", kind of move "
                                   << static_cast<int>(moves.moves.kind());
        }
      });
    }
  }
}

TEST(RerotateDevicePlan, NothingToDoIsNoLaunch) {
  float nothing = 0;
  const Frequencies f = FrequenciesOf(4);
  const auto blocks = [&](std::initializer_list<int64_t> shape, const Moves& moves) {
    RerotateArgs args{.frequencies = &f,
                      .layout = PairLayout::kHalf,
                      .moves = moves,
                      .keys = TensorView::Of(&nothing, shape)};
    args.keys.device = Device::kCuda;
    return internal::PlanRerotate(args, 132).blocks;
  };
  EXPECT_EQ(blocks({0, 2, 8}, Moves::All(3)), 0);
  EXPECT_EQ(blocks({2, 0, 8}, Moves::All(3)), 0);
  EXPECT_EQ(blocks({1, 1, 8}, Moves::All(0)), 0);
  EXPECT_EQ(blocks({1, 1, 8}, Moves::All(3)), 1);
}

// 2^43 elements: the last block has the last token, at its place. Nothing is read.
TEST(RerotateDevicePlan, ReachesBeyond2To31Elements) {
  alignas(16) static float memory[4];
  const Frequencies f = FrequenciesOf(64);
  const int64_t batch = 4, tokens = (int64_t{1} << 31) + 5, heads = 8, dim = 128;
  RerotateArgs args{.frequencies = &f,
                    .layout = PairLayout::kHalf,
                    .moves = Moves::All(3),
                    .keys = TensorView::Of(memory, {batch, tokens, heads, dim})};
  args.keys.device = Device::kCuda;
  const internal::RerotateLaunch launch = internal::PlanRerotate(args, 132);
  const internal::RerotateDeviceParams& p = launch.params;
  EXPECT_LE(launch.blocks, INT32_MAX);
  EXPECT_EQ(internal::TokenOf(p, 0, 0, 0), 0);
  EXPECT_EQ(internal::TokenOf(p, 0, p.rows - 1, 0) + 1, internal::TokenOf(p, 0, 0, 1));
  EXPECT_EQ(internal::TokenOf(p, 0, p.rows - 1, p.tokens_of_row - 1) + 1,
            internal::TokenOf(p, p.groups, 0, 0));
  EXPECT_LT(internal::TokenOf(p, launch.blocks - 1, 0, 0), batch * tokens);
  EXPECT_GE(internal::TokenOf(p, launch.blocks - 1, p.rows - 1, p.tokens_of_row - 1),
            batch * tokens - 1);
  EXPECT_EQ(internal::TokenOffset(p, batch * tokens - 1), (batch * tokens - 1) * heads * dim);
  EXPECT_EQ(internal::HeadsOf(p, launch.blocks - 1).end, heads);
}

TEST(RerotateDevicePlan, RefusesWithoutAGpu) {
  if (!FindCuda().devices.empty()) GTEST_SKIP() << "there is a GPU";
  float keys[8] = {};
  const Frequencies f = FrequenciesOf(4);
  RerotateArgs args{.frequencies = &f,
                    .layout = PairLayout::kHalf,
                    .moves = Moves::All(1),
                    .keys = TensorView::Of(keys, {1, 1, 8})};
  args.keys.device = Device::kCuda;
  try {
    Rerotate(args);
    ADD_FAILURE() << "launched";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
  }
}

class RerotateDeviceBadInput : public ::testing::Test {
 protected:
  void ExpectRefused(const char* says, const std::function<void(RerotateArgs&)>& change) {
    RerotateArgs args{.frequencies = &f_,
                      .layout = PairLayout::kHalf,
                      .moves = Moves::All(1),
                      .keys = TensorView::Of(memory_.data(), {2, 2, 8})};
    args.keys.device = Device::kCuda;
    change(args);
    try {
      internal::PlanRerotate(args, 132);
      ADD_FAILURE() << "accepted: " << says;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(e.what(), ::testing::HasSubstr(says));
    }
  }
  std::vector<float> memory_ = std::vector<float>(2 * 514);
  std::vector<int64_t> list_ = std::vector<int64_t>(3);
  Frequencies f_ = FrequenciesOf(4);
  Frequencies wide_ = FrequenciesOf(257);
};

TEST_F(RerotateDeviceBadInput, SaysWhatIsWrong) {
  ExpectRefused("at most 256 pairs, got 257", [this](RerotateArgs& a) {
    a.frequencies = &wide_;
    a.keys = TensorView::Of(memory_.data(), {2, 1, 514});
    a.keys.device = Device::kCuda;
  });
  ExpectRefused("PairLayout", [](RerotateArgs& a) { a.layout = static_cast<PairLayout>(7); });
  ExpectRefused("expected 1 x 2 deltas, got 3",
                [this](RerotateArgs& a) { a.moves = Moves::Tokens(list_); });
  ExpectRefused("expected a list, got null", [](RerotateArgs& a) {
    a.moves = Moves::Tokens(std::span<const int64_t>(static_cast<int64_t*>(nullptr), 2));
  });
  ExpectRefused("do not fit head_dim 8", [](RerotateArgs& a) { a.first_dim = 1; });
  ExpectRefused("data is null", [](RerotateArgs& a) { a.keys.data = nullptr; });
  ExpectRefused("share memory", [](RerotateArgs& a) { a.keys.strides[0] = 8; });
  ExpectRefused("f8_e4m3", [](RerotateArgs& a) { a.keys.dtype = DType::kF8E4M3; });
  ExpectRefused("do not lie in a head of 32", [this](RerotateArgs& a) {
    a.keys = {};
    a.q8_keys = Q8KeysView::Contiguous(memory_.data(), 1, 1, 1, 32);
    a.first_dim = 25;
  });
  f_.axis = {0, 0, 1, 0};
  ExpectRefused("axis must be empty or name one of the axes", [](RerotateArgs&) {});
}

}  // namespace rerotate_device_test
}  // namespace ropewalk
