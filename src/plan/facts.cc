#include "src/plan/facts.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <tuple>

#include "ropewalk/base/fields.h"
#include "src/base/required.h"

namespace ropewalk {
namespace {

using internal::Hashed;
using internal::Required;

template <class T>
struct LayerFact {
  T LayerFacts::*member;
  Required<Hashed> hashed;
  Required<char> mark;  // kWhereSet: a letter before it keeps one fact from passing for another
  Required<int> place;  // in the description
  Required<std::string (*)(const LayerFacts&)> words;
};

std::string WindowWords(const LayerFacts& l) {
  return fmt::format("sliding window of {} tokens", l.window_tokens);
}
std::string ChunkWords(const LayerFacts& l) {
  return fmt::format("attention within chunks of {} tokens", l.chunk_tokens);
}
std::string TemperatureWords(const LayerFacts& l) {
  const QueryTemperature& t = *l.temperature;
  if (t.kind == QueryTemperature::Kind::kLogN) {
    return fmt::format("queries times max(1, ln(n + 1) / ln {})", t.period);
  }
  if (t.kind == QueryTemperature::Kind::kMscale) {
    return fmt::format("queries times (1 + {} ln {})^2", t.beta, t.period);
  }
  return fmt::format("queries times 1 + {} ln(1 + floor((n + {}) / {}))", t.beta, t.offset,
                     t.period);
}
std::string MapWords(const LayerFacts& l) { return "distances mapped by " + Describe(*l.map); }
std::string ValuesWords(const LayerFacts& /*l*/) { return "values rotated and rotated back"; }
std::string EncodingWords(const LayerFacts& l) {
  return "queries and keys by " + Describe(*l.encoding);
}
std::string NoWords(const LayerFacts& /*l*/) { return ""; }

// In the order of the hash. A recurrent layer has neither rotation nor bias, which is what is
// hashed, and its words stand in their place.
constexpr std::tuple kLayerFacts = {
    LayerFact<int64_t>{&LayerFacts::window_tokens, Hashed::kAlways, ' ', 0, WindowWords},
    LayerFact<int64_t>{&LayerFacts::chunk_tokens, Hashed::kWhereSet, 'c', 1, ChunkWords},
    LayerFact<std::optional<QueryTemperature>>{&LayerFacts::temperature, Hashed::kWhereSet, 't', 3,
                                               TemperatureWords},
    LayerFact<std::optional<DistanceMap>>{&LayerFacts::map, Hashed::kWhereSet, 'd', 2, MapWords},
    LayerFact<bool>{&LayerFacts::recurrent, Hashed::kNot, ' ', 4, NoWords},
    LayerFact<bool>{&LayerFacts::rotates_values, Hashed::kWhereSet, 'v', 5, ValuesWords},
    LayerFact<std::optional<QueryKeyEncoding>>{&LayerFacts::encoding, Hashed::kWhereSet, 'q', -1,
                                               EncodingWords}};
static_assert(internal::ListsAll<LayerFacts>(kLayerFacts), "a fact of LayerFacts has no row");

template <class Visit>
void VisitFacts(const LayerFacts& facts, const Visit& visit) {
  std::apply([&](const auto&... fact) { (visit(fact, facts.*fact.member), ...); }, kLayerFacts);
}

template <class T>
void Hash(const T& number, Hasher& hasher) {
  hasher.UpdateValue(number);
}
void Hash(const std::optional<QueryTemperature>& t, Hasher& hasher) {
  hasher.UpdateValue(static_cast<uint8_t>(t->kind));
  hasher.UpdateValue(static_cast<float>(t->beta));
  hasher.UpdateValue(t->period);
  hasher.UpdateValue(t->offset);
}
void Hash(const std::optional<QueryKeyEncoding>& encoding, Hasher& hasher) {
  ropewalk::Hash(*encoding, hasher);
}
void Hash(const std::optional<DistanceMap>& map, Hasher& hasher) {
  hasher.UpdateValue(static_cast<uint8_t>(map->index()));
  std::visit(
      [&]<class M>(const M& m) {
        VisitFields<M>([&](const auto& field) { hasher.UpdateValue(m.*field.member); });
      },
      *map);
}

template <class T>
bool IsSet(const T& value) {
  return value != T();
}

}  // namespace

void internal::HashFacts(const LayerFacts& facts, Hashed kind, Hasher& hasher) {
  VisitFacts(facts, [&](const auto& fact, const auto& value) {
    if (fact.hashed != kind || kind == Hashed::kNot) return;
    if (kind == Hashed::kWhereSet) {
      if (!IsSet(value)) return;
      hasher.UpdateValue(static_cast<char>(fact.mark));
    }
    Hash(value, hasher);
  });
}

std::string Describe(const LayerFacts& facts) {
  std::map<int, std::string> places;
  VisitFacts(facts, [&](const auto& fact, const auto& value) {
    if (IsSet(value)) places[fact.place] = fact.words(facts);
  });
  std::string text;
  for (const auto& [place, words] : places) {
    if (!words.empty()) text += (text.empty() ? "" : ", ") + words;
  }
  return text;
}

}  // namespace ropewalk
