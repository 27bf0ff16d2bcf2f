// What the forms of the report that are text share.
#pragma once

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

// Two sweeps or more with a column each.
std::string SideBySideCsv(const std::vector<SweepReport>& sweeps);
std::string SideBySideMarkdown(const std::vector<SweepReport>& sweeps);

}  // namespace ropewalk::cli
