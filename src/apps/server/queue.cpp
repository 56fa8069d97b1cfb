#include "apps/server/queue.h"

#include <algorithm>
#include <chrono>
#include <exception>

#include "apps/server/fault.h"
#include "apps/server/log.h"
#include "apps/server/random_text.h"

namespace ebb::server {
namespace {

constexpr double step_interval = 0.1;  // seconds between events

// Behind the numbers of all processes before, which tell fewer than one event a microsecond:
// whoever goes on from one of theirs gets the state. JSON holds it without loss.
int64_t number_before() { return static_cast<int64_t>(unix_time() * 1e6); }

size_t bytes_of(const JobSpec& spec) {
  size_t out = spec.flags.prompt.size() + spec.flags.negative.size();
  for (const JobInput& i : spec.inputs) out += i.png.size();
  return out;
}

}  // namespace

// The lock of what may end jobs. Once it is released their files are removed, and those who wait
// for them are called, in order.
class Queue::Ending {
 public:
  explicit Ending(Queue& queue) : queue_(queue), lock_(queue.mutex_) {}
  ~Ending() {
    const auto calls = std::exchange(queue_.calls_, {});
    lock_.unlock();
    for (const auto& call : calls) {
      try {
        call();
      } catch (const std::exception& e) {  // the others are told all the same
        log_fault("a finished job was not told", e);
      }
    }
  }
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;

 private:
  Queue& queue_;
  std::unique_lock<std::mutex> lock_;
};

Queue::Queue(QueueLimits limits, std::string folder,
             const std::function<void(const std::string&)>& says)
    : limits_(limits),
      folder_(std::move(folder)),
      events_(limits.events, limits.event_bytes, number_before()) {
  if (!folder_.empty()) read_kept(says);
}

// ---- what is asked ----------------------------------------------------------------------------

Queue::State* Queue::state(std::string_view id) {
  const auto at = jobs_.find(id);
  return at == jobs_.end() ? nullptr : at->second.get();
}
const Queue::State* Queue::state(std::string_view id) const {
  return const_cast<Queue*>(this)->state(id);
}

// For another job of so much.
void Queue::check_room(int64_t images, size_t bytes) const {
  if (closed_) throw HttpFault(503, "shutting_down", "the server is shutting down");
  for (const auto& w : waiting_) images += w->job->spec.images(), bytes += w->bytes;
  if (waiting_.size() >= limits_.jobs || images > static_cast<int64_t>(limits_.images) ||
      bytes > limits_.bytes)
    throw HttpFault(429, "queue_full",
                    str("the queue is full (", waiting_.size(), " jobs wait; at most ",
                        limits_.jobs, " jobs of ", limits_.images, " images and ",
                        limits_.bytes >> 20, " MB); try again later"));
}

// Throws HttpFault where it cannot be taken.
void Queue::check(const State& s) const {
  check_room(s.job->spec.images(), s.bytes);
  const State* same = state(s.job->id);
  if (same && !is_finished(same->view.status))
    throw HttpFault(409, "id_in_use", str("a job with the id '", s.job->id, "' is not finished"));
}

std::shared_ptr<const Job> Queue::submit(JobSpec spec) {
  const auto s = std::make_shared<State>();
  s->job = std::make_shared<Job>();
  s->bytes = bytes_of(spec);
  s->job->id = spec.id.empty() ? random_text(16) : spec.id;
  s->job->spec = std::move(spec);
  s->job->file = random_text(16);
  s->job->created = unix_time();
  s->view.job = s->job;
  s->view.progress.images = s->job->spec.images();
  {
    const std::lock_guard lock(mutex_);
    forget_old();
    check(*s);
    s->job->order = ++last_order_;
  }
  keep_new(*s->job);
  try {
    add(s);
  } catch (...) {
    unkeep(*s->job);
    throw;
  }
  return s->job;
}

void Queue::add(const std::shared_ptr<State>& s) {
  const std::lock_guard lock(mutex_);
  check(*s);  // others may have come while its files were written
  if (std::erase(finished_, s->job->id) > 0 && forgets_) forgets_(state(s->job->id)->view);
  jobs_[s->job->id] = s;
  insert(s);
  publish_job("queued", *s);
  if (waiting_.back() != s) tell_order();
  wake_.notify_one();
}

std::optional<JobView> Queue::find(std::string_view id) const {
  const std::lock_guard lock(mutex_);
  const State* s = state(id);
  return s ? std::optional(s->view) : std::nullopt;
}

std::vector<JobView> Queue::all() {
  const std::lock_guard lock(mutex_);
  forget_old();
  return views();
}

std::vector<JobView> Queue::views() const {
  std::vector<JobView> out;
  for (const auto& [id, s] : jobs_)  // one that runs, or is being encoded behind its run
    if (s->view.status == JobStatus::generating) out.push_back(s->view);
  for (const auto& s : waiting_) out.push_back(s->view);
  for (auto id = finished_.rbegin(); id != finished_.rend(); ++id)
    if (const State* s = state(*id)) out.push_back(s->view);
  return out;
}

std::optional<JobView> Queue::running() const {
  const std::lock_guard lock(mutex_);
  return running_ ? std::optional(running_->view) : std::nullopt;
}

std::vector<std::string> Queue::waiting() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> out;
  for (const auto& s : waiting_) out.push_back(s->job->id);
  return out;
}

