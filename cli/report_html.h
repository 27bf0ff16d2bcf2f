// Putting untrusted text into the report's page.
#pragma once

#include <string>

namespace ropewalk::cli {

// For text between tags and in quoted attributes.
std::string EscapeHtml(const std::string& text);
// For JSON inside <script>: no '<', '>' or '&' is left, so nothing in it can end the element or
// open a comment. The JSON stays the same value.
std::string EscapeScriptJson(const std::string& json);
// One self-contained page of the template: `plain` for readers without JavaScript, `json` as the
// page's data, `script` as its own script after the shared page.js.
std::string HtmlPage(const std::string& title, const std::string& plain, const std::string& json,
                     const std::string& script);

}  // namespace ropewalk::cli
