// Where the attention of a model looks, by distance, and which pairs of dimensions make it look so.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ropewalk/eval/logit_shares.h"
#include "ropewalk/model/model.h"

namespace ropewalk {

// Of one layer: the mean over watched queries and heads of the weights of attention. mass[b] is
// that of the keys of bin b without the first token of the text, `first_token` that of the first
// token at whatever distance, `sink` what a learned logit of the denominator takes (gpt-oss). They
// sum to 1, but where a distance map masks every key of a query.
struct AttentionMass {
  std::vector<double> mass = {};  // [bins]
  double first_token = 0, sink = 0;

  // Of the bins that begin at a distance of `from` or more and below `to`.
  double Between(const std::vector<int64_t>& edges, int64_t from, int64_t to) const;
};

// Bin b holds the distances edges[b] <= query - key < edges[b + 1], four bins in an octave, with an
// edge at the trained length. keys[b] is how many keys a watched query has there on average
// (windows and maps aside, without the first token), so mass[b] / keys[b] is the weight of one key.
struct AttentionProfile {
  int64_t tokens = 0;
  std::vector<int64_t> queries = {};  // positions that were watched, ascending
  std::vector<int64_t> edges = {};    // [bins + 1], from 0 on
  std::vector<double> keys = {};      // [bins]
  std::vector<AttentionMass> layers = {};
  std::vector<LogitShares> logits = {};  // [layers]

  AttentionMass Mean() const;  // over layers
};

struct ProfileOptions {
  int64_t queries = 32;        // at most; spread evenly over the last eighth of the text
  int64_t trained_length = 0;  // tokens; 0: not known
};
inline constexpr int64_t kLeastProfileTokens = 16;  // two queries

// Runs the decoder over `ids` with the plan, resolved at their number, and watches late queries.
// The weight on keys nearer than w is exp(lse_w - lse) of two calls of the same attention, one
// within a window of w tokens; so it is right for every bias, map and window that the decoder runs.
// Throws Error for fewer than kLeastProfileTokens ids or fewer than two queries, and as
// Decoder::Forward.
AttentionProfile MeasureAttentionProfile(const Decoder& decoder, const PositionPlan& plan,
                                         std::span<const int32_t> ids,
                                         const ProfileOptions& options = {});

}  // namespace ropewalk
