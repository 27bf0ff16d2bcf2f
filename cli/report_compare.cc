// Several sweeps side by side: a row per method and length, a column per sweep.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "cli/report_text.h"

namespace ropewalk::cli {
namespace {

constexpr std::size_t kKeyColumns = 3;  // method, factor, length

const Cell* NoneAt(const SweepReport& sweep, int64_t length) {
  for (const Cell& c : sweep.results.cells) {
    if (c.unscaled() && c.length == length) return &c;
  }
  return nullptr;
}

// Bits per byte where they are known: perplexities of different tokenizers are not comparable.
bool InBitsPerByte(const std::vector<SweepReport>& sweeps) {
  return std::all_of(sweeps.begin(), sweeps.end(), [](const SweepReport& sweep) {
    return std::all_of(sweep.results.cells.begin(), sweep.results.cells.end(),
                       [](const Cell& c) { return std::isfinite(c.bits_per_byte); });
  });
}

std::string Value(const Cell& c, bool bits) {
  std::string out = bits ? fmt::format("{:.3f}", c.bits_per_byte) : PerplexityText(c.perplexity);
  if (const TaskResult* passkey = FindTask(c.tasks, "passkey")) {
    out += fmt::format(", {:.2f}", ScoreOf(*passkey));
  }
  return out;
}

// The recommended method at a length; up to the trained one, no scaling.
std::string Recommended(const SweepReport& sweep, int64_t length, bool bits) {
  const auto r = std::find_if(sweep.recommendations.begin(), sweep.recommendations.end(),
                              [&](const Recommendation& x) { return x.length == length; });
  const bool advised = r != sweep.recommendations.end();
  if (advised && r->method.empty()) return r->judged ? "none usable" : "not judged";
  const Cell* cell = nullptr;
  if (advised) {
    cell = FindCell(sweep.results.cells, r->method, r->factor, length);
  } else if (length <= sweep.results.cells.front().trained_length) {
    cell = NoneAt(sweep, length);
  }
  if (cell == nullptr) return "-";
  return fmt::format("{}: {}", MethodLabel(cell->method, cell->factor), Value(*cell, bits));
}

std::vector<std::string> Heads(const std::vector<SweepReport>& sweeps,
                               std::vector<std::string> heads) {
  for (const SweepReport& sweep : sweeps) heads.push_back(sweep.label);
  return heads;
}

std::set<int64_t> Lengths(const std::vector<SweepReport>& sweeps) {
  std::set<int64_t> lengths;
  for (const SweepReport& sweep : sweeps) {
    for (const Cell& c : sweep.results.cells) lengths.insert(c.length);
  }
  return lengths;
}

// Every method in order of appearance, by length; a sweep's cell is the one that its own table has.
std::vector<std::vector<std::string>> EveryMethod(const std::vector<SweepReport>& sweeps,
                                                  bool bits) {
  std::vector<std::string> methods;
  std::map<std::pair<std::string, int64_t>, std::vector<std::string>> found;
  for (std::size_t s = 0; s < sweeps.size(); ++s) {
    const std::vector<Cell>& cells = sweeps[s].results.cells;
    const Grid grid = MakeGrid(cells);
    for (std::size_t m = 0; m < grid.methods.size(); ++m) {
      if (std::find(methods.begin(), methods.end(), grid.methods[m]) == methods.end()) {
        methods.push_back(grid.methods[m]);
      }
      for (const int64_t index : grid.cells[m]) {
        if (index < 0) continue;
        const Cell& c = cells[static_cast<std::size_t>(index)];
        std::vector<std::string>& row = found[{c.method, c.length}];
        row.resize(sweeps.size(), "-");
        row[s] = Value(c, bits);
        if (ShowsFactor(c.method)) row[s] += fmt::format(" (x{:.4g})", c.factor);
      }
    }
  }
  std::vector<std::vector<std::string>> rows = {Heads(sweeps, {"method", "length"})};
  for (const std::string& method : methods) {
    for (const int64_t length : Lengths(sweeps)) {
      const auto values = found.find({method, length});
      if (values == found.end()) continue;
      rows.push_back({method, std::to_string(length)});
      rows.back().insert(rows.back().end(), values->second.begin(), values->second.end());
    }
  }
  return rows;
}

// Whether one method was measured on more windows of a length in one sweep than in another.
bool WindowsDiffer(const std::vector<SweepReport>& sweeps) {
  std::map<std::tuple<std::string, double, int64_t>, int64_t> windows;
  for (const SweepReport& sweep : sweeps) {
    for (const Cell& c : sweep.results.cells) {
      const auto [first, fresh] = windows.try_emplace({c.method, c.factor, c.length}, c.windows);
      if (!fresh && first->second != c.windows) return true;
    }
  }
  return false;
}

}  // namespace

std::string ComparedText(const std::vector<SweepReport>& sweeps) {
  const bool bits = InBitsPerByte(sweeps);
  std::vector<std::string> others;
  const auto note = [&](const char* what, std::string Cell::*field, bool named) {
    std::set<std::string> values;
    for (const SweepReport& sweep : sweeps) values.insert(sweep.results.cells.front().*field);
    if (values.size() < 2) return;
    others.push_back(named ? fmt::format("{} ({})", what, fmt::join(values, ", ")) : what);
  };
  note("text", &Cell::text_hash, false);
  if (!bits) note("tokenizer", &Cell::tokenizer_hash, false);
  note("protocol", &Cell::protocol, true);
  if (WindowsDiffer(sweeps)) others.emplace_back("windows per cell");
  std::string text = bits ? "Bits per byte compare across tokenizers; texts must be the same."
                          : "Perplexities compare only where text and tokenizer are the same.";
  if (others.empty()) return text;
  return fmt::format("{} These sweeps differ in: {}.", text, fmt::join(others, ", "));
}

std::string SideBySideMarkdown(const std::vector<SweepReport>& sweeps) {
  const bool bits = InBitsPerByte(sweeps);
  const char* unit = bits ? "bits per byte" : "perplexity";
  const bool passkey = std::any_of(sweeps.begin(), sweeps.end(), [](const SweepReport& sweep) {
    return std::any_of(sweep.results.cells.begin(), sweep.results.cells.end(),
                       [](const Cell& c) { return FindTask(c.tasks, "passkey") != nullptr; });
  });
  std::vector<std::vector<std::string>> best = {Heads(sweeps, {"length"})};
  for (const int64_t length : Lengths(sweeps)) {
    best.push_back({std::to_string(length)});
    for (const SweepReport& sweep : sweeps) {
      best.back().push_back(Recommended(sweep, length, bits));
    }
  }
  return fmt::format(
      "## Side by side\n\n"
      "The recommended method at each length (no scaling up to the trained one) with its {}{}.\n\n"
      "{}\nEvery method; (xN): its factor.\n\n{}\n{}\n\n",
      unit, passkey ? " and passkey accuracy" : "", MarkdownTable(best),
      MarkdownTable(EveryMethod(sweeps, bits)), ComparedText(sweeps));
}

std::string SideBySideCsv(const std::vector<SweepReport>& sweeps) {
  using Key = std::tuple<std::string, double, int64_t>;
  std::vector<const Cell*> rows;  // the first of each key
  std::map<Key, std::vector<const Cell*>> found;
  for (std::size_t s = 0; s < sweeps.size(); ++s) {
    for (const Cell& c : sweeps[s].results.cells) {
      std::vector<const Cell*>& row = found[{c.method, c.factor, c.length}];
      if (row.empty()) rows.push_back(&c);
      row.resize(sweeps.size());
      row[s] = &c;
    }
  }
  const auto names = CsvColumns(Cell());
  std::vector<std::string> fields;
  for (std::size_t i = 0; i < kKeyColumns; ++i) fields.push_back(names[i].first);
  for (const SweepReport& sweep : sweeps) {
    for (std::size_t i = kKeyColumns; i < names.size(); ++i) {
      fields.push_back(sweep.label + "." + names[i].first);
    }
  }
  std::string out = CsvLine(fields);
  for (const Cell* first : rows) {
    fields.clear();
    const auto key = CsvColumns(*first);
    for (std::size_t i = 0; i < kKeyColumns; ++i) fields.push_back(key[i].second);
    for (const Cell* c : found.at({first->method, first->factor, first->length})) {
      const auto columns = c == nullptr ? names : CsvColumns(*c);
      for (std::size_t i = kKeyColumns; i < columns.size(); ++i) {
        fields.push_back(c == nullptr ? "" : columns[i].second);
      }
    }
    out += CsvLine(fields);
  }
  return out;
}

}  // namespace ropewalk::cli
