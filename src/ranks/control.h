// The thread of a rank that speaks with the others. Rank 0's is a Hub, any other's a Spoke.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "ranks/assemble.h"

namespace ebb::ranks {

class Control {
 public:
  Control(const Assembly& assembly, int64_t rank, const Limits& limits);
  virtual ~Control() = default;
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;
  void start();

  // Of the main thread.
  std::vector<std::string> gather(std::string_view own);
  void report(int64_t step, Phase phase);
  [[noreturn]] void fail(std::string_view error);
  // Asked every beat by the thread: what it gives, unless it is "", ends all ranks as an error
  // here, after `settle`: a rank that dies breaks its links, and is named first. Replaces the one
  // before, which is not asked any more when this returns.
  void watch_link(std::function<std::string()> fault);
  // How the group ends; returns when the others know. Once.
  enum class Leaving : uint8_t { in_order, with_an_error };
  void leave_group(Leaving how);

 protected:
  // A turn of the thread: what arrived and what the main thread wants. False: it is done.
  virtual bool turn() = 0;
  virtual std::vector<Connection*> connections() = 0;

  double now() const { return now_; }
  Progress progress() const;  // of this rank
  bool beat_due();
  // What the main thread wants to say, once each.
  struct Wishes {
    std::optional<std::string> text, error;
    std::optional<Leaving> leaving;
  };
  Wishes take_wishes();                          // or a fault of the link, as an error
  void deliver(std::vector<std::string> texts);  // to the main thread
  void no_more_gathers(std::string_view why);    // for the main thread
  // Ends the process; rank 0 may finish the file that it writes first.
  [[noreturn]] void end_process();

  const int64_t rank_;
  const Member& member(int64_t rank) const { return members_[static_cast<size_t>(rank)]; }

  const std::vector<Member> members_;
  const Limits limits_;

 private:
  void loop();
  std::optional<std::string> fault_of_link();  // if it is time to ask, and to tell
  void wait();
  void advance_clock();
  void wake() const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // under the mutex
  Wishes wishes_;
  std::deque<std::vector<std::string>> gathered_;
  std::string no_gathers_;  // why none comes any more
  int64_t step_ = 0;
  Phase phase_ = Phase::start;
  double phase_began_ = 0;
  std::array<double, phases> longest_{};
  std::array<bool, phases> seen_{};  // a first one was finished
  std::mutex link_mutex_;            // held while the link is asked
  std::function<std::string()> link_fault_;
  // of the thread
  std::atomic<double> now_ = 0;
  std::optional<double> broken_since_;  // the link
  double beat_at_ = 0, link_at_ = 0;
  std::chrono::steady_clock::time_point clock_;
  Socket wake_;  // an event descriptor
  std::jthread thread_;
};

std::unique_ptr<Control> make_hub(Assembly assembly, const Limits& limits);
std::unique_ptr<Control> make_spoke(Assembly assembly, int64_t rank, const Limits& limits);

// The bodies of frames.
std::string body_of(const Progress& progress);
Progress progress_of(std::string_view body);

constexpr double farewell_seconds = 2;  // at most, until the others have taken a last message

}  // namespace ebb::ranks
