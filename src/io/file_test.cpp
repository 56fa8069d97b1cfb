#include "io/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>
#include <vector>

#include "base/hash.h"
#include "support/files.h"

namespace ebb::io {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::expect_error;

TEST(check_can_write, leaves_nothing_and_keeps_what_is_there) {
  const testing::Folder folder;
  check_can_write(folder / "c.png", "out");
  EXPECT_EQ(folder.files(), 0u);
  testing::put_file(folder / "c.png", "old");
  check_can_write(folder / "c.png", "out");
  EXPECT_EQ(testing::file_bytes(folder / "c.png"), "old");
}

TEST(check_can_write, folder_that_is_not_there__is_an_error) {
  const testing::Folder folder;
  expect_error([&] { check_can_write(folder / "new/c.png", "out"); },
               str("out: there is no folder ", folder / "new", " (mkdir -p makes it)  ",
                   folder / "new/c.png"));
  EXPECT_EQ(folder.files(), 0u);
}

// Each of them makes the folder for its trial, and removes it.
TEST(check_can_fill, several_at_once__do_not_fail_of_each_other) {
  const testing::Folder folder;
  std::atomic<int> failed = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        for (int turn = 0; turn < 200; ++turn) try {
            check_can_fill(folder / "runs/new", "x");
          } catch (const Error&) {
            ++failed;
          }
      });
  }
  EXPECT_EQ(failed, 0);  // the folder may stay: who made it may have found another's file in it
}

TEST(check_can_fill, leaves_nothing_and_keeps_what_is_there) {
  const testing::Folder folder;
  check_can_fill(folder / "a/b", "out");
  check_can_fill(folder / "a/b/", "out");
  EXPECT_EQ(folder.files(), 0u);
  testing::put_file(folder / "a/c.png", "old");
  check_can_fill(folder / "a", "out");
  check_can_fill(folder / "a/b", "out");
  EXPECT_EQ(testing::file_bytes(folder / "a/c.png"), "old");
  EXPECT_FALSE(std::filesystem::exists(folder / "a/b"));
}

TEST(TrialFolder, goes_unless_there_is_a_file_in_it_or_it_is_kept) {
  const testing::Folder folder;
  { const TrialFolder trial(folder / "a/b", "out"); }
  EXPECT_EQ(folder.files(), 0u);
  {
    const TrialFolder trial(folder / "a/b", "out");
    testing::put_file(folder / "a/x", "");
  }
  EXPECT_FALSE(fs::exists(folder / "a/b"));
  EXPECT_TRUE(fs::exists(folder / "a/x"));
  TrialFolder(folder / "c", "out").keep();
  EXPECT_TRUE(fs::exists(folder / "c"));
}

TEST(check_can_fill, link_to_nowhere_as_a_folder__is_an_error_and_stays) {
  const testing::Folder folder;
  std::filesystem::create_symlink(folder / "away", folder / "link");
  expect_error([&] { check_can_fill(folder / "link", "out"); }, "out: cannot make the folder (");
  expect_error([&] { check_can_fill(folder / "link/a/b", "out"); },
               "out: cannot make the folder (");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
}

// A path that does not exist until a folder on its way is made may then be something that was
// there.
TEST(check_can_fill, what_was_there__stays_whatever_the_path_calls_it) {
  const testing::Folder folder;
  testing::put_file(folder / "keep.txt", "precious");
  std::filesystem::create_directory(folder / "empty");
  std::filesystem::create_symlink(folder / "keep.txt", folder / "link");
  expect_error([&] { check_can_fill(folder / "new/../keep.txt", "out"); },
               "out: cannot make the folder (");
  expect_error([&] { check_can_fill(folder / "new/../link", "out"); },
               "out: cannot make the folder (");
  check_can_fill(folder / "new/../empty", "out");
  EXPECT_EQ(testing::file_bytes(folder / "keep.txt"), "precious");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_TRUE(std::filesystem::is_directory(folder / "empty"));
  EXPECT_FALSE(std::filesystem::exists(folder / "new"));
}

TEST(check_can_write, what_cannot_be_a_file__is_an_error) {
  const testing::Folder folder;
  testing::put_file(folder / "a.png/x", "");
  expect_error([&] { check_can_write(folder / "a.png", "out"); },
               "out: is a folder, not a file  " + folder / "a.png");
  expect_error([&] { check_can_write(folder / "a.png/x/y.png", "out"); },
               "out: cannot create (Not a directory)");
  expect_error([] { check_can_write("/proc/x.png", "out"); }, "out: cannot create (");
  expect_error([&] { check_can_write(folder / std::string(300, 'x'), "out"); },
               "out: cannot create (File name too long)");
}