bool Queue::cancel(std::string_view id) {
  const Ending lock(*this);
  return cancel(state(id));
}

bool Queue::cancel(const Job& job) {
  const Ending lock(*this);
  State* s = state(job.id);
  return cancel(s && s->job.get() == &job ? s : nullptr);
}

bool Queue::cancel(State* s) {
  if (!s || is_finished(s->view.status)) return false;
  give_up(*s);
  wake_.notify_all();
  if (s->view.status == JobStatus::queued) end(*s, JobStatus::cancelled, {});
  return true;
}

// One that runs ends behind its kernel or with the process, whose next does not go on with it.
void Queue::give_up(State& s) {
  s.job->cancel = s.unwanted = true;
  if (folder_.empty() || s.view.status == JobStatus::queued) return;  // its end removes the file
  calls_.push_back([this, job = s.job] {
    const std::lock_guard one_writes(files_);
    give_up_job(folder_, *job);
  });
}

void Queue::cancel_all() {
  const Ending lock(*this);
  if (running_) give_up(*running_);
  for (const auto& s : joined_) give_up(*s);
  wake_.notify_all();
  while (!waiting_.empty()) {
    waiting_.back()->unwanted = true;
    end(*waiting_.back(), JobStatus::cancelled, {});
  }
}

bool Queue::skip(std::string_view id) {
  const std::lock_guard lock(mutex_);
  for (const auto& s : joined_)
    if (s->job->id == id) return s->job->skip = true;
  if (!running_ || running_->job->id != id) return false;
  return running_->job->skip = true;
}

void Queue::when_finished(const Job& job, std::function<void(const JobView&)> call) {
  std::optional<JobView> done;
  {
    const std::lock_guard lock(mutex_);
    State* s = state(job.id);
    if (!s || s->job.get() != &job)
      throw HttpFault(500, "forgotten", "the job is finished, and forgotten by now");
    if (!is_finished(s->view.status)) return s->calls.push_back(std::move(call));
    done = s->view;
  }
  call(*done);
}

void Queue::when_none_runs(std::function<void()> call) {
  const Ending lock(*this);
  none_runs_ = std::move(call);
  tell_if_none_runs();
}

void Queue::tell_if_none_runs() {
  if (!none_runs_ || std::ranges::any_of(jobs_, [](const auto& j) {
        return j.second->view.status == JobStatus::generating;
      }))
    return;
  calls_.push_back(std::exchange(none_runs_, nullptr));
}

void Queue::close(bool drain) {
  const Ending lock(*this);
  if (closed_) return;
  closed_ = keeps_all_ = true;
  if (running_ && !drain) running_->job->cancel = true;
  for (const auto& s : joined_)
    if (!drain) s->job->cancel = true;
  while (!waiting_.empty())
    end(*waiting_.back(), JobStatus::cancelled,
        {503, "shutting_down", "the server is shutting down"});
  wake_.notify_all();
}

void Queue::when_forgotten(std::function<void(const JobView&)> call) {
  const std::lock_guard lock(mutex_);
  forgets_ = std::move(call);
}

void Queue::forget() {
  const std::lock_guard lock(mutex_);
  forget_old();
}

// ---- the worker -------------------------------------------------------------------------------

bool Queue::run_idle(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  if (closed_ || running_ || !waiting_.empty() || task_) return false;
  task_ = std::move(task);
  wake_.notify_one();
  return true;
}

std::shared_ptr<Job> Queue::next() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return closed_ || task_ || !waiting_.empty(); });
    if (!task_ && closed_) return nullptr;
    if (!task_) break;
    auto task = std::exchange(task_, nullptr);
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
  }
  running_ = waiting_.front();
  turn_ = std::max(turn_, (*std::ranges::min_element(waiting_, {}, &State::turn))->turn);
  begin(*running_);
  return running_->job;
}

void Queue::progress(const Job& job, const JobProgress& p) {
  const std::lock_guard lock(mutex_);
  State* s = state(job.id);
  if (!s || is_finished(s->view.status)) return;
  const bool other = p.image != s->view.progress.image || p.step != s->view.progress.step;
  s->view.progress = p;
  const double now = steady_time();
  if (!other || now - s->told < step_interval) return;
  s->told = now;
  events_.add("step",
              {{"job", job.id},
               {"image", p.image},
               {"images", p.images},
               {"step", p.step},
               {"steps", p.steps},
               {"share", p.share},
               {"eta_s", p.seconds_left < 0 ? Json() : Json(p.seconds_left)},
               {"preview_id", p.preview}},
              s->job);
}

void Queue::warn(const Job& job, const std::string& text) {
  const std::lock_guard lock(mutex_);
  State* s = state(job.id);
  if (!s) return;
  std::vector<std::string>& all = s->view.warnings;
  if (std::ranges::find(all, text) == all.end()) all.push_back(text);
}

