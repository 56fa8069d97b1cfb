#include "apps/cli/file_faults.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/names.h"
#include "io/mapped_file.h"

namespace ebb::cli {
namespace {

// A signal handler can reach nothing but globals; these are the only ones.
struct sigaction before;
std::atomic_flag ending;
struct Line {
  std::array<char, 8192> text = {};
  size_t length = 0;
};
std::array<Line, 2> lines;  // one is shown while the other is written
std::atomic<size_t> shown = 0;

void say(std::string_view text) {
  // Nothing can be done where nobody reads it.
  static_cast<void>(!::write(STDERR_FILENO, text.data(), text.size()));
}

[[noreturn]] void end_by(const io::MappedFile& file) {
  constexpr int fault = 2;
  while (ending.test_and_set()) ::pause();      // another thread ends the process
  if (::isatty(STDERR_FILENO) != 0) say("\n");  // behind a line of progress
  const Line& line = lines[shown];
  say({line.text.data(), line.length});
  std::array<char, 24> digits = {};
  const auto end =
      std::to_chars(digits.data(), digits.data() + digits.size(), file.bytes_left()).ptr;
  say("ebb: error: ");
  say(file.sentence().before);
  say({digits.data(), static_cast<size_t>(end - digits.data())});
  say(file.sentence().after);
  say("\n");
  ::_exit(fault);
}

void on_fault(int, siginfo_t* info, void*) {
  if (const io::MappedFile* file = io::MappedFile::at(info->si_addr)) end_by(*file);
  sigaction(SIGBUS, &before, nullptr);  // the access is repeated, and ends the process
}

// Where a thread handles signals. oneDNN's compiled products point the stack pointer into the heap
// (train/stop.h), where there may be no room.
class SignalStack {
 public:
  SignalStack() {
    stack_t s = {};
    s.ss_sp = memory_.get();
    s.ss_size = size;
    sigaltstack(&s, &before_);
  }
  ~SignalStack() { sigaltstack(&before_, nullptr); }
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  static constexpr size_t size = 64 << 10;  // the state of the largest registers is 11 KB
  std::unique_ptr<char[]> memory_ = std::make_unique<char[]>(size);
  stack_t before_ = {};
};

}  // namespace

void handle_file_faults() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction a = {};
    a.sa_sigaction = on_fault;
    a.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&a.sa_mask);
    sigaction(SIGBUS, &a, &before);
  });
  // The threads of later teams are these.
#pragma omp parallel
  { static thread_local const SignalStack stack; }
}

void tell_at_file_fault(std::string_view text) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  Line& next = lines[1 - shown];
  const std::string safe = printable(text);
  next.length = std::min(safe.size(), next.text.size() - 1);
  std::copy_n(safe.begin(), next.length, next.text.begin());
  if (next.length > 0) next.text[next.length++] = '\n';
  shown = 1 - shown;
}

}  // namespace ebb::cli
