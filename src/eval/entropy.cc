#include "src/eval/entropy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <variant>

#include "src/attention/attention_form.h"
#include "src/base/parallel.h"

namespace ropewalk::internal {
namespace {

constexpr int64_t kTile = 64;  // keys

// The bias of a pair, or nothing for forms that need more than its distance.
std::optional<double> BiasOf(const ScoreForm& form, int64_t head, int64_t distance) {
  if (const auto* f = std::get_if<SlopeForm>(&form)) {
    return -double{f->behind[static_cast<std::size_t>(head)]} * static_cast<double>(distance);
  }
  if (const auto* f = std::get_if<DistanceForm>(&form)) {
    const int64_t column = std::clamp<int64_t>(distance - f->first, 0, f->columns - 1);
    return f->values[static_cast<std::size_t>(head * f->columns + column)];
  }
  return std::nullopt;
}

bool Measurable(const AttentionArgs& a) {
  const ScoreForm* form = FormOf(a);
  const bool known = form == nullptr || std::holds_alternative<SlopeForm>(*form) ||
                     std::holds_alternative<DistanceForm>(*form);
  return known && a.sinks.empty() && a.mask == AttentionMask::kCausal &&
         a.query_positions.empty() && a.key_positions.empty() && a.document_starts.empty();
}

// Rotates pairs of dim-major rows: x[dim * stride + t], t = 0 .. count - 1.
template <class T>
void Turn(const RotarySpec& spec, const float* cos, const float* sin, int64_t turn_stride,
          int64_t count, T* x, int64_t stride) {
  const int64_t pairs = spec.rotary_dim / 2;
  const bool half = spec.layout == PairLayout::kHalf;
  for (int64_t i = 0; i < pairs; ++i) {
    T* a = x + (spec.first_dim + (half ? i : 2 * i)) * stride;
    T* b = x + (spec.first_dim + (half ? i + pairs : 2 * i + 1)) * stride;
    const float* c = cos + i * turn_stride;
    const float* s = sin + i * turn_stride;
    for (int64_t t = 0; t < count; ++t) {
      const T turned = a[t] * c[t] - b[t] * s[t];
      b[t] = b[t] * c[t] + a[t] * s[t];
      a[t] = turned;
    }
  }
}

struct Row {
  double nats = 0;
  int64_t seen = 0;
};

Row EntropyOf(const std::vector<double>& scores) {
  double top = -std::numeric_limits<double>::infinity();
  for (const double s : scores) top = std::max(top, s);
  double sum = 0, weighted = 0;
  Row row;
  for (const double s : scores) {
    if (std::isinf(s)) continue;
    const double e = std::exp(s - top);
    sum += e;
    weighted += e * (s - top);
    ++row.seen;
  }
  row.nats = row.seen == 0 ? 0 : std::log(sum) - weighted / sum;
  return row;
}

}  // namespace

EntropyMeter::EntropyMeter(Sequence& sequence) : sequence_(sequence) {
  sequence_.ObserveAttention(
      [this](int64_t layer, const AttentionArgs& args) { Look(layer, args); });
}
EntropyMeter::~EntropyMeter() { sequence_.ObserveAttention({}); }

double EntropyMeter::Nats() const { return nats_ / static_cast<double>(rows_); }
double EntropyMeter::Share() const { return share_ / static_cast<double>(rows_); }

EntropyMeter::Turns EntropyMeter::MakeTurns(const ResolvedRotation& rotation,
                                            const std::vector<int64_t>& positions,
                                            int64_t divisor) {
  const Frequencies& f = rotation.frequencies;
  Turns turns;
  turns.tokens = static_cast<int64_t>(positions.size());
  for (const DoubleDouble& frequency : f.inv_freq) {
    for (const int64_t position : positions) {
      const double angle =
          static_cast<double>(position) * frequency.hi / static_cast<double>(divisor);
      turns.cos.push_back(static_cast<float>(f.amplitude * std::cos(angle)));
      turns.sin.push_back(static_cast<float>(f.amplitude * std::sin(angle)));
    }
  }
  return turns;
}

const std::vector<EntropyMeter::Turns>& EntropyMeter::TurnsOf(const ResolvedLayer& layer,
                                                              int64_t tokens) {
  std::vector<Turns>& turns = turns_[{layer.rotation, Describe(*layer.map)}];
  if (!turns.empty()) return turns;
  for (const DistanceView& view : Views(*layer.map)) {
    std::vector<int64_t> positions(static_cast<std::size_t>(tokens));
    for (int64_t j = 0; j < tokens; ++j) positions[static_cast<std::size_t>(j)] = view.key(j);
    turns.push_back(
        MakeTurns(sequence_.resolved().rotations[static_cast<std::size_t>(layer.rotation)],
                  positions, view.frequency_divisor));
  }
  return turns;
}

// The chosen queries of one layer in one call, and which view of its map scores each key.
struct EntropyMeter::Layer {
  const AttentionArgs& args;
  const RotarySpec* spec = nullptr;               // where keys come unrotated
  std::vector<int64_t> queries = {};              // rows of args.q
  std::vector<std::vector<int8_t>> view_of = {};  // [query][key], -1: not seen
  std::vector<Turns> query_turns = {};            // [view], tokens: the queries
  const std::vector<Turns>* key_turns = nullptr;  // [view]

  int64_t FirstToken() const { return args.cache->tokens() - args.q.shape[0]; }
  int64_t group() const { return args.q.shape[1] / args.cache->kv_heads(); }
  std::size_t views() const { return key_turns == nullptr ? 1 : key_turns->size(); }

