// Queue: the order of those that wait.
#include <algorithm>
#include <iterator>
#include <utility>

#include "apps/server/queue.h"

namespace ebb::server {

// Clients take turns: a job has the turn behind the last one of its client, of a job that waits or
// has begun, but none that is over.
void Queue::insert(const std::shared_ptr<State>& s) {
  const std::string& client = s->job->spec.client;
  const auto before = turns_.find(client);
  int64_t last = before == turns_.end() ? 0 : before->second;
  auto own = waiting_.begin();  // behind its client's last one
  for (auto i = waiting_.begin(); i != waiting_.end(); ++i)
    if ((*i)->job->spec.client == client) last = std::max(last, (*i)->turn), own = std::next(i);
  s->turn = std::max(last + 1, turn_);
  waiting_.insert(
      std::find_if(own, waiting_.end(), [&](const auto& w) { return w->turn > s->turn; }), s);
  number_waiting();
}

void Queue::number_waiting() {
  int64_t i = 0;
  for (const auto& s : waiting_) s->view.position = i++;
}

bool Queue::move(std::string_view id, size_t position) {
  const std::lock_guard one_writes(files_);
  std::vector<std::shared_ptr<State>> changed;
  {
    const std::lock_guard lock(mutex_);
    const auto at = std::ranges::find_if(waiting_, [&](const auto& s) { return s->job->id == id; });
    if (at == waiting_.end()) return false;
    const auto s = *at;
    waiting_.erase(at);
    waiting_.insert(std::next(waiting_.begin(),
                              static_cast<std::ptrdiff_t>(std::min(position, waiting_.size()))),
                    s);
    number_waiting();
    changed = reordered();
    tell_order();
  }
  for (const auto& s : changed) keep_order(*s);
  return true;
}

// Gives those that wait the numbers that they have among them, in their order: who has another one.
std::vector<std::shared_ptr<Queue::State>> Queue::reordered() {
  std::vector<int64_t> orders;
  for (const auto& s : waiting_) orders.push_back(s->job->order);
  std::ranges::sort(orders);
  std::vector<std::shared_ptr<State>> out;
  auto order = orders.begin();
  for (const auto& s : waiting_) {
    const int64_t before = std::exchange(s->job->order, *order++);
    if (before != s->job->order) out.push_back(s);
  }
  return out;
}

void Queue::keep_order(const State& s) {
  if (folder_.empty() || !s.job->spec.keeps) return;
  int64_t done = 0;
  {
    const std::lock_guard lock(mutex_);
    if (is_finished(s.view.status) || s.unwanted) return;
    done = done_of(s);
  }
  try {
    write_job(folder_, *s.job, done);
  } catch (const Error& e) {
    warn(*s.job, str(e.what(), "; behind a restart the job has its place of before"));
  }
  bool is_over = false;
  {
    const std::lock_guard lock(mutex_);
    is_over = is_finished(s.view.status) && !stays_kept(s);
  }
  if (is_over) unkeep(*s.job);  // its end may have removed the file before it was written
}

// In the folder, for the next process: of one that is finished.
bool Queue::stays_kept(const State& s) const {
  return s.job->spec.keeps && keeps_all_ && !s.unwanted && s.view.status == JobStatus::cancelled;
}

}  // namespace ebb::server
