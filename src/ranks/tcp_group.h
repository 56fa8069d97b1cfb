// The ranks of a run over TCP: rank 0 is the hub, and each of the others has one connection to it.
// They pass texts at the start, and signs of life while the run lasts: a thread of each rank says
// how far it is, and rank 0's looks whether one died or keeps the others waiting. Then one line
// says which, and the processes of all ranks end, although their main threads may be blocked.
#pragma once

#include <functional>
#include <memory>

#include "core/communicator.h"
#include "ranks/launch.h"
#include "ranks/socket.h"
#include "ranks/watch.h"

namespace ebb::ranks {

class Control;

class TcpGroup final : public RankGroup {
 public:
  // Waits until all are there. Throws Error if they are not within the time, or do not fit.
  explicit TcpGroup(const Launch& launch, const Limits& limits = {});
  // With a listener of rank 0's own making, to which the launch's addresses and port lead. What is
  // to be kept lives as long as the group.
  TcpGroup(const Launch& launch, const Limits& limits, Socket listener,
           std::shared_ptr<void> keep = {});
  // As goodbye(). While an Error is on its way: the other ranks end, and are told that this one
  // says why.
  ~TcpGroup() override;
  TcpGroup(const TcpGroup&) = delete;
  TcpGroup& operator=(const TcpGroup&) = delete;

  int64_t rank() const override;
  int64_t ranks() const override;
  int64_t local_rank() const override;
  // Throws Error also for a text above 4 MB.
  std::vector<std::string> gather(std::string_view own) override;
  const Member& member(int64_t rank) const;
  int64_t ranks_here() const;  // on this host, with this one

  // What this rank's main thread begins now. Costs less than a microsecond.
  void report(int64_t step, Phase phase);
  // Asked every second on another thread: what it gives, unless it is "", ends all ranks as fail()
  // does, while the main thread may wait for the link for ever.
  void watch_link(std::function<std::string()> fault);
  // Ends all ranks, this process included, because of an Error here: it is printed once, with the
  // rank's name unless all have the same.
  [[noreturn]] void fail(std::string_view error);
  // The orderly end: what happens to this process from now on concerns no other rank.
  void goodbye();

 private:
  Launch launch_;
  std::shared_ptr<void> kept_;
  std::vector<Member> members_;
  std::unique_ptr<Control> control_;  // null: there is one rank, or it has said goodbye
  int exceptions_ = 0;                // on their way when this was made
};

}  // namespace ebb::ranks
