// What a folder holds (src/io/files.h).
#include "src/io/files.h"

#include <sys/stat.h>
#include <unistd.h>

#include "tests/io/files.h"

namespace ropewalk {
namespace files_test {

using internal::NamesIn;
using testing::ExpectRefused;
using testing::TempFolder;

TEST(NamesIn, SortedWithHiddenOnesAndFolders) {
  const TempFolder folder;
  EXPECT_TRUE(NamesIn(folder.path()).empty());
  for (const char* name : {"b", "a\nc", ".hidden", "a b", "\xff"}) folder.Write(name, "");
  ASSERT_EQ(::mkdir((folder.path() + "/in").c_str(), 0700), 0);
  ASSERT_EQ(::symlink("nothing", (folder.path() + "/link").c_str()), 0);
  EXPECT_EQ(NamesIn(folder.path()),
            (std::vector<std::string>{".hidden", "a\nc", "a b", "b", "in", "link", "\xff"}));
}

TEST(NamesIn, MoreNamesThanOneReadOfTheSystemHolds) {
  const TempFolder folder;
  std::vector<std::string> names;
  for (int i = 1000; i < 3000; ++i) {
    names.push_back(std::to_string(i) + std::string(100, 'x'));
    folder.Write(names.back(), "");
  }
  EXPECT_EQ(NamesIn(folder.path()), names);
}

TEST(NamesIn, NothingThereIsNoNamesAndWhatCannotBeReadAnError) {
  const TempFolder folder;
  EXPECT_TRUE(NamesIn(folder.path() + "/absent").empty());
  EXPECT_TRUE(NamesIn(folder.Write("file", "")).empty());
  ASSERT_EQ(::symlink("loop", (folder.path() + "/loop").c_str()), 0);
  ExpectRefused([&] { NamesIn(folder.path() + "/loop"); }, ErrorCode::kIo,
                {"loop", "Too many levels"});
}

}  // namespace files_test
}  // namespace ropewalk
