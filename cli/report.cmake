# The report: text, CSV, Markdown, JSON, and one HTML file with Chart.js inlined. Its own library, so
# that tests link it without the program.
find_file(ROPEWALK_CHART_JS chart.min.js PATHS /usr/share/javascript/chart.js
          DOC "chart.min.js of Chart.js 3 (Debian: libjs-chart.js)" NO_DEFAULT_PATH)
if(NOT ROPEWALK_CHART_JS)
  message(FATAL_ERROR "chart.min.js was not found: install libjs-chart.js, or give its place with "
                      "-DROPEWALK_CHART_JS=/path/to/chart.min.js (Chart.js 3)")
endif()
set(template ${CMAKE_CURRENT_LIST_DIR}/report_template)
set(report_assets
    kReportHtml=${template}/report.html kReportCss=${template}/report.css
    kPageJs=${template}/page.js kReportJs=${template}/report.js
    kInspectJs=${template}/inspect.js kCurvesJs=${template}/curves.js kExplorerJs=${template}/explorer.js
    kAttentionJs=${template}/attention.js
    kTasksJs=${template}/tasks.js kKvJs=${template}/kv.js kAnswerJs=${template}/answer.js
    kChartLicence=${template}/chart.js.LICENSE
    kChartJs=${ROPEWALK_CHART_JS})
set(report_files ${report_assets})
list(TRANSFORM report_files REPLACE "^[^=]*=" "")
add_custom_command(
  OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/report_assets.cc
  COMMAND ${CMAKE_COMMAND} -DOUT=${CMAKE_CURRENT_BINARY_DIR}/report_assets.cc
          "-DFILES=${report_assets}" -P ${PROJECT_SOURCE_DIR}/cmake/EmbedText.cmake
  DEPENDS ${report_files} ${PROJECT_SOURCE_DIR}/cmake/EmbedText.cmake
  COMMENT "Embedding the report's template" VERBATIM)

# The linter reads groups without building: what a group includes has to be there.
set_source_files_properties(${CMAKE_CURRENT_BINARY_DIR}/report_assets.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)

set(report_sources engines.cc output.cc report.cc report_compare.cc report_html.cc report_json.cc report_kv.cc
                   report_tables.cc report_text.cc)
list(TRANSFORM report_sources PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
add_library(ropewalk_report STATIC ${report_sources} ${CMAKE_CURRENT_BINARY_DIR}/report_assets.cc)
ropewalk_program_flags(ropewalk_report)
ropewalk_group(ropewalk_report)
target_include_directories(ropewalk_report PUBLIC ${PROJECT_SOURCE_DIR})
target_link_libraries(ropewalk_report PUBLIC ropewalk::eval nlohmann_json::nlohmann_json fmt::fmt)