  // [dim] of a query as `view` sees it, times what its scores are multiplied with.
  std::vector<double> Query(std::size_t view, std::size_t query, int64_t head) const {
    const int64_t row = queries[query], dim = args.q.shape[2];
    const float* from =
        static_cast<const float*>(args.q.data) + row * args.q.strides[0] + head * args.q.strides[1];
    std::vector<double> q(from, from + dim);
    if (spec != nullptr) {
      const Turns& t = query_turns[view];
      Turn(*spec, t.cos.data() + query, t.sin.data() + query, t.tokens, 1, q.data(), 1);
    }
    const double temperature =
        args.temperatures.empty() ? 1 : args.temperatures[static_cast<std::size_t>(row)];
    for (double& x : q) x *= ScaleOf(args) * temperature;
    return q;
  }

  double Finish(double score, int64_t head, int64_t distance) const {
    if (const ScoreForm* form = FormOf(args)) score += BiasOf(*form, head, distance).value_or(0);
    return args.soft_cap == 0 ? score : args.soft_cap * std::tanh(score / args.soft_cap);
  }

  // [query * group + head of the group][key], -infinity where not seen.
  std::vector<std::vector<double>> Scores(int64_t kv_head) const;
};

std::vector<std::vector<double>> EntropyMeter::Layer::Scores(int64_t kv_head) const {
  const int64_t keys = args.cache->tokens(), dim = args.q.shape[2], heads = group();
  std::vector<std::vector<double>> scores(
      queries.size() * static_cast<std::size_t>(heads),
      std::vector<double>(static_cast<std::size_t>(keys),
                          -std::numeric_limits<double>::infinity()));
  std::vector<float> tile(static_cast<std::size_t>(dim * kTile));  // [dim, keys]
  for (std::size_t view = 0; view < views(); ++view) {
    std::vector<std::vector<double>> q;
    for (std::size_t i = 0; i < scores.size(); ++i) {
      q.push_back(Query(view, i / static_cast<std::size_t>(heads),
                        kv_head * heads + static_cast<int64_t>(i) % heads));
    }
    for (int64_t first = 0; first < keys; first += kTile) {
      const int64_t count = std::min(kTile, keys - first);
      args.cache->CopyKeys(kv_head, first, count, tile.data());
      if (spec != nullptr) {
        const Turns& t = (*key_turns)[view];
        Turn(*spec, t.cos.data() + first, t.sin.data() + first, t.tokens, count, tile.data(),
             count);
      }
      for (std::size_t i = 0; i < scores.size(); ++i) {
        const std::size_t query = i / static_cast<std::size_t>(heads);
        std::array<double, kTile> sum{};
        for (int64_t d = 0; d < dim; ++d) {
          for (int64_t t = 0; t < count; ++t) sum[t] += q[i][d] * tile[d * count + t];
        }
        for (int64_t t = 0; t < count; ++t) {
          if (view_of[query][first + t] != static_cast<int8_t>(view)) continue;
          scores[i][first + t] = Finish(sum[t], kv_head * heads + static_cast<int64_t>(i) % heads,
                                        FirstToken() + queries[query] - first - t);
        }
      }
    }
  }
  return scores;
}

void EntropyMeter::Look(int64_t layer, const AttentionArgs& args) {
  Layer look{args};
  const int64_t keys = args.cache->tokens();
  for (const int64_t position : positions_) {
    const int64_t row = position - look.FirstToken();
    if (row >= 0 && row < args.q.shape[0]) look.queries.push_back(row);
  }
  if (look.queries.empty() || !Measurable(args)) return;
  const ResolvedLayer& plan = sequence_.resolved().layers[static_cast<std::size_t>(layer)];
  for (const int64_t row : look.queries) {
    const int64_t position = look.FirstToken() + row;
    std::vector<int8_t>& view_of = look.view_of.emplace_back(keys);
    for (int64_t j = 0; j < keys; ++j) {
      const bool seen =
          j <= position && (args.window_tokens == 0 || position - j < args.window_tokens);
      view_of[j] = !seen      ? int8_t{-1}
                   : plan.map ? static_cast<int8_t>(ViewOf(*plan.map, position, j))
                              : int8_t{0};
    }
  }
  if (plan.map) {
    const ResolvedRotation& rotation =
        sequence_.resolved().rotations[static_cast<std::size_t>(plan.rotation)];
    look.spec = &rotation.spec;
    look.key_turns = &TurnsOf(plan, sequence_.final_length());
    for (const DistanceView& view : Views(*plan.map)) {
      std::vector<int64_t> at;
      for (const int64_t row : look.queries) at.push_back(view.query(look.FirstToken() + row));
      look.query_turns.push_back(MakeTurns(rotation, at, view.frequency_divisor));
    }
  }
  const int64_t kv_heads = args.cache->kv_heads();
  std::vector<std::vector<Row>> rows(static_cast<std::size_t>(kv_heads));
  const int threads = ThreadsFor(static_cast<int64_t>(look.queries.size()) * keys *
                                 args.q.shape[1] * args.q.shape[2]);  // 1 ns a product
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t h = 0; h < kv_heads; ++h) {
    for (const std::vector<double>& scores : look.Scores(h)) {
      rows[static_cast<std::size_t>(h)].push_back(EntropyOf(scores));
    }
  }
  for (const std::vector<Row>& head : rows) {  // in order: equal bits whatever the threads
    for (const Row& row : head) {
      if (row.seen < 2) continue;
      nats_ += row.nats;
      share_ += row.nats / std::log(static_cast<double>(row.seen));
      ++rows_;
    }
  }
}

}  // namespace ropewalk::internal
