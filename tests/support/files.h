// Test helpers: folders that vanish, and checks of error texts.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace ebb::testing {

// A folder of its own for each test, removed at its end.
class Folder {
 public:
  Folder() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    std::string name = str("ebb_", info->test_suite_name(), "_", info->name(), "_", ::getpid());
    for (char& c : name) c = c == '/' ? '_' : c;
    path_ = std::filesystem::temp_directory_path() / name;
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string path() const { return path_.string(); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  size_t files() const {
    const std::filesystem::directory_iterator all(path_);
    return static_cast<size_t>(std::distance(begin(all), end(all)));
  }

 private:
  std::filesystem::path path_;
};

inline void put_file(const std::string& path, std::string_view bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string file_bytes(const std::string& path) {
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return std::move(bytes).str();
}

// The text of the Error that `call` throws; "" if it throws none.
inline std::string error_of(const auto& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// Fails the test at the caller's line unless `call` throws an Error whose text contains `part`.
inline void expect_error(const auto& call, std::string_view part, int line = __builtin_LINE(),
                         const char* file = __builtin_FILE()) {
  const std::string error = error_of(call);
  if (error.empty()) {
    ADD_FAILURE_AT(file, line) << "no error; expected: " << part;
  } else if (error.find(part) == std::string::npos) {
    ADD_FAILURE_AT(file, line) << "error: " << error << "\nexpected: " << part;
  }
}

}  // namespace ebb::testing
