// The page of `ropewalk inspect --html`: the JSON and a script that draws it, in the report's
// frame.
#include "cli/inspect_page.h"
#include "cli/json_text.h"
#include "cli/report_html.h"

namespace ropewalk::cli {

// Made by cmake/EmbedText.cmake from cli/report_template/.
extern const char kInspectJs[], kExplorerJs[], kAttentionJs[];

std::string PageHtml(const InspectPage& page, const nlohmann::ordered_json& model) {
  return HtmlPage(page.name + " - Ropewalk", model["plan"].get<std::string>() + PageText(page),
                  JsonLine(model), std::string(kExplorerJs) + kAttentionJs + kInspectJs);
}

}  // namespace ropewalk::cli
