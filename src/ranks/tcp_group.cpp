#include "ranks/tcp_group.h"

#include <exception>

#include "base/error.h"
#include "ranks/control.h"
#include "ranks/leave.h"

namespace ebb::ranks {

TcpGroup::TcpGroup(const Launch& launch, const Limits& limits)
    : TcpGroup(launch, limits,
               launch.rank == 0 && launch.ranks > 1 ? listener_of(launch) : Socket()) {}

TcpGroup::TcpGroup(const Launch& launch, const Limits& limits, Socket listener,
                   std::shared_ptr<void> keep)
    : launch_(launch), kept_(std::move(keep)), exceptions_(std::uncaught_exceptions()) {
  if (launch.ranks == 1) return;
  Assembly all = assemble(launch, limits, std::move(listener));
  members_ = all.members;
  control_ = launch.rank == 0 ? make_hub(std::move(all), limits)
                              : make_spoke(std::move(all), launch.rank, limits);
  control_->start();
}

TcpGroup::~TcpGroup() {
  if (control_)
    control_->leave_group(std::uncaught_exceptions() > exceptions_ ? Control::Leaving::with_an_error
                                                                   : Control::Leaving::in_order);
}

int64_t TcpGroup::rank() const { return launch_.rank; }
int64_t TcpGroup::ranks() const { return launch_.ranks; }
int64_t TcpGroup::local_rank() const { return launch_.local_rank; }

std::vector<std::string> TcpGroup::gather(std::string_view own) {
  if (launch_.ranks == 1) return {std::string(own)};
  require(control_ != nullptr, "ranks: rank ", launch_.rank, " has left the group");
  return control_->gather(own);
}

const Member& TcpGroup::member(int64_t rank) const {
  return members_.at(static_cast<size_t>(rank));
}

int64_t TcpGroup::ranks_here() const { return ranks_beside(members_, launch_.rank); }

void TcpGroup::report(int64_t step, Phase phase) {
  if (control_) control_->report(step, phase);
}

void TcpGroup::watch_link(std::function<std::string()> fault) {
  if (control_) control_->watch_link(std::move(fault));
}

void TcpGroup::fail(std::string_view error) {
  if (control_) control_->fail(error);
  say(error);
  leave();
}

void TcpGroup::goodbye() {
  if (!control_) return;
  control_->leave_group(Control::Leaving::in_order);
  control_.reset();
}

}  // namespace ebb::ranks
