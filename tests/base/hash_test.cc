#include "ropewalk/base/hash.h"

#include <gtest/gtest.h>

#include <string>

namespace ropewalk {
namespace {

// XXH3 128 bits, seed 0: the empty input's value is in the specification (xxhash_spec.md, and
// `printf "" | xxh128sum`).
TEST(Hash, IsXxh3) { EXPECT_EQ(HashHex(""), "99aa06d3014798d86001c324468d497f"); }

TEST(Hash, DoesNotDependOnTheChunks) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += static_cast<char>(i * 31 % 251);
  Hasher hasher;
  for (std::size_t at = 0; at < text.size(); at += 37) hasher.Update(text.substr(at, 37));
  EXPECT_EQ(hasher.Hex(), HashHex(text));
  EXPECT_EQ(hasher.Hex(), hasher.Hex()) << "asking changes nothing";
  Hasher moved = std::move(hasher);
  EXPECT_EQ(moved.Hex(), HashHex(text));
  moved.UpdateValue(uint8_t{1});
  EXPECT_EQ(moved.Hex(), HashHex(text + '\x01'));
  EXPECT_NE(moved.Hex(), HashHex(text));
}

}  // namespace
}  // namespace ropewalk
