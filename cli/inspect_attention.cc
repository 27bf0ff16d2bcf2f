// Where the attention of a model looks on a text, by distance, and which pairs make it look there.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/input.h"
#include "cli/inspect_page.h"
#include "ropewalk/base/error.h"
#include "ropewalk/plan/method.h"

namespace ropewalk::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kTokens = 2048;  // without --length

// Of --length, or else at most kTokens; the trained length in front of longer ones.
std::vector<int64_t> LengthsOf(const Options& options, const InspectPage& page) {
  const int64_t trained = page.trained_length;
  std::vector<int64_t> lengths;
  for (const std::string& length : options.lengths) lengths.push_back(ParseLength(length));
  if (lengths.empty()) lengths = {trained > 0 ? std::min(trained, kTokens) : kTokens};
  if (trained > 0 && trained < page.length && !options.lengths.empty()) lengths.push_back(trained);
  return lengths;
}

// Cuts them to a text of `tokens`, in order and each once, and says so.
std::vector<int64_t> CutLengths(std::vector<int64_t> lengths, int64_t tokens, std::string& note) {
  for (int64_t& length : lengths) {
    if (length <= tokens) continue;
    note = fmt::format("the text has {} tokens; longer lengths are measured at that", tokens);
    length = tokens;
  }
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  std::erase_if(lengths, [](int64_t n) { return n < kLeastProfileTokens; });
  if (lengths.empty()) {
    note = fmt::format("where attention looks needs {} tokens of text or more, there are {}",
                       kLeastProfileTokens, tokens);
  }
  return lengths;
}

// What HoPE makes of a model with pairs that never completed a rotation.
std::optional<PositionPlan> HopePlan(const InspectPage& page, std::string& note) {
  const auto incomplete = [](const InspectRotation& r) {
    const std::vector<DoubleDouble>& f = r.rotation.frequencies.inv_freq;
    for (std::size_t i = 0; i < f.size(); ++i) {
      if (static_cast<int64_t>(i) >= r.critical.first_pair && f[i].hi > 0) return true;
    }
    return false;
  };
  if (page.trained_length <= 0) return std::nullopt;
  if (std::none_of(page.rotations.begin(), page.rotations.end(), incomplete)) return std::nullopt;
  try {
    return PositionMethod::Parse("hope").Apply(page.plan, 1, page.trained_length);
  } catch (const Error& e) {
    note += fmt::format("{}HoPE is left out: {}", note.empty() ? "" : "; ", e.what());
    return std::nullopt;
  }
}

std::string Percent(double share) {
  return std::abs(share) < 5e-5 ? "-" : fmt::format("{:.1f}", 100 * share);
}

// The layers to show: all of up to 8, else about every eighth.
std::vector<std::size_t> RowsOf(std::size_t layers) {
  std::vector<std::size_t> rows;
  for (std::size_t l = 0; l < layers; ++l) {
    if (layers <= 8 || l == 0 || l + 1 == layers || l % ((layers + 7) / 8) == 0) rows.push_back(l);
  }
  return rows;
}

// Where the columns of the table of weights begin: 0, 1, 8, 64, ...
std::vector<int64_t> Columns(int64_t last) {
  std::vector<int64_t> columns = {0};
  for (int64_t at = 1; at < last; at *= 8) columns.push_back(at);
  columns.push_back(last);
  return columns;
}

