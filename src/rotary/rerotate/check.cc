#include "src/rotary/rerotate/check.h"

#include <algorithm>

#include "ropewalk/base/error.h"
#include "src/base/addressable.h"

namespace ropewalk::internal {
namespace {

RerotateShape ShapeOf(const RerotateArgs& args) {
  if ((args.keys.rank != 0) == (args.q8_keys.head_dim != 0)) {
    BadRerotate("expected either keys or q8_keys");
  }
  if (args.keys.rank == 0) return {args.q8_keys.batch, args.q8_keys.tokens};
  if (args.keys.rank == 3) return {1, args.keys.shape[0]};
  if (args.keys.rank == 4) return {args.keys.shape[0], args.keys.shape[1]};
  BadRerotate(
      "keys: expected [tokens, kv_heads, head_dim] or [batch, tokens, kv_heads, head_dim], got " +
      args.keys.ShapeString());
}

void CheckMethod(const Frequencies* f, const char* name) {
  if (f->inv_freq.empty()) BadRerotate(std::string(name) + ": there are no pairs");
  if (!f->axis.empty() &&
      (f->axis.size() != f->inv_freq.size() ||
       std::any_of(f->axis.begin(), f->axis.end(), [&](uint8_t a) { return a >= f->axes; }))) {
    BadRerotate(std::string(name) + ": axis must be empty or name one of the axes for each pair");
  }
  if (!f->log_decay.empty()) {
    BadRerotate(
        std::string(name) +
        ": xPos keys also shrink with their position; keep them unrotated and rotate when read");
  }
  if (!(f->amplitude > 0)) BadRerotate(std::string(name) + ": the amplitude must be positive");
}

void CheckMethods(const RerotateArgs& args) {
  if (args.frequencies == nullptr) BadRerotate("frequencies: expected those of the keys, got null");
  CheckMethod(args.frequencies, "frequencies");
  if (args.from == nullptr) {
    if (args.amplitude != AmplitudeChange::kKeep) {
      BadRerotate("amplitude: a ratio needs `from`, the method before the call");
    }
    return;
  }
  CheckMethod(args.from, "from");
  if (args.moves.kind() != Moves::Kind::kFromTo) {
    BadRerotate("moves: a change of method needs the positions before and after (Moves::FromTo)");
  }
  if (args.from->inv_freq.size() != args.frequencies->inv_freq.size() ||
      args.from->axis != args.frequencies->axis || args.from->axes != args.frequencies->axes) {
    BadRerotate("from: pairs or axes differ from those of frequencies");
  }
}

void CheckSize(std::span<const int64_t> list, int64_t axes, int64_t count, const char* name) {
  if (static_cast<int64_t>(list.size()) != axes * count) {
    BadRerotate("moves: expected " + std::to_string(axes) + " x " + std::to_string(count) + " " +
                name + ", got " + std::to_string(static_cast<int64_t>(list.size())));
  }
}

void CheckMoves(const Moves& moves, int64_t axes, const RerotateShape& shape) {
  switch (moves.kind()) {
    case Moves::Kind::kAll:
      return;
    case Moves::Kind::kSequences:
      return CheckSize(moves.to(), axes, shape.batch, "deltas");
    case Moves::Kind::kTokens:
      return CheckSize(moves.to(), axes, shape.all(), "deltas");
    case Moves::Kind::kFromTo:
      CheckSize(moves.from(), axes, shape.all(), "positions before");
      return CheckSize(moves.to(), axes, shape.all(), "positions after");
  }
}

}  // namespace

void BadRerotate(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, "Rerotate: " + message);
}

RerotateShape CheckRerotate(const RerotateArgs& args) {
  const RerotateShape shape = ShapeOf(args);
  CheckMethods(args);
  if (shape.tokens < 0 || !Addressable(shape.batch, shape.tokens)) {
    BadRerotate("keys: expected 0 to 2^53 tokens, got a batch of " + std::to_string(shape.batch) +
                " of " + std::to_string(shape.tokens) + " tokens");
  }
  CheckMoves(args.moves, args.frequencies->axes, shape);
  return shape;
}

}  // namespace ropewalk::internal
