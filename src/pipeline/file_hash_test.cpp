#include "pipeline/file_hash.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "support/files.h"

namespace ebb {
namespace {

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

// FIPS 180-4's examples.
TEST(FileHash, files__have_the_standards_digests) {
  const testing::Folder folder;
  write(folder / "empty", "");
  write(folder / "abc", "abc");
  write(folder / "long", std::string(1000000, 'a'));
  EXPECT_EQ(sha256_of(folder / "empty"),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_of(folder / "abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_of(folder / "long"),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(FileHash, cache__knows_a_file_until_it_changes) {
  const testing::Folder folder;
  const char* before = std::getenv("XDG_CACHE_HOME");
  const std::string old = before ? before : "";
  setenv("XDG_CACHE_HOME", folder.path().c_str(), 1);
  const std::string file = folder / "model";
  write(file, "abc");
  const std::string hash = FileHash(file).hex();
  EXPECT_EQ(hash.substr(0, 10), "ba7816bf8f");
  // a wrong line for this very file is believed, one for another is not
  std::ifstream in(folder / "ebb/hashes.txt");
  std::string line;
  std::getline(in, line);
  ASSERT_EQ(line.substr(0, 64), hash);
  std::ofstream(folder / "ebb/hashes.txt", std::ios::app)
      << std::string(64, '0') + line.substr(64) << "\nnonsense\n";
  EXPECT_EQ(FileHash(file).hex(), std::string(64, '0'));
  write(file, "abcd");
  EXPECT_EQ(FileHash(file).hex().substr(0, 10), "88d4266fd4");
  EXPECT_EQ(FileHash(folder / "nowhere").hex(), "");
  EXPECT_EQ(FileHash(folder.path()).hex(), "");
  if (before)
    setenv("XDG_CACHE_HOME", old.c_str(), 1);
  else
    unsetenv("XDG_CACHE_HOME");
}

}  // namespace
}  // namespace ebb
