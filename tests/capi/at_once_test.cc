// Every function of the C interface by eight threads at the same time: the bits of one thread alone,
// and the message of each thread's own failure. Prints the functions that all of them called at the
// same time, which at_once_test.py compares with what libropewalk.so exports.
#include "tests/capi/at_once.h"

#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/capi/capi_test.h"

int failures = 0;  // of capi_test.h: what one thread prepares

namespace ropewalk::at_once {

std::vector<float> Caller::Numbers(int64_t count, int seed) const {
  std::vector<float> x(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    x[static_cast<size_t>(i)] = std::sin(0.37f * static_cast<float>(i % 9973 + 17 * index_ + seed));
  }
  return x;
}

void Caller::KeepResult(ropewalk_status status) {
  Keep(&status, 1);
  if (status != ROPEWALK_OK) Keep(std::string(ropewalk_last_error()));
}

void Caller::Expect(bool holds, const char* what) {
  if (!holds) broken_ += std::string(what) + "\n";
}

namespace {

constexpr int kRounds = 3;

// Neither the failures of others nor calls that succeed change the message of a thread's failure.
void Failures(Caller& caller) {
  const int32_t block = 0;
  const int64_t first = 1000 + caller.index(), zero = 0;
  int64_t slot = 0;
  caller.Expect(CALL(ropewalk_block_table_slots, &block, 1, 1, &first, 1, 1, &slot) != ROPEWALK_OK,
                "a token behind its table is refused");
  CALL(ropewalk_version);
  caller.Expect(CALL(ropewalk_ring_slots, 4, &zero, 1, 1, &slot) == ROPEWALK_OK,
                "a ring has slots");
  const std::string said = CALL(ropewalk_last_error);
  caller.Expect(said.find("token " + std::to_string(first)) != std::string::npos,
                "a message is that of its thread's failure");
}

std::vector<Case> AllCases() {
  std::vector<Case> all = {{"failures", Failures}};
  for (auto* cases : {RotaryCases, RotateCases, AttentionCases}) {
    for (Case& c : cases()) all.push_back(std::move(c));
  }
  return all;
}

// What each caller keeps of each case.
using Results = std::vector<std::vector<std::string>>;  // [case][caller]

std::string RunCase(const Case& c, Caller& caller) {
  const size_t before = caller.kept().size();
  c.run(caller);
  return caller.kept().substr(before);
}

struct Callers {
  explicit Callers(bool meet) : meeting(kCallers) {
    for (int i = 0; i < kCallers; ++i) all.emplace_back(i, meet ? &meeting : nullptr);
  }
  std::barrier<> meeting;
  std::vector<Caller> all;
};

Results Alone(const std::vector<Case>& cases, Callers& callers) {
  Results results(cases.size(), std::vector<std::string>(kCallers));
  for (Caller& caller : callers.all) {
    for (size_t c = 0; c < cases.size(); ++c) {
      results[c][static_cast<size_t>(caller.index())] = RunCase(cases[c], caller);
    }
  }
  return results;
}

Results AtOnce(const std::vector<Case>& cases, Callers& callers) {
  Results results(cases.size(), std::vector<std::string>(kCallers));
  std::vector<std::jthread> threads;
  for (Caller& caller : callers.all) {
    threads.emplace_back([&] {
      caller.Expect(ropewalk_last_error()[0] == '\0', "a new thread has no message");
      for (size_t c = 0; c < cases.size(); ++c) {
        results[c][static_cast<size_t>(caller.index())] = RunCase(cases[c], caller);
      }
    });
  }
  threads.clear();
  return results;
}

void Complain(const std::string& what) {
  ++failures;
  std::fprintf(stderr, "%s\n", what.c_str());
}

void Compare(const std::vector<Case>& cases, const Callers& callers, const Results& expected,
             const Results& results) {
  for (size_t c = 0; c < cases.size(); ++c) {
    for (size_t i = 0; i < kCallers; ++i) {
      if (results[c][i] != expected[c][i]) {
        Complain(cases[c].name + ": thread " + std::to_string(i) + " got other bits than alone");
      }
    }
  }
  for (const Caller& caller : callers.all) {
    if (!caller.broken().empty()) Complain("not so: " + caller.broken());
    if (caller.calls() != callers.all[0].calls()) Complain("threads make different calls");
  }
}

int Run() {
  const std::vector<Case> cases = AllCases();
  Callers alone(false);
  const Results expected = Alone(cases, alone);
  Compare(cases, alone, expected, expected);
  for (int round = 0; round < kRounds; ++round) {
    Callers meeting(true), free(false);  // at the same time; and each as fast as it can
    Compare(cases, meeting, expected, AtOnce(cases, meeting));
    Compare(cases, free, expected, AtOnce(cases, free));
    if (round > 0) continue;
    for (const auto& [name, count] : meeting.all[0].calls())
      std::printf("%s %d\n", name.c_str(), count);
  }
  return failures > 0 ? 1 : 0;
}

}  // namespace
}  // namespace ropewalk::at_once

int main() { return ropewalk::at_once::Run(); }
