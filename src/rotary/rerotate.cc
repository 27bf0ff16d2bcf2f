#include "ropewalk/rotary/rerotate.h"

#include <string>
#include <utility>
#include <vector>

#include "ropewalk/base/error.h"
#include "ropewalk/rotary/rotate.h"
#include "src/rotary/angle_scratch.h"
#include "src/rotary/rerotate_q8.h"

namespace ropewalk {
namespace {

using internal::Uint128;

[[noreturn]] void Bad(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, "Rerotate: " + message);
}

std::string Number(int64_t n) { return std::to_string(n); }

struct Shape {
  int64_t batch, tokens;
};

Shape ShapeOf(const RerotateArgs& args) {
  if ((args.keys.rank != 0) == (args.q8_keys.head_dim != 0)) {
    Bad("expected either keys or q8_keys");
  }
  if (args.keys.rank == 0) return {args.q8_keys.batch, args.q8_keys.tokens};
  if (args.keys.rank == 3) return {1, args.keys.shape[0]};
  if (args.keys.rank == 4) return {args.keys.shape[0], args.keys.shape[1]};
  Bad("keys: expected [tokens, kv_heads, head_dim] or [batch, tokens, kv_heads, head_dim], got " +
      args.keys.ShapeString());
}

void CheckMethod(const Frequencies* f, const char* name) {
  if (f->inv_freq.empty()) Bad(std::string(name) + ": there are no pairs");
  if (!f->axis.empty() && f->axis.size() != f->inv_freq.size()) {
    Bad(std::string(name) + ": axis must be empty or have one entry a pair");
  }
  if (!f->log_decay.empty()) {
    Bad(std::string(name) +
        ": xPos keys also shrink with their position; keep them unrotated and rotate when read");
  }
  if (!(f->amplitude > 0)) Bad(std::string(name) + ": the amplitude must be positive");
}

void CheckMethods(const RerotateArgs& args) {
  if (args.frequencies == nullptr) Bad("frequencies: expected those of the keys, got null");
  CheckMethod(args.frequencies, "frequencies");
  if (args.from == nullptr) {
    if (args.amplitude != AmplitudeChange::kKeep) {
      Bad("amplitude: a ratio needs `from`, the method before the call");
    }
    return;
  }
  CheckMethod(args.from, "from");
  if (args.moves.kind() != Moves::Kind::kFromTo) {
    Bad("moves: a change of method needs the positions before and after (Moves::FromTo)");
  }
  if (args.from->inv_freq.size() != args.frequencies->inv_freq.size() ||
      args.from->axis != args.frequencies->axis || args.from->axes != args.frequencies->axes) {
    Bad("from: pairs or axes differ from those of frequencies");
  }
}

void CheckSize(std::span<const int64_t> list, int64_t axes, int64_t count, const char* name) {
  if (static_cast<int64_t>(list.size()) != axes * count) {
    Bad("moves: expected " + Number(axes) + " x " + Number(count) + " " + name + ", got " +
        Number(static_cast<int64_t>(list.size())));
  }
}

// Position before and after, of one token on one axis; a difference counts from 0.
class MoveOf {
 public:
  MoveOf(const Moves& moves, int64_t axes, Shape shape)
      : moves_(moves), axes_(axes), tokens_(shape.tokens), batch_(shape.batch) {
    const int64_t all = shape.batch * shape.tokens;
    if (moves.kind() == Moves::Kind::kSequences) CheckSize(moves.to(), axes, batch_, "deltas");
    if (moves.kind() == Moves::Kind::kTokens) CheckSize(moves.to(), axes, all, "deltas");
    if (moves.kind() != Moves::Kind::kFromTo) return;
    CheckSize(moves.from(), axes, all, "positions before");
    CheckSize(moves.to(), axes, all, "positions after");
  }

  std::pair<int64_t, int64_t> operator()(int64_t token, int64_t axis) const {
    const int64_t all = batch_ * tokens_;
    switch (moves_.kind()) {
      case Moves::Kind::kAll:
        return {0, moves_.delta()};
      case Moves::Kind::kSequences:
        return {0, moves_.to()[static_cast<std::size_t>(axis * batch_ + token / tokens_)]};
      case Moves::Kind::kTokens:
        return {0, moves_.to()[static_cast<std::size_t>(axis * all + token)]};
      case Moves::Kind::kFromTo:
        break;
    }
    const std::size_t i = static_cast<std::size_t>(axis * all + token);
    return {moves_.from()[i], moves_.to()[i]};
  }

