// Queue: jobs in their order, what is known of them, and the events of all. Any thread may call.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/server/event_log.h"
#include "apps/server/job.h"

namespace ebb::server {

struct QueueLimits {
  size_t jobs = 64, images = 256, bytes = size_t{512} << 20;
  double known_seconds = 600;                           // finished jobs
  size_t known = 100;                                   // of them, at most
  size_t events = 2000, event_bytes = size_t{8} << 20;  // that readers may go on from
};

class Queue {
 public:
  // Pictures of requests, and jobs that are kept, lie in `folder` until they are finished; "":
  // nowhere. Those that an earlier process left there are queued; `says` gets a line for each that
  // cannot be.
  Queue(QueueLimits limits, std::string folder,
        const std::function<void(const std::string&)>& says = {});

  // Throws HttpFault: 429 where it is full, 409 for an id in use, 503 once it is closed.
  std::shared_ptr<const Job> submit(JobSpec spec);
  // Throws it where submit() would for any job.
  void check_room() const {
    const std::lock_guard lock(mutex_);
    check_room(1, 0);
  }
  std::optional<JobView> find(std::string_view id) const;
  // That runs, those that wait in order, those that are finished, the newest first.
  std::vector<JobView> all();
  std::optional<JobView> running() const;
  std::vector<std::string> waiting() const;  // ids, in order
  // False: there is no such job that waits or runs.
  bool cancel(std::string_view id);
  bool cancel(const Job& job);  // whoever else has its id by now
  void cancel_all();
  bool skip(std::string_view id);                   // of the one that runs
  bool move(std::string_view id, size_t position);  // queue_order.cpp
  // `call` gets the job once it is finished, on the thread that ends it, behind those that were
  // given before; at once, on this thread, where it is. No lock of the queue is held: it may call
  // back, but must be quick, as cancel() and others wait for it. Throws HttpFault for a job that is
  // finished and forgotten, whoever else has its id by now.
  void when_finished(const Job& job, std::function<void(const JobView&)> call);
  // `call` is called once no job runs and no picture is being encoded, at once where that is so;
  // likewise. For one caller, behind close().
  void when_none_runs(std::function<void()> call);
  // No more are taken; those that wait are cancelled with 503, but stay in the folder, as does the
  // one that runs unless `drain`.
  void close(bool drain);
  // `call` gets each finished job that is forgotten; under the lock: it may not call back.
  void when_forgotten(std::function<void(const JobView&)> call);
  // Finished jobs whose time is over; those who submit or ask for all() do so too.
  void forget();

  // ---- events
  // As EventLog has it; `call` is called under the lock, and may not call back. `now` gets all jobs
  // as they are before the first of its events.
  [[nodiscard]] std::shared_ptr<const void> subscribe(EventLog::Subscriber call,
                                                      std::vector<JobView>* now = nullptr);
  size_t subscribers() const;
  int64_t last_event() const;
  std::optional<Events> events_since(int64_t number) const;
  void tell(const std::string& name, const Json& data);

  // ---- the worker
  // Has its thread do this before the next job, or before it ends; it may not throw. False: there
  // are jobs, another such task waits, or it is closed.
  bool run_idle(std::function<void()> task);
  // Waits; null once it is closed.
  std::shared_ptr<Job> next();
  // ---- batches: queue_batch.cpp
  std::vector<std::shared_ptr<Job>> waiting_jobs() const;  // in order
  // Those that still wait run now, with the one that runs; each has had its client's turn.
  std::vector<std::shared_ptr<Job>> join(const std::vector<std::shared_ptr<Job>>& jobs);
  // Until more than `known` jobs wait, the one that runs is cancelled, or it is that late.
  void wait_for_more(size_t known, std::chrono::steady_clock::time_point end);
  std::vector<std::string> running_ids() const;
  void progress(const Job& job, const JobProgress& p);
  void warn(const Job& job, const std::string& text);  // once, however often it is told
  // Pictures are being encoded: the job ends behind them.
  void encoding(const Job& job);
  // None: it failed. A job that lost pictures so is itself a failed one.
  void encoded(const Job& job, std::optional<JobImage> image);
  void finish(const Job& job, JobStatus status, JobError error = {});

