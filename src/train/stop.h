// What SIGINT, SIGTERM and SIGHUP (a closed terminal) do: StopSignals makes of them a flag that a
// loop polls between steps, EndOnSignal ends the process with a sentence. Signals that were ignored
// (SIGINT in background jobs of scripts) stay ignored. SignalThread keeps handlers off the threads
// that compute.
#pragma once

#include <array>
#include <csignal>
#include <string_view>
#include <thread>

namespace ebb::train {

constexpr std::array stop_signals = {SIGINT, SIGTERM, SIGHUP};
using HandlersBefore = std::array<struct sigaction, stop_signals.size()>;

// While an instance exists, the first of the signals is only recorded, and `said` written as a line
// on standard error at once, unless it is empty. A further one within a second of the first counts
// as the same request, a later one ends the process as usual. One instance of either class at a
// time.
class StopSignals {
 public:
  explicit StopSignals(std::string_view said);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The number of the signal that came, or 0.
  int requested() const;

 private:
  HandlersBefore before_;
};

// While an instance exists, a signal writes `said` as a line on standard error and ends the process
// at once, with the exit code of commands that were stopped (128 and the signal's number): for work
// that cannot be polled and has nothing to save. `json`: it also writes an object with the signal's
// number on standard output. One instance of either class at a time.
class EndOnSignal {
 public:
  explicit EndOnSignal(std::string_view said, bool json = false);
  ~EndOnSignal();
  EndOnSignal(const EndOnSignal&) = delete;
  EndOnSignal& operator=(const EndOnSignal&) = delete;

 private:
  HandlersBefore before_;
};

// A thread that takes the signals: while an instance exists, they are blocked in the thread that
// made it and in all that start from then on. A program makes one before other threads start, and
// the classes above are safe then. A handler writes below the stack pointer of the thread that it
// interrupts, and oneDNN's compiled f32 products (as of 2.6) point that into a block of the heap
// while they compute: what lies before the block would be overwritten.
class SignalThread {
 public:
  SignalThread();
  ~SignalThread();
  SignalThread(const SignalThread&) = delete;
  SignalThread& operator=(const SignalThread&) = delete;

 private:
  sigset_t before_;  // the mask of the thread that made it
  std::jthread thread_;
};

}  // namespace ebb::train