  bool Same(int64_t a, int64_t b) const {
    for (int64_t axis = 0; axis < axes_; ++axis) {
      if ((*this)(a, axis) != (*this)(b, axis)) return false;
    }
    return true;
  }
  bool Stays(int64_t token) const {
    for (int64_t axis = 0; axis < axes_; ++axis) {
      const auto [from, to] = (*this)(token, axis);
      if (from != to) return false;
    }
    return true;
  }

 private:
  const Moves& moves_;
  int64_t axes_, tokens_, batch_;
};

// Wraps modulo 2^128, so that angles of negative positions are right as well.
Uint128 Times(Uint128 turns, int64_t position) {
  return turns * static_cast<Uint128>(static_cast<internal::Int128>(position));
}

std::vector<Uint128> TurnsOf(const Frequencies& f) {
  std::vector<Uint128> turns;
  for (const DoubleDouble& x : f.inv_freq) turns.push_back(internal::ToTurns(x));
  turns.resize(internal::PaddedPairs(turns.size()), 0);
  return turns;
}

// Row r of the result turns by what token tokens[r] moves.
AlignedBuffer<float> RowsOf(const RerotateArgs& args, const MoveOf& move,
                            const std::vector<int64_t>& tokens) {
  const std::vector<Uint128> to = TurnsOf(*args.frequencies);
  const std::vector<Uint128> from = args.from ? TurnsOf(*args.from) : to;
  const std::size_t pairs = args.frequencies->inv_freq.size();
  const std::vector<uint8_t>& axis_of = args.frequencies->axis;
  const double amplitude = args.amplitude == AmplitudeChange::kRatio
                               ? args.frequencies->amplitude / args.from->amplitude
                               : 1;
  AlignedBuffer<float> rows(tokens.size() * 2 * pairs);
  internal::AngleScratch scratch(to.size());
  AlignedBuffer<double> row(2 * to.size());
  for (std::size_t r = 0; r < tokens.size(); ++r) {
    scratch.SinCos(
        [&](std::size_t i) {
          const int64_t axis = i < axis_of.size() ? axis_of[i] : 0;
          const auto [before, after] = move(tokens[r], axis);
          return Times(to[i], after) - Times(from[i], before);
        },
        row.data());
    float* out = rows.data() + r * 2 * pairs;
    for (std::size_t i = 0; i < pairs; ++i) {
      out[i] = static_cast<float>(row[i] * amplitude);
      out[pairs + i] = static_cast<float>(row[to.size() + i] * amplitude);
    }
  }
  return rows;
}

}  // namespace

void Rerotate(const RerotateArgs& args) {
  const Shape shape = ShapeOf(args);
  CheckMethods(args);
  int64_t all = 0;
  if (shape.batch < 0 || shape.tokens < 0 ||
      __builtin_mul_overflow(shape.batch, shape.tokens, &all)) {
    Bad("keys: batch " + Number(shape.batch) + " of " + Number(shape.tokens) + " tokens");
  }
  const MoveOf move(args.moves, args.frequencies->axes, shape);
  // A row a run of tokens that move alike.
  std::vector<int64_t> row_of(static_cast<std::size_t>(all));
  std::vector<int64_t> first_of_row;
  std::vector<uint8_t> stays;
  for (int64_t t = 0; t < all; ++t) {
    if (t == 0 || !move.Same(t - 1, t)) {
      first_of_row.push_back(t);
      stays.push_back(args.from == nullptr && move.Stays(t));
    }
    row_of[static_cast<std::size_t>(t)] = static_cast<int64_t>(first_of_row.size()) - 1;
  }
  if (all > 0 && first_of_row.size() == 1 && stays[0]) return;
  const CosSinTable table = CosSinTable::FromRows(
      RowsOf(args, move, first_of_row), static_cast<int64_t>(args.frequencies->inv_freq.size()));
  try {
    if (args.keys.rank == 0) {
      internal::RerotateQ8(args.q8_keys, table, args.layout, args.first_dim, row_of, stays);
      return;
    }
    Rotate({.table = &table,
            .layout = args.layout,
            .positions = Positions::Each(std::span<const int64_t>(row_of)),
            .q = args.keys,
            .first_dim = args.first_dim});
  } catch (const Error& e) {
    throw Error(e.code(), std::string("Rerotate, keys as q: ") + e.what());
  }
}

}  // namespace ropewalk
