// The report as text, CSV, Markdown, JSON and HTML; what a browser shows is checked by
// scripts/check_report.sh.
#include "cli/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "cli/report_html.h"
#include "ropewalk/base/error.h"
#include "src/eval/cell_json.h"
#include "tests/report/synthetic.h"

namespace ropewalk::cli {
namespace {

namespace fs = std::filesystem;
using ropewalk::testing::CellSpec;
using ropewalk::testing::MakeCell;
using ropewalk::testing::MakeSweep;
using ropewalk::testing::WithTask;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Json = nlohmann::ordered_json;

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("ropewalk-report-" + std::to_string(getpid()))) {
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  std::string Write(const std::string& name, const SweepResults& results) const {
    fs::create_directories(path_ / name);
    std::ofstream out(path_ / name / "results.jsonl");
    out << internal::Line(internal::ToJson(results.header)) << "\n";
    for (const Cell& c : results.cells) out << internal::Line(internal::ToJson(c)) << "\n";
    return (path_ / name).string();
  }
  fs::path path() const { return path_; }

 private:
  fs::path path_;
};

std::string ReadFile(const fs::path& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

size_t Count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

std::vector<std::string> Lines(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(Grid, MatchesFactorsToLengths) {
  const std::vector<Cell> cells = {
      MakeCell({"none", 1, 256, 20}),   MakeCell({"none", 1, 512, 30}),
      MakeCell({"yarn", 2, 256, 20.1}), MakeCell({"yarn", 4, 256, 20.2}),
      MakeCell({"yarn", 2, 512, 21}),   MakeCell({"yarn", 4, 512, 22}),
      MakeCell({"yarn", 2, 768, 40}),   MakeCell({"yarn", 4, 768, 23}),
      MakeCell({"yarn", 2, 2048, 90}),  MakeCell({"yarn", 4, 2048, 60})};
  const Grid grid = MakeGrid(cells);
  ASSERT_EQ(grid.methods, (std::vector<std::string>{"none", "yarn"}));
  ASSERT_EQ(grid.columns.size(), 4u);
  // 256: what the largest factor costs; 512: factor 2; 768: 4 reaches it; 2048: the largest there
  // is.
  EXPECT_EQ(grid.cells[1], (std::vector<int64_t>{3, 4, 7, 9}));
  EXPECT_EQ(grid.cells[0], (std::vector<int64_t>{0, 1, -1, -1}));
  EXPECT_EQ(grid.columns[1].factor, 2);
}

TEST(Summary, IsAlignedAndComplete) {
  const std::string text = SummaryText(MakeSweepReport("s", MakeSweep("m")));
  const std::vector<std::string> lines = Lines(text);
  EXPECT_THAT(lines[0], StartsWith("method"));
  EXPECT_THAT(lines[0], HasSubstr("2048 (x8)"));
  for (size_t i = 1; i <= 8; ++i) EXPECT_EQ(lines[i].size(), lines[0].size()) << lines[i];
  for (const std::string& line : lines) EXPECT_LE(line.size(), 110u) << line;
  EXPECT_THAT(text, HasSubstr("use llama3 with factor 8"));
  EXPECT_THAT(text, HasSubstr("Usable means"));
}

TEST(Summary, SaysThatThereIsNothingToSay) {
  SweepResults results;
  EXPECT_THAT(SummaryText(MakeSweepReport("s", results)), HasSubstr("No cell is finished"));
  results.cells = {MakeCell({"none", 1, 256, 20, 20})};
  EXPECT_THAT(SummaryText(MakeSweepReport("s", results)), HasSubstr("nothing to recommend"));
}

// A model whose trained length is unknown, and a task that it cannot do.
TEST(Summary, NothingIsTrainedAtZero) {
  SweepResults results;
  results.cells = {MakeCell({"none", 1, 128, 20, 2}), MakeCell({"none", 1, 256, 30, 0})};
  for (Cell& c : results.cells) c.trained_length = 0;
  results.header.common = results.cells[0];
  const SweepReport report = MakeSweepReport("s", results);
  const std::string html = Html({report});
  const std::string plain =
      html.substr(html.find("<pre>"), html.find("</pre>") - html.find("<pre>"));
  for (std::string text : {SummaryText(report), Markdown({report}), plain}) {
    std::replace(text.begin(), text.end(), '\n', ' ');
    EXPECT_THAT(text, HasSubstr("Trained at an unknown length."));
    EXPECT_THAT(text, HasSubstr("Nothing is recommended"));
    EXPECT_THAT(
        text,
        HasSubstr("already at 128 tokens the model without scaling scores only 0.10 (20 answers)"));
    for (const char* wrong : {"inf", "nan", "at 0", "trained 0"}) {
      EXPECT_THAT(text, Not(HasSubstr(wrong)));
    }
  }
  const Json json = ReportJson({report}).at("sweeps").at(0);
  EXPECT_EQ(json.at("tasks").at(0).at("counts"), false);
  EXPECT_THAT(json.at("tasks").at(0).at("reason").get<std::string>(), HasSubstr("only 0.10"));
  EXPECT_TRUE(json.at("recommendations").empty());
}

TEST(Csv, OneLineACellAndQuoting) {
  SweepResults results;
  results.cells = {MakeCell({"none", 1, 256, 20, 20, 0, 1}), MakeCell({"yarn", 4, 1024, 21})};
  results.cells[1].scaling = "a \"b\", c\nd";
  const std::string csv = Csv({MakeSweepReport("x,y", results)});
  EXPECT_THAT(csv, StartsWith("sweep,method,factor,length,perplexity,"));
  EXPECT_THAT(csv, HasSubstr("\n\"x,y\",none,1,256,20,"));
  EXPECT_THAT(csv, HasSubstr(",\"a \"\"b\"\", c\nd\",,,,,,,\n"));  // no entropy
  EXPECT_THAT(csv, Not(HasSubstr("nan")));  // no standard error from one window: empty
  const std::vector<std::string> lines = Lines(csv);
  EXPECT_EQ(std::count(lines[0].begin(), lines[0].end(), ','),
            std::count(lines[1].begin(), lines[1].end(), ',') - 1);  // one inside the label
}

TEST(Markdown, TableAndNothingThatActsAsMarkup) {
  SweepResults results = MakeSweep("a|b *c* <script>");
  results.cells[5].method = "evil | [x](y)";
  const std::string text = Markdown({MakeSweepReport("s_1", results)});
  EXPECT_THAT(text, HasSubstr("## s\\_1"));
  EXPECT_THAT(text, HasSubstr("a\\|b \\*c\\* \\<script\\>"));
  EXPECT_THAT(text, HasSubstr("| evil \\| \\[x\\](y) |"));
  EXPECT_THAT(text, HasSubstr("|---|---:|---:|---:|---:|---:|\n"));
  EXPECT_THAT(text, HasSubstr("| none | 27.4, 1.00 | 25.9, 1.00 |"));
}

// Two sweeps have a column each, and no method, factor or length of either is left out.
TEST(SideBySide, OneRowAMethodFactorAndLength) {
  SweepResults a, b;
  a.cells = {MakeCell({"none", 1, 256, 20}), MakeCell({"none", 1, 1024, 40}),
             MakeCell({"yarn", 4, 1024, 21})};
  b.cells = {MakeCell({"none", 1, 256, 30}), MakeCell({"yarn", 4, 1024, 31}),
             MakeCell({"yarn", 8, 1024, 35})};
  for (SweepResults* results : {&a, &b}) {
    for (Cell& c : results->cells) c.scaling = "s";
  }
  const std::vector<SweepReport> both = {MakeSweepReport("a,1", a), MakeSweepReport("b|2", b)};
  const std::vector<std::string> lines = Lines(Csv(both));
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_THAT(lines[0], StartsWith("method,factor,length,\"a,1.perplexity\",\"a,1.mean_nll\","));
  EXPECT_THAT(lines[0], HasSubstr(",b|2.perplexity,"));
  EXPECT_THAT(lines[1], StartsWith("none,1,256,20,"));
  EXPECT_THAT(lines[1], HasSubstr(",30,"));
  EXPECT_THAT(lines[4], StartsWith("yarn,8,1024,,,"));  // of the second alone
  for (const std::string& line : lines) {
    EXPECT_EQ(std::count(line.begin(), line.end(), ','),
              2 + 2 * 27 + (&line == &lines[0] ? 27 : 0));
  }
  for (SweepResults* results : {&a, &b}) {
    for (Cell& c : results->cells) c.bits_per_byte = std::nan("");
  }
  const std::string text = Markdown({MakeSweepReport("a", a), MakeSweepReport("b|2", b)});
  EXPECT_THAT(text, StartsWith("## Side by side\n"));
  EXPECT_THAT(text, HasSubstr("\n| length | a | b\\|2 |\n|---|---:|---:|\n"
                              "| 256 | no scaling: 20.0 | no scaling: 30.0 |\n"
                              "| 1024 | yarn with factor 4: 21.0 | yarn with factor 4: 31.0 |\n"));
  EXPECT_THAT(text, HasSubstr("\n| method | length | a | b\\|2 |\n|---|---:|---:|---:|\n"
                              "| none | 256 | 20.0 | 30.0 |\n| none | 1024 | 40.0 | - |\n"
                              "| yarn | 1024 | 21.0 (x4) | 31.0 (x4) |\n"));
  EXPECT_THAT(text, HasSubstr("only where text and tokenizer are the same.\n"));
  for (Cell& c : b.cells) c.protocol = "aligned:64", c.text_hash = "1", c.tokenizer_hash = "2";
  b.cells[0].windows += 1;
  const std::vector<SweepReport> others = {MakeSweepReport("a", a), MakeSweepReport("b", b)};
  const std::string differ = "These sweeps differ in: text, tokenizer, protocol (" +
                             a.cells[0].protocol + ", aligned:64), windows per cell.";
  EXPECT_THAT(Markdown(others), HasSubstr(differ));
  EXPECT_THAT(ReportJson(others).at("compared").get<std::string>(), HasSubstr(differ));
  EXPECT_FALSE(ReportJson({others[0]}).contains("compared"));
}

// Cells of one sweep may differ in their windows, answers and prompts.
TEST(Markdown, CountsAreThoseOfEveryCell) {
  SweepResults sweep;
  sweep.cells = {
      WithTask(MakeCell({"none", 1, 256, 20}), 40), MakeCell({"none", 1, 1024, 90}),
      WithTask(
          MakeCell({.method = "yarn", .factor = 4, .length = 1024, .perplexity = 21, .windows = 4}),
          12, "kv", 12)};
  const std::string text = Markdown({MakeSweepReport("a", sweep)});
  EXPECT_THAT(text, HasSubstr("; 12 to 40 answers behind 1 prompts in a cell"));
  EXPECT_THAT(text, HasSubstr("(12 of each task at the longest length)"));
  EXPECT_THAT(text,
              HasSubstr("aligned:128, 4 to 8 windows and 512 to 1024 scored tokens per cell"));
  sweep.cells.resize(1);
  const std::string one = Markdown({MakeSweepReport("a", sweep)});
  EXPECT_THAT(one, HasSubstr("; 40 answers behind 1 prompts"));
}

TEST(SideBySide, WhatCannotBeJudgedIsNotUnusable) {
  SweepResults a;
  a.cells = {MakeCell({"yarn", 4, 1024, 21}), MakeCell({"linear", 4, 1024, 25})};
  const std::string text = Markdown({MakeSweepReport("a", a), MakeSweepReport("b", a)});
  EXPECT_THAT(text, HasSubstr("| 1024 | not judged | not judged |"));
}

TEST(Markdown, WhatHasNoErrorHasNone) {
  SweepResults sweep;
  for (const CellSpec& spec : {CellSpec{"none", 1, 256, 20},
                               {"none", 1, 512, 40},
                               {"none", 1, 1024, 90},
                               {"yarn", 4, 256, 22},
                               {"yarn", 2, 512, 21},
                               {"yarn", 4, 1024, 21}}) {
    CellSpec one = spec;
    one.windows = 1;
    sweep.cells.push_back(MakeCell(one));
  }
  const std::string text = Markdown({MakeSweepReport("a", sweep)});
  EXPECT_THAT(text, HasSubstr("| 0.095 nats per token |"));
  EXPECT_THAT(text, Not(HasSubstr("nan")));
}

TEST(Json, HoldsAnswerAndCells) {
  const Json json = ReportJson({MakeSweepReport("s", MakeSweep("m"))});
  EXPECT_EQ(json.at("format"), "ropewalk-report");
  const Json& sweep = json.at("sweeps").at(0);
  EXPECT_EQ(sweep.at("cells").size(), 68u);
  EXPECT_EQ(sweep.at("recommendations").size(), 3u);
  std::set<std::string> engines;  // one of them may have several ranges of versions
  for (const Json& s : sweep.at("recommendations").at(2).at("settings")) {
    engines.insert(s.at("engine").get<std::string>());
  }
  EXPECT_EQ(engines.size(), 5u);
  EXPECT_EQ(sweep.at("usable").size(), 8u);
  EXPECT_EQ(sweep.at("tasks").dump(),
            R"([{"task":"passkey","counts":true,"reason":"","own_score":1.0}])");
  EXPECT_TRUE(sweep.at("usable").at(0).at("cost_at_trained_length").is_null());  // none
  EXPECT_TRUE(sweep.at("recommendations").at(2).at("trained_length_cost").is_number());
  // Without no scaling at the trained length a cost would be one against something else.
  SweepResults alone;
  alone.cells = {MakeCell({"linear", 4, 256, 332}), MakeCell({"linear", 4, 1024, 345})};
  const Json text = Json::parse(ReportJson({MakeSweepReport("s", alone)}).dump());
  const Json& r = text.at("sweeps").at(0).at("recommendations").at(0);
  EXPECT_EQ(r.at("judged"), false);
  EXPECT_TRUE(r.at("method").is_null());
  EXPECT_TRUE(r.at("trained_length_cost").is_null());
  EXPECT_TRUE(text.at("sweeps").at(0).at("tasks").empty());
}

TEST(Escape, Html) {
  EXPECT_EQ(EscapeHtml("<a href=\"x\" id='y'>&amp;"),
            "&lt;a href=&quot;x&quot; id=&#39;y&#39;&gt;&amp;amp;");
  EXPECT_EQ(EscapeHtml(std::string("a\0b", 3)),
            "a\xEF\xBF\xBD"
            "b");
}

TEST(Escape, ScriptJsonStaysTheSameValue) {
  const Json json = {{"</script>", "<!-- <script> & ]]>"}};
  const std::string escaped = EscapeScriptJson(json.dump());
  EXPECT_EQ(escaped.find_first_of("<>&"), std::string::npos);
  EXPECT_EQ(Json::parse(escaped), json);
}

TEST(Json, NamesCombinationsAndTheirEntropy) {
  SweepResults results;
  results.cells = {MakeCell({"none", 1, 256, 20}), MakeCell({"ntk+log-n", 4, 1024, 22}),
                   MakeCell({"rerope", 4, 1024, 21}), MakeCell({"custom", 4, 1024, 24})};
  results.cells[1].entropy = 3.5;
  results.cells[1].entropy_share = 0.5;
  const SweepReport report = MakeSweepReport("s", results);
  const Json json = ReportJson({report});
  std::map<std::string, Json> methods;
  for (const Json& m : json.at("methods")) methods[m.at("name")] = m;
  EXPECT_EQ(methods.at("ntk+log-n").at("title"), "NTK-aware + log-n attention");
  EXPECT_EQ(methods.at("ntk+log-n").at("uses_factor"), true);
  EXPECT_EQ(methods.at("rerope").at("uses_factor"), false);
  EXPECT_FALSE(methods.contains("custom"));
  const Json& cells = json.at("sweeps").at(0).at("cells");
  EXPECT_EQ(cells.at(1).at("entropy"), 3.5);
  EXPECT_TRUE(std::isnan(results.cells[0].entropy));
  EXPECT_THAT(internal::Line(cells.at(0)), HasSubstr("\"entropy\":null"));
  EXPECT_THAT(Csv({report}), HasSubstr(",3.5,0.5,,,,,\n"));
  // A map has no factor to be told; the recommendation says so by saying none.
  EXPECT_THAT(SummaryText(report), HasSubstr("use rerope. Perplexity"));
  EXPECT_THAT(report.recommendations.at(0).text, HasSubstr("few engines support"));
  EXPECT_EQ(MethodLabel("ntk+log-n", 4), "ntk+log-n with factor 4");
}

// Rows of an older version have no entropy; they are read, and say so.
TEST(Json, RowsWithoutEntropyAreRead) {
  Json row = internal::ToJson(MakeCell({"yarn", 4, 1024, 21}));
  row.erase("entropy");
  row.erase("entropy_share");
  const Cell cell = internal::CellFromJson(row);
  EXPECT_TRUE(std::isnan(cell.entropy) && std::isnan(cell.entropy_share));
  EXPECT_EQ(cell.Identity(), row.at("identity"));
}

std::string DataOf(const std::string& html) {
  const std::string open = "id=\"data\">";
  const size_t begin = html.find(open) + open.size();
  return html.substr(begin, html.find("</script>", begin) - begin);
}

TEST(Html, HostileNamesStayText) {
  const std::string evil = "</script><script>alert(1)</script><img src=x onerror='a'>\"{{js}}\xff";
  SweepResults results = MakeSweep(evil);
  results.header.command = results.header.text_path = evil;
  results.header.notes = {evil};
  for (Cell& c : results.cells) c.scaling = evil;
  results.cells[3].method = evil;
  const std::string good = Html({MakeSweepReport("s", MakeSweep("m"))});
  const std::string bad = Html({MakeSweepReport(evil, results)});
  for (const char* tag : {"<script", "</script", "<img", "<!--", "<body", "<style"}) {
    EXPECT_EQ(Count(bad, tag), Count(good, tag)) << tag;
  }
  const Json data = Json::parse(DataOf(bad));
  EXPECT_EQ(data.at("sweeps").at(0).at("header").at("model_name"),
            evil.substr(0, evil.size() - 1) + "\xEF\xBF\xBD");
}

TEST(Html, LoadsNothing) {
  const std::string html = Html({MakeSweepReport("s", MakeSweep("m"))});
  EXPECT_THAT(html, StartsWith("<!DOCTYPE html>"));
  EXPECT_THAT(html, HasSubstr("default-src 'none'"));
  for (const char* load : {"src=", "href=", "@import", "url(", "<link", "<iframe"}) {
    EXPECT_EQ(Count(html, load), 0u) << load;
  }
  EXPECT_EQ(html.find("{{"), std::string::npos);
  EXPECT_THAT(html, HasSubstr("THE SOFTWARE IS PROVIDED \"AS IS\""));  // Chart.js' licence
}

TEST(WriteReport, OneAndSeveralFolders) {
  const Folder folder;
  const std::string a = folder.Write("a", MakeSweep("first"));
  const std::string b = folder.Write("b", MakeSweep("second"));
  EXPECT_EQ(WriteReport({a}, ""), a + "/report.html");
  EXPECT_THAT(ReadFile(a + "/report.html"), HasSubstr("<title>first - Ropewalk</title>"));
  const std::string out = (folder.path() / "both.html").string();
  EXPECT_EQ(WriteReport({a, b + "/"}, out), out);
  const Json data = Json::parse(DataOf(ReadFile(out)));
  EXPECT_EQ(data.at("sweeps").at(0).at("label"), "a");
  EXPECT_EQ(data.at("sweeps").at(1).at("label"), "b");
  EXPECT_FALSE(fs::exists(out + ".part"));
  // A folder compared with itself, or two of one name, are told apart by their paths.
  EXPECT_EQ(LoadSweeps({a, a})[1].label, a);
}

TEST(WriteReport, ReplacesNothingButReports) {
  const Folder folder;
  const std::string dir = folder.Write("a", MakeSweep("m"));
  const std::string page = dir + "/report.html", rows = dir + "/results.jsonl";
  const std::string before = ReadFile(rows);
  for (const char* theirs : {"x", "<!DOCTYPE html><title>mine</title>", "## Notes\n", "\n"}) {
    std::ofstream(page) << theirs;
    try {
      WriteReport({dir}, "");
      ADD_FAILURE() << theirs;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr(page + ": exists and is no report of ropewalk"));
    }
    EXPECT_EQ(ReadFile(page), theirs);
  }
  EXPECT_THROW(WriteReport({dir}, rows), Error);
  EXPECT_EQ(ReadFile(rows), before);
  // Every form of a report is known again, of one sweep and of several.
  const std::vector<SweepReport> one = LoadSweeps({dir}), two = LoadSweeps({dir, dir});
  for (const auto& sweeps : {one, two}) {
    for (const std::string& text : {Html(sweeps), Csv(sweeps), Markdown(sweeps),
                                    ReportJson(sweeps).dump(1) + "\n", std::string()}) {
      std::ofstream(page, std::ios::trunc) << text;
      EXPECT_NO_THROW(WriteReport({dir}, "")) << text.substr(0, 50);
    }
  }
}

TEST(WriteReport, Errors) {
  const Folder folder;
  EXPECT_THROW((void)WriteReport({(folder.path() / "nowhere").string()}, ""), Error);
  SweepResults empty = MakeSweep("m");
  empty.cells.clear();
  const std::string dir = folder.Write("empty", empty);
  EXPECT_THROW((void)WriteReport({dir}, ""), Error);
  const std::string good = folder.Write("good", MakeSweep("m"));
  EXPECT_THROW((void)WriteReport({good}, (folder.path() / "no" / "such.html").string()), Error);
  EXPECT_THROW((void)WriteReport({good}, folder.path().string()), Error);
}

}  // namespace
}  // namespace ropewalk::cli
