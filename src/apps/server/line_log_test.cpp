#include "apps/server/line_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

namespace ebb::server {
namespace {

class Pipe {
 public:
  Pipe() { EXPECT_EQ(::pipe2(ends_, O_CLOEXEC), 0); }
  ~Pipe() { ::close(ends_[0]), ::close(ends_[1]); }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int in() const { return ends_[1]; }
  // What is in it; at least a byte must be.
  std::string taken() const {
    std::string out(size_t{1} << 20, '\0');
    const ssize_t n = ::read(ends_[0], out.data(), out.size());
    EXPECT_GT(n, 0);
    return out.substr(0, static_cast<size_t>(std::max<ssize_t>(n, 0)));
  }

 private:
  int ends_[2] = {-1, -1};
};

TEST(line_log, lines__are_written_whole) {
  const Pipe pipe;
  LineLog log(pipe.in());
  log.write("GET / 200");
  log.write("serve: a task failed: ", "no memory");
  EXPECT_EQ(pipe.taken(), "GET / 200\nserve: a task failed: no memory\n");
}

TEST(line_log, long_lines__are_cut) {
  const Pipe pipe;
  LineLog log(pipe.in());
  log.write(std::string(3000, 'a'), std::string(3000, 'b'));
  EXPECT_EQ(pipe.taken(), std::string(3000, 'a') + std::string(1095, 'b') + "\n");
}

TEST(line_log, a_pipe_that_nobody_reads__holds_nobody_up_and_the_next_line_tells) {
  const Pipe pipe;
  LineLog log(pipe.in());
  const std::string line(1000, 'x');
  constexpr int lines = 200;
  for (int i = 0; i < lines; ++i) log.write(line);
  const std::string before = pipe.taken();
  const size_t written = before.size() / (line.size() + 1);
  EXPECT_EQ(before.size() % (line.size() + 1), 0u) << "no line is cut";
  ASSERT_LT(written, static_cast<size_t>(lines));
  log.write("the next one");
  EXPECT_EQ(pipe.taken(), std::to_string(lines - written) +
                              " lines of the log were left out: nobody read it\nthe next one\n");
}

TEST(line_log, a_reader_that_is_gone__is_no_fault) {
  LineLog none(-1);
  none.write("said to nobody");
}

}  // namespace
}  // namespace ebb::server
