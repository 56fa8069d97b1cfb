#include "ranks/spawn.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "ranks/connect.h"
#include "ranks/launch.h"
#include "ranks/socket.h"

namespace ebb::ranks {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array passed_on = {SIGINT, SIGTERM, SIGHUP};
constexpr int signalled = 128;

// ---- signals -------------------------------------------------------------------------------

// All that a signal handler can reach.
std::atomic<int> notes = -1;  // the end of a pipe to write at
constexpr uint8_t by_terminal = 0x80;

void note_signal(int signal, siginfo_t* info, void*) {
  const int before = errno;
  const auto from_terminal = info->si_code == SI_KERNEL ? by_terminal : uint8_t{0};
  const auto note = static_cast<uint8_t>(static_cast<uint8_t>(signal) | from_terminal);
  static_cast<void>(!::write(notes, &note, 1));
  errno = before;
}

// While it lives, signals that end a process, and the ends of children, become bytes of a pipe.
class SignalNotes {
 public:
  SignalNotes() {
    require(::pipe2(pipe_.data(), O_CLOEXEC | O_NONBLOCK) == 0, "ranks: no pipe is left");
    notes = pipe_[1];
    size_t i = 0;
    for (const int signal : all) {
      sigaction(signal, nullptr, &before_[i]);
      if (before_[i++].sa_handler == SIG_IGN) continue;
      struct sigaction a = {};
      a.sa_sigaction = note_signal;
      a.sa_flags = SA_RESTART | SA_SIGINFO | (signal == SIGCHLD ? SA_NOCLDSTOP : 0);
      sigemptyset(&a.sa_mask);
      sigaction(signal, &a, nullptr);
    }
  }
  ~SignalNotes() {
    size_t i = 0;
    for (const int signal : all) sigaction(signal, &before_[i++], nullptr);
    for (const int end : pipe_) ::close(end);
  }
  SignalNotes(const SignalNotes&) = delete;
  SignalNotes& operator=(const SignalNotes&) = delete;

  // The next byte, or none after so many milliseconds.
  std::optional<uint8_t> next(int milliseconds) {
    pollfd in{.fd = pipe_[0], .events = POLLIN, .revents = 0};
    ::poll(&in, 1, milliseconds);
    uint8_t note = 0;
    if (::read(pipe_[0], &note, 1) != 1) return {};
    return note;
  }

 private:
  static constexpr std::array all = {SIGINT, SIGTERM, SIGHUP, SIGCHLD};
  std::array<int, 2> pipe_{};
  std::array<struct sigaction, all.size()> before_{};
};

// ---- starting ------------------------------------------------------------------------------

// What exec takes; made before the fork, behind which no memory may be taken.
class Words {
 public:
  explicit Words(std::vector<std::string> words) : words_(std::move(words)) {
    for (std::string& w : words_) pointers_.push_back(w.data());
    pointers_.push_back(nullptr);
  }
  char* const* data() const { return pointers_.data(); }

 private:
  std::vector<std::string> words_;
  std::vector<char*> pointers_;
};

std::vector<std::string> variables_of(int64_t rank, const Copies& copies, const Socket& listener,
                                      const std::string& token) {
  Environment all = environment();
  for (const auto& [name, value] : {std::pair{variable::rank, str(rank)},
                                    {variable::ranks, str(copies.ranks)},
                                    {variable::local_rank, str(rank)},
                                    {variable::local_ranks, str(copies.ranks)},
                                    {variable::address, std::string("127.0.0.1")},
                                    {variable::port, str(port_of(listener))},
                                    {variable::listener, str(listener.descriptor())},
                                    {variable::token, token}})
    all[name] = value;
  std::vector<std::string> out;
  for (const auto& [name, value] : all) out.push_back(str(name, "=", value));
  return out;
}

[[noreturn]] void become(const Copies& copies, char* const* words, char* const* variables,
                         int inherited, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(signalled + SIGTERM);
  sigset_t taken;
  sigemptyset(&taken);
  for (const int signal : passed_on) sigaddset(&taken, signal);
  pthread_sigmask(SIG_UNBLOCK, &taken, nullptr);
  if (inherited >= 0) ::fcntl(inherited, F_SETFD, 0);
  ::execve(copies.program.c_str(), words, variables);
  constexpr int not_found = 127;
  ::_exit(not_found);
}

// ---- waiting -------------------------------------------------------------------------------

class Children {
 public:
  explicit Children(const Copies& copies) : copies_(copies) {}

  void start() {
    const Socket listener = listen_at(0, Reach::this_host);
    const std::string token = random_token();
    const Words words(copies_.arguments);
    const pid_t parent = ::getpid();
    for (int64_t rank = 0; rank < copies_.ranks; ++rank) {
      const Words variables(variables_of(rank, copies_, listener, token));
      const int inherited = rank == 0 ? listener.descriptor() : -1;
      const pid_t child = ::fork();
      if (child == 0) become(copies_, words.data(), variables.data(), inherited, parent);
      if (child < 0) {
        const std::string why = std::strerror(errno);
        end_all(SIGKILL);
        fail("ranks: cannot start ", copies_.ranks, " processes (", why, " at rank ", rank, ")");
      }
      alive_.push_back(child);
    }
  }

  int wait() {
    while (!alive_.empty()) {
      constexpr int milliseconds = 500;
      const std::optional<uint8_t> note = signals_.next(milliseconds);
      if (note && *note != SIGCHLD && (*note & by_terminal) == 0) end_all(*note);
      reap();
      if (fault_at_ && Clock::now() - *fault_at_ > std::chrono::duration<double>(copies_.grace))
        end_all(SIGKILL);
    }
    return code_ != 0 ? code_ : killed_;
  }

 private:
  void end_all(int signal) const {
    for (const pid_t child : alive_) ::kill(child, signal);
  }

  void reap() {
    std::erase_if(alive_, [&](pid_t child) {
      int status = 0;
      if (::waitpid(child, &status, WNOHANG) != child) return false;
      const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
      const bool killed = WIFSIGNALED(status);
      if (code_ == 0) code_ = code;
      if (killed && killed_ == 0) killed_ = signalled + WTERMSIG(status);
      // one that was asked to end has done so in order, while rank 0 may still write
      if (!fault_at_ && (killed || (code > 0 && code < signalled))) fault_at_ = Clock::now();
      return true;
    });
  }

  const Copies& copies_;
  SignalNotes signals_;
  std::vector<pid_t> alive_;
  int code_ = 0, killed_ = 0;
  std::optional<Clock::time_point> fault_at_;
};

}  // namespace

int run_copies(const Copies& copies) {
  Children children(copies);
  children.start();
  return children.wait();
}

}  // namespace ebb::ranks
