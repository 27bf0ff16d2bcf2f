#include "cli/report_html.h"

#include <string_view>
#include <utility>
#include <vector>

#include "cli/json_text.h"
#include "cli/report.h"

namespace ropewalk::cli {

// Made by cmake/EmbedText.cmake from cli/report_template/ and Debian's chart.min.js.
extern const char kReportHtml[], kReportCss[], kPageJs[], kReportJs[], kAnswerJs[], kTasksJs[],
    kKvJs[], kChartLicence[], kChartJs[];

namespace {

std::string Replaced(const std::string& text,
                     const std::vector<std::pair<char, const char*>>& replacements) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const char* with = nullptr;
    for (const auto& [from, to] : replacements) {
      if (c == from) with = to;
    }
    with == nullptr ? out.push_back(c) : void(out += with);
  }
  return out;
}

}  // namespace

std::string EscapeHtml(const std::string& text) {
  return Replaced(text, {{'&', "&amp;"},
                         {'<', "&lt;"},
                         {'>', "&gt;"},
                         {'"', "&quot;"},
                         {'\'', "&#39;"},
                         {'\0', "\xEF\xBF\xBD"}});
}

std::string EscapeScriptJson(const std::string& json) {
  // Outside strings JSON has none of these characters, so the escapes only ever fall into strings.
  return Replaced(json, {{'<', "\\u003c"}, {'>', "\\u003e"}, {'&', "\\u0026"}});
}

std::string HtmlPage(const std::string& title, const std::string& plain, const std::string& json,
                     const std::string& script) {
  const std::vector<std::pair<std::string_view, std::string>> parts = {
      {"{{title}}", EscapeHtml(title)}, {"{{css}}", kReportCss},
      {"{{plain}}", EscapeHtml(plain)}, {"{{data}}", EscapeScriptJson(json)},
      {"{{licence}}", kChartLicence},   {"{{chartjs}}", kChartJs},
      {"{{js}}", kPageJs + script}};
  // One pass in the template's order, so that nothing inside a part is taken for a placeholder.
  std::string out;
  std::string_view rest = kReportHtml;
  for (const auto& [mark, text] : parts) {
    const size_t at = rest.find(mark);
    out.append(rest.substr(0, at));
    out += text;
    rest.remove_prefix(at + mark.size());
  }
  return out.append(rest);
}

std::string Html(const std::vector<SweepReport>& sweeps) {
  std::string plain;
  for (const SweepReport& sweep : sweeps) {
    if (sweeps.size() > 1) plain += sweep.label + "\n\n";
    plain += SummaryText(sweep) + "\n";
  }
  const std::string title = sweeps.size() > 1 ? std::to_string(sweeps.size()) + " sweeps - Ropewalk"
                                              : sweeps[0].results.header.model_name + " - Ropewalk";
  return HtmlPage(title, plain, JsonLine(ReportJson(sweeps)),
                  std::string(kTasksJs) + kKvJs + kAnswerJs + kReportJs);
}

}  // namespace ropewalk::cli
