// Free memory under the limits of control groups.
#include "core/host_memory.h"

#include <gtest/gtest.h>

#include "support/files.h"

namespace ebb {
namespace {

using testing::Folder;
using testing::put_file;

void put_group(const std::string& folder, const std::string& limit, const std::string& used) {
  put_file(folder + "/memory.max", limit + "\n");
  put_file(folder + "/memory.current", used + "\n");
  put_file(folder + "/memory.stat", "anon 7\nactive_file 30\ninactive_file 20\nfile 60\n");
}

TEST(cgroup_room, least_of_a_group_and_those_around_it__without_the_cache) {
  const Folder at;
  put_group(at / "a/b", "1000", "400");
  put_group(at / "a", "max", "900");
  EXPECT_EQ(cgroup_room("0::/a/b\n", at.path()), 650);
  put_group(at / "a", "900", "800");
  EXPECT_EQ(cgroup_room("0::/a/b\n", at.path()), 150);
  put_group(at / "a", "900", "2000");  // a limit that was lowered
  EXPECT_EQ(cgroup_room("0::/a/b\n", at.path()), 0);
  // a path of the machine around the container, whose own group is mounted
  put_group(at.path(), "500", "100");
  EXPECT_EQ(cgroup_room("0::/outside/here\n", at.path()), 450);
  EXPECT_EQ(cgroup_room("0::/\n", at.path()), 450);
}

TEST(cgroup_room, version_1__has_other_files) {
  const Folder at;
  put_file(at / "memory/job/memory.limit_in_bytes", "1000\n");
  put_file(at / "memory/job/memory.usage_in_bytes", "300\n");
  put_file(at / "memory/job/memory.stat", "active_file 1\ntotal_active_file 100\n");
  EXPECT_EQ(cgroup_room("5:cpu,memory:/job\n1:name=systemd:/job\n0::/job\n", at.path()), 800);
  put_file(at / "memory/job/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_GT(cgroup_room("5:memory:/job\n", at.path()).value_or(0), int64_t{1} << 60);
}

TEST(cgroup_room, nothing_to_read__is_no_limit) {
  const Folder at;
  for (const char* groups : {"", "\n", "0::/\n", "junk", "1:memory", "3:memory:", "0::x/y"})
    EXPECT_FALSE(cgroup_room(groups, at.path())) << groups;
  put_group(at.path(), "-5", "x");
  EXPECT_FALSE(cgroup_room("0::/\n", at.path()));
}

TEST(free_host_memory, is_above_nothing) { EXPECT_GT(free_host_memory(), 0); }

}  // namespace
}  // namespace ebb
