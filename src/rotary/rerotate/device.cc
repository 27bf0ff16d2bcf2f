// Plans the launch of a re-rotation on a GPU.
#include "src/rotary/rerotate/device.h"

#include <algorithm>
#include <string>

#include "ropewalk/base/error.h"
#include "src/base/cuda.h"
#include "src/rotary/rerotate/check.h"
#include "src/rotary/rerotate/q8.h"
#include "src/rotary/rotate/check.h"
#include "src/rotary/rotate/overlap.h"

namespace ropewalk::internal {
namespace {

constexpr int32_t kRerotateThreads = 256;
// Threads that keep a multiprocessor busy; beyond them a row takes several heads, then tokens.
constexpr int64_t kRerotateThreadsToFill = 1024;
constexpr int32_t kMostHeadsRerotated = 16;
constexpr int32_t kMostTokensOfRow = 8;
constexpr int64_t kFloatsOfWarp = 1024;  // of shared memory, if one head needs no more

// The keys as floats, checked.
TensorView CheckKeys(const RerotateArgs& args, int64_t pairs) {
  try {
    const TensorView keys = WithBatch(args.keys, "keys");
    CheckView(keys, "keys", Device::kCuda);
    if (keys.dtype == DType::kF8E4M3) BadRotate("keys: nothing computes in f8_e4m3");
    if (args.first_dim < 0 || args.first_dim > keys.shape[3] - 2 * pairs) {
      BadRotate("first_dim " + std::to_string(args.first_dim) + " and the rotary_dim " +
                std::to_string(2 * pairs) + " do not fit head_dim " +
                std::to_string(keys.shape[3]));
    }
    if (keys.NumElements() == 0) return keys;
    if (keys.data == nullptr) BadRotate("keys: data is null");
    if (FootprintOf(keys).self_overlap) BadRotate("keys: elements share memory (strides)");
    return keys;
  } catch (const Error& e) {
    throw Error(e.code(), std::string("Rerotate: ") + e.what());
  }
}

void SetFloatKeys(const TensorView& keys, RerotateLaunch& launch) {
  RerotateDeviceParams& p = launch.params;
  p.keys = keys.data;
  std::copy(keys.strides, keys.strides + 3, p.strides);
  p.heads = keys.shape[2];
  launch.dtype = keys.dtype;
  const bool full = FullVectorsFit(keys, launch.layout, p.pairs, p.first_dim);
  launch.width = full ? static_cast<int>(16 / SizeOf(keys.dtype)) : 1;
  const int64_t unit =
      p.interleaved && launch.width > 1 ? launch.width / 2 : launch.width;  // pairs
  p.lanes = static_cast<int32_t>(p.pairs / unit);
}

void SetQ8Keys(const Q8KeysView& keys, RerotateLaunch& launch) {
  RerotateDeviceParams& p = launch.params;
  launch.q8 = true;
  p.keys = keys.data;
  std::copy(keys.strides_bytes, keys.strides_bytes + 3, p.strides);
  p.heads = keys.heads;
  p.lanes = kWarp;
  const int64_t end = p.first_dim + 2 * p.pairs;
  p.first_block = static_cast<int32_t>(p.first_dim / kQ8Block);
  p.blocks_of_head = static_cast<int32_t>((end + kQ8Block - 1) / kQ8Block) - p.first_block;
}

void SetMethod(const RerotateArgs& args, const RerotateShape& shape, RerotateDeviceParams& p) {
  const Frequencies& f = *args.frequencies;
  p.changes_method = args.from != nullptr;
  p.amplitude = AmplitudeOf(args);
  p.axes = f.axes;
  std::copy(f.axis.begin(), f.axis.end(), p.axis);
  for (std::size_t i = 0; i < f.inv_freq.size(); ++i) {
    p.to[i] = ToTurns(f.inv_freq[i]);
    p.from[i] = args.from != nullptr ? ToTurns(args.from->inv_freq[i]) : p.to[i];
  }
  p.moves = ListsOf(args.moves, shape.batch, shape.tokens);
}

// How tokens and heads are shared out. Keys are independent: it changes no bit.
void SetGrid(int multiprocessors, RerotateLaunch& launch) {
  RerotateDeviceParams& p = launch.params;
  const int64_t enough = kRerotateThreadsToFill * multiprocessors;
  p.rows = kRerotateThreads / p.lanes;
  const auto threads = [&] {
    p.groups = (p.heads + p.heads_of_row - 1) / p.heads_of_row;
    return (p.all + p.tokens_of_row - 1) / p.tokens_of_row * p.groups * p.lanes;
  };
  p.tokens_of_row = 1;
  p.heads_of_row = kMostHeadsRerotated;
  while (p.heads_of_row > 1 && threads() < enough) p.heads_of_row /= 2;
  p.heads_of_row = static_cast<int32_t>(std::min<int64_t>(p.heads_of_row, p.heads));
  while (p.tokens_of_row < kMostTokensOfRow && threads() > 4 * enough) p.tokens_of_row *= 2;
  threads();
  const int64_t tokens_of_block = int64_t{p.tokens_of_row} * p.rows;
  launch.blocks = (p.all + tokens_of_block - 1) / tokens_of_block * p.groups;
  if (launch.blocks > INT32_MAX) BadRerotate("keys: too many tokens for one launch");
  if (!launch.q8) return;
  const int64_t head = int64_t{p.blocks_of_head} * kQ8Block;
  const int64_t heads = std::clamp<int64_t>((kFloatsOfWarp - 2 * p.pairs) / head, 1, 8);
  p.heads_at_once = static_cast<int32_t>(std::min<int64_t>(heads, p.heads_of_row));
  launch.shared_bytes = p.rows * SharedFloats(p) * int64_t{sizeof(float)};
}

}  // namespace

RerotateLaunch PlanRerotate(const RerotateArgs& args, int multiprocessors) {
  const RerotateShape shape = CheckRerotate(args);
  const auto pairs = static_cast<int64_t>(args.frequencies->inv_freq.size());
  if (pairs > kMostRerotatePairs) {
    BadRerotate("frequencies: on a GPU at most " + std::to_string(kMostRerotatePairs) +
                " pairs, got " + std::to_string(pairs));
  }
  if (args.layout != PairLayout::kHalf && args.layout != PairLayout::kInterleaved) {
    BadRerotate("layout: not a value of PairLayout");
  }
  RerotateLaunch launch;
  RerotateDeviceParams& p = launch.params;
  launch.layout = args.layout;
  p.interleaved = args.layout == PairLayout::kInterleaved;
  p.pairs = pairs;
  p.first_dim = args.first_dim;
  p.all = shape.all();
  p.tokens = shape.tokens;
  if (args.keys.rank != 0) {
    const TensorView keys = CheckKeys(args, pairs);
    if (p.all == 0 || keys.shape[2] == 0) return launch;
    SetFloatKeys(keys, launch);
  } else {
    if (p.all == 0 || args.q8_keys.heads == 0) return launch;
    CheckQ8(args.q8_keys, pairs, args.first_dim);
    SetQ8Keys(args.q8_keys, launch);
  }
  const bool stays = args.moves.kind() == Moves::Kind::kAll && args.moves.delta() == 0;
  if (stays && args.from == nullptr) return launch;
  const bool lists = args.moves.kind() != Moves::Kind::kAll;
  const bool before = args.moves.kind() == Moves::Kind::kFromTo;
  if ((lists && args.moves.to().data() == nullptr) ||
      (before && args.moves.from().data() == nullptr)) {
    BadRerotate("moves: expected a list, got null");
  }
  SetMethod(args, shape, p);
  SetGrid(multiprocessors, launch);
  return launch;
}

void RerotateOnDevice(const RerotateArgs& args) {
  const RerotateLaunch launch = PlanRerotate(args, DeviceMultiprocessors());
  if (launch.blocks > 0) LaunchRerotate(launch, args.stream);
}

}  // namespace ropewalk::internal