TEST(AtomicFile, symbolic_link__is_followed_and_stays) {
  const testing::Folder folder;
  testing::put_file(folder / "a/old.txt", "old");
  std::filesystem::create_symlink("a/old.txt", folder / "link");
  std::filesystem::create_symlink(folder / "link", folder / "second");
  std::filesystem::create_symlink("a/new.txt", folder / "to_new");
  write_whole_file(folder / "second", "one", "out");
  write_whole_file(folder / "to_new", "two", "out");
  EXPECT_EQ(testing::file_bytes(folder / "a/old.txt"), "one");
  EXPECT_EQ(testing::file_bytes(folder / "a/new.txt"), "two");
  for (const char* name : {"link", "second", "to_new"})
    EXPECT_TRUE(std::filesystem::is_symlink(folder / name)) << name;
  EXPECT_EQ(folder.files(), 4u);  // no temporary one
  std::filesystem::create_symlink("loop", folder / "loop");
  expect_error([&] { write_whole_file(folder / "loop", "x", "out"); }, "out: cannot ");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "loop"));
}

TEST(AtomicFile, read_only_file__is_an_error_and_stays) {
  const testing::Folder folder;
  const std::string file = folder / "a";
  write_whole_file(file, "old", "test");
  fs::permissions(file, fs::perms::owner_read);
  const std::string error = "test: is read-only; chmod u+w lets it be replaced  " + file;
  EXPECT_EQ(error_of([&] { check_can_write(file, "test"); }), error);
  EXPECT_EQ(error_of([&] { write_whole_file(file, "new", "test"); }), error);
  EXPECT_EQ(read_whole_file(file, "test", 10), "old");
}

// What a process that was killed left goes, what another one writes stays, and so does what only
// looks alike.
TEST(check_can_write, abandoned_files__are_removed) {
  const testing::Folder folder;
  const std::string file = folder / "a", left = file + ".tmp-1-0";
  const std::vector<std::string> others = {file + ".tmp-1", file + ".tmp-x-1", folder / "b.tmp-1-0",
                                           file + ".tmp-1-0.txt"};
  testing::put_file(left, "half");
  for (const std::string& name : others) testing::put_file(name, "whole");
  AtomicFile written(file, "test");
  written.write("new");
  check_can_write(file, "test");
  EXPECT_FALSE(fs::exists(left));
  for (const std::string& name : others) EXPECT_TRUE(fs::exists(name)) << name;
  written.commit();
  EXPECT_EQ(read_whole_file(file, "test", 10), "new");
}

// While others look for what is abandoned.
TEST(AtomicFile, what_appears_meanwhile__is_kept_where_that_is_asked) {
  const testing::Folder folder;
  const std::string file = folder / "a.txt";
  for (const char* kept : {"a.kept-1.txt", "a.kept-2.txt"}) {
    AtomicFile written(file, "test");
    written.write("new");
    testing::put_file(file, "other");
    EXPECT_EQ(error_of([&] { written.commit(Existing::kept); }),
              str("test: a file has appeared meanwhile, which is not replaced; what was made is "
                  "kept in ",
                  folder / kept, "  ", file));
    EXPECT_EQ(testing::file_bytes(file), "other");
    EXPECT_EQ(testing::file_bytes(folder / kept), "new");
    std::filesystem::remove(file);
  }
  AtomicFile written(file, "test");
  written.write("new");
  written.commit(Existing::kept);
  EXPECT_EQ(testing::file_bytes(file), "new");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / ""), {}), 3);
}

TEST(AtomicFile, many_writers_of_one_file__lose_nothing) {
  const testing::Folder folder;
  const std::string file = folder / "a";
  std::atomic<int> failed = 0;
  {
    std::vector<std::jthread> writers;
    for (int t = 0; t < 4; ++t)
      writers.emplace_back([&] {
        for (int i = 0; i < 25; ++i) {
          try {
            check_can_write(file, "test");
            write_whole_file(file, "whole", "test");
          } catch (const Error&) {
            ++failed;
          }
        }
      });
  }
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(read_whole_file(file, "test", 10), "whole");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1);
}

