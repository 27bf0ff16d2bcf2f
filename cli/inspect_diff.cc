// Differences between the positions of two models: lengths, layers, frequencies, attention factors.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/inspect_page.h"

namespace ropewalk::cli {
namespace {

using Json = nlohmann::ordered_json;

// The setting of one layer as text, apart from its frequencies.
std::string Words(const InspectPage& page, std::size_t layer) {
  const ResolvedLayer& l = page.resolved.layers[layer];
  std::string text = l.recurrent ? "recurrent, no positions" : "no rotation";
  if (l.rotation >= 0) {
    const RotarySpec& s = page.resolved.rotations[static_cast<std::size_t>(l.rotation)].spec;
    text = fmt::format("{}, {} of {} dims, base {}, {}",
                       s.layout == PairLayout::kHalf ? "half" : "interleaved", s.rotary_dim,
                       s.head_dim, s.base, Describe(s.scaling));
  }
  if (l.bias >= 0) {
    text += ", " + Describe(page.resolved.biases[static_cast<std::size_t>(l.bias)]);
  }
  const std::string facts = Describe(static_cast<const LayerFacts&>(l));
  if (!facts.empty()) text += ", " + facts;
  return text;
}

const Frequencies* FrequenciesOf(const InspectPage& page, std::size_t layer) {
  const int rotation = page.resolved.layers[layer].rotation;
  return rotation < 0 ? nullptr
                      : &page.resolved.rotations[static_cast<std::size_t>(rotation)].frequencies;
}

// How the frequencies of one layer differ, or nothing.
std::optional<Json> FrequencyDiff(const Frequencies& a, const Frequencies& b, int64_t position) {
  if (a.inv_freq.size() != b.inv_freq.size()) return std::nullopt;  // Words shows it
  double angle = 0, ratio = 1;
  std::size_t angle_pair = 0, ratio_pair = 0;
  int64_t different = 0;
  for (std::size_t i = 0; i < a.inv_freq.size(); ++i) {
    const double x = a.inv_freq[i].hi, y = b.inv_freq[i].hi;
    // Rounding of divisors to float32 in files is not a difference.
    if (x == y || std::abs(x - y) <= 1e-6 * std::max(x, y)) continue;
    ++different;
    const double rad = std::abs(x - y) * static_cast<double>(position);
    if (rad > angle) angle = rad, angle_pair = i;
    if (x > 0 && y > 0 && std::abs(std::log(y / x)) > std::abs(std::log(ratio))) {
      ratio = y / x, ratio_pair = i;
    }
  }
  const bool amplitude = std::abs(a.amplitude - b.amplitude) > 1e-7 * a.amplitude;
  const bool softmax =
      std::abs(a.softmax_multiplier - b.softmax_multiplier) > 1e-7 * a.softmax_multiplier;
  if (different == 0 && !amplitude && !softmax && a.axis == b.axis) return std::nullopt;
  return Json{{"different_pairs", different},
              {"angle_rad", angle},
              {"angle_pair", angle_pair},
              {"frequency_ratio", ratio},
              {"ratio_pair", ratio_pair},
              {"amplitude", {a.amplitude, b.amplitude}},
              {"softmax_multiplier", {a.softmax_multiplier, b.softmax_multiplier}},
              {"same_axes", a.axis == b.axis}};
}

}  // namespace

Json DiffJson(const InspectPage& a, const InspectPage& b) {
  const int64_t position = std::min(a.length, b.length) - 1;
  Json out = {{"a", a.name},
              {"b", b.name},
              {"same_hash", a.resolved.hash == b.resolved.hash},
              {"hash", {a.resolved.hash, b.resolved.hash}},
              {"length", {a.length, b.length}},
              {"trained_length", {a.trained_length, b.trained_length}},
              {"configured_length", {a.plan.configured_length, b.plan.configured_length}},
              {"layers", {a.plan.layers.size(), b.plan.layers.size()}},
              {"position", position}};
  Json layers = Json::array();
  for (std::size_t l = 0; l < std::min(a.plan.layers.size(), b.plan.layers.size()); ++l) {
    Json row = {{"layer", l}};
    const std::string words_a = Words(a, l), words_b = Words(b, l);
    if (words_a != words_b) row["setting"] = {words_a, words_b};
    const Frequencies *fa = FrequenciesOf(a, l), *fb = FrequenciesOf(b, l);
    if (fa != nullptr && fb != nullptr) {
      if (const auto diff = FrequencyDiff(*fa, *fb, position)) row["frequencies"] = *diff;
    }
    if (row.size() > 1) layers.push_back(std::move(row));
  }
  out["different_layers"] = std::move(layers);
  return out;
}

std::string DiffText(const Json& d) {
  std::string out =
      fmt::format("A  {}\nB  {}\n\n", d["a"].get<std::string>(), d["b"].get<std::string>());
  for (const auto& [key, title] : {std::pair{"layers", "layers"},
                                   {"trained_length", "trained length"},
                                   {"configured_length", "configured length"},
                                   {"length", "compared at"}}) {
    const int64_t a = d[key][0], b = d[key][1];
    out += a == b ? fmt::format("{:<18} {}\n", title, a)
                  : fmt::format("{:<18} {} against {}\n", title, a, b);
  }
  out += fmt::format("{:<18} {}\n", "plan hash",
                     d["same_hash"].get<bool>() ? "the same: " + d["hash"][0].get<std::string>()
                                                : d["hash"][0].get<std::string>() + " against " +
                                                      d["hash"][1].get<std::string>());
  const Json& layers = d["different_layers"];
  if (layers.empty()) return out + "\nNo layer differs in its rotation.\n";
  out += "\nLayers that differ\n";
  for (std::size_t first = 0; first < layers.size();) {
    Json same = layers[first];
    same.erase("layer");
    std::size_t last = first;
    while (last + 1 < layers.size()) {
      Json next = layers[last + 1];
      const bool adjacent = next["layer"] == layers[last]["layer"].get<int64_t>() + 1;
      next.erase("layer");
      if (!adjacent || next != same) break;
      ++last;
    }
    const int64_t from = layers[first]["layer"], to = layers[last]["layer"];
    out +=
        from == to ? fmt::format("  layer {}\n", from) : fmt::format("  layers {}-{}\n", from, to);
    if (same.contains("setting")) {
      out += fmt::format("    A: {}\n    B: {}\n", same["setting"][0].get<std::string>(),
                         same["setting"][1].get<std::string>());
    }
    if (same.contains("frequencies")) {
      const Json& f = same["frequencies"];
      if (f["different_pairs"] > 0) {
        out += fmt::format(
            "    {} pairs differ in frequency: pair {} has {:.6g} times the frequency in B, pair "
            "{} "
            "differs by {:.4g} rad at position {}\n",
            f["different_pairs"].get<int64_t>(), f["ratio_pair"].get<int64_t>(),
            f["frequency_ratio"].get<double>(), f["angle_pair"].get<int64_t>(),
            f["angle_rad"].get<double>(), d["position"].get<int64_t>());
      }
      for (const auto& [key, title] :
           {std::pair{"amplitude", "attention factor"}, {"softmax_multiplier", "scores times"}}) {
        const double a = f[key][0], b = f[key][1];
        if (a != b) out += fmt::format("    {} {:.10g} against {:.10g}\n", title, a, b);
      }
      if (!f["same_axes"].get<bool>()) out += "    pairs have other position axes\n";
    }
    first = last + 1;
  }
  return out;
}

}  // namespace ropewalk::cli
