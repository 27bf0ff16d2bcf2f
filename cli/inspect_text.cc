// The positions of a model for a terminal.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/inspect_page.h"

namespace ropewalk::cli {
namespace {

// 8192, 54.4k, 3.51M: token counts for people.
std::string Tokens(double t) {
  if (std::isinf(t)) return "never";
  if (t < 100) return fmt::format("{:.3g}", t);
  if (t < 1e5) return fmt::format("{:.0f}", t);
  return t < 1e6 ? fmt::format("{:.3g}k", t / 1e3) : fmt::format("{:.3g}M", t / 1e6);
}
std::string Percent(double share) {
  if (share == 0) return "-";
  return share < 0.001 ? "< 0.1 %" : fmt::format("{:.1f} %", 100 * share);
}
std::string Rotations(double count) {
  return count >= 100 ? fmt::format("{:.0f}", count) : fmt::format("{:.3f}", count);
}

// The rows of the table of pairs to show: all of up to 16, else the ends, every eighth and those
// around the critical pair.
std::vector<std::size_t> RowsToShow(const InspectRotation& r) {
  const std::size_t n = r.pairs.size();
  std::vector<std::size_t> rows;
  for (std::size_t i = 0; i < n; ++i) {
    const auto from_critical = static_cast<int64_t>(i) - r.critical.first_pair;
    const bool landmark = i == 0 || i + 1 == n || i % 8 == 0;
    if (n <= 16 || landmark || (from_critical >= -2 && from_critical <= 1)) rows.push_back(i);
  }
  return rows;
}

void AddPairs(const InspectPage& page, const InspectRotation& r, std::string& out) {
  const bool axes = !r.rotation.frequencies.axis.empty();
  const std::string trained = page.trained_length > 0 ? std::to_string(page.trained_length) : "?";
  out += fmt::format("\nPairs of {}\n", r.layers);
  if (r.reach < page.length) {
    out += fmt::format("  these layers attend to the last {} tokens; no distance is larger\n",
                       r.reach);
  }
  out += fmt::format("  {:>4}  {:>13}  {:>10}  {:>13}  {:>13}  {:>10}  {:>11}{}\n", "pair",
                     "frequency", "wavelength", "rotations in", "rotations in", "new angles",
                     "slowed by", axes ? "  axis" : "");
  out += fmt::format("  {:>4}  {:>13}  {:>10}  {:>13}  {:>13}  {:>10}  {:>11}\n", "", "rad / token",
                     "tokens", trained, r.reach, "", "");
  for (const std::size_t i : RowsToShow(r)) {
    const PairInfo& p = r.pairs[i];
    const double slower = p.frequency > 0 ? r.trained.inv_freq[i].hi / p.frequency : std::nan("");
    out += fmt::format("  {:>4}  {:>13.6e}  {:>10}  {:>13}  {:>13}  {:>10}  {:>11}", i, p.frequency,
                       Tokens(p.wavelength_tokens),
                       page.trained_length > 0 ? Rotations(p.trained_rotations) : "?",
                       Rotations(p.target_rotations), Percent(p.unseen_share),
                       std::abs(slower - 1) < 1e-9 ? "-" : fmt::format("{:.3f}x", slower));
    if (axes) out += fmt::format("  {:>4}", p.axis);
    out += '\n';
  }
  if (r.pairs.size() > 16)
    out += "  every 8th pair and those around the critical one; --json has all\n";
  if (page.trained_length <= 0) return;
  const auto pairs = static_cast<int64_t>(r.pairs.size());
  if (r.critical.incomplete_pairs == 0) {
    out +=
        fmt::format("  every pair makes a full rotation within the trained {} tokens\n", trained);
  } else {
    out += fmt::format(
        "  critical dimension {} of {}: pairs {} to {} ({} of {}) make less than one rotation "
        "within "
        "the trained {} tokens\n",
        r.critical.dimension, 2 * pairs, r.critical.first_pair, pairs - 1,
        r.critical.incomplete_pairs, pairs, trained);
  }
  const auto strange = std::count_if(r.pairs.begin(), r.pairs.end(),
                                     [](const PairInfo& p) { return p.unseen_share > 0.001; });
  double mean = 0;
  for (const PairInfo& p : r.pairs) mean += p.unseen_share / static_cast<double>(pairs);
  out += strange == 0
             ? fmt::format("  at {} tokens no pair has angles that were not seen in training\n",
                           r.reach)
             : fmt::format(
                   "  at {} tokens {} pairs have angles that were not seen in training: {} of all "
                   "(distance, pair) combinations\n",
                   r.reach, strange, Percent(mean));
}

std::string Context(int64_t tokens) {
  return tokens >= int64_t{1} << 22 ? std::string("over 4194304") : std::to_string(tokens);
}

void AddBase(const InspectPage& page, const InspectRotation& r, std::string& out) {
  const RotarySpec& spec = r.rotation.spec;
  out +=
      "\nBase (it supports a context if sum of cos(m f) >= 0 at every distance m, arXiv "
      "2405.14591)\n";
  out += fmt::format("  base {} supports {} tokens", spec.base, Context(r.longest_trained));
  if (r.longest != r.longest_trained) {
    out += fmt::format("; with the scaling in the file {}", Context(r.longest));
  }
  out += '\n';
  std::string line;
  bool larger_supports_less = false;
  for (const BaseBound& b : r.bounds) {
    const bool wanted = b.context == page.trained_length || &b == &r.bounds.back();
    if (!wanted) continue;
    line += fmt::format("{}{} supports {} tokens", line.empty() ? "  smallest base found: " : "; ",
                        b.rounded, b.context);
    larger_supports_less |= spec.base > b.base && r.longest_trained < b.context;
  }
  if (!line.empty()) out += line + '\n';
  if (larger_supports_less) {
    out += "  (not every larger base supports the context; this one does not)\n";
  }
  if (page.length > kMostBounds && !r.bounds.empty()) {
    out += fmt::format("  (bounds are searched up to {} tokens)\n", kMostBounds);
  }
}

void AddFloat32(const InspectRotation& r, std::string& out) {
  out += "\nFloat32 angles (largest error over pairs, radians; ropewalk's are exact by default)\n";
  out += fmt::format("  {:>9}  {:>14}  {:>14}  {:>14}\n", "position", "Hugging Face",
                     "llama.cpp CPU", "llama.cpp CUDA");
  for (const Float32Error& e : r.float32) {
    const auto cell = [](const std::optional<AngleError>& a) {
      return a ? fmt::format("{:.1e}", a->radians) : std::string("other formula");
    };
    out += fmt::format("  {:>9}  {:>14}  {:>14}  {:>14}\n", e.position, cell(e.hugging_face),
                       cell(e.ggml_cpu), cell(e.ggml_cuda));
  }
}

void AddDecay(const InspectPage& page, std::string& out) {
  out += "\nExpected score at distance m, relative to distance 0 (mean of cos(m f) over pairs)\n";
  out += fmt::format("  {:>9}", "distance");
  std::vector<std::size_t> widths;
  for (const InspectDecay& d : page.decay) {
    const std::string head =
        d.factor == 1 ? d.method : fmt::format("{} x{:.4g}", d.method, d.factor);
    widths.push_back(std::max<std::size_t>(12, head.size()));
    out += fmt::format("  {:>{}}", head, widths.back());
  }
  out += fmt::format("  {:>12}\n", "bound");
  const std::vector<DecayPoint>& first = page.decay.front().points;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const int64_t m = first[i].distance;
    const bool power_of_four = m > 0 && (m & (m - 1)) == 0 && (m & 0x5555555555555555) != 0;
    if (!power_of_four && i + 1 != first.size()) continue;
    out += fmt::format("  {:>9}", m);
    for (std::size_t line = 0; line < page.decay.size(); ++line) {
      const double expected = page.decay[line].points[i].expected;
      const std::string text = std::isnan(expected) ? "masked" : fmt::format("{:.4f}", expected);
      out += fmt::format("  {:>{}}", text, widths[line]);
    }
    out += fmt::format("  {:>12.2f}\n", first[i].bound);
  }
  out += "  bound: of RoFormer (mean |S_j| over pairs), for the model as shipped\n";
}

std::string EngineLine(const EngineView& v, int64_t position, bool whole_file) {
  if (!v.expressible) return "does not have it: " + v.reason;
  if (v.Same()) {
    const std::string same = whole_file ? "computes what the file specifies"
                                        : "computes the above, without the keys under Unusual";
    return v.angle_rad < 1e-9
               ? same
               : fmt::format("{}, up to rounding in float32 ({:.1e} rad at position {})", same,
                             v.angle_rad, position);
  }
  std::string line;
  const auto add = [&](const std::string& text) { line += (line.empty() ? "" : "; ") + text; };
  if (v.frequency_ratio != 1) {
    add(
        fmt::format("angles differ: pair {} has {:.4g} times the frequency, pair {} is off by "
                    "{:.3g} rad at position {}",
                    v.ratio_pair, v.frequency_ratio, v.angle_pair, v.angle_rad, position));
  }
  if (std::abs(v.amplitude_ratio - 1) > 1e-9) {
    add(fmt::format("attention factor {:.8g} instead of {:.8g}, scores times {:.4g}", v.amplitude,
                    v.amplitude / v.amplitude_ratio, v.amplitude_ratio * v.amplitude_ratio));
  }
  if (std::abs(v.softmax_ratio - 1) > 1e-9) {
    add(fmt::format("softmax scale times {:.4g}", v.softmax_ratio));
  }
  if (v.axis_pairs > 0) add(fmt::format("{} pairs have another position axis", v.axis_pairs));
  return line;
}

std::string EngineTitle(Dialect d) {
  switch (d) {
    case Dialect::kHuggingFace:
      return "Hugging Face";
    case Dialect::kVllm:
      return "vLLM";
    case Dialect::kLlamaCpp:
      return "llama.cpp";
    default:
      return Name(d);
  }
}

// Wraps `text` at 100 columns; all lines begin `indent` columns in.
std::string Wrapped(const std::string& text, std::size_t indent) {
  std::string out, line;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t space = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, space - at);
    if (!line.empty() && indent + line.size() + 1 + word.size() > 100) {
      out += line + '\n' + std::string(indent, ' ');
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
    at = space + 1;
  }
  return out + line;
}

