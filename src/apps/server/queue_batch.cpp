// Queue: jobs that run together.
#include <algorithm>

#include "apps/server/queue.h"

namespace ebb::server {

// Of a job that waits.
void Queue::begin(State& s) {
  waiting_.remove_if([&](const auto& w) { return w.get() == &s; });
  number_waiting();
  int64_t& turn = turns_[s.job->spec.client];
  turn = std::max(turn, s.turn);
  std::erase_if(turns_, [&](const auto& t) { return t.second < turn_; });  // it is over
  s.view.status = JobStatus::generating;
  s.view.position = -1;
  s.view.started = unix_time();
  publish_job("started", s);
}

void Queue::leave(const Job& job) {
  const auto is_it = [&](const auto& s) { return s && s->job->id == job.id; };
  std::erase_if(joined_, is_it);
  if (!is_it(running_)) return;
  running_ = nullptr;
  if (joined_.empty()) return;
  running_ = joined_.front();
  joined_.erase(joined_.begin());
}

std::vector<std::shared_ptr<Job>> Queue::waiting_jobs() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Job>> out;
  for (const auto& s : waiting_) out.push_back(s->job);
  return out;
}

std::vector<std::shared_ptr<Job>> Queue::join(const std::vector<std::shared_ptr<Job>>& jobs) {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Job>> out;
  for (const auto& job : jobs) {
    const auto at = std::ranges::find(waiting_, job, &State::job);
    if (at == waiting_.end()) continue;
    joined_.push_back(*at);
    begin(*joined_.back());
    out.push_back(job);
  }
  return out;
}

void Queue::wait_for_more(size_t known, std::chrono::steady_clock::time_point end) {
  std::unique_lock lock(mutex_);
  wake_.wait_until(lock, end, [&] {
    return closed_ || waiting_.size() > known || (running_ && running_->job->cancel);
  });
}

std::vector<std::string> Queue::running_ids() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> out;
  if (running_) out.push_back(running_->job->id);
  for (const auto& s : joined_) out.push_back(s->job->id);
  return out;
}

}  // namespace ebb::server