void AddWeights(const AttentionProfile& p, int64_t trained, std::string& out) {
  const std::vector<int64_t> columns = Columns(p.edges.back());
  const bool beyond = trained > 0 && trained < p.edges.back();
  const bool sinks = std::any_of(p.layers.begin(), p.layers.end(),
                                 [](const AttentionMass& m) { return m.sink > 0; });
  out += fmt::format("  {:>5}", "layer");
  for (std::size_t c = 0; c + 1 < columns.size(); ++c) {
    const int64_t first = columns[c], last = columns[c + 1] - 1;
    const std::string name =
        first == last ? std::to_string(first) : fmt::format("{}-{}", first, last);
    out += fmt::format("  {:>11}", name);
  }
  out += fmt::format("  {:>11}{}{}\n", "first token", sinks ? "  learned sink" : "",
                     beyond ? fmt::format("  {:>12}", fmt::format("{} on", trained)) : "");
  const auto line = [&](const std::string& name, const AttentionMass& m) {
    out += fmt::format("  {:>5}", name);
    for (std::size_t c = 0; c + 1 < columns.size(); ++c) {
      out += fmt::format("  {:>11}", Percent(m.Between(p.edges, columns[c], columns[c + 1])));
    }
    out += fmt::format("  {:>11}", Percent(m.first_token));
    if (sinks) out += fmt::format("  {:>12}", Percent(m.sink));
    if (beyond) out += fmt::format("  {:>12}", Percent(m.Between(p.edges, trained, INT64_MAX)));
    out += '\n';
  };
  for (const std::size_t l : RowsOf(p.layers.size())) line(std::to_string(l), p.layers[l]);
  line("mean", p.Mean());
}

// One key's weight at the end of the text against the least of nearer ones.
void AddShape(const std::string& name, const AttentionMass& m, const AttentionProfile& p,
              std::string& out) {
  const std::size_t last = p.keys.size() - 1;
  const auto of_key = [&](std::size_t b) { return m.mass[b] / p.keys[b]; };
  std::size_t least = 0;
  for (std::size_t b = 0; b <= last; ++b) {
    if (of_key(b) < of_key(least)) least = b;
  }
  out += fmt::format(
      "  one key of {} has {:.2e} at distance 0, least {:.2e} at {} to {}, {:.2e} at "
      "{} to {}\n",
      name, of_key(0), of_key(least), p.edges[least], p.edges[least + 1] - 1, of_key(last),
      p.edges[last], p.edges[last + 1] - 1);
}

void AddShares(const AttentionProfile& p, std::string& out) {
  const std::string& first = p.logits.front().absent;
  const bool none =
      !first.empty() && std::all_of(p.logits.begin(), p.logits.end(),
                                    [&](const LogitShares& s) { return s.absent == first; });
  if (none) {
    out +=
        fmt::format("  What pairs add to the scores is not measured: in every layer, {}\n", first);
    return;
  }
  out +=
      "  What pairs add to the scores, % of the variance: position is what the distance "
      "explains\n";
  out += fmt::format("  {:>5}  {:>8}  {:>8}  {:>9}  {:>14}  {:>10}  {:>18}  {:>18}\n", "layer",
                     "position", "content", "unrotated", "never turned", "new angles",
                     "most position in", "most content in");
  bool known = false;
  for (const std::size_t l : RowsOf(p.logits.size())) {
    const LogitShares& s = p.logits[l];
    if (!s.absent.empty()) {
      out += fmt::format("  {:>5}  not measured: {}\n", l, s.absent);
      continue;
    }
    const auto top = [](const std::vector<double>& share) {
      const auto most = std::max_element(share.begin(), share.end());
      return fmt::format("pair {} ({})", most - share.begin(), Percent(*most));
    };
    const auto turned = [](const LogitShares& of) {
      const double position = of.IncompletePosition();
      return fmt::format("{} + {}", Percent(position), Percent(of.Incomplete() - position));
    };
    known = !s.incomplete.empty();
    out += fmt::format("  {:>5}  {:>8}  {:>8}  {:>9}  {:>14}  {:>10}  {:>18}  {:>18}\n", l,
                       Percent(s.Position()), Percent(1 - s.unrotated - s.Position()),
                       Percent(s.unrotated), known ? turned(s) : "?",
                       known ? Percent(s.Unseen()) : "?", top(s.position), top(s.content));
  }
  if (!known) return;
  out +=
      "  never turned: position + content of pairs that make less than one rotation within the "
      "trained\n  length; new angles: at distances whose angle no distance within it has\n";
}

