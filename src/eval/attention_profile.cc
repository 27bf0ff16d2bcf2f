#include "ropewalk/eval/attention_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ropewalk/base/error.h"
#include "src/eval/logit_shares.h"

namespace ropewalk {
namespace {

// Four edges in an octave, and the trained length; the last is one above the largest distance of a
// key that is not the first token.
std::vector<int64_t> Edges(int64_t tokens, int64_t trained) {
  const int64_t last = tokens - 1;
  std::vector<int64_t> edges = {0, last};
  if (trained > 0 && trained < last) edges.push_back(trained);
  for (int k = 0;; ++k) {
    const auto edge = static_cast<int64_t>(std::ceil(std::exp2(k / 4.0)));
    if (edge >= last) break;
    edges.push_back(edge);
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  return edges;
}

std::vector<int64_t> LateQueries(int64_t tokens, int64_t count) {
  const int64_t span = std::max<int64_t>(2, tokens / 8);
  count = std::min(count, span);
  std::vector<int64_t> queries;
  for (int64_t j = count - 1; j >= 0; --j) queries.push_back(tokens - 1 - j * span / count);
  return queries;
}

// Attention of one query, which is the last token of the cache, within windows.
class OneQuery {
 public:
  explicit OneQuery(const AttentionArgs& args)
      : args_(args),
        out_(static_cast<std::size_t>(args.out.shape[1] * args.out.shape[2])),
        lse_(static_cast<std::size_t>(args.q.shape[1])) {
    args_.out = TensorView::Of(out_.data(), {1, args.out.shape[1], args.out.shape[2]});
    args_.entropy = {};
    args_.log_sum_exp = lse_;
  }
  // [heads] log-sum-exp of the keys at distances below `window` that the layer sees; 0: of all.
  std::vector<float> LogSumExp(int64_t window, bool sinks = false) {
    AttentionArgs call = args_;
    if (window > 0) {
      call.window_tokens = args_.window_tokens > 0 ? std::min(window, args_.window_tokens) : window;
    }
    if (!sinks) call.sinks = {};
    Attention(call);
    return lse_;
  }

 private:
  AttentionArgs args_;
  std::vector<float> out_, lse_;
};

// The masses of a query at `position`, added to `sums`.
void AddMass(const AttentionArgs& args, int64_t position, const std::vector<int64_t>& edges,
             AttentionMass& sums) {
  OneQuery query(args);
  const std::vector<float> all = query.LogSumExp(0);
  const std::size_t heads = all.size();
  std::vector<double> on_keys(heads, 1);  // the rest is the sink's
  if (!args.sinks.empty()) {
    const std::vector<float> with_sinks = query.LogSumExp(0, true);
    for (std::size_t h = 0; h < heads; ++h) {
      on_keys[h] = std::exp(double{all[h]} - with_sinks[h]);
      sums.sink += 1 - on_keys[h];
    }
  }
  std::vector<double> before(heads);
  for (std::size_t b = 0; b + 1 < edges.size() && edges[b] < position; ++b) {
    const std::vector<float> within = query.LogSumExp(std::min(edges[b + 1], position));
    for (std::size_t h = 0; h < heads; ++h) {
      if (std::isinf(all[h])) continue;  // a map masks every key
      const double now = std::max(before[h], std::exp(double{within[h]} - all[h]));
      sums.mass[b] += on_keys[h] * (now - before[h]);
      before[h] = now;
    }
  }
  for (std::size_t h = 0; h < heads; ++h) {
    if (!std::isinf(all[h])) sums.first_token += on_keys[h] * std::max(0.0, 1 - before[h]);
  }
}

void Divide(AttentionMass& sums, double count) {
  for (double& m : sums.mass) m /= count;
  sums.first_token /= count;
  sums.sink /= count;
}

// Runs the text; each query by itself, as the last token of the cache, so that windows of attention
// are windows behind it.
void Watch(const Decoder& decoder, const PositionPlan& plan, std::span<const int32_t> ids,
           int64_t trained, AttentionProfile& profile) {
  Sequence sequence(decoder, plan, profile.tokens, AnglePrecision::kExact);
  const ResolvedPlan& resolved = sequence.resolved();
  std::vector<internal::LayerQueries> queries(profile.layers.size());
  std::vector<float> hidden(static_cast<std::size_t>(decoder.config().hidden));
  int64_t done = 0;
  for (const int64_t position : profile.queries) {
    const auto next = [&](int64_t end) {
      const auto part = ids.subspan(static_cast<std::size_t>(done), end - done);
      decoder.Forward(sequence, part, hidden.data(), 1);
      done = end;
    };
    if (position > done) next(position);
    sequence.ObserveAttention([&](int64_t index, const AttentionArgs& args) {
      const auto layer = static_cast<std::size_t>(index);
      AddMass(args, position, profile.edges, profile.layers[layer]);
      queries[layer].Add(args, position);
      if (position != profile.queries.back()) return;
      const int rotation = resolved.layers[layer].rotation;
      profile.logits[layer] = queries[layer].Shares(
          args, rotation < 0 ? nullptr : &resolved.rotations[static_cast<std::size_t>(rotation)],
          trained, profile.edges);
    });
    next(position + 1);
    sequence.ObserveAttention({});
  }
}

}  // namespace

double AttentionMass::Between(const std::vector<int64_t>& edges, int64_t from, int64_t to) const {
  double sum = 0;
  for (std::size_t b = 0; b < mass.size(); ++b) {
    if (edges[b] >= from && edges[b] < to) sum += mass[b];
  }
  return sum;
}

AttentionMass AttentionProfile::Mean() const {
  AttentionMass mean{std::vector<double>(keys.size())};
  for (const AttentionMass& layer : layers) {
    for (std::size_t b = 0; b < keys.size(); ++b) mean.mass[b] += layer.mass[b];
    mean.first_token += layer.first_token;
    mean.sink += layer.sink;
  }
  Divide(mean, static_cast<double>(layers.size()));
  return mean;
}

AttentionProfile MeasureAttentionProfile(const Decoder& decoder, const PositionPlan& plan,
                                         std::span<const int32_t> ids,
                                         const ProfileOptions& options) {
  const auto tokens = static_cast<int64_t>(ids.size());
  if (tokens < kLeastProfileTokens || options.queries < 2) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("attention by distance: expected at least {} tokens and 2 queries, got "
                            "{} and {}",
                            kLeastProfileTokens, tokens, options.queries));
  }
  AttentionProfile profile{.tokens = tokens,
                           .queries = LateQueries(tokens, options.queries),
                           .edges = Edges(tokens, options.trained_length)};
  const std::size_t bins = profile.edges.size() - 1;
  profile.keys.resize(bins);
  profile.layers.resize(plan.layers.size(), {std::vector<double>(bins)});
  profile.logits.resize(plan.layers.size());
  const auto count = static_cast<double>(profile.queries.size());
  Watch(decoder, plan, ids, options.trained_length, profile);
  for (const int64_t position : profile.queries) {
    for (std::size_t b = 0; b < bins; ++b) {
      const int64_t end = std::min(profile.edges[b + 1], position);
      profile.keys[b] += static_cast<double>(std::max<int64_t>(0, end - profile.edges[b])) / count;
    }
  }
  for (AttentionMass& layer : profile.layers) {
    Divide(layer, count * static_cast<double>(decoder.config().heads));
  }
  return profile;
}

}  // namespace ropewalk
