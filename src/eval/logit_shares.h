// The pairs' shares in the scores of one layer, from its queries as they came and its keys at the
// end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ropewalk/attention/attention.h"
#include "ropewalk/eval/logit_shares.h"
#include "ropewalk/plan/plan.h"

namespace ropewalk::internal {

class LayerQueries {
 public:
  // Of the last query of the call.
  void Add(const AttentionArgs& args, int64_t position);
  // With the keys of the cache of `args`. `rotation`: null where the layer has none. trained: 0
  // where the length is not known.
  LogitShares Shares(const AttentionArgs& args, const ResolvedRotation* rotation, int64_t trained,
                     const std::vector<int64_t>& edges) const;

 private:
  struct Query {
    int64_t position, first_key;  // that it sees
    std::vector<float> q;         // [heads, head_dim], rotated and warmed
  };
  struct Values;
  Values Products(const AttentionArgs& args, int64_t head, const std::vector<int64_t>& elements,
                  const std::vector<float>& keys, int64_t distances) const;

  std::vector<Query> queries_;
};

}  // namespace ropewalk::internal
