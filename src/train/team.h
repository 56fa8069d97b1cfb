// The ranks of a run as the loop of one of them sees them. Of one that trains alone, none of it
// does anything.
#pragma once

#include <string>
#include <vector>

#include "ranks/agree.h"
#include "ranks/tcp_group.h"
#include "runtime/plan.h"

namespace ebb::train {

// What of a device must be alike: processors may differ in their numbers of cores.
ranks::Fact device_fact(const Device& device);

class Team {
 public:
  explicit Team(ranks::TcpGroup* group) : group_(group) {}  // null: alone

  bool alone() const { return !group_ || group_->ranks() == 1; }
  bool leads() const { return !group_ || group_->rank() == 0; }  // writes and speaks
  // What this rank begins now, for the watch over hanging ranks.
  void report(int64_t step, ranks::Phase phase) const {
    if (group_) group_->report(step, phase);
  }

  // All ranks call these. What rank 0 says:
  std::string of_rank_0(const std::string& text) const;
  // What the first rank says that says something:
  std::string of_first(const std::string& text) const;
  // The same, with the rank's number:
  std::string of_all(const std::string& text) const;
  // Kernels that are as fast as each other differ in their last bits, and each rank has measured
  // for itself: gives all of them the choices of rank 0. Whether that changed some here.
  bool share_choices(const Context& context) const;
  // Throws Error on the ranks of a host whose free memory is less than what they take together,
  // each so many bytes of it from now on.
  void check_host_memory(int64_t bytes) const;
  // Throws Error, the same on all, where they differ.
  void check_equal(const std::vector<ranks::Fact>& facts) const;
  // The same for the collectives of plans. Ranks whose devices differ in what is free, or was
  // measured, could compile other plans; collectives in another order hang, or add what is not
  // alike.
  void check_collectives(const std::vector<const Plan*>& plans) const;

  // Ends all ranks: to be called while what a collective may still use lives. Alone it returns.
  void fail(const Error& e) const {
    if (group_) group_->fail(e.what());
  }

 private:
  ranks::TcpGroup* group_;
};

}  // namespace ebb::train
