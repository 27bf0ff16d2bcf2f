// The report as plain text, CSV and Markdown.
#include "cli/report_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>

namespace ropewalk::cli {
namespace {

// Columns on a terminal; a continuation byte of UTF-8 takes none.
size_t Width(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// Of text and tables.
constexpr size_t kColumns = 96;

// A table in lines. One that is too wide continues below, behind its first column again.
std::string Align(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  std::string out;
  size_t begin = 1;
  do {
    size_t end = begin, width = widths[0];
    while (end < widths.size() && (end == begin || width + 3 + widths[end] <= kColumns)) {
      width += 3 + widths[end++];
    }
    for (const auto& row : rows) {
      std::string line = row[0] + std::string(widths[0] - Width(row[0]), ' ');
      for (size_t i = begin; i < std::min(end, row.size()); ++i) {
        line += "   " + std::string(widths[i] - Width(row[i]), ' ') + row[i];
      }
      while (!line.empty() && line.back() == ' ') line.pop_back();
      out += line + "\n";
    }
    begin = end;
    if (begin < widths.size()) out += "\n";
  } while (begin < widths.size());
  return out;
}

std::string Wrap(const std::string& text) {
  std::istringstream words(text);
  std::string out, word;
  size_t used = 0;
  while (words >> word) {
    const size_t width = Width(word);
    if (used > 0 && used + 1 + width > kColumns) {
      out += "\n";
      used = 0;
    }
    if (used > 0) out += " ";
    out += word;
    used += width + (used > 0 ? 1 : 0);
  }
  return out + "\n";
}

bool HasPasskey(const std::vector<Cell>& cells) {
  return std::any_of(cells.begin(), cells.end(),
                     [](const Cell& c) { return FindTask(c.tasks, "passkey") != nullptr; });
}

std::string CellText(const Cell& c, const std::vector<Cell>& cells, const char* separator) {
  std::string out = MarkedPerplexity(c, cells);
  if (const TaskResult* passkey = FindTask(c.tasks, "passkey")) {
    out += fmt::format("{}{:.2f}", separator, ScoreOf(*passkey));
  }
  return out;
}

std::vector<std::vector<std::string>> Rows(const std::vector<Cell>& cells, TableForm form) {
  return GridRows(cells, [&](const Cell& cell) { return CellText(cell, cells, Separator(form)); });
}

std::string TableCaption(const std::vector<Cell>& cells) {
  const int64_t trained = cells.front().trained_length;
  const KvType kv = cells.front().kv;
  const bool factors = std::any_of(cells.begin(), cells.end(),
                                   [](const Cell& cell) { return ShowsFactor(cell.method); });
  return fmt::format(
      "Perplexity{} by length in tokens{}. "
      "Trained {}.{}{}",
      HasPasskey(cells) ? " and passkey accuracy" : "",
      factors ? "; (xN): the factor of the scaled methods" : "",
      trained > 0 ? fmt::format("at {}", trained) : "at an unknown length",
      kv == KvType::kF32 ? "" : fmt::format(" With a KV cache of {}.", Name(kv)),
      MarksCaption(cells));
}

// The text after the recommendations, or in their place.
std::string Closing(const SweepReport& sweep) {
  if (!sweep.recommendations.empty()) return sweep.rules;
  std::string text =
      sweep.results.cells.front().trained_length > 0
          ? "No length beyond the trained one was measured, so there is nothing to recommend."
          : "Nothing is recommended, because the trained length is unknown; sweep with --trained N "
            "into another folder.";
  return text + (sweep.tasks_note.empty() ? "" : " ") + sweep.tasks_note;
}

// "kv 0.96 0.113; ruler:vt 0.80 0.402": scores and nats per token of an answer.
std::string TasksField(const Cell& cell) {
  std::string out;
  for (const TaskResult& r : cell.tasks) {
    out +=
        fmt::format("{}{} {:.6g} {:.6g}", out.empty() ? "" : "; ", r.task, ScoreOf(r), r.mean_nll);
  }
  return out;
}

std::string CsvField(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

std::string CsvNumber(double value) {
  return std::isfinite(value) ? fmt::format("{:.9g}", value) : "";
}

}  // namespace

std::string SummaryText(const SweepReport& sweep) {
  const std::vector<Cell>& cells = sweep.results.cells;
  if (cells.empty()) return "No cell is finished.\n";
  std::string out = Align(Rows(cells, TableForm::kText)) + Wrap(TableCaption(cells));
  for (const std::string& name : TaskNames(cells)) {
    out += "\n" + Align(TaskRows(cells, name, TableForm::kText)) +
           Wrap(TaskCaption(cells, name, TableForm::kText));
  }
  if (!sweep.scores.empty()) {
    out += "\n" + Align(EffectiveRows(sweep)) + Wrap(EffectiveCaption(sweep));
  }
  if (!sweep.other_kv.empty()) {
    for (const TextRows& table : KvTables(sweep)) out += "\n" + Align(table);
    out += Wrap(KvCaption(sweep));
  }
  for (const Recommendation& r : sweep.recommendations) out += "\n" + Wrap(r.text);
  if (!sweep.kv_text.empty()) out += "\n" + Wrap(sweep.kv_text);
  if (sweep.ladder) out += "\n" + Wrap(LadderText(*sweep.ladder));
  return out + "\n" + Wrap(Closing(sweep));
}

std::string MarkdownText(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (std::string("\\`*_[]<>|#").find(c) != std::string::npos) out += '\\';
    out += c == '\n' || c == '\r' ? ' ' : c;
  }
  return out;
}

std::string MarkdownTable(const std::vector<std::vector<std::string>>& rows) {
  std::string out;
  for (size_t r = 0; r < rows.size(); ++r) {
    for (const std::string& field : rows[r]) out += "| " + MarkdownText(field) + " ";
    out += "|\n";
    if (r > 0) continue;
    for (size_t i = 0; i < rows[r].size(); ++i) out += i == 0 ? "|---" : "|---:";
    out += "|\n";
  }
  return out;
}

namespace {

// "0.012 ± 0.003 nats per token"; of one window there is no error.
std::string NatsText(const PairedDifference& d) {
  if (!std::isfinite(d.mean)) return "no finite loss";
  const double error = d.standard_error;
  return fmt::format("{:.3f}{} nats per token", d.mean,
                     std::isnan(error) ? "" : fmt::format(" ± {:.3f}", error));
}

std::string TaskCostsText(const LadderRung& rung) {
  std::string out;
  for (const TaskCost& cost : rung.static_task_costs) {
    if (cost.answers.difference == 0) continue;
    out += fmt::format(", {} {:+.2f}{}", cost.task, cost.answers.difference,
                       cost.answers.p_value < 0.05 ? "" : " (noise)");
  }
  return out;
}

// Every method of each length with its scores and why it is or is not recommended.
std::string WhyMarkdown(const SweepReport& sweep) {
  std::string out;
  for (const Recommendation& r : sweep.recommendations) {
    const bool keys = std::any_of(r.methods.begin(), r.methods.end(),
                                  [](const MethodVerdict& v) { return v.key_tokens.has_value(); });
    std::vector<std::vector<std::string>> rows = {
        {fmt::format("at {} tokens", r.length), "perplexity", "scores", "standing", "why"}};
    if (keys) rows[0].insert(rows[0].begin() + 2, "LongPPL");
    for (const MethodVerdict& v : r.methods) {
      std::vector<std::string> scores;
      for (const TaskVerdict& t : v.tasks) {
        scores.push_back(fmt::format("{} {:.2f} ({:.2f} to {:.2f})", t.task, t.score,
                                     t.interval.low, t.interval.high));
      }
      std::string why = v.reason;
      if (why.empty() && v.difference) {
        const PairedDifference& d = *v.difference;
        why = NatsText({std::abs(d.mean), d.standard_error}) + (d.mean < 0 ? " ahead" : " behind");
      }
      rows.push_back({MethodLabel(v.method, v.factor), PerplexityText(v.perplexity),
                      fmt::format("{}", fmt::join(scores, ", ")), Word(v.standing), why});
      if (!keys) continue;
      rows.back().insert(rows.back().begin() + 2,
                         v.key_tokens ? PerplexityText(std::exp(v.key_tokens->nats)) : "-");
    }
    out += MarkdownTable(rows) + "\n";
  }
  return out;
}

std::string LadderMarkdown(const SweepReport& sweep) {
  if (!sweep.ladder) return "";
  const Ladder& ladder = *sweep.ladder;
  std::vector<std::vector<std::string>> rows = {
      {"tokens", "factor", "perplexity", "best measured",
       fmt::format("factor {:.4g} for all text costs", ladder.largest)}};
  for (const LadderRung& rung : ladder.rungs) {
    rows.push_back({fmt::format("{} to {}", rung.above + 1, rung.up_to),
                    rung.factor == 1 ? "no scaling" : fmt::format("{:.4g}", rung.factor),
                    PerplexityText(rung.perplexity), fmt::format("{:.4g}", rung.best_factor),
                    rung.static_cost ? NatsText(*rung.static_cost) + TaskCostsText(rung) : "-"});
  }
  std::string out = MarkdownText(LadderText(ladder)) + "\n\n" + MarkdownTable(rows) + "\n";
  for (const EngineSetting& s :
       Narrow(LadderSettings(ladder, sweep.results.cells, sweep.results.header.family),
              sweep.engines)) {
    out += fmt::format("{}: {}\n\n", MarkdownText(s.engine), MarkdownText(s.note));
    std::istringstream lines(s.setting);
    for (std::string line; std::getline(lines, line);) out += "    " + line + "\n";
    if (!s.setting.empty()) out += "\n";
  }
  return out;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> CsvColumns(const Cell& c) {
  const TaskResult* keys = FindTask(c.tasks, kKeyTokensTask);
  return {{"method", c.method},
          {"factor", CsvNumber(c.factor)},
          {"length", std::to_string(c.length)},
          {"perplexity", CsvNumber(c.perplexity)},
          {"mean_nll", CsvNumber(c.mean_nll)},
          {"standard_error", CsvNumber(c.standard_error)},
          {"bits_per_byte", CsvNumber(c.bits_per_byte)},
          {"windows", std::to_string(c.windows)},
          {"scored_tokens", std::to_string(c.scored_tokens)},
          {"trained_length", std::to_string(c.trained_length)},
          {"protocol", c.protocol},
          {"bos", c.bos},
          {"tokenizer", c.tokenizer},
          {"model_hash", c.model_hash},
          {"text_hash", c.text_hash},
          {"tokenizer_hash", c.tokenizer_hash},
          {"plan_hash", c.plan_hash},
          {"compute", c.compute},
          {"angles", c.angles},
          {"threads", std::to_string(c.threads)},
          {"seed", std::to_string(c.seed)},
          {"seconds", CsvNumber(c.seconds)},
          {"scaling", c.scaling},
          {"entropy", CsvNumber(c.entropy)},
          {"entropy_share", CsvNumber(c.entropy_share)},
          {"race_round", c.race_exit ? std::to_string(c.race_exit->round) : ""},
          {"tasks", TasksField(c)},
          {"key_tokens", keys ? std::to_string(keys->answers.size()) : ""},
          {"key_nll", keys ? CsvNumber(keys->mean_nll) : ""},
          {"key_standard_error", keys ? CsvNumber(keys->standard_error) : ""}};
}

std::string CsvLine(const std::vector<std::string>& fields) {
  std::string out;
  for (size_t i = 0; i < fields.size(); ++i) out += (i ? "," : "") + CsvField(fields[i]);
  return out + "\n";
}

std::string Csv(const std::vector<SweepReport>& sweeps) {
  if (sweeps.size() > 1) return SideBySideCsv(sweeps);
  const bool kv = std::ranges::any_of(sweeps, [](const SweepReport& sweep) {
    return !sweep.other_kv.empty() || sweep.results.cells.front().kv != KvType::kF32;
  });
  std::vector<std::string> fields = {"sweep"};
  for (const auto& [name, value] : CsvColumns(Cell())) fields.push_back(name);
  if (kv) fields.insert(fields.end(), {"kv", "kv_keys"});
  std::string out = CsvLine(fields);
  for (const SweepReport& sweep : sweeps) {
    std::vector<Cell> cells = sweep.results.cells;
    cells.insert(cells.end(), sweep.other_kv.begin(), sweep.other_kv.end());
    for (const Cell& c : cells) {
      fields = {sweep.label};
      for (const auto& [name, value] : CsvColumns(c)) fields.push_back(value);
      if (kv) fields.insert(fields.end(), {Name(c.kv), c.kv_keys});
      out += CsvLine(fields);
    }
  }
  return out;
}

std::string Markdown(const std::vector<SweepReport>& sweeps) {
  std::string out = sweeps.size() > 1 ? SideBySideMarkdown(sweeps) : "";
  for (const SweepReport& sweep : sweeps) {
    const std::vector<Cell>& cells = sweep.results.cells;
    const SweepHeader& header = sweep.results.header;
    out += fmt::format("## {}\n\n", MarkdownText(sweep.label));
    out += fmt::format("Model {}, text {}.\n\n", MarkdownText(header.model_name),
                       MarkdownText(header.text_path));
    out += MarkdownTable(Rows(cells, TableForm::kMarkdown)) + "\n" + TableCaption(cells) + "\n\n";
    for (const std::string& name : TaskNames(cells)) {
      out += MarkdownTable(TaskRows(cells, name, TableForm::kMarkdown)) + "\n" +
             MarkdownText(TaskCaption(cells, name, TableForm::kMarkdown)) + "\n\n";
    }
    if (!sweep.scores.empty()) {
      out += MarkdownTable(EffectiveRows(sweep)) + "\n" + MarkdownText(EffectiveCaption(sweep)) +
             "\n\n";
    }
    if (!sweep.other_kv.empty()) {
      for (const TextRows& table : KvTables(sweep)) out += MarkdownTable(table) + "\n";
      out += MarkdownText(KvCaption(sweep)) + "\n\n";
    }
    for (const Recommendation& r : sweep.recommendations) out += "- " + MarkdownText(r.text) + "\n";
    if (!sweep.recommendations.empty()) out += "\n";
    if (!sweep.kv_text.empty()) out += MarkdownText(sweep.kv_text) + "\n\n";
    out += WhyMarkdown(sweep) + LadderMarkdown(sweep);
    out += MarkdownText(Closing(sweep)) + "\n";
    const Cell& c = cells.front();
    std::vector<int64_t> windows, tokens;
    for (const Cell& cell : cells) {
      windows.push_back(cell.windows);
      tokens.push_back(cell.scored_tokens);
    }
    out += fmt::format(
        "\nProtocol {}, {} windows and {} scored tokens per cell, BOS {}, tokenizer {}, compute "
        "{}, "
        "angles {}, {} threads, seed {}.\n",
        MarkdownText(c.protocol), RangeText(windows), RangeText(tokens), MarkdownText(c.bos),
        MarkdownText(c.tokenizer), MarkdownText(c.compute), MarkdownText(c.angles), c.threads,
        c.seed);
    out += fmt::format("Hashes: model {}, text {}, tokenizer {}.\n\n", c.model_hash, c.text_hash,
                       c.tokenizer_hash);
    if (!header.command.empty()) out += "    " + header.command + "\n\n";
  }
  return out;
}

}  // namespace ropewalk::cli