TEST(AtomicFile, what_is_no_regular_file__is_not_replaced) {
  const testing::Folder folder;
  const std::string pipe = folder / "pipe", link = folder / "link.json";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_symlink(pipe, link);
  for (const std::string& path : {pipe, link}) {
    expect_error([&] { check_can_write(path, "out"); },
                 "out: must be a regular file or a new one  " + path);
    expect_error([&] { write_whole_file(path, "text", "out"); },
                 "out: must be a regular file or a new one  " + path);
  }
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(folder.files(), 2u);
}

// Pages of [data, data + bytes) that are in this process's memory; -1: the system does not tell.
int64_t pages_in_memory(const char* data, int64_t bytes) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(data) / page;
  const auto last = (reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(bytes) - 1) / page;
  std::vector<uint64_t> entries(last - first + 1);
  const int map = ::open("/proc/self/pagemap", O_RDONLY);
  const size_t wanted = entries.size() * sizeof(uint64_t);
  const auto at = static_cast<off_t>(first * sizeof(uint64_t));
  const ssize_t got = ::pread(map, entries.data(), wanted, at);
  ::close(map);
  if (got != static_cast<ssize_t>(wanted)) return -1;
  return std::ranges::count_if(entries, [](uint64_t e) { return e >> 63 == 1; });
}

TEST(mapped_file, forgotten_pages__leave_and_hold_the_same_when_they_are_read_again) {
  const testing::Folder folder;
  std::string text(100'000, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(splitmix64(i));
  testing::put_file(folder / "file", text);
  const auto mapped = ReadFile::open(folder / "file", "test").map();
  ASSERT_TRUE(mapped);
  const auto* const bytes = static_cast<const char*>(mapped->data());
  EXPECT_EQ(std::string(bytes, text.size()), text);
  const int64_t before = pages_in_memory(bytes + 5'000, 90'000);
  if (before < 0) GTEST_SKIP() << "the system does not tell which pages are in memory";
  EXPECT_GT(before, 0);
  ReadFile::forget(bytes + 5'000, 90'000);
  EXPECT_EQ(pages_in_memory(bytes + 5'000, 90'000), 0);
  EXPECT_EQ(std::string(bytes, text.size()), text);
  EXPECT_GT(pages_in_memory(bytes + 5'000, 90'000), 0);
}

// Writes into the file at once, later than it was opened by the clock of the file system.
void write_into(const std::string& path, const std::string& text) {
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  const Descriptor file(::open(path.c_str(), O_WRONLY));
  ASSERT_EQ(::pwrite(file.number(), text.data(), text.size(), 0),
            static_cast<ssize_t>(text.size()));
}

TEST(mapped_file, file_that_is_written_to__is_told_once) {
  const testing::Folder folder;
  for (const char* name : {"/same", "/written", "/replaced", "/longer"})
    testing::put_file(folder.path() + name, "old bytes");
  std::vector<std::shared_ptr<Buffer>> mapped;
  for (const char* name : {"/same", "/written", "/replaced", "/longer"})
    mapped.push_back(ReadFile::open(folder.path() + name, "test").map());
  EXPECT_TRUE(MappedFile::changed().empty());
  write_into(folder / "written", "new");
  write_into(folder / "longer", "more bytes than before");
  write_whole_file(folder / "replaced", "another file of that name", "test");
  EXPECT_EQ(MappedFile::changed(),
            (std::vector<std::string>{folder / "written", folder / "longer"}));
  EXPECT_TRUE(MappedFile::changed().empty());
}

TEST(mapped_file, first_one__is_prepared_for_by_the_thread_that_maps_it) {
  static int times;
  times = 0;
  const testing::Folder folder;
  testing::put_file(folder / "file", "bytes");
  MappedFile::before_first([] { ++times; });
  const ReadFile file = ReadFile::open(folder / "file", "test");
  EXPECT_EQ(times, 0);
  const auto one = file.map(), two = file.map();
  EXPECT_EQ(times, 1);
  MappedFile::before_first([] { ++times; });
  EXPECT_EQ(times, 2) << "some are mapped already";
}

TEST(descriptor, is_closed_once_by_its_last_owner) {
  const auto is_open = [](int number) { return ::fcntl(number, F_GETFD) >= 0; };
  Descriptor one(::open("/dev/null", O_RDONLY));
  ASSERT_TRUE(one);
  const int number = one.number();
  Descriptor two = std::move(one);
  EXPECT_FALSE(one);
  EXPECT_EQ(two.number(), number);
  two = Descriptor();
  EXPECT_FALSE(is_open(number));
  EXPECT_FALSE(two);
  EXPECT_EQ(Descriptor(-1).close(), 0);
}

}  // namespace
}  // namespace ebb::io
