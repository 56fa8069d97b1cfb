#include "io/new_folder.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "support/files.h"

namespace ebb::io {
namespace {

namespace fs = std::filesystem;

void put(const std::string& file) { std::ofstream(file) << "x"; }

TEST(NewFolder, new_or_empty_one__has_all_or_nothing) {
  const testing::Folder folder;
  for (const bool exists : {false, true}) {
    const fs::path out = folder / (exists ? "empty" : "new");
    if (exists) fs::create_directory(out);
    {
      NewFolder made(out.string(), "test");
      put(made.file("unet/a"));
    }
    EXPECT_EQ(fs::exists(out), exists);
    if (exists) {
      EXPECT_TRUE(fs::is_empty(out));
    }
    NewFolder made(out.string(), "test");
    put(made.file("unet/a"));
    put(made.file("b"));
    EXPECT_FALSE(fs::exists(out / "b"));
    made.commit();
    EXPECT_TRUE(fs::exists(out / "unet/a"));
    EXPECT_TRUE(fs::exists(out / "b"));
    EXPECT_EQ(std::distance(fs::directory_iterator(out), fs::directory_iterator()), 2);
  }
}

TEST(NewFolder, what_a_killed_process_left__is_not_taken) {
  const testing::Folder folder;
  const std::string out = folder / "out";
  std::string left;
  {
    NewFolder made(out, "test");
    left = fs::path(made.file("a")).parent_path().string();
  }
  fs::create_directory(left);
  put(left + "/old");
  NewFolder made(out, "test");
  put(made.file("a"));
  made.commit();
  EXPECT_TRUE(fs::exists(out + "/a"));
  EXPECT_FALSE(fs::exists(out + "/old"));
  EXPECT_FALSE(fs::exists(left));
}

TEST(NewFolder, what_another_one_makes__stays) {
  const testing::Folder folder;
  const std::string out = folder / "out";
  NewFolder first(out, "test");
  put(first.file("a"));
  const NewFolder second(out, "test");
  first.commit();
  EXPECT_TRUE(fs::exists(out + "/a"));
}

std::string error_of_commit(NewFolder& made) {
  try {
    made.commit();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

// Under a name that a later one does not clean up.
TEST(NewFolder, place_that_is_taken_meanwhile__keeps_what_was_made) {
  const testing::Folder folder;
  const std::string out = folder / "out";
  for (const char* kept : {".kept-1", ".kept-2"}) {
    NewFolder made(out, "test");
    put(made.file("a"));
    fs::create_directory(out);
    put(out + "/other");
    const std::string error = error_of_commit(made);
    EXPECT_NE(error.find("; it is kept in " + out + kept + "  "), error.npos) << error;
    fs::remove_all(out);
  }
  const NewFolder next(out, "test");
  EXPECT_TRUE(fs::exists(out + ".kept-1/a"));
  EXPECT_TRUE(fs::exists(out + ".kept-2/a"));
}

TEST(NewFolder, what_appears_in_an_empty_one_meanwhile__stays) {
  const testing::Folder folder;
  const std::string out = folder / "out";
  fs::create_directory(out);
  NewFolder made(out, "test");
  std::ofstream(made.file("a")) << "made";
  put(out + "/a");
  const std::string error = error_of_commit(made);
  EXPECT_NE(error.find("it is kept in " + out + "/out.kept-1  "), error.npos) << error;
  EXPECT_EQ(testing::file_bytes(out + "/a"), "x");
  EXPECT_EQ(testing::file_bytes(out + "/out.kept-1/a"), "made");
}

}  // namespace
}  // namespace ebb::io
