// The conformance suite: vectors with which any implementation of positions can test itself
// (docs/conformance/README.md describes the documents).
//   conformance rotary      rotary embeddings
//   conformance positions   biases, distance maps, absolute encodings
#include <cstdio>
#include <string_view>

#include "tools/conformance/conformance.h"

namespace ropewalk::conformance {
namespace {

// One case a line: a change of one shows as one line.
void Print(const char* format, const Json& head, const std::vector<Json>& cases) {
  Json all = {{"format", format}, {"version", 1}, {"generator", "ropewalk " ROPEWALK_VERSION}};
  all.update(head);
  std::string text = all.dump();
  text.back() = ',';
  text += "\"cases\":[\n";
  for (std::size_t i = 0; i < cases.size(); ++i) {
    text += cases[i].dump() + (i + 1 < cases.size() ? ",\n" : "\n");
  }
  text += "]}\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
}

void PrintRotary() {
  std::vector<Json> cases;
  AddRotaryCases(cases);
  Print("rotary-conformance", {{"input", RotaryInput()}}, cases);
}

void PrintPositions() {
  std::vector<Json> cases;
  AddRelativeCases(cases);
  AddMapCases(cases);
  AddAbsoluteCases(cases);
  AddComputedCases(cases);
  Print("position-conformance",
        {{"tensors", "scale * ((7 * k * k + 13 * k + 17 * seed) % 61 - 30) / 32"}}, cases);
}

}  // namespace
}  // namespace ropewalk::conformance

int main(int count, char** arguments) {
  const std::string_view document = count == 2 ? arguments[1] : "";
  if (document == "rotary") {
    ropewalk::conformance::PrintRotary();
  } else if (document == "positions") {
    ropewalk::conformance::PrintPositions();
  } else {
    std::fputs("usage: conformance rotary|positions\n", stderr);
    return 2;
  }
  return 0;
}
