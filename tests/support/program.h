// Test helpers: the program and other commands, run with words as a shell takes them.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <string>

#include "base/error.h"
#include "core/tensor.h"
#include "io/image.h"
#include "support/files.h"

namespace ebb::testing {

struct Output {
  int code = 0;
  std::string text;  // both streams
};

inline Output run_command(const std::string& command) {
  Output out;
  std::signal(SIGINT, SIG_DFL);  // which programs inherit; tests may run where it is ignored
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  require(pipe != nullptr, "popen");
  std::array<char, 4096> part{};
  while (const size_t n = std::fread(part.data(), 1, part.size(), pipe)) {
    out.text.append(part.data(), n);
  }
  const int status = pclose(pipe);
  out.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return out;
}

// The program that is tested.
const std::string& program_path();
// One that tests run as several ranks: rank_program.cpp.
const std::string& rank_program_path();

inline Output run_program(const std::string& words) {
  return run_command(str("'", program_path(), "' ", words));
}

// The line of the error; the exit code must be that of a mistake.
inline std::string error_line(const std::string& words) {
  const Output out = run_program(words);
  EXPECT_EQ(out.code, 2) << words << "\n" << out.text;
  const std::string begin = "ebb: error: ";
  const size_t at = out.text.find(begin);
  if (at == std::string::npos) return "";
  const size_t from = at + begin.size();
  return out.text.substr(from, out.text.find('\n', from) - from);
}

// Tests of the program, each in a folder of its own.
class Program : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(program_path())) GTEST_SKIP() << "there is no " << program_path();
  }

  // A folder with two images, `inside` of it.
  std::string images(int64_t side, const std::string& inside = "") const {
    std::string path = folder_ / str("images", side);
    const std::string at = path + inside;
    std::filesystem::create_directories(at);
    for (const char* name : {"/a.png", "/b.png"})
      io::write_png(at + name, Tensor(DType::u8, {side, side, 3}));
    return path;
  }

  Folder folder_;
};

}  // namespace ebb::testing
