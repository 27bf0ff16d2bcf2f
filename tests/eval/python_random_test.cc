// Draws of RULER's generators against lists of CPython and numpy, of
// tests/golden/python_random_make.py.
#include "src/eval/ruler/python_random.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "src/eval/ruler/words.h"

namespace ropewalk::internal {
namespace {

using nlohmann::json;

constexpr int kFar = 1000000;

const json& Golden() {
  static const json kGolden = [] {
    std::ifstream file(ROPEWALK_SOURCE_DIR "/tests/golden/python_random.json");
    return json::parse(file);
  }();
  return kGolden;
}

// In the order of draws() in the script.
void ExpectDraws(PythonRandom& random, const json& expected) {
  std::vector<int> numbers(50);
  std::iota(numbers.begin(), numbers.end(), 0);
  random.Shuffle(numbers);
  EXPECT_EQ(json(numbers), expected["shuffled"]);
  for (size_t i = 0; const int bits : {1, 5, 17, 31, 32}) {
    EXPECT_EQ(random.Bits(bits), expected["bits"][i++]) << bits;
  }
  for (const json& value : expected["random"]) EXPECT_EQ(random.Random(), value);
  for (const json& value : expected["int"]) EXPECT_EQ(random.Int(1000000, 9999999), value);
  for (size_t i = 0; const int64_t n : {1LL, 2LL, 16LL, 17LL, 6171620LL, 4294967295LL}) {
    EXPECT_EQ(random.Below(n), expected["below"][i++]) << n;
  }
  EXPECT_EQ(random.Letters('A', 5), expected["letters"][0]);
  EXPECT_EQ(random.Letters('a', 6), expected["letters"][1]);
  for (const json& value : expected["uuid"]) EXPECT_EQ(random.Uuid4(), value);
  const json& arguments = Golden()["sample_arguments"];
  for (size_t i = 0; i < arguments.size(); ++i) {
    EXPECT_EQ(json(random.Sample(arguments[i][0], arguments[i][1])), expected["samples"][i])
        << arguments[i];
  }
  const std::vector<char> letters = {'a', 'b', 'c', 'd', 'e', 'f', 'g'};
  EXPECT_EQ(std::string(1, random.Choice(std::span(letters))), expected["choice"]);
}

TEST(PythonRandom, DrawsAsCPythonDoesNearAndFar) {
  ASSERT_EQ(Golden()["python"].size(), 6u);
  for (const json& list : Golden()["python"]) {
    SCOPED_TRACE(list["seed"]);
    PythonRandom random(list["seed"].get<uint64_t>());
    ExpectDraws(random, list["near"]);
    for (int i = 0; i < kFar; ++i) random.Bits(32);
    ExpectDraws(random, list["far"]);
  }
}

TEST(PythonRandom, RefusesSamplesLargerThanWhatThereIs) {
  PythonRandom random(1);
  EXPECT_THROW(random.Sample(3, 4), PythonError);
  EXPECT_THROW(random.Sample(3, -1), PythonError);
  EXPECT_TRUE(random.Sample(3, 0).empty());
}

TEST(NumpyRandom, DrawsAsNumpyDoesNearAndFar) {
  constexpr std::pair<int64_t, int64_t> kRanges[] = {
      {10000, 99999},        {0, 1},        {0, 2}, {-5, 4}, {0, int64_t{1} << 31},
      {0, int64_t{1} << 32}, {10000, 99999}};
  ASSERT_EQ(Golden()["numpy"].size(), 3u);
  for (const json& list : Golden()["numpy"]) {
    NumpyRandom random(list["seed"].get<uint32_t>());
    for (size_t i = 0; const auto& [low, high] : kRanges) {
      EXPECT_EQ(random.Int(low, high), list["near"][i++]);
    }
    for (int i = 0; i < kFar; ++i) random.Int(10000, 99999);
    for (size_t i = 0; const auto& [low, high] : kRanges) {
      EXPECT_EQ(random.Int(low, high), list["far"][i++]);
    }
  }
}

// The standard library has the same generator with the first of the two seedings.
TEST(Mt19937, IsThatOfTheStandardLibrary) {
  for (const uint32_t seed : {0u, 1u, 42u, 5489u, 0xffffffffu}) {
    Mt19937 ours(seed);
    std::mt19937 theirs(seed);
    for (int i = 0; i < 2000; ++i) ASSERT_EQ(ours.Next(), theirs()) << seed << " " << i;
  }
}

TEST(RulerWords, ArePythonsSortedLists) {
  const json& words = Golden()["words"];
  ASSERT_EQ(PairCount(), words["pairs"]);
  for (const auto& [index, pair] : words["at"].items()) EXPECT_EQ(PairAt(std::stol(index)), pair);
  const std::vector<std::string>& all = AllWords();
  ASSERT_EQ(all.size(), words["words"]);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(all[i], words["first"][i]);
    EXPECT_EQ(all[all.size() - 5 + i], words["last"][i]);
  }
}

// As many pairs as there are, each behind the one before: the whole list is Python's.
TEST(RulerWords, PairsAreStrictlySorted) {
  std::string before;
  for (int64_t i = 0; i < PairCount(); ++i) {
    std::string pair = PairAt(i);
    ASSERT_LT(before, pair) << i;
    before = std::move(pair);
  }
}

}  // namespace
}  // namespace ropewalk::internal
