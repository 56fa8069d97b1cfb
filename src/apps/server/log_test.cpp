// The log, where nobody reads it.
#include "apps/server/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "support/http_client.h"
#include "support/program.h"

namespace ebb::testing {
namespace {

using std::chrono::milliseconds;

// As small as a pipe can be.
class LogPipe {
 public:
  LogPipe() {
    EXPECT_EQ(::pipe2(ends_, O_CLOEXEC), 0);
    EXPECT_GE(::fcntl(ends_[1], F_SETPIPE_SZ, 1), 0);
  }
  ~LogPipe() { ::close(ends_[0]), close_writer(); }
  LogPipe(const LogPipe&) = delete;
  LogPipe& operator=(const LogPipe&) = delete;
  int writer() const { return ends_[1]; }
  void close_writer() { ::close(std::exchange(ends_[1], -1)); }
  void fill() const {
    ::fcntl(ends_[1], F_SETFL, O_NONBLOCK);
    while (::write(ends_[1], "x\n", 2) == 2) {
    }
    ::fcntl(ends_[1], F_SETFL, 0);
  }
  // Waits for as many lines.
  std::vector<std::string> read(size_t lines) const {
    std::vector<std::string> out;
    std::string line;
    for (char c = 0; out.size() < lines && ::read(ends_[0], &c, 1) == 1;)
      if (c == '\n')
        out.push_back(std::exchange(line, {}));
      else
        line += c;
    return out;
  }

 private:
  int ends_[2] = {-1, -1};
};

// "serve: nobody read the log: 5 lines are left out here" -> 5; 0: another line.
size_t left_out_in(const std::string& line) {
  const std::string begin = "serve: nobody read the log: ";
  return line.starts_with(begin) ? std::stoul(line.substr(begin.size())) : 0;
}

}  // namespace

TEST(server_log, lines_that_find_no_room__are_counted_where_they_would_stand) {
  for (const bool at_once : {false, true}) {  // there is room while others still wait, or behind
    const LogPipe pipe;
    server::LineWriter log(pipe.writer(), 100'000);
    constexpr size_t all = 50'000;
    const auto start = std::chrono::steady_clock::now();
    for (size_t i = 0; i < all; ++i) log.add(str("line ", i));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
    EXPECT_FALSE(log.wait(milliseconds(10)));
    size_t next = 0, told = 0;
    while (next < all) {
      const std::string line = pipe.read(1).at(0);
      const size_t left_out = left_out_in(line);
      if (left_out == 0) {
        ASSERT_EQ(line, str("line ", next));
      }
      next += std::max<size_t>(left_out, 1), told += left_out;
      if (next == 2000 && at_once) log.add("the next one");
    }
    EXPECT_EQ(next, all);
    EXPECT_GT(told, 30'000u);
    if (!at_once) log.add("the next one");
    EXPECT_EQ(pipe.read(1).at(0), "the next one");
    EXPECT_TRUE(log.wait(milliseconds(5000)));
  }
}

TEST(server_log, its_end__waits_a_second_at_most) {
  const LogPipe pipe;
  pipe.fill();
  auto log = std::make_unique<server::LineWriter>(pipe.writer(), 1000);
  log->add("nobody reads this");
  const auto start = std::chrono::steady_clock::now();
  log.reset();
  const auto spent = std::chrono::steady_clock::now() - start;
  EXPECT_GE(spent, milliseconds(900));
  EXPECT_LT(spent, milliseconds(5000));
  while (pipe.read(1).at(0) == "x") {  // which its thread still writes
  }
}

// `ebb serve 2>&1 | a program that does not read`.
TEST(server_log, pipe_that_nobody_reads__all_is_served_and_a_signal_ends_it) {
  Folder folder;
  LogPipe pipe;
  pipe.fill();
  std::vector<std::string> words = {
      program_path(), "serve", "--engine", "fake",         "--step-ms", "1",
      "--port",       "0",     "--out",    folder / "out", "--json"};
  const pid_t pid = ::fork();
  if (pid == 0) {
    std::freopen((folder / "start").c_str(), "w", stdout);
    ::dup2(pipe.writer(), STDERR_FILENO);
    std::vector<char*> argv;
    for (std::string& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  uint16_t port = 0;
  for (int i = 0; i < 1000 && port == 0; ++i) {
    std::this_thread::sleep_for(milliseconds(10));
    const std::string text = file_bytes(folder / "start");
    const size_t at = text.find("http://127.0.0.1:");
    if (at != text.npos && text.find('\n', at) != text.npos)
      port = static_cast<uint16_t>(std::atoi(text.c_str() + at + 17));
  }
  ASSERT_NE(port, 0);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(ask(port, "GET", "/internal/ping").status, 200) << i;
  const std::string body = R"({"prompt": "a fox", "steps": 1, "width": 64, "height": 64})";
  EXPECT_EQ(ask(port, "POST", "/sdapi/v1/txt2img", body).status, 200);
  const auto start = std::chrono::steady_clock::now();
  ::kill(pid, SIGTERM);
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(8));
}

}  // namespace ebb::testing
