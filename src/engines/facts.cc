#include "src/engines/facts.h"

#include <algorithm>

namespace ropewalk::internal {

const char* Title(EngineKind engine) {
  constexpr const char* kTitles[] = {"transformers", "vLLM", "llama.cpp"};
  return kTitles[static_cast<std::size_t>(engine)];
}

std::string Sentence(Fact fact) {
  const FactRow& row = Row(fact);
  return std::string(Title(row.engine)) + " " + row.text;
}

std::string Versions(Fact fact) {
  std::string all;
  for (const FactRow& row : kFacts) {
    if (row.fact != fact) continue;
    all += (all.empty() ? "" : " and ") + Text(row.engine, row.versions);
  }
  return all;
}

bool Holds(Fact fact, const EngineVersion& version) {
  return std::any_of(std::begin(kFacts), std::end(kFacts), [&](const FactRow& row) {
    return row.fact == fact && row.versions.Contains(version);
  });
}

}  // namespace ropewalk::internal
