#include "src/eval/ruler/words.h"

#include <algorithm>
#include <string_view>

#include "ropewalk/base/hash.h"

namespace ropewalk::internal {

extern const char kNounList[], kAdjectiveList[], kVerbList[];

namespace {

using Words = std::vector<std::string>;

void Append(std::string_view list, Words& words) {
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find('\n', begin), list.size());
    std::string_view word = list.substr(begin, end - begin);
    while (word.ends_with(' ') || word.ends_with('\r')) word.remove_suffix(1);
    words.emplace_back(word);
    begin = end + 1;
  }
}

Words Sorted(std::initializer_list<const char*> lists) {
  Words words;
  for (const char* list : lists) Append(list, words);
  std::ranges::sort(words);
  words.erase(std::unique(words.begin(), words.end()), words.end());
  return words;
}

// Neighbours in the sorted list of pairs: one adjective with consecutive nouns.
struct Run {
  int64_t adjective, first_noun, first_pair;
};

struct Pairs {
  Words adjectives = Sorted({kAdjectiveList}), nouns = Sorted({kNounList});
  std::vector<Run> runs = {};
  int64_t count = 0;

  Pairs() {
    for (size_t i = 0; i < adjectives.size();) i = AddRuns(i);
  }

  std::string Text(int64_t adjective, int64_t noun) const {
    return adjectives[static_cast<size_t>(adjective)] + "-" + nouns[static_cast<size_t>(noun)];
  }

 private:
  void AddRun(size_t adjective, size_t first, size_t last) {
    if (first == last) return;
    runs.push_back({static_cast<int64_t>(adjective), static_cast<int64_t>(first), count});
    count += static_cast<int64_t>(last - first);
  }

  // The runs of adjective `i`, with those of "high-pitched" between two of "high". Returns the next
  // adjective.
  size_t AddRuns(size_t i) {
    const std::string stem = adjectives[i] + "-";
    size_t next = i + 1, noun = 0;
    for (; next < adjectives.size() && adjectives[next].starts_with(stem); ++next) {
      const std::string rest = adjectives[next].substr(stem.size()) + "-";
      const auto at = static_cast<size_t>(std::ranges::lower_bound(nouns, rest) - nouns.begin());
      AddRun(i, noun, at);
      AddRun(next, 0, nouns.size());
      noun = at;
    }
    AddRun(i, noun, nouns.size());
    return next;
  }
};

const Pairs& AllPairs() {
  static const Pairs kPairs;
  return kPairs;
}

}  // namespace

const Words& AllWords() {
  static const Words kWords = Sorted({kNounList, kAdjectiveList, kVerbList});
  return kWords;
}

int64_t PairCount() { return AllPairs().count; }

std::string PairAt(int64_t index) {
  const Pairs& pairs = AllPairs();
  const auto after = std::ranges::upper_bound(pairs.runs, index, {}, &Run::first_pair);
  const Run& run = *(after - 1);
  return pairs.Text(run.adjective, run.first_noun + index - run.first_pair);
}

std::string WordsHash() {
  Hasher hasher;
  for (const char* list : {kNounList, kAdjectiveList, kVerbList}) {
    hasher.Update(std::string_view(list));
  }
  return hasher.Hex();
}

}  // namespace ropewalk::internal