void Queue::encoding(const Job& job) {
  const std::lock_guard lock(mutex_);
  if (State* s = state(job.id)) ++s->encoding;
}

void Queue::encoded(const Job& job, std::optional<JobImage> image) {
  const bool is_lost = !image;
  if (image) add_image(job, std::move(*image));
  const Ending lock(*this);
  State* s = state(job.id);
  if (!s) return;
  s->lost += is_lost;
  s->encoding = std::max<int64_t>(s->encoding - 1, 0);
  end_if_encoded(*s);
}

// The job does not end while its file is written: the picture still counts as being encoded.
void Queue::add_image(const Job& job, JobImage image) {
  const std::lock_guard one_writes(files_);
  int64_t done = 0;
  bool unwanted = false;
  {
    const std::lock_guard lock(mutex_);
    State* s = state(job.id);
    if (!s) return;
    unwanted = s->unwanted;
    events_.add("image", {{"job", job.id},
                          {"index", image.index},
                          {"id", image.id},
                          {"url", "/ebb/v1/images/" + image.id},
                          {"seed", image.seed}});
    auto& images = s->view.images;
    images.insert(std::ranges::upper_bound(images, image.index, {}, &JobImage::index),
                  std::move(image));
    done = done_of(*s);
  }
  if (folder_.empty() || !job.spec.keeps || unwanted) return;
  try {
    write_job(folder_, job, done);
  } catch (const Error& e) {  // the job must end all the same
    warn(job, str(e.what(), "; behind a restart the job begins earlier"));
  }
}

void Queue::finish(const Job& job, JobStatus status, JobError error) {
  const Ending lock(*this);
  State* s = state(job.id);
  leave(job);
  if (!s) return;
  s->ends = status, s->error = std::move(error);
  end_if_encoded(*s);
}

void Queue::end_if_encoded(State& s) {
  if (!s.ends || s.encoding > 0) return;
  if (*s.ends != JobStatus::completed || s.lost == 0) return end(s, *s.ends, std::move(s.error));
  end(s, JobStatus::failed,
      {500, "encoding_failed",
       str(s.lost, " of the job's ", s.job->spec.images(), " pictures could not be encoded",
           s.view.warnings.empty() ? "" : ": ",
           s.view.warnings.empty() ? "" : s.view.warnings.back())});
}

void Queue::end(State& s, JobStatus status, JobError error) {
  const bool waited = s.view.status == JobStatus::queued;
  s.view.status = status;
  s.view.error = std::move(error);
  s.view.completed = unix_time();
  s.ended = steady_time();
  s.view.position = -1;
  s.ends.reset();
  if (waited) {
    waiting_.remove_if([&](const auto& w) { return w.get() == &s; });
    number_waiting();
  }
  finished_.push_back(s.job->id);
  if (!stays_kept(s))
    calls_.push_back([this, job = s.job] { unkeep(*job); });  // a disk may take its time
  publish_job(status == JobStatus::completed ? "done"
              : status == JobStatus::failed  ? "failed"
                                             : "removed",
              s);
  for (auto& call : std::exchange(s.calls, {}))
    calls_.push_back([call = std::move(call), view = s.view] { call(view); });
  tell_if_none_runs();
}

void Queue::forget_old() {
  const double now = steady_time();
  while (!finished_.empty()) {
    const auto at = jobs_.find(finished_.front());
    if (at != jobs_.end() && finished_.size() <= limits_.known &&
        now - at->second->ended < limits_.known_seconds)
      return;
    if (at != jobs_.end()) {
      if (forgets_) forgets_(at->second->view);
      jobs_.erase(at);
    }
    finished_.pop_front();
  }
}

// ---- the folder -------------------------------------------------------------------------------

// The smallest number of a picture that is missing: two encode at a time.
int64_t Queue::done_of(const State& s) const {
  int64_t done = s.job->done_before;
  for (const JobImage& i : s.view.images) done += i.index == done;
  return done;
}

void Queue::keep_new(Job& job) const {
  if (folder_.empty()) return;
  try {
    write_inputs(folder_, job);
    if (job.spec.keeps) write_job(folder_, job, job.done_before);
  } catch (const Error& e) {
    unkeep(job);
    throw HttpFault(507, "cannot_keep", str("the job cannot be kept on the disk: ", e.what()));
  }
}

void Queue::unkeep(const Job& job) const {
  if (!folder_.empty()) remove_job(folder_, job);
}

void Queue::read_kept(const std::function<void(const std::string&)>& says) {
  for (const auto& job : read_jobs(folder_, says)) {
    if (jobs_.contains(job->id)) {
      if (says) says(str("serve: two kept jobs have the id '", job->id, "'; one of them is left"));
      continue;
    }
    const auto s = std::make_shared<State>();
    s->job = job;
    s->view.job = job;
    s->view.progress.images = job->spec.images();
    jobs_[job->id] = s;
    waiting_.push_back(s);
    last_order_ = std::max(last_order_, job->order);
  }
  number_waiting();
}

}  // namespace ebb::server
