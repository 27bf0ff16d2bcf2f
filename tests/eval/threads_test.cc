// One model and engine by several threads at once: the numbers of each alone.
#include "ropewalk/base/threads.h"

#include <gtest/gtest.h>

#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "ropewalk/eval/tasks.h"
#include "tests/eval/decoder_cases.h"
#include "tests/eval/noisy_sweep.h"

namespace ropewalk {
namespace eval_threads_test {

using namespace test::cases;
using test::RandomText;
using test::Tiny;

constexpr int kCallers = 8;

// What `work` gives for each caller alone and then by all at once; two threads each, so that an
// engine's lanes are threads too.
void ExpectTheSameAtOnce(const std::function<std::string(int)>& work) {
  const int before = NumThreads();
  SetNumThreads(2);
  std::vector<std::string> expected, got(kCallers);
  for (int i = 0; i < kCallers; ++i) expected.push_back(work(i));
  std::vector<std::jthread> callers;
  for (int i = 0; i < kCallers; ++i) {
    callers.emplace_back([&, i] { got[static_cast<size_t>(i)] = work(i); });
  }
  callers.clear();
  SetNumThreads(before);
  EXPECT_EQ(got, expected);
}

TEST(EvalAtOnce, OneEngineScores) {
  const char* const methods[] = {"none", "yarn", "dynamic", "rerope:30"};
  ExpectTheSameAtOnce([&](int caller) {
    const Case sequences(600 + caller, {7, 40, 9});
    const PositionPlan plan = Method(methods[caller % 4]);
    const EngineCall call = {.plan = &plan, .final_length = 1000};
    std::ostringstream said;
    said.precision(9);
    for (const auto& scores : Tiny().engine->Score(call, sequences.Requests()).tokens) {
      for (const TokenScore& s : scores) said << s.log_prob << ' ' << s.top << '\n';
    }
    const Ids prompt = RandomText(50 + caller, 5).ids;
    const GenerateRequest request = {.ids = prompt, .max_tokens = 8};
    for (const Continuation& c : Tiny().engine->Generate(call, std::span(&request, 1))) {
      for (const int32_t id : c.ids) said << id << ' ';
    }
    return said.str();
  });
}

// Each into a folder of its own: the cells, but for the seconds that they took.
TEST(EvalAtOnce, SweepsOfOneModel) {
  const test::ByteTokenizer tokenizer;
  const TokenText text = RandomText(700, 3);
  ExpectTheSameAtOnce([&](int caller) {
    SweepSpec spec;
    for (const char* name : {"none", "dynamic"}) {
      spec.methods.emplace_back(PositionMethod::Parse(name));
    }
    spec.lengths = {32, 64, 128 + 16 * int64_t{caller}};
    spec.trained_length = test::kTinyTrained;
    spec.protocol = Protocol::Parse("aligned:8");
    spec.protocol.anchors = 3;
    spec.tasks = {std::make_shared<SampledTask>(MakePasskeyTask({}, tokenizer), 2, false)};
    SweepInputs inputs;
    inputs.engine = Tiny().engine.get();
    inputs.tokenizer = &tokenizer;
    inputs.text = &text;
    inputs.model_hash = "m";
    const auto tasks = PlanSweep(spec, Tiny().files.config.plan);
    SweepHeader header;
    header.common = CommonFields(spec, inputs, tasks.back().length);
    const test::TempFolder folder;
    return test::WithoutSeconds(RunSweep(tasks, spec, inputs, header, folder.path(), {}));
  });
}

}  // namespace eval_threads_test
}  // namespace ropewalk
