#include "ropewalk/attention/load_rotation.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "ropewalk/attention/attention.h"
#include "ropewalk/base/error.h"
#include "src/attention/kernel/tile.h"
#include "src/attention/load_rotation.h"
#include "src/rotary/double_double.h"

namespace ropewalk {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 30;

[[noreturn]] void Unsupported(const std::string& why) {
  throw Error(ErrorCode::kUnsupported, "LoadRotation: " + why);
}

[[noreturn]] void Refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

// The maps of positions of queries or keys, one or one per share of the pairs.
std::vector<PositionMap> MapsOf(const DistanceView& view, PositionMap PairShare::*side) {
  if (view.shares.empty()) return {PairShare{view.query, view.key}.*side};
  std::vector<PositionMap> maps;
  for (const PairShare& share : view.shares) maps.push_back(share.*side);
  return maps;
}

// Pairs first .. end - 1 alone.
Frequencies Slice(Frequencies f, int64_t first, int64_t end) {
  f.inv_freq = {f.inv_freq.begin() + first, f.inv_freq.begin() + end};
  f.inv_freq_f32 = {f.inv_freq_f32.begin() + first, f.inv_freq_f32.begin() + end};
  if (!f.axis.empty()) f.axis = {f.axis.begin() + first, f.axis.begin() + end};
  return f;
}

Frequencies Divided(Frequencies f, int64_t divisor) {
  if (divisor == 1) return f;
  const auto d = static_cast<double>(divisor);
  for (DoubleDouble& x : f.inv_freq) x = internal::operator/(x, DoubleDouble{d, 0});
  for (float& x : f.inv_freq_f32) x /= static_cast<float>(divisor);
  return f;
}

// rows [count, 2, pairs] -> [2, pairs, 64], one token per column
void PackBlock(const float* rows, int64_t pairs, float* block) {
  for (int64_t t = 0; t < kKeyBlock; ++t) {
    for (int64_t i = 0; i < 2 * pairs; ++i) block[i * kKeyBlock + t] = rows[t * 2 * pairs + i];
  }
}

}  // namespace

LoadRotation::LoadRotation(const RotarySpec& spec, const Frequencies& frequencies,
                           AnglePrecision precision, const std::optional<DistanceMap>& map)
    : spec_(spec), map_(map) {
  if (map) CheckComposition(*map, spec);
  if (frequencies.axes > 1) Unsupported("expected positions on one axis");
  if (!frequencies.log_decay.empty()) {
    Unsupported("expected no xPos; rotate queries and keys before they are cached");
  }
  if (spec.rotated_heads > 0) {
    Unsupported("expected all heads to rotate; rotate queries and keys before they are cached");
  }
  const auto pairs = static_cast<int64_t>(frequencies.inv_freq.size());
  if (2 * pairs != spec.rotary_dim || spec.first_dim < 0 ||
      spec.first_dim + spec.rotary_dim > spec.head_dim) {
    Refuse("LoadRotation: frequencies: expected those of the spec, " +
           std::to_string(spec.rotary_dim / 2) + " pairs within a head of " +
           std::to_string(spec.head_dim) + ", got " + std::to_string(pairs));
  }
  const std::vector<DistanceView> views =
      map ? Views(*map) : std::vector<DistanceView>{DistanceView{}};
  for (const DistanceView& v : views) {
    Frequencies own = Divided(frequencies, v.frequency_divisor);
    if (v.key.slope == 0 && v.key.offset == 0) {
      // Keys at position 0 would only grow by the amplitude; the queries take it.
      own.amplitude *= frequencies.amplitude;
      views_.push_back({Rows(MapsOf(v, &PairShare::query), own, precision), -1});
      continue;
    }
    const std::vector<PositionMap> keys = MapsOf(v, &PairShare::key);
    const auto known = std::find_if(tables_.begin(), tables_.end(), [&](const KeyTable& t) {
      return t.rows.maps == keys && t.divisor == v.frequency_divisor;
    });
    const auto table = static_cast<int>(known - tables_.begin());
    if (known == tables_.end()) {
      tables_.push_back({v.frequency_divisor, Rows(keys, own, precision), {}});
    }
    views_.push_back({Rows(MapsOf(v, &PairShare::query), own, precision), table});
  }
}