// NaN, of bins without common distances, is null in JSON.
Json Numbers(const std::vector<double>& values) {
  Json out = Json::array();
  for (const double v : values) out.push_back(std::isfinite(v) ? Json(v) : Json());
  return out;
}

Json SharesJson(const LogitShares& s) {
  Json incomplete = Json::array();
  for (std::size_t i = 0; i < s.incomplete.size(); ++i) {
    if (s.incomplete[i] != 0) incomplete.push_back(i);
  }
  const bool known = !s.incomplete.empty();
  return {{"distances", s.distances},
          {"position", s.position},
          {"content", s.content},
          {"unrotated", s.unrotated},
          {"by_distance", s.by_distance},
          {"incomplete", known ? std::move(incomplete) : Json()},
          {"unseen", known ? Json(s.unseen) : Json()},
          {"score", Numbers(s.score)},
          {"score_incomplete", known ? Numbers(s.score_incomplete) : Json()}};
}

}  // namespace

void MeasureText(const Options& options, const ModelFiles& files, InspectPage& page) {
  const TokenText text = ReadTokenText(options, files);
  std::vector<int32_t> ids = text.ids;
  const std::span<const int32_t> all = ids;
  const auto most = static_cast<std::size_t>(options.lengths.empty() ? kTokens : page.length);
  const auto decoder = LoadDecoder(options, files);
  page.use = MeasureFrequencyUse(*decoder, page.plan, all.first(std::min(ids.size(), most)));

  const bool bos = options.ids.empty() && files.tokenizer->adds_bos();
  if (bos) ids.insert(ids.begin(), *files.tokenizer->bos_id());
  std::string& note = page.attention_note;
  const std::vector<int64_t> lengths =
      CutLengths(LengthsOf(options, page), static_cast<int64_t>(ids.size()), note);
  const auto measure = [&](const std::string& method, const PositionPlan& plan) {
    for (const int64_t length : lengths) {
      const std::span<const int32_t> part(ids.data(), static_cast<std::size_t>(length));
      page.attention.push_back(
          {method,
           MeasureAttentionProfile(*decoder, plan, part, {.trained_length = page.trained_length})});
    }
  };
  measure("as shipped", page.plan);
  if (const auto hope = HopePlan(page, note)) measure("hope", *hope);
}

std::string AttentionText(const InspectPage& page) {
  std::string out;
  for (const auto& [method, p] : page.attention) {
    out += fmt::format(
        "\nWhere attention looks at {} tokens, {}: % of the weight by distance, {} queries from "
        "{} on\n",
        p.tokens, method, p.queries.size(), p.queries.front());
    AddWeights(p, page.trained_length, out);
    AddShape("the first layer", p.layers.front(), p, out);
    if (p.layers.size() > 1) AddShape("the layers' mean", p.Mean(), p, out);
    AddShares(p, out);
  }
  if (!page.attention_note.empty()) out += "  " + page.attention_note + "\n";
  return out;
}

Json AttentionJson(const InspectPage& page) {
  Json out = Json::array();
  for (const auto& [method, p] : page.attention) {
    Json layers = Json::array();
    for (std::size_t l = 0; l < p.layers.size(); ++l) {
      const AttentionMass& m = p.layers[l];
      const LogitShares& s = p.logits[l];
      layers.push_back({{"mass", m.mass},
                        {"first_token", m.first_token},
                        {"sink", m.sink},
                        {"logits", s.absent.empty() ? SharesJson(s) : Json()},
                        {"no_logits", s.absent}});
    }
    out.push_back({{"method", method},
                   {"tokens", p.tokens},
                   {"queries", p.queries},
                   {"edges", p.edges},
                   {"keys", p.keys},
                   {"layers", std::move(layers)}});
  }
  return out;
}

}  // namespace ropewalk::cli
