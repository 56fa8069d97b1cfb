// Service: jobs that run in one batch.
#include <chrono>

#include "apps/server/batch.h"
#include "apps/server/service.h"
#include "core/device_lost.h"
#include "core/out_of_memory.h"
#include "diffusion/solver/run.h"

namespace ebb::server {

namespace {

// Asks the engine about each job once, though those that wait are looked at again and again. A job
// whose settings are wrong fails when it runs, alone.
class Joining {
 public:
  Joining(Engine& engine, const Job& lead) {
    try {
      joins_ = engine.joins(lead);
    } catch (const std::exception&) {
    }
  }
  bool operator()(const Job& other) {
    const auto [at, is_new] = known_.try_emplace(other.file, false);
    if (is_new && joins_) at->second = asked(other);
    return at->second;
  }

 private:
  bool asked(const Job& other) const {
    try {
      return joins_(other);
    } catch (const std::exception&) {
      return false;
    }
  }
  Engine::Joins joins_;
  std::map<std::string, bool> known_;  // by file: clients choose ids, and may use one again
};

}  // namespace

// With itself, the first; empty: it runs alone.
std::vector<std::shared_ptr<Job>> Service::joined_to(const std::shared_ptr<Job>& job) {
  const int64_t most = options_.max_batch;
  if (job->spec.images() >= most || job->spec.kind != JobKind::generate) return {};
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(options_.batch_window);
  Joining joins(*engine_, *job);
  Jobs waiting, chosen;
  while (true) {
    waiting = queue_->waiting_jobs();
    chosen = joining(*job, waiting, most, std::ref(joins));
    int64_t pictures = job->spec.images();
    for (const auto& other : chosen) pictures += other->spec.images();
    if (pictures >= most || job->cancel || std::chrono::steady_clock::now() >= end) break;
    queue_->wait_for_more(waiting.size(), end);
    if (stopping_) break;
  }
  chosen = queue_->join(chosen);
  if (!chosen.empty()) chosen.insert(chosen.begin(), job);
  return chosen;
}

// What breaks a batch may be the fault of one of its jobs: those that have not ended are made
// alone, so that each has its own result, or its own error. Where the device is lost they stay for
// the next process, but for the first: it does not begin with the same batch again.
void Service::run_batch(const std::vector<std::shared_ptr<Job>>& jobs) {
  std::vector<std::unique_ptr<JobEvents>> events;
  std::vector<BatchMember> members;
  for (const auto& job : jobs) {
    events.push_back(events_of(job));
    members.push_back({.job = job, .events = events.back().get(), .ends = [this, job](JobStatus s) {
                         end_job(*job, s);
                       }});
  }
  std::string fault, lost;
  try {
    for (BatchMember& m : members) m.next = first_of(*m.job);
    engine_->run_batch(members);
  } catch (const Cancelled&) {
  } catch (const DeviceLost& e) {
    lost = e.what();
  } catch (const OutOfMemory& e) {
    engine_->release();
    fault = e.what();
  } catch (const std::bad_alloc&) {
    engine_->release();
    fault = "serve: the host has not enough memory for this batch";
  } catch (const std::exception& e) {
    fault = e.what();
  }
  if (options_.log && !fault.empty())
    say(str("batch of ", jobs.size(),
            " jobs failed, they are made one by one: ", fault.substr(0, 300)));
  if (!lost.empty()) lose_device(lost);
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (!members[i].open) continue;
    if (device_fault().empty())
      run_job(jobs[i], members[i].next);
    else if (i == 0 && !lost.empty())
      fail_job(*jobs[i], {500, "device_lost", lost});
    else
      queue_->finish(*jobs[i], JobStatus::cancelled, {503, "device_lost", device_fault()});
  }
}

}  // namespace ebb::server