void AddEngines(const InspectPage& page, const InspectRotation& r, std::string& out) {
  if (r.engines.empty()) return;
  out += fmt::format("\nWhat engines compute (at {} tokens)\n", page.length);
  for (const EngineView& v : r.engines) {
    const std::string line = EngineLine(v, r.reach - 1, page.whole_file);
    out += "  " + Wrapped(fmt::format("{:<14} {}", EngineTitle(v.engine), line), 17) + '\n';
  }
}

std::string Effect(const Finding& f) {
  if (!f.measured) return "";
  std::string text = f.unit == "rad" ? fmt::format("{:.3g} rad", f.value)
                     : f.unit == "x" ? fmt::format("{:.6g} times", f.value)
                                     : fmt::format("{:g} {}", f.value, f.unit);
  if (f.position > 0) text += fmt::format(" at position {}", f.position);
  return " [" + text + "]";
}

// The share of each quarter of the pairs in the scores, and the largest, by layer.
void AddUse(const InspectPage& page, std::string& out) {
  const FrequencyUse& use = *page.use;
  if (use.Mean().empty()) return;  // nothing rotates
  out += fmt::format("\nShare of each pair in the scores, over {} tokens (mean |q_i| |k_i|)\n",
                     use.tokens);
  out += "  layer   first quarter   second    third    last quarter   strongest pair\n";
  const auto line = [&](const std::string& name, const std::vector<double>& share) {
    double quarter[4] = {0, 0, 0, 0};
    for (std::size_t i = 0; i < share.size(); ++i) quarter[i * 4 / share.size()] += share[i];
    const auto top = std::max_element(share.begin(), share.end());
    out += fmt::format("  {:>5}   {:>12.1f}%   {:>5.1f}%   {:>5.1f}%   {:>11.1f}%   {} ({:.1f}%)\n",
                       name, 100 * quarter[0], 100 * quarter[1], 100 * quarter[2], 100 * quarter[3],
                       top - share.begin(), 100 * *top);
  };
  for (std::size_t l = 0; l < use.share.size(); ++l) {
    if (!use.share[l].empty()) line(std::to_string(l), use.share[l]);
  }
  const std::vector<double> mean = use.Mean();
  if (!mean.empty()) line("mean", mean);
}

}  // namespace

std::string PageText(const InspectPage& page) {
  std::string out;
  if (page.rotations.empty()) out += "\nNo layer rotates: there are no frequencies.\n";
  for (const InspectRotation& r : page.rotations) {
    AddPairs(page, r, out);
    AddBase(page, r, out);
    AddFloat32(r, out);
    AddEngines(page, r, out);
  }
  for (const InspectBias& bias : page.biases) out += BiasText(page, bias);
  if (!page.decay.empty()) AddDecay(page, out);
  if (page.use) AddUse(page, out);
  out += AttentionText(page);
  out += page.findings.empty() ? "\nWarnings: none\n" : "\nWarnings\n";
  for (const Finding& f : page.findings) {
    const std::string where =
        page.rotations.size() > 1 && f.rotation >= 0
            ? " (" + page.rotations[static_cast<std::size_t>(f.rotation)].layers + ")"
            : "";
    out += "  - " + Wrapped(f.engine + where + ": " + f.text + Effect(f) + " {" + f.id + "}", 4) +
           '\n';
  }
  return out;
}

}  // namespace ropewalk::cli
