// What types of the KV cache cost, apart from what methods cost.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/engines/facts.h"
#include "src/eval/recommend.h"

namespace ropewalk {
namespace internal {
namespace {

const Cell* FindWith(const std::vector<Cell>& cells, const std::string& method, double factor,
                     int64_t length, KvType kv) {
  const auto found = std::ranges::find_if(cells, [&](const Cell& c) {
    return c.method == method && c.length == length && c.kv == kv &&
           std::abs(c.factor - factor) < 1e-9;
  });
  return found == cells.end() ? nullptr : &*found;
}

// A cell of one type and that of another, which differ in nothing else.
struct TypePair {
  const Cell* with = nullptr;
  const Cell* base = nullptr;
};

// The mean over windows of a's difference minus b's.
PairedDifference Between(const TypePair& a, const TypePair& b) {
  const std::size_t n = std::min({a.with->window_nll.size(), a.base->window_nll.size(),
                                  b.with->window_nll.size(), b.base->window_nll.size()});
  std::vector<double> differences(n);
  for (std::size_t i = 0; i < n; ++i) {
    differences[i] = (a.with->window_nll[i] - a.base->window_nll[i]) -
                     (b.with->window_nll[i] - b.base->window_nll[i]);
  }
  const std::vector<double> tokens = TokensOfWindows(*a.with);
  return DifferenceOf(TestWeighted(differences, std::span(tokens).first(n)));
}

KvCost CostOf(const TypePair& pair) {
  KvCost cost{.method = pair.with->method,
              .factor = pair.with->factor,
              .length = pair.with->length,
              .kv = pair.with->kv,
              .keys = pair.with->kv_keys,
              .perplexity = pair.with->perplexity,
              .loss = Compare(*pair.with, *pair.base)};
  for (const TaskResult& result : pair.with->tasks) {
    if (result.task == kKeyTokensTask || result.answers.empty()) continue;
    const TaskResult* base = FindTask(*pair.base, result.task);
    if (base != nullptr) cost.tasks.push_back({result.task, Compare(result, *base)});
  }
  return cost;
}

// The costs of one length and type.
std::vector<KvCost> CostsAt(const std::vector<Cell>& cells, int64_t length, KvType kv,
                            KvType base) {
  std::vector<TypePair> pairs;
  std::optional<TypePair> unscaled;
  for (const Cell& c : cells) {
    if (c.length != length || c.kv != kv) continue;
    const Cell* other = FindWith(cells, c.method, c.factor, length, base);
    if (other == nullptr || !std::isfinite(Compare(c, *other).mean)) continue;
    pairs.push_back({&c, other});
    if (c.unscaled()) unscaled = pairs.back();
  }
  std::vector<KvCost> costs;
  Family family;
  for (const TypePair& pair : pairs) {
    KvCost& cost = costs.emplace_back(CostOf(pair));
    if (!unscaled || PlanOf(*pair.with) == PlanOf(*unscaled->with)) continue;
    cost.beyond_unscaled = Between(pair, *unscaled);
    if (!std::isnan(cost.beyond_unscaled->p_value)) {
      family.Add(PlanOf(*pair.with), cost.beyond_unscaled->p_value);
    }
  }
  for (std::size_t i = 0; i < costs.size(); ++i) {
    if (costs[i].beyond_unscaled) costs[i].p_value = family.Adjusted(PlanOf(*pairs[i].with));
  }
  return costs;
}

std::string CacheNats(const PairedDifference& d) {
  if (std::isnan(d.standard_error)) return fmt::format("{:+.5f}", d.mean);
  return fmt::format("{:+.5f} ± {:.5f}", d.mean, d.standard_error);
}

std::string Under(const KvCost& cost) {
  const std::string label = MethodLabel(cost.method, cost.factor);
  return label == "no scaling" ? "without scaling" : "under " + label;
}

bool Depends(const KvCost& cost) { return cost.p_value <= kSignificance; }

// No scaling, and of the rest the lowest and the highest loss.
std::vector<const KvCost*> Shown(const std::vector<KvCost>& costs) {
  std::vector<const KvCost*> shown, others;
  for (const KvCost& cost : costs) {
    (cost.beyond_unscaled || shown.size() == 1 ? others : shown).push_back(&cost);
  }
  std::ranges::stable_sort(others, {}, [](const KvCost* c) { return c->loss.mean; });
  if (!others.empty()) shown.push_back(others.front());
  if (others.size() > 1) shown.push_back(others.back());
  return shown;
}

std::string DependenceText(const std::vector<KvCost>& costs) {
  std::vector<std::string> depends;
  bool tested = false;
  for (const KvCost& cost : costs) {
    tested = tested || !std::isnan(cost.p_value);
    if (!Depends(cost)) continue;
    depends.push_back(fmt::format("{} it differs by {} nats from that without scaling", Under(cost),
                                  CacheNats(*cost.beyond_unscaled)));
  }
  if (!depends.empty()) {
    return "the cache's loss depends on the method: " + ListOf(depends);
  }
  return tested ? "the cache's loss does not measurably depend on the method"
                : "whether the cache's loss depends on the method is not known, since that takes "
                  "no scaling and another method with both types, over two windows or more";
}

std::string TypeText(const std::vector<KvCost>& costs, KvType base) {
  std::vector<std::string> parts;
  for (const KvCost* cost : Shown(costs)) {
    parts.push_back(CacheNats(cost->loss) + (parts.empty() ? " nats per token " : " ") +
                    Under(*cost) +
                    (cost->keys == "unrotated" ? " (whose keys it rounds unrotated)" : ""));
  }
  const KvCost& first = costs.front();
  return fmt::format("A KV cache of {} in place of {} changes the loss at {} tokens by {}: {}.",
                     Name(first.kv), Name(base), first.length, ListOf(parts),
                     DependenceText(costs));
}

}  // namespace

JudgedCells::JudgedCells(const std::vector<Cell>& all) : all_(all) {
  const KvType kv = RecommendedKv(all);
  const bool mixed = std::ranges::any_of(all, [kv](const Cell& c) { return c.kv != kv; });
  if (mixed) own_ = CellsOf(all, kv);
}

std::string KvCostText(const std::vector<KvCost>& costs, KvType base) {
  std::string out;
  for (const KvCost& cost : costs) {
    const PairedDifference& d = cost.loss;
    out += fmt::format(" A KV cache of {} in place of {} changes its loss by {} nats per token",
                       Name(cost.kv), Name(base), CacheNats(d));
    if (!std::isnan(d.standard_error) && !d.outside_noise) out += " (within the noise)";
    Family family;
    for (const TaskCost& t : cost.tasks) family.Add(t.task, t.answers.p_value);
    for (const TaskCost& t : cost.tasks) {
      if (t.answers.difference < 0 && family.Adjusted(t.task) <= kSignificance) {
        out += fmt::format(", and loses {:.2f} of {}", -t.answers.difference, t.task);
      }
    }
    std::vector<std::string> settings;
    for (const KvSetting& s : SettingsFor(cost.kv)) {
      if (!s.setting.empty()) settings.push_back(s.engine + ": " + s.setting);
    }
    out += settings.empty() ? "." : fmt::format("; {}.", fmt::join(settings, "; "));
  }
  return out;
}

}  // namespace internal

KvType RecommendedKv(const std::vector<Cell>& cells) {
  const auto best = std::ranges::min_element(cells, {}, &Cell::kv);
  return best == cells.end() ? KvType::kF32 : best->kv;
}

std::vector<Cell> CellsOf(const std::vector<Cell>& cells, KvType kv) {
  std::vector<Cell> out;
  std::ranges::copy_if(cells, std::back_inserter(out), [kv](const Cell& c) { return c.kv == kv; });
  return out;
}

std::vector<KvCost> KvCosts(const std::vector<Cell>& cells) {
  const KvType base = RecommendedKv(cells);
  std::set<std::pair<int64_t, KvType>> keys;
  for (const Cell& c : cells) {
    if (c.kv != base) keys.emplace(c.length, c.kv);
  }
  std::vector<KvCost> costs;
  for (const auto& [length, kv] : keys) {
    for (KvCost& cost : internal::CostsAt(cells, length, kv, base)) {
      costs.push_back(std::move(cost));
    }
  }
  // By method before type.
  std::vector<std::pair<std::string, double>> order;
  order.reserve(cells.size());
  for (const Cell& c : cells) order.emplace_back(c.method, c.factor);
  std::ranges::stable_sort(costs, {}, [&](const KvCost& c) {
    const auto at = std::ranges::find(order, std::pair(c.method, c.factor));
    return std::pair(c.length, at - order.begin());
  });
  return costs;
}

std::string KvText(const std::vector<Cell>& cells) {
  const std::vector<KvCost> all = KvCosts(cells);
  std::string text;
  for (const KvType kv : kKvTypes) {
    std::vector<KvCost> costs;
    for (const KvCost& cost : all) {
      if (cost.kv != kv) continue;
      if (!costs.empty() && cost.length > costs.front().length) costs.clear();
      costs.push_back(cost);
    }
    if (costs.empty()) continue;
    text += (text.empty() ? "" : " ") + internal::TypeText(costs, RecommendedKv(cells));
  }
  return text;
}

std::vector<KvSetting> SettingsFor(KvType kv) {
  using internal::Fact;
  const auto flags = [](const char* type) {
    return fmt::format("--cache-type-k {0} --cache-type-v {0}", type);
  };
  switch (kv) {
    case KvType::kF32:
      return {{"llama.cpp", flags("f32"), ""}};
    case KvType::kBf16:
      return {{"vLLM", "--dtype bfloat16", internal::Sentence(Fact::kCacheOfModelType)},
              {"llama.cpp", flags("bf16"), ""}};
    case KvType::kQ8_0:
      return {{"vLLM", "", internal::Sentence(Fact::kCacheOfModelType)},
              {"llama.cpp", flags("q8_0") + " --flash-attn on",
               fmt::format("{}; {} it {}, which is not in what was measured here",
                           internal::Sentence(Fact::kQuantisedCacheNeedsFlash),
                           internal::Versions(Fact::kHadamardBeforeCache),
                           internal::Row(Fact::kHadamardBeforeCache).text)}};
  }
  return {};
}

}  // namespace ropewalk
