#include "base/file_and_numbers.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

#include "base/error.h"

namespace ebb {
namespace {

std::string error_of(const std::string& text) {
  try {
    file_and_numbers(text, 2, "flag", "strength");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST(file_and_numbers, numbers__are_read_from_the_end) {
  const auto is = [](const std::string& text, const std::string& file,
                     const std::vector<double>& numbers) {
    const FileAndNumbers got = file_and_numbers(text, 2, "flag", "strength");
    EXPECT_EQ(got.file, file) << text;
    EXPECT_EQ(got.numbers, numbers) << text;
  };
  is("a", "a", {});
  is("a:0.5", "a", {0.5});
  is("a:0.5:-1e-3", "a", {0.5, -1e-3});
  is("C:/b:c.pt:1", "C:/b:c.pt", {1});
  is("a:1:2:3", "a:1", {2, 3});
  is("a:", "a:", {});
  is("a:1:", "a:1:", {});
  is(":1", "", {1});
  is("", "", {});
  EXPECT_EQ(file_and_numbers("a:1", 2, "", "").number(0, 7), 1);
  EXPECT_EQ(file_and_numbers("a:1", 2, "", "").number(1, 7), 7);
}

TEST(file_and_numbers, what_is_neither_name_nor_number__is_an_error) {
  EXPECT_EQ(error_of("a:inf"),
            "flag: the strength behind the file must be a finite number (got 'inf')  a:inf");
  EXPECT_EQ(error_of("a:nan:1"),
            "flag: the strength behind the file must be a finite number (got 'nan')  a:nan:1");
  EXPECT_EQ(error_of("a::1"),
            "flag: nothing stands between two colons, where the strength must be a number (got "
            "'a::1')");
  const std::string there = std::filesystem::temp_directory_path() / "ebb_file_and_numbers",
                    numbered = there + ":2";
  std::ofstream(there).put('x');
  EXPECT_EQ(error_of(there + ":abc"),
            "flag: the strength behind the file must be a number (got 'abc')  " + there);
  std::ofstream(numbered).put('x');
  EXPECT_EQ(file_and_numbers(numbered, 2, "flag", "strength").file, numbered);
  const FileAndNumbers half = file_and_numbers(numbered + ":0.5", 2, "flag", "strength");
  EXPECT_EQ(half.file, numbered);
  EXPECT_EQ(half.numbers, std::vector<double>{0.5});
  std::filesystem::remove(there);
  std::filesystem::remove(numbered);
}

}  // namespace ebb
