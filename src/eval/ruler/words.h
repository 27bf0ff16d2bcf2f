// The words that RULER draws from: the lists of wonderwords 3.0.1 (PyPI, MIT; words/).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ropewalk::internal {

// Nouns, adjectives and verbs, each word once, sorted: RULER's list of words for cwe before it is
// shuffled.
const std::vector<std::string>& AllWords();

// The sorted list of every "adjective-noun", which is never made: 6,171,620 of them.
int64_t PairCount();
std::string PairAt(int64_t index);

std::string WordsHash();  // of the lists

}  // namespace ropewalk::internal