LoadRotation::Rows::Rows(const std::vector<PositionMap>& given, const Frequencies& f,
                         AnglePrecision precision)
    : maps(given), pairs(static_cast<int64_t>(f.inv_freq.size())) {
  const auto shares = static_cast<int64_t>(maps.size());
  // Pair p is in share floor(shares p / pairs), which begins at ceil(pairs share / shares).
  const auto begin = [&](int64_t share) { return (pairs * share + shares - 1) / shares; };
  for (int64_t s = 0; s < shares; ++s) {
    angles.emplace_back(shares == 1 ? f : Slice(f, begin(s), begin(s + 1)), precision);
  }
}

void LoadRotation::Rows::Fill(int64_t first, int64_t count, float* out) const {
  std::vector<int64_t> positions(static_cast<size_t>(count));
  std::vector<float> part;
  int64_t done = 0;
  for (size_t s = 0; s < maps.size(); ++s) {
    for (int64_t t = 0; t < count; ++t) positions[t] = maps[s](first + t);
    if (maps.size() == 1) return angles[s].Fill(positions, out);
    const auto own = static_cast<int64_t>(angles[s].frequencies.inv_freq.size());
    if (own == 0) continue;
    part.resize(static_cast<size_t>(count * 2 * own));
    angles[s].Fill(positions, part.data());
    for (int64_t row = 0; row < 2 * count; ++row) {
      std::copy_n(part.data() + row * own, own, out + row * pairs + done);
    }
    done += own;
  }
}

LoadRotation::Angles::Angles(const Frequencies& f, AnglePrecision precision) : frequencies(f) {
  if (precision == AnglePrecision::kExact) exact.emplace(f);
}

void LoadRotation::Angles::Fill(std::span<const int64_t> positions, float* out) const {
  if (exact) return exact->Fill(positions, out);
  FillCosSin(frequencies, positions, AnglePrecision::kFloat32, out);
}

void LoadRotation::Grow(int64_t tokens) {
  if (tokens > kMostTokens) {
    Refuse("LoadRotation.Grow: tokens: expected at most 2^30, got " + std::to_string(tokens));
  }
  constexpr int64_t kPart = LoadRotationAccess::kPartBlocks * kKeyBlock;
  const int64_t pairs = LoadRotationAccess::Pairs(*this);
  AlignedBuffer<float> rows(static_cast<size_t>(kKeyBlock * 2 * pairs));
  for (; tokens_ < tokens; tokens_ += kKeyBlock) {
    for (KeyTable& table : tables_) {
      if (tokens_ / kPart == static_cast<int64_t>(table.parts.size())) {
        table.parts.emplace_back(static_cast<size_t>(kPart * 2 * pairs));
      }
      table.rows.Fill(tokens_, kKeyBlock, rows.data());
      PackBlock(rows.data(), pairs, table.parts.back().data() + tokens_ % kPart * 2 * pairs);
    }
  }
}

int64_t LoadRotation::BytesFor(int64_t tokens) const {
  constexpr int64_t kPart = LoadRotationAccess::kPartBlocks * kKeyBlock;
  const int64_t padded = (tokens + kPart - 1) / kPart * kPart;
  return static_cast<int64_t>(tables_.size() * sizeof(float)) * padded * 2 *
         LoadRotationAccess::Pairs(*this);
}

void LoadRotationAccess::FillQueries(const LoadRotation& r, int view, int64_t first, int64_t count,
                                     float* out) {
  r.views_[static_cast<size_t>(view)].queries.Fill(first, count, out);
}

