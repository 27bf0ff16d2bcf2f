// What the forms of the report that are text share.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cli/report.h"

namespace ropewalk::cli {

// Columns of a row of CSV with their names, from method, factor and length on. What was not
// measured is empty.
std::vector<std::pair<std::string, std::string>> CsvColumns(const Cell& cell);
std::string CsvLine(const std::vector<std::string>& fields);  // RFC 4180, with its end

// Inside a table cell or a line of Markdown nothing may act as markup.
std::string MarkdownText(const std::string& text);
std::string MarkdownTable(const std::vector<std::vector<std::string>>& rows);  // the first: heads

std::string RangeText(const std::vector<int64_t>& counts);  // "8", or "4 to 16"

// Tables as rows of text; the first row has the heads, and every table a caption.
using TextRows = std::vector<std::vector<std::string>>;
// A row for each method with `text` of each of its cells.
TextRows GridRows(const std::vector<Cell>& cells,
                  const std::function<std::string(const Cell&)>& text);
// The perplexity of one of the cells, with * where it left a race, + where a budget left it with more
// windows than another of its length; and what these say, where there are any.
std::string MarkedPerplexity(const Cell& cell, const std::vector<Cell>& cells);
std::string MarksCaption(const std::vector<Cell>& cells);
std::vector<std::string> TaskNames(const std::vector<Cell>& cells);  // in their order
enum class TableForm { kText, kMarkdown };
inline const char* Separator(TableForm form) { return form == TableForm::kText ? "  " : ", "; }
// Scores and losses of a task; of key tokens LongPPL, in Markdown with their loss beside that of all
// tokens.
TextRows TaskRows(const std::vector<Cell>& cells, const std::string& name, TableForm form);
std::string TaskCaption(const std::vector<Cell>& cells, const std::string& name, TableForm form);
TextRows EffectiveRows(const SweepReport& sweep);
std::string EffectiveCaption(const SweepReport& sweep);

// Of other types of KV cache: first loss, then each task, with a row for each method at each length.
std::vector<TextRows> KvTables(const SweepReport& sweep);
std::string KvCaption(const SweepReport& sweep);

// Two sweeps or more with a column each.
std::string SideBySideCsv(const std::vector<SweepReport>& sweeps);
std::string SideBySideMarkdown(const std::vector<SweepReport>& sweeps);
// What their numbers compare across, and what the sweeps differ in.
std::string ComparedText(const std::vector<SweepReport>& sweeps);

}  // namespace ropewalk::cli
