// The sweep on disk: rows, resume, refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "ropewalk/base/error.h"
#include "ropewalk/eval/tasks.h"
#include "src/eval/cell_json.h"
#include "src/eval/results_file.h"
#include "src/eval/results_text.h"
#include "tests/eval/tiny_model.h"

namespace ropewalk {
namespace {

using test::RandomText;
using test::TempFolder;
using test::Tiny;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Slurp(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}
void Write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}
std::string WithoutSeconds(std::string text) {
  for (size_t at = text.find("\"seconds\":"); at != std::string::npos;
       at = text.find("\"seconds\":", at + 1)) {
    text.replace(at + 10, text.find(',', at) - at - 10, "0");
  }
  return text;
}

// A sweep of six cells, two of which share a plan with another.
struct SmallSweep {
  test::ByteTokenizer tokenizer;
  TokenText text = RandomText(700, 3);
  SweepSpec spec;
  std::vector<SweepTask> tasks;
  SweepInputs inputs;
  SweepHeader header;
  int computed = 0, resumed = 0;
  std::vector<std::string> messages;

  SmallSweep() {
    for (const char* name : {"none", "dynamic"}) {
      spec.methods.emplace_back(PositionMethod::Parse(name));
    }
    spec.lengths = {32, 64, 256};
    spec.trained_length = test::kTinyTrained;
    spec.protocol = Protocol::Parse("aligned:8");
    spec.protocol.anchors = 3;
    spec.tasks = {std::make_shared<SampledTask>(MakePasskeyTask({}, tokenizer), 2, false)};
    inputs.engine = Tiny().engine.get();
    inputs.tokenizer = &tokenizer;
    inputs.text = &text;
    inputs.model_hash = "m";
    Settle();
  }
  void Settle() {
    tasks = PlanSweep(spec, Tiny().files.config.plan);
    header.common = CommonFields(spec, inputs, tasks.back().length);
    header.model_path = "here/m\xff";  // no UTF-8
    header.family = "ropewalk";
    header.command = "ropewalk sweep";
  }
  std::vector<Cell> Run(const std::string& folder) {
    computed = resumed = 0;
    messages.clear();
    SweepEvents events;
    events.message = [&](const std::string& line) { messages.push_back(line); };
    events.finished = [&](size_t, const Cell&, bool again) { ++(again ? resumed : computed); };
    return RunSweep(tasks, spec, inputs, header, folder, events);
  }
  std::string MessageOf(const std::string& folder) {
    try {
      Run(folder);
    } catch (const Error& e) {
      EXPECT_TRUE(e.code() == ErrorCode::kMismatch || e.code() == ErrorCode::kIo ||
                  e.code() == ErrorCode::kInvalidFile);
      return e.what();
    }
    return "no error";
  }
};

TEST(Cell, JsonKeepsEveryField) {
  Cell cell;
  // Every field another value, through JSON itself, so that a forgotten one shows.
  nlohmann::ordered_json json = internal::ToJson(cell);
  int n = 1;
  for (auto& [key, value] : json.items()) {
    if (value.is_string()) {
      value = "s" + std::to_string(n++);
    } else if (value.is_boolean()) {
      value = true;
    } else if (key == "tasks") {
      value = {{{"task", "kv"},
                {"protocol", "p"},
                {"data_hash", "d"},
                {"prompts", n},
                {"exact", n + 1},
                {"recall", n + 2},
                {"mean_nll", n + 3},
                {"standard_error", n + 4},
                {"fed_tokens", n + 5},
                {"answers",
                 {{{"prompt", 1},
                   {"question", 2},
                   {"depth", 0.25},
                   {"nll", n + 6},
                   {"tokens", n + 7},
                   {"exact", true},
                   {"recall", 0.5},
                   {"output", "said"}}}}}};
      n += 8;
    } else if (key == "race_exit") {
      value = {{"round", n},          {"against", "yarn"},       {"against_factor", n + 1},
               {"difference", n + 2}, {"standard_error", n + 3}, {"at_least", n + 4}};
      n += 5;
    } else if (value.is_array()) {
      value = {n, n + 1};
      n += 2;
    } else {
      value = n++;
    }
  }
  const nlohmann::ordered_json again = internal::ToJson(internal::CellFromJson(json));
  for (const auto& [key, value] : json.items()) {
    if (key == "identity") continue;
    EXPECT_EQ(again.at(key), value) << key;
    nlohmann::ordered_json without = json;
    without.erase(key);
    if (key.starts_with("entropy") || key == "local_base") {  // older rows have none
      const auto missing = internal::ToJson(internal::CellFromJson(without));
      EXPECT_TRUE(std::isnan(missing.at(key).get<double>()));
      continue;
    }
    if (key == "tasks" || key == "tasks_protocol" || key == "race_exit" || key == "unfinished") {
      const Cell missing = internal::CellFromJson(without);
      EXPECT_TRUE(key != "tasks" || missing.tasks.empty());
      EXPECT_TRUE(key != "tasks_protocol" || missing.tasks_protocol.empty());
      EXPECT_TRUE(key != "race_exit" || !missing.race_exit);
      EXPECT_TRUE(key != "unfinished" || !missing.unfinished);
      continue;
    }
    EXPECT_THROW(internal::CellFromJson(without), nlohmann::json::exception) << key;
  }
}

TEST(Cell, IdentityIsEverythingThatDecidesTheNumbers) {
  const nlohmann::ordered_json base = internal::ToJson(Cell());
  const std::string identity = Cell().Identity();
  const std::set<std::string> results = {
      "shared_with", "perplexity",    "mean_nll",      "standard_error", "bits_per_byte",
      "windows",     "scored_tokens", "window_nll",    "bucket_edges",   "bucket_nll",
      "seconds",     "rope_base",     "rotary_dim",    "amplitude",      "inv_freq",
      "identity",    "entropy",       "entropy_share", "local_base",     "tasks",
      "race_exit",   "unfinished"};
  for (const auto& [key, value] : base.items()) {
    nlohmann::ordered_json changed = base;
    if (value.is_string()) {
      changed[key] = "other";
    } else if (value.is_boolean()) {
      changed[key] = true;
    } else if (key == "tasks" || key == "race_exit") {
      continue;  // results, not of this form
    } else if (value.is_array()) {
      changed[key] = {5};
    } else {
      changed[key] = 12345;
    }
    EXPECT_EQ(internal::CellFromJson(changed).Identity() == identity, results.contains(key)) << key;
  }
}

// The committed tables are of schema 1. What they say of the passkey is read as a task.
TEST(Cell, RowsOfSchemaOneAreRead) {
  const std::string folder = ROPEWALK_SOURCE_DIR "/tests/eval/schema1";
  const SweepResults read = ReadResults(folder);
  std::istringstream lines(Slurp(folder + "/results.jsonl"));
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(nlohmann::json::parse(line).at("schema"), 1);
  EXPECT_EQ(read.header.family, "");  // which later versions say
  EXPECT_THAT(read.header.common.tasks_protocol, HasSubstr("passkey = ropewalk-passkey-1: "));
  ASSERT_EQ(read.cells.size(), 3u);
  for (const Cell& cell : read.cells) {
    ASSERT_TRUE(std::getline(lines, line));
    const nlohmann::json row = nlohmann::json::parse(line);
    EXPECT_EQ(row.at("perplexity"), cell.perplexity);
    EXPECT_EQ(cell.tasks_protocol, read.header.common.tasks_protocol);
    ASSERT_EQ(cell.tasks.size(), row.at("has_passkey") ? 1u : 0u);
    if (cell.tasks.empty()) continue;
    const TaskResult& passkey = cell.tasks[0];
    EXPECT_EQ(passkey.task, "passkey");
    EXPECT_EQ(passkey.protocol, row.at("passkey_protocol"));
    EXPECT_EQ(passkey.prompts, row.at("passkey_trials"));
    EXPECT_DOUBLE_EQ(passkey.exact, row.at("passkey_accuracy"));
    EXPECT_TRUE(std::isnan(passkey.mean_nll));
    std::map<double, std::pair<double, double>> depths;  // exact, all
    for (const TaskAnswer& answer : passkey.answers) {
      EXPECT_TRUE(std::isnan(answer.nll));
      depths[answer.depth].first += answer.exact ? 1 : 0;
      ++depths[answer.depth].second;
    }
    for (size_t d = 0; d < 5; ++d) {
      const auto& [exact, all] = depths.at(row.at("passkey_depths")[d]);
      EXPECT_DOUBLE_EQ(exact / all, row.at("passkey_by_depth")[d]);
    }
  }
  // Written again they are of schema 2, with the same numbers and the same identity.
  for (const Cell& cell : read.cells) {
    const auto json = internal::ToJson(cell);
    EXPECT_FALSE(json.contains("passkey_protocol"));
    const Cell again = internal::CellFromJson(nlohmann::ordered_json::parse(internal::Line(json)));
    EXPECT_EQ(again.Identity(), cell.Identity());
    EXPECT_EQ(internal::Line(internal::ToJson(again)), internal::Line(json));
  }
}

TEST(Cell, MorePasskeysThanAnyFileHasAreRefused) {
  std::istringstream lines(Slurp(ROPEWALK_SOURCE_DIR "/tests/eval/schema1/results.jsonl"));
  std::string line;
  std::getline(lines, line);
  std::getline(lines, line);
  auto row = nlohmann::ordered_json::parse(line);
  ASSERT_TRUE(row.at("has_passkey"));
  row["passkey_trials"] = int64_t{1} << 50;
  EXPECT_THROW(internal::CellFromJson(row), nlohmann::ordered_json::exception);
}

// A folder with passkeys of form 1 is not continued with those of form 2.
TEST(RunSweep, FormsOfThePasskeyDoNotMix) {
  SmallSweep sweep;
  TempFolder folder;
  sweep.Run(folder.path());
  const std::string path = folder / "results.jsonl", whole = Slurp(path);
  auto header = nlohmann::ordered_json::parse(whole.substr(0, whole.find('\n')));
  header["schema"] = 1;
  header["passkey_protocol"] = "ropewalk-passkey-1: 5 digits";
  header.erase("tasks_protocol");
  Write(path, header.dump() + whole.substr(whole.find('\n')));
  EXPECT_THAT(sweep.MessageOf(folder.path()),
              AllOf(HasSubstr("tasks_protocol there passkey = ropewalk-passkey-1: 5 digits, here "),
                    HasSubstr("ropewalk-passkey-2")));
  header["passkey_protocol"] = "none";  // without passkeys there is nothing to mix
  header["protocol"] = "aligned:8";
  Write(path, header.dump() + whole.substr(whole.find('\n')));
  sweep.spec.tasks.clear();
  sweep.Settle();
  EXPECT_EQ(sweep.MessageOf(folder.path()), "no error");
}

TEST(Cell, NotANumberIsNull) {
  Cell cell;
  cell.standard_error = std::nan("");
  cell.bucket_nll = {1.5, std::nan("")};
  const std::string line = internal::Line(internal::ToJson(cell));
  EXPECT_THAT(line, HasSubstr("\"standard_error\":null"));
  const Cell again = internal::CellFromJson(nlohmann::ordered_json::parse(line));
  EXPECT_TRUE(std::isnan(again.standard_error));
  EXPECT_TRUE(std::isnan(again.bucket_nll[1]));
}

TEST(RunSweep, RowsCarryWhatWasMeasured) {
  SmallSweep sweep;
  TempFolder folder;
  const std::vector<Cell> cells = sweep.Run(folder / "a/b");  // made on the way
  ASSERT_EQ(cells.size(), 6u);
  EXPECT_EQ(sweep.computed, 6);
  const SweepResults read = ReadResults(folder / "a/b");
  ASSERT_EQ(read.cells.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(internal::Line(internal::ToJson(read.cells[i])),
              internal::Line(internal::ToJson(cells[i])));
    EXPECT_EQ(cells[i].windows, 3);
    EXPECT_EQ(cells[i].scored_tokens, 24);
    // 32 and 64 bytes hold no passkey prompt.
    EXPECT_EQ(cells[i].tasks.size(), cells[i].length == 256 ? 1u : 0u);
    EXPECT_EQ(cells[i].bucket_nll.empty(), cells[i].length != 256);
    EXPECT_EQ(cells[i].inv_freq.size(), 8u);
    EXPECT_EQ(cells[i].plan_hash, sweep.tasks[i].plan_hash);
  }
  // dynamic at 32 and 64 is none: one computation, a row each.
  EXPECT_EQ(cells[1].shared_with, cells[0].Identity());
  EXPECT_EQ(cells[1].mean_nll, cells[0].mean_nll);
  EXPECT_NE(cells[1].Identity(), cells[0].Identity());
  EXPECT_TRUE(cells[5].shared_with.empty());
  EXPECT_NE(cells[5].mean_nll, cells[4].mean_nll);
  EXPECT_EQ(read.header.command, "ropewalk sweep");
  EXPECT_EQ(read.header.model_path, "here/m\xef\xbf\xbd");
  EXPECT_EQ(read.header.family, "ropewalk");
  EXPECT_EQ(read.dropped_bytes, 0);
}

TEST(WhatIsLeft, IsWhatHasNoRow) {
  SmallSweep sweep;
  TempFolder folder;
  const auto finished = [&] {
    std::vector<bool> out;
    for (const CellLeft& left :
         WhatIsLeft(sweep.tasks, sweep.spec, sweep.inputs, sweep.header, folder.path())) {
      out.push_back(left.finished);
    }
    return out;
  };
  EXPECT_EQ(finished(), std::vector<bool>(6, false));
  EXPECT_FALSE(std::ifstream(folder / "results.jsonl"));
  sweep.Run(folder.path());
  EXPECT_EQ(finished(), std::vector<bool>(6, true));
  const std::string whole = Slurp(folder / "results.jsonl");
  Write(folder / "results.jsonl", whole.substr(0, whole.size() - 5));
  EXPECT_EQ(finished(), std::vector<bool>({true, true, true, true, true, false}));
  sweep.header.common.seed = 2;
  EXPECT_THROW(finished(), Error);
}

TEST(RunSweep, EqualRunsGiveEqualRowsButForSeconds) {
  SmallSweep sweep;
  TempFolder folder;
  sweep.Run(folder / "a");
  sweep.Run(folder / "b");
  EXPECT_EQ(WithoutSeconds(Slurp(folder / "a/results.jsonl")),
            WithoutSeconds(Slurp(folder / "b/results.jsonl")));
}

TEST(RunSweep, ResumesAfterACutAtEveryByteOfALine) {
  SmallSweep sweep;
  TempFolder folder;
  sweep.Run(folder.path());
  const std::string path = folder / "results.jsonl";
  const std::string whole = Slurp(path);
  // Every byte of the last line and of the header is parsed; each 97th is resumed from.
  const size_t last = whole.rfind('\n', whole.size() - 2) + 1;
  const size_t header = whole.find('\n') + 1;
  const size_t ours = std::string("{\"format\":\"ropewalk-sweep\"").size();
  for (size_t cut = 0; cut <= whole.size(); ++cut) {
    if (cut > header && cut < last) continue;
    if (cut > 0 && cut < ours) continue;  // see WhatIsNotOursStays
    const auto parsed = internal::ParseResults(whole.substr(0, cut), "text");
    const size_t rows = cut < last ? 0 : cut < whole.size() ? 5 : 6;
    const size_t bytes = cut < header ? 0 : cut < last ? header : cut < whole.size() ? last : cut;
    ASSERT_EQ(parsed.results.cells.size(), rows) << cut;
    ASSERT_EQ(parsed.has_header, cut >= header) << cut;
    ASSERT_EQ(parsed.whole_bytes, static_cast<int64_t>(bytes)) << cut;
    ASSERT_EQ(parsed.results.dropped_bytes, static_cast<int64_t>(cut - bytes)) << cut;
    if (cut % 97 != 0 && cut != header && cut != last && cut + 1 != whole.size()) continue;
    Write(path, whole.substr(0, cut));
    sweep.Run(folder.path());
    EXPECT_EQ(sweep.resumed, static_cast<int>(rows)) << cut;
    EXPECT_EQ(sweep.computed, 6 - static_cast<int>(rows)) << cut;
    EXPECT_EQ(sweep.messages.size(), cut == bytes ? 0u : 1u) << cut;
    ASSERT_EQ(WithoutSeconds(Slurp(path)), WithoutSeconds(whole)) << cut;
  }
}

TEST(RunSweep, ALastLineWithoutItsBytesIsDropped) {
  SmallSweep sweep;
  TempFolder folder;
  sweep.Run(folder.path());
  const std::string path = folder / "results.jsonl", whole = Slurp(path);
  const size_t last = whole.rfind('\n', whole.size() - 2) + 1;
  Write(path, whole.substr(0, last) + std::string(100, '\0') + "\n");
  sweep.Run(folder.path());
  EXPECT_EQ(sweep.computed, 1);
  EXPECT_EQ(WithoutSeconds(Slurp(path)), WithoutSeconds(whole));
}

// However short: what does not begin as a file of ours is refused and not taken for a torn line.
TEST(RunSweep, WhatIsNotOursStays) {
  SmallSweep sweep;
  TempFolder folder;
  const std::string path = folder / "results.jsonl";
  for (const std::string& theirs :
       {std::string("\n"), std::string(" "), std::string("x"), std::string("{"),
        std::string("{\"format\":\"ropewalk-sw"), std::string("{\"loss\": 1.5, \"st"),
        std::string("{\"loss\": 1.5}\n{\"lo"), std::string("notes\n"), std::string(3, '\0')}) {
    Write(path, theirs);
    EXPECT_THAT(sweep.MessageOf(folder.path()),
                AllOf(HasSubstr("results.jsonl, line 1: expected the header of a ropewalk sweep"),
                      HasSubstr("move it away")))
        << theirs;
    EXPECT_THROW(ReadResults(folder.path()), Error) << theirs;
    EXPECT_EQ(Slurp(path), theirs);
  }
  Write(path, "");  // holds nothing that could be lost
  EXPECT_EQ(sweep.Run(folder.path()).size(), 6u);
  // A last line of somebody else behind rows of ours.
  const std::string whole = Slurp(path);
  for (const char* theirs : {"# my notes", "# my notes\n", "{\"loss\":"}) {
    Write(path, whole + theirs);
    EXPECT_THAT(sweep.MessageOf(folder.path()), HasSubstr("line 8: no JSON")) << theirs;
    EXPECT_EQ(Slurp(path), whole + theirs);
  }
}

TEST(RunSweep, MoreMethodsAreAddedToWhatIsThere) {
  SmallSweep sweep;
  TempFolder folder;
  sweep.Run(folder.path());
  sweep.spec.methods.insert(sweep.spec.methods.begin(), PositionMethod::Parse("yarn"));
  sweep.Settle();
  EXPECT_EQ(sweep.Run(folder.path()).size(), 9u);
  EXPECT_EQ(sweep.computed, 3);
  EXPECT_EQ(sweep.resumed, 6);
  EXPECT_EQ(ReadResults(folder.path()).cells.size(), 9u);
}

TEST(RunSweep, ResultsOfSomethingElseAreRefusedWithBothValues) {
  SmallSweep sweep;
  TempFolder folder;
  sweep.Run(folder.path());
  const std::string before = Slurp(folder / "results.jsonl");
  SmallSweep other;
  other.inputs.model_hash = "other";
  other.Settle();
  EXPECT_THAT(other.MessageOf(folder.path()),
              AllOf(HasSubstr("model_hash there m, here other"), HasSubstr("-o")));
  other = SmallSweep();
  other.inputs.engine = Tiny().engine.get();
  other.inputs.tokenizer = &other.tokenizer;
  other.inputs.text = &other.text;
  other.text = RandomText(701, 3);
  other.spec.protocol.anchors = 4;
  other.Settle();
  EXPECT_THAT(other.MessageOf(folder.path()),
              AllOf(HasSubstr("text_hash there"), HasSubstr("anchors there 3, here 4")));
  EXPECT_EQ(Slurp(folder / "results.jsonl"), before);
}

TEST(RunSweep, Bf16AndFloat32DoNotMix) {
  if (FindBf16Unit() == Bf16Unit::kNone) GTEST_SKIP() << "this CPU multiplies no bf16";
  SmallSweep sweep;
  TempFolder folder;
  const std::vector<Cell> exact = sweep.Run(folder.path());
  const auto decoder = Decoder::Load(Tiny().files, {.compute = ComputeType::kBFloat16});
  SmallSweep other;
  const DecoderEngine engine(*decoder);
  other.inputs.engine = &engine;
  other.Settle();
  EXPECT_THAT(other.MessageOf(folder.path()),
              HasSubstr(std::string("(compute there float32, here ") + decoder->arithmetic() +
                        "); choose another folder with -o"));
  TempFolder elsewhere;
  const std::vector<Cell> rounded = other.Run(elsewhere.path());
  EXPECT_EQ(other.computed, 6);
  for (size_t i = 0; i < exact.size(); ++i) {
    EXPECT_EQ(rounded[i].compute, decoder->arithmetic());
    EXPECT_NE(rounded[i].Identity(), exact[i].Identity());
    EXPECT_EQ(rounded[i].plan_hash, exact[i].plan_hash);
    EXPECT_NE(rounded[i].mean_nll, exact[i].mean_nll);
  }
}

// Fuzzing found 7.8e126 converted to an integer.
TEST(RunSweep, NumbersThatAreNotWholeAreRefused) {
  SmallSweep sweep;
  TempFolder folder;
  sweep.Run(folder.path());
  const std::string path = folder / "results.jsonl", whole = Slurp(path);
  const size_t end = whole.find('\n'), next = whole.find('\n', end + 1);
  for (const char* wrong : {"7.8e126", "2.5", "true", "9223372036854775808", "\"12\"", "null"}) {
    auto header = nlohmann::ordered_json::parse(whole.substr(0, end));
    header["text_tokens"] = nlohmann::ordered_json::parse(wrong);
    Write(path, header.dump() + whole.substr(end));
    EXPECT_THAT(sweep.MessageOf(folder.path()), HasSubstr("line 1")) << wrong;
    auto row = nlohmann::ordered_json::parse(whole.substr(end + 1, next - end - 1));
    row["length"] = nlohmann::ordered_json::parse(wrong);
    Write(path, whole.substr(0, end + 1) + row.dump() + whole.substr(next));
    EXPECT_THAT(sweep.MessageOf(folder.path()), HasSubstr("line 2")) << wrong;
  }
  Write(path, whole);
  EXPECT_EQ(sweep.MessageOf(folder.path()), "no error");
}

TEST(RunSweep, SharesOutside0To1AreRefused) {
  SmallSweep sweep;
  TempFolder folder;
  sweep.Run(folder.path());
  const std::string path = folder / "results.jsonl", whole = Slurp(path);
  const size_t end = whole.find('\n'), next = whole.find('\n', end + 1);
  for (const char* task : {R"({"exact": 1.5, "recall": null, "answers": []})",
                           R"({"exact": 1, "recall": -1, "answers": []})",
                           R"({"exact": 1, "recall": 1, "answers": [{"recall": 1.01}]})"}) {
    auto row = nlohmann::ordered_json::parse(whole.substr(end + 1, next - end - 1));
    auto result = nlohmann::ordered_json::parse(task);
    for (const char* key : {"task", "protocol", "data_hash"}) result[key] = "kv";
    result["prompts"] = 1;
    for (const char* key : {"mean_nll", "standard_error"}) result[key] = 1.0;
    result["fed_tokens"] = 1;
    row["tasks"] = {result};
    Write(path, whole.substr(0, end + 1) + row.dump() + whole.substr(next));
    EXPECT_THAT(sweep.MessageOf(folder.path()),
                ::testing::AllOf(HasSubstr(path), HasSubstr("line 2"),
                                 HasSubstr("expected a number from 0 to 1 or null")))
        << task;
  }
}

TEST(RunSweep, DamagedFilesNameTheLine) {
  SmallSweep sweep;
  TempFolder folder;
  sweep.Run(folder.path());
  const std::string path = folder / "results.jsonl", whole = Slurp(path);
  const size_t header = whole.find('\n') + 1;
  Write(path, whole.substr(0, header) + "rubbish\n" + whole.substr(header));
  EXPECT_THAT(sweep.MessageOf(folder.path()), HasSubstr("line 2: no JSON"));
  Write(path, whole.substr(0, header) + "{\"method\":7}\n" + whole.substr(header));
  EXPECT_THAT(sweep.MessageOf(folder.path()), HasSubstr("line 2"));
  Write(path, "{\"a\":1}\n");
  EXPECT_THAT(sweep.MessageOf(folder.path()), HasSubstr("line 1: expected the header"));
  Write(path, "{\"format\":\"ropewalk-sweep\",\"schema\":99}\n");
  EXPECT_THAT(sweep.MessageOf(folder.path()), HasSubstr("schema 1 or 2, found 99"));
  Write(path, std::string(1000000, '[') + "\n" + whole);
  EXPECT_THAT(sweep.MessageOf(folder.path()), HasSubstr("line 1: expected the header"));
  EXPECT_THROW(ReadResults(folder / "nothing"), Error);
}

TEST(RunSweep, TwoAtOnceDoNotMix) {
  SmallSweep sweep;
  TempFolder folder;
  const internal::ResultsFile held(folder.path());
  EXPECT_THAT(sweep.MessageOf(folder.path()), HasSubstr("another ropewalk is writing"));
}

TEST(RunSweep, AFullDiskKeepsTheRowsBefore) {
  SmallSweep sweep;
  TempFolder folder;
  sweep.Run(folder / "whole");
  const std::string whole = Slurp(folder / "whole/results.jsonl");
  // Room for the header, two rows and a half.
  size_t end = 0;
  for (int i = 0; i < 3; ++i) end = whole.find('\n', end) + 1;
  struct rlimit old {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  struct rlimit small = old;
  small.rlim_cur = end + 200;
  ::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = sweep.MessageOf(folder / "small");
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  EXPECT_THAT(message, AllOf(HasSubstr("cannot write"), HasSubstr("rows before are whole")));
  EXPECT_EQ(WithoutSeconds(Slurp(folder / "small/results.jsonl")),
            WithoutSeconds(whole.substr(0, end)));
  sweep.Run(folder / "small");
  EXPECT_EQ(sweep.resumed, 2);
  EXPECT_EQ(WithoutSeconds(Slurp(folder / "small/results.jsonl")), WithoutSeconds(whole));
}

TEST(RunSweep, AFolderThatCannotBeMadeIsAnError) {
  SmallSweep sweep;
  TempFolder folder;
  Write(folder / "file", "x");
  EXPECT_THAT(sweep.MessageOf(folder / "file/below"), HasSubstr("cannot create the folder"));
}

TEST(RunSweep, InterruptKeepsWhatIsFinished) {
  SmallSweep sweep;
  TempFolder folder;
  SweepEvents events;
  events.progress = [](const SweepProgress& now) { return now.index < 4; };
  EXPECT_THROW(RunSweep(sweep.tasks, sweep.spec, sweep.inputs, sweep.header, folder.path(), events),
               Interrupted);
  EXPECT_EQ(ReadResults(folder.path()).cells.size(), 4u);
  sweep.Run(folder.path());
  EXPECT_EQ(sweep.resumed, 4);
  EXPECT_EQ(sweep.computed, 2);
}

// Counts what goes through another engine.
class CountingEngine : public ScoringEngine {
 public:
  explicit CountingEngine(const ScoringEngine& engine) : engine_(engine) {}
  mutable int64_t fed_tokens = 0;

  EngineFacts Facts() const override { return engine_.Facts(); }
  int64_t MemoryBytes(const PositionPlan&, int64_t) const override { return 0; }

 private:
  Scores DoScore(const EngineCall& call, std::span<const ScoreRequest> requests) const override {
    Scores scores = engine_.Score(call, requests);
    fed_tokens += scores.fed_tokens;
    return scores;
  }
  const ScoringEngine& engine_;
};

TEST(CostOf, CountsTheTokensThatAreRun) {
  SmallSweep sweep;
  sweep.spec.tasks = {std::make_shared<SampledTask>(MakeKvTask({}, sweep.tokenizer), 2, true)};
  CountingEngine engine(*sweep.inputs.engine);
  sweep.inputs.engine = &engine;
  for (const SweepTask& task : sweep.tasks) {
    engine.fed_tokens = 0;
    const CellCost cost = CostOf(task, sweep.spec, sweep.inputs, 256);
    EXPECT_EQ(engine.fed_tokens, 0);      // to know the cost costs nothing
    std::map<int64_t, int64_t> reported;  // by what is in all
    RunCell(task, sweep.spec, sweep.inputs, sweep.header.common, [&](int64_t done, int64_t all) {
      EXPECT_LE(done, all);
      reported[all] = done;
      return true;
    });
    EXPECT_EQ(engine.fed_tokens, cost.tokens) << task.method << " at " << task.length;
    EXPECT_FALSE(reported.empty());
  }
}

}  // namespace
}  // namespace ropewalk