namespace internal {
namespace {

int64_t FirstOf(std::span<const int64_t> positions, int64_t otherwise) {
  return positions.empty() ? otherwise : positions.front();
}

bool RisesByOne(std::span<const int64_t> positions) {
  for (size_t i = 1; i < positions.size(); ++i) {
    if (positions[i] != positions[i - 1] + 1) return false;
  }
  return positions.empty() || positions.front() >= 0;
}

void CheckRotation(const AttentionArgs& args) {
  const LoadRotation& r = *args.rotation;
  const std::string name = "Attention: rotation: ";
  if (r.head_dim() != args.cache->head_dim()) {
    Refuse(name + "expected one of heads of " + std::to_string(args.cache->head_dim()) +
           ", got one of " + std::to_string(r.head_dim()));
  }
  const int64_t first_key = FirstOf(args.key_positions, 0), keys = args.cache->tokens();
  if (r.tokens() < first_key + keys) {
    Refuse(name + "knows " + std::to_string(r.tokens()) + " tokens but the cache holds " +
           std::to_string(keys) +
           (first_key == 0 ? "" : " from " + std::to_string(first_key) + " on") +
           "; call Grow first");
  }
  if (!RisesByOne(args.query_positions) || !RisesByOne(args.key_positions) ||
      first_key % kRotatedBlock != 0) {
    Refuse(
        name +
        "expected query_positions and key_positions that are consecutive from 0 or more on, and a "
        "first key at a multiple of " +
        std::to_string(kRotatedBlock) + "; rotate queries and keys before they are cached");
  }
  const ScoreForm* form = FormOf(args);
  const auto* running = form == nullptr ? nullptr : std::get_if<RunningForm>(form);
  const bool contextual = running != nullptr && running->kind == RunningForm::Kind::kContextual;
  if (contextual || (form != nullptr && std::holds_alternative<ContentForm>(*form))) {
    Refuse(name +
           "expected a form without products of queries and keys, which would be unrotated ones; "
           "rotate queries and keys before they are cached");
  }
  if (!r.map()) return;
  if (args.mask != AttentionMask::kCausal) {
    Refuse(name + Describe(*r.map()) + " expects a causal mask");
  }
  if (args.document_starts.size() > 1) {
    Refuse(name + Describe(*r.map()) +
           " expects one document, because its windows and chunks count from the first token");
  }
}

}  // namespace

RotationRun PrepareRotation(const AttentionArgs& args) {
  CheckRotation(args);
  const LoadRotation& r = *args.rotation;
  const RotarySpec& spec = LoadRotationAccess::Spec(r);
  RotationRun run;
  run.rotation = &r;
  run.views = LoadRotationAccess::Views(r);
  run.pairs = LoadRotationAccess::Pairs(r);
  run.queries = args.q.shape[0];
  const int64_t keys = args.cache->tokens(), first_key = FirstOf(args.key_positions, 0);
  const int64_t first = FirstOf(args.query_positions, first_key + keys - run.queries);
  run.first_block = first_key / kKeyBlock;
  for (int64_t p = 0; p < run.pairs; ++p) {
    const bool half = spec.layout == PairLayout::kHalf;
    const int64_t a = spec.first_dim + (half ? p : 2 * p);
    run.dims.push_back(static_cast<int32_t>(a));
    run.dims.push_back(static_cast<int32_t>(half ? a + run.pairs : a + 1));
  }
  for (int64_t i = 0; i < spec.head_dim; ++i) {
    if (i < spec.first_dim || i >= spec.first_dim + spec.rotary_dim) {
      run.unrotated.push_back(static_cast<int32_t>(i));
    }
  }
  run.query_rows =
      AlignedBuffer<float>(static_cast<size_t>(run.views * run.queries * 2 * run.pairs));
  for (int v = 0; v < run.views; ++v) {
    LoadRotationAccess::FillQueries(r, v, first, run.queries,
                                    run.query_rows.data() + v * run.queries * 2 * run.pairs);
    if (run.views == 1) break;
    for (int64_t t = 0; t < run.queries; ++t) {
      const KeyInterval seen = KeysOfView(*r.map(), v, first + t);
      run.begin.push_back(std::clamp<int64_t>(seen.first - first_key, 0, keys));
      run.end.push_back(std::clamp<int64_t>(seen.end - first_key, 0, keys));
    }
  }
  return run;
}

}  // namespace internal
}  // namespace ropewalk