 private:
  struct State {
    std::shared_ptr<Job> job;
    JobView view;
    size_t bytes = 0;                // of its texts and pictures, which may lie in the folder
    int64_t encoding = 0, lost = 0;  // pictures: those that could not be encoded
    std::optional<JobStatus> ends;   // once nothing is being encoded
    JobError error;
    bool unwanted = false;  // somebody cancelled it
    double told = -1e9;     // when a step was
    double ended = 0;
    int64_t turn = 0;
    std::vector<std::function<void(const JobView&)>> calls;  // of when_finished()
  };
  class Ending;
  State* state(std::string_view id);
  const State* state(std::string_view id) const;
  bool cancel(State* s);  // null: none
  void give_up(State& s);
  void check(const State& s) const;
  void check_room(int64_t images, size_t bytes) const;
  void add(const std::shared_ptr<State>& s);
  void add_image(const Job& job, JobImage image);
  void insert(const std::shared_ptr<State>& s);
  void number_waiting();
  std::vector<std::shared_ptr<State>> reordered();
  void keep_order(const State& s);
  bool stays_kept(const State& s) const;
  void tell_order();
  void begin(State& s);
  void leave(const Job& job);  // which runs no more
  void end(State& s, JobStatus status, JobError error);
  void end_if_encoded(State& s);
  void tell_if_none_runs();
  void forget_old();
  std::vector<JobView> views() const;
  void publish_job(const std::string& name, const State& s);
  int64_t done_of(const State& s) const;
  void keep_new(Job& job) const;
  void unkeep(const Job& job) const;
  void read_kept(const std::function<void(const std::string&)>& says);

  QueueLimits limits_;
  std::string folder_;
  mutable std::mutex mutex_;  // the I/O thread waits for it: under it no file is written
  std::mutex files_;          // of jobs that go on; locked before the other
  std::condition_variable wake_;
  std::map<std::string, std::shared_ptr<State>, std::less<>> jobs_;
  std::list<std::shared_ptr<State>> waiting_;
  int64_t last_order_ = 0;
  std::shared_ptr<State> running_;
  std::vector<std::shared_ptr<State>> joined_;         // that run with it
  int64_t turn_ = 0;                                   // the lowest of those that waited last
  std::map<std::string, int64_t, std::less<>> turns_;  // that each client had last
  std::deque<std::string> finished_;                   // ids, oldest first
  // What is to be called once `mutex_` is released: added to under it, by end() and whom it calls,
  // and taken by the Ending that holds it.
  std::vector<std::function<void()>> calls_;
  std::function<void(const JobView&)> forgets_;
  // Of run_idle(). It may hold a request that waits for its answer: it is run behind close(), too.
  std::function<void()> task_;
  std::function<void()> none_runs_;  // of when_none_runs()
  bool closed_ = false, keeps_all_ = false;
  EventLog events_;
};

// As the native protocol has it.
Json job_json(const JobView& v);
Json jobs_json(const std::vector<JobView>& all);

// Of a job in files: queue_folder.cpp.
// Writes the pictures of the request; its settings name the files then.
void write_inputs(const std::string& folder, Job& job);
void write_job(const std::string& folder, const Job& job, int64_t done);
void give_up_job(const std::string& folder, const Job& job);  // no process goes on with it
void remove_job(const std::string& folder, const Job& job);   // with its pictures
// In the order in which they were made; `says` gets a line for each that cannot be read.
std::vector<std::shared_ptr<Job>> read_jobs(const std::string& folder,
                                            const std::function<void(const std::string&)>& says);

}  // namespace ebb::server
