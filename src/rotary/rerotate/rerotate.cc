#include "ropewalk/rotary/rerotate.h"

#include <string>
#include <vector>

#include "ropewalk/base/error.h"
#include "ropewalk/rotary/rotate.h"
#include "src/rotary/angle_scratch.h"
#include "src/rotary/rerotate/check.h"
#include "src/rotary/rerotate/device.h"
#include "src/rotary/rerotate/moves.h"
#include "src/rotary/rerotate/q8.h"

namespace ropewalk {
namespace {

using internal::Uint128;

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

// Row r of the result rotates by what token tokens[r] moves.
AlignedBuffer<float> RowsOf(const RerotateArgs& args, const internal::MoveLists& moves,
                            const std::vector<int64_t>& tokens) {
  const std::vector<Uint128> to = TurnsOf(*args.frequencies);
  const std::vector<Uint128> from = args.from ? TurnsOf(*args.from) : to;
  const std::size_t pairs = args.frequencies->inv_freq.size();
  const std::vector<uint8_t>& axis_of = args.frequencies->axis;
  const double amplitude = internal::AmplitudeOf(args);
  AlignedBuffer<float> rows(tokens.size() * 2 * pairs);
  internal::AngleScratch scratch(to.size());
  AlignedBuffer<double> row(2 * to.size());
  for (std::size_t r = 0; r < tokens.size(); ++r) {
    scratch.SinCos(
        [&](std::size_t i) {
          const int64_t axis = i < axis_of.size() ? axis_of[i] : 0;
          const internal::Move move = internal::MoveOf(moves, tokens[r], axis);
          return Times(to[i], move.after) - Times(from[i], move.before);
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
  const internal::RerotateShape shape = internal::CheckRerotate(args);
  if (internal::DeviceOf(args) == Device::kCuda) return internal::RerotateOnDevice(args);
  const int64_t all = shape.all();
  const int64_t axes = args.frequencies->axes;
  const internal::MoveLists moves = internal::ListsOf(args.moves, shape.batch, shape.tokens);
  // A row per run of tokens that move alike.
  std::vector<int64_t> row_of(static_cast<std::size_t>(all));
  std::vector<int64_t> first_of_row;
  std::vector<uint8_t> stays;
  for (int64_t t = 0; t < all; ++t) {
    if (t == 0 || !internal::SameMove(moves, axes, t - 1, t)) {
      first_of_row.push_back(t);
      stays.push_back(args.from == nullptr && internal::Stays(moves, axes, t));
    }
    row_of[static_cast<std::size_t>(t)] = static_cast<int64_t>(first_of_row.size()) - 1;
  }
  if (all > 0 && first_of_row.size() == 1 && stays[0]) return;
  const CosSinTable table = CosSinTable::FromRows(
      RowsOf(args, moves, first_of_row), static_cast<int64_t>(args.frequencies->inv_freq.size()));
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
