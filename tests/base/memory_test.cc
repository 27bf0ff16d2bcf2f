#include "src/base/memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

namespace ropewalk {
namespace {

namespace fs = std::filesystem;
constexpr int64_t kGiB = int64_t{1} << 30;

class Memory : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "ropewalk-memory-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    files_ = {(root_ / "meminfo").string(), (root_ / "cgroup").string(), (root_ / "fs").string()};
  }
  void TearDown() override { fs::remove_all(root_); }
  void Write(const std::string& name, const std::string& text) {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  int64_t Available() const { return internal::AvailableMemory(files_); }

  fs::path root_;
  internal::MemoryFiles files_;
};

TEST_F(Memory, NothingSaysSo) {
  EXPECT_EQ(Available(), std::numeric_limits<int64_t>::max());
  Write("meminfo", "MemTotal: 8 kB\n");
  Write("cgroup", "nonsense\n0::/a\n");
  EXPECT_EQ(Available(), std::numeric_limits<int64_t>::max());
}

TEST_F(Memory, OfTheMachine) {
  Write("meminfo", "MemTotal:       24000000 kB\nMemFree: 1 kB\nMemAvailable:   16777216 kB\n");
  EXPECT_EQ(Available(), 16 * kGiB);
}

// The tightest of the groups counts; pages of files can be dropped.
TEST_F(Memory, OfControlGroups2) {
  Write("meminfo", "MemAvailable: 16777216 kB\n");
  Write("cgroup", "0::/outer/inner\n");
  Write("fs/outer/inner/memory.max", "max\n");
  Write("fs/outer/inner/memory.current", "1000\n");
  EXPECT_EQ(Available(), 16 * kGiB);
  Write("fs/outer/memory.max", std::to_string(8 * kGiB));
  Write("fs/outer/memory.current", std::to_string(3 * kGiB));
  EXPECT_EQ(Available(), 5 * kGiB);
  Write("fs/outer/memory.stat", "anon 5\ninactive_file " + std::to_string(kGiB) + "\nactive_file " +
                                    std::to_string(kGiB / 2) + "\n");
  EXPECT_EQ(Available(), 13 * kGiB / 2);
  Write("fs/memory.max", std::to_string(kGiB));
  Write("fs/memory.current", std::to_string(2 * kGiB));
  EXPECT_EQ(Available(), 0);
}

TEST_F(Memory, OfControlGroups1) {
  Write("cgroup", "7:cpu,cpuacct:/host/path\n5:memory:/host/path\n1:name=systemd:/\n");
  Write("fs/memory/memory.limit_in_bytes", std::to_string(4 * kGiB));
  Write("fs/memory/memory.usage_in_bytes", std::to_string(3 * kGiB));
  Write("fs/memory/memory.stat", "total_inactive_file " + std::to_string(2 * kGiB) + "\n");
  EXPECT_EQ(Available(), 3 * kGiB);
}

TEST_F(Memory, OfThisMachine) { EXPECT_GT(internal::AvailableMemory(), 1 << 20); }

}  // namespace
}  // namespace ropewalk
