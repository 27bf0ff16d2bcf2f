#include "src/eval/logit_shares.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "ropewalk/analysis/analysis.h"

namespace ropewalk {
namespace internal {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;

// Sums of one component over heads.
struct Sums {
  explicit Sums(int64_t distances) : means(static_cast<std::size_t>(distances)) {}
  double squares = 0;         // of all values
  double explained = 0;       // by head and distance, times the count of values
  double unseen = 0;          // squares at angles that are new
  std::vector<double> means;  // by distance, summed over heads
};

}  // namespace

// Values of one component in one head, [queries][distances], the largest distance first.
struct LayerQueries::Values {
  Values(std::size_t queries, std::size_t distances)
      : queries(queries), distances(distances), x(queries * distances) {}
  std::size_t queries, distances;
  std::vector<double> x;

  // Less the mean over the keys of each query, which softmax ignores.
  void Centre() {
    for (std::size_t m = 0; m < queries; ++m) {
      double* row = x.data() + m * distances;
      const double mean = std::accumulate(row, row + distances, 0.0) / double(distances);
      for (std::size_t j = 0; j < distances; ++j) row[j] -= mean;
    }
  }
  // unseen: [distances], whether the angle is new; empty: none is.
  void AddTo(Sums& sums, const std::vector<char>& unseen) const {
    const auto count = static_cast<double>(queries);
    for (std::size_t j = 0; j < distances; ++j) {
      double sum = 0, squares = 0;
      for (std::size_t m = 0; m < queries; ++m) {
        const double value = x[m * distances + j];
        sum += value;
        squares += value * value;
      }
      const double between = sum * sum / count;
      sums.squares += squares;
      sums.explained += between - (squares - between) / (count - 1);
      const std::size_t distance = distances - 1 - j;
      sums.means[distance] += sum / count;
      if (!unseen.empty() && unseen[distance] != 0) sums.unseen += squares;
    }
  }
};

namespace {

// The elements of a head that each component has: the pairs, then all that is not rotated.
std::vector<std::vector<int64_t>> Components(const RotarySpec& spec) {
  const int64_t pairs = spec.rotary_dim / 2;
  std::vector<std::vector<int64_t>> components;
  for (int64_t i = 0; i < pairs; ++i) {
    const bool half = spec.layout == PairLayout::kHalf;
    const int64_t a = spec.first_dim + (half ? i : 2 * i);
    components.push_back({a, a + (half ? pairs : 1)});
  }
  std::vector<int64_t>& rest = components.emplace_back();
  for (int64_t dim = 0; dim < spec.head_dim; ++dim) {
    if (dim < spec.first_dim || dim >= spec.first_dim + spec.rotary_dim) rest.push_back(dim);
  }
  return components;
}

// At which distances a pair stands at an angle outside [0, f (trained - 1)], modulo 2 pi.
std::vector<char> UnseenAt(const DoubleDouble& now, double trained_frequency, int64_t trained,
                           int64_t distances) {
  constexpr double kRounding = 1e-12;
  const double seen = trained_frequency * static_cast<double>(trained - 1);
  if (seen >= kTurn) return {};
  std::vector<char> unseen(static_cast<std::size_t>(distances));
  for (int64_t d = 0; d < distances; ++d) {
    double angle = ExactAngle(now, d);
    if (angle < 0) angle += kTurn;
    unseen[static_cast<std::size_t>(d)] = angle > seen + kRounding ? 1 : 0;
  }
  return unseen;
}

// Means over heads and the distances of each bin.
std::vector<double> ByBin(const std::vector<double>& sums, double heads,
                          const std::vector<int64_t>& edges) {
  std::vector<double> bins;
  const auto distances = static_cast<int64_t>(sums.size());
  for (std::size_t b = 0; b + 1 < edges.size(); ++b) {
    const int64_t begin = std::min(edges[b], distances), end = std::min(edges[b + 1], distances);
    const double sum = std::accumulate(sums.begin() + begin, sums.begin() + end, 0.0);
    bins.push_back(sum / (heads * static_cast<double>(end - begin)));  // NaN of none
  }
  return bins;
}

}  // namespace

void LayerQueries::Add(const AttentionArgs& args, int64_t position) {
  const int64_t row = args.q.shape[0] - 1, heads = args.q.shape[1], dim = args.q.shape[2];
  const float warmth =
      args.temperatures.empty() ? 1.0f : args.temperatures[static_cast<std::size_t>(row)];
  int64_t first = 1;  // not the first token
  if (args.window_tokens > 0) first = std::max(first, position - args.window_tokens + 1);
  if (!args.document_starts.empty()) first = std::max(first, args.document_starts.back());
  Query& query = queries_.emplace_back(Query{position, first, {}});
  query.q.reserve(static_cast<std::size_t>(heads * dim));
  for (int64_t h = 0; h < heads; ++h) {
    const float* head =
        static_cast<const float*>(args.q.data) + row * args.q.strides[0] + h * args.q.strides[1];
    for (int64_t i = 0; i < dim; ++i) query.q.push_back(warmth * head[i]);
  }
}

// c(m, n) of a head: the products of these elements. keys: [head_dim, tokens].
LayerQueries::Values LayerQueries::Products(const AttentionArgs& args, int64_t head,
                                            const std::vector<int64_t>& elements,
                                            const std::vector<float>& keys,
                                            int64_t distances) const {
  const int64_t dim = args.q.shape[2], tokens = args.cache->tokens();
  const double scale = args.scale ? *args.scale : 1 / std::sqrt(static_cast<double>(dim));
  Values out(queries_.size(), static_cast<std::size_t>(distances));
  for (std::size_t m = 0; m < queries_.size(); ++m) {
    double* row = out.x.data() + m * out.distances;
    for (const int64_t e : elements) {
      const double q = scale * queries_[m].q[static_cast<std::size_t>(head * dim + e)];
      const float* key = keys.data() + e * tokens + queries_[m].position - distances + 1;
      for (std::size_t j = 0; j < out.distances; ++j) row[j] += q * key[j];
    }
  }
  return out;
}

LogitShares LayerQueries::Shares(const AttentionArgs& args, const ResolvedRotation* rotation,
                                 int64_t trained, const std::vector<int64_t>& edges) const {
  if (rotation == nullptr) return {.absent = "the layer rotates nothing"};
  if (args.rotation != nullptr) {
    return {.absent = "a distance map rotates a key once for each of its views"};
  }
  int64_t distances = INT64_MAX;
  for (const Query& query : queries_) {
    distances = std::min(distances, query.position - query.first_key + 1);
  }
  if (distances < 2) return {.absent = "the queries have fewer than two distances in common"};
  const RotarySpec& spec = rotation->spec;
  const Frequencies& now = rotation->frequencies;
  const Frequencies before = TrainedFrequencies(spec);
  const std::vector<std::vector<int64_t>> components = Components(spec);
  const std::size_t pairs = components.size() - 1;
  LogitShares out{.distances = distances};
  std::vector<std::vector<char>> unseen(components.size());
  for (std::size_t i = 0; i < pairs && trained > 0; ++i) {
    const double f = before.inv_freq[i].hi;
    out.incomplete.push_back(f * static_cast<double>(trained) < kTurn ? 1 : 0);
    unseen[i] = UnseenAt(now.inv_freq[i], f, trained, distances);
  }

  std::vector<Sums> sums(components.size(), Sums(distances));
  Sums whole(distances);
  const int64_t heads = args.q.shape[1];
  const int64_t rotated = spec.rotated_heads > 0 ? std::min(spec.rotated_heads, heads) : heads;
  std::vector<float> keys(static_cast<std::size_t>(args.q.shape[2] * args.cache->tokens()));
  int64_t loaded = -1;
  for (int64_t h = 0; h < rotated; ++h) {
    const int64_t kv_head = h * args.cache->kv_heads() / heads;
    if (kv_head != loaded) args.cache->CopyKeys(kv_head, 0, args.cache->tokens(), keys.data());
    loaded = kv_head;
    Values all(queries_.size(), static_cast<std::size_t>(distances));
    for (std::size_t c = 0; c < components.size(); ++c) {
      Values part = Products(args, h, components[c], keys, distances);
      part.Centre();
      part.AddTo(sums[c], unseen[c]);
      for (std::size_t j = 0; j < all.x.size(); ++j) all.x[j] += part.x[j];
    }
    all.AddTo(whole, {});
  }

  double total = 0;
  for (const Sums& s : sums) total += s.squares;
  const auto share = [&](double value) { return total > 0 ? value / total : 0; };
  std::vector<double> slow(static_cast<std::size_t>(distances));
  for (std::size_t i = 0; i < pairs; ++i) {
    out.position.push_back(share(sums[i].explained));
    out.content.push_back(share(sums[i].squares - sums[i].explained));
    if (trained <= 0) continue;
    out.unseen.push_back(share(sums[i].unseen));
    if (out.incomplete[i] == 0) continue;
    for (std::size_t d = 0; d < slow.size(); ++d) slow[d] += sums[i].means[d];
  }
  out.unrotated = share(sums.back().squares);
  out.by_distance = whole.squares > 0 ? whole.explained / whole.squares : 0;
  out.score = ByBin(whole.means, static_cast<double>(rotated), edges);
  if (trained > 0) out.score_incomplete = ByBin(slow, static_cast<double>(rotated), edges);
  return out;
}

}  // namespace internal

double LogitShares::Incomplete() const {
  double sum = 0;
  for (std::size_t i = 0; i < incomplete.size(); ++i) {
    if (incomplete[i] != 0) sum += position[i] + content[i];
  }
  return sum;
}
double LogitShares::IncompletePosition() const {
  double sum = 0;
  for (std::size_t i = 0; i < incomplete.size(); ++i) {
    if (incomplete[i] != 0) sum += position[i];
  }
  return sum;
}
double LogitShares::Unseen() const { return std::accumulate(unseen.begin(), unseen.end(), 0.0); }
double LogitShares::Position() const {
  return std::accumulate(position.begin(), position.end(), 0.0);
}

}  // namespace ropewalk
