#include "io/tar.h"

#include <gtest/gtest.h>

#include "support/files.h"
#include "support/tar.h"

namespace ebb::io {
namespace {

using namespace ebb::testing;

std::vector<TarMember> members(const std::string& archive) {
  const std::span bytes(reinterpret_cast<const uint8_t*>(archive.data()), archive.size());
  return tar_members(ReadFile::from_bytes(bytes, "a.tar"));
}

std::string fault(const std::string& archive) {
  try {
    members(archive);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(tar_members, files__have_their_places) {
  const std::string archive = tar_of({{"a.txt", "hello"}, {"b/c.txt", std::string(700, 'x')}});
  const auto m = members(archive);
  ASSERT_EQ(m.size(), 2u);
  EXPECT_EQ(m[0].name, "a.txt");
  EXPECT_EQ(archive.substr(static_cast<size_t>(m[0].offset), 5), "hello");
  EXPECT_EQ(m[1].name, "b/c.txt");
  EXPECT_EQ(m[1].size, 700);
  EXPECT_EQ(archive[static_cast<size_t>(m[1].offset)], 'x');
}

TEST(tar_members, long_names__of_gnu_and_pax) {
  const std::string name(150, 'n');
  for (const char type : {'L', 'x'}) {
    const std::string record = str("160 path=", name, "\n");
    const auto m = members(tar_member("long", type == 'L' ? name : record, type) +
                           tar_member("n", "data") + tar_end());
    ASSERT_EQ(m.size(), 1u) << type;
    EXPECT_EQ(m[0].name, name);
  }
}

TEST(tar_members, damaged__say_what_and_where) {
  const std::string archive = tar_of({{"a.txt", std::string(700, 'x')}});
  EXPECT_NE(fault(archive.substr(0, 800)).find("ends within 'a.txt'"), std::string::npos);
  EXPECT_NE(fault(archive.substr(0, 100)).find("cut short, or is none"), std::string::npos);
  std::string changed = archive;
  changed[3] ^= 1;
  EXPECT_NE(fault(changed).find("checksum of a member is wrong"), std::string::npos);
  EXPECT_NE(fault(changed).find("a.tar"), std::string::npos);
  changed.replace(0, 2, "\x1f\x8b");
  EXPECT_NE(fault(changed).find("compressed by gzip"), std::string::npos);
  EXPECT_NE(fault(tar_member("p", "9 path", 'x') + tar_end()).find("extended header is damaged"),
            std::string::npos);
}

}  // namespace
}  // namespace ebb::io
