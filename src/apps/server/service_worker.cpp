// Service: the worker, which runs jobs, and what they tell.
#include <algorithm>
#include <cstdio>

#include "apps/server/fault.h"
#include "apps/server/log.h"
#include "apps/server/service.h"
#include "apps/server/several_inits.h"
#include "base/hash.h"
#include "base/names.h"
#include "core/device_lost.h"
#include "core/out_of_memory.h"
#include "diffusion/solver/run.h"

namespace ebb::server {
namespace {

constexpr double preview_interval = 0.3;

// Of a text that the format cannot hold, a picture without it.
std::vector<uint8_t> encoded(Service& s, const Job& job, const MadePicture& p) {
  const JobSpec& spec = job.spec;
  try {
    return io::encode_picture(spec.format, p.pixels, p.text, spec.quality);
  } catch (const Error& e) {
    s.queue().warn(job, str(e.what(), "; the picture has no text"));
    return io::encode_picture(spec.format, p.pixels, {}, spec.quality);
  }
}

// By which a process that goes on with a job knows which of its pictures are stored.
std::string tag_of(const Job& job, int64_t index) {
  char out[17];
  std::snprintf(out, sizeof out, "%016llx",
                static_cast<unsigned long long>(fnv1a(str(job.file, '/', index))));
  return out;
}

// A picture that is being encoded. Its job ends behind it, whatever becomes of it.
struct Encoding {
  Encoding(Queue& q, std::shared_ptr<Job> of) : queue(q), job(std::move(of)) {
    queue.encoding(*job);
  }
  ~Encoding() {
    try {
      queue.encoded(*job, std::move(image));
    } catch (const std::exception& e) {
      log_fault("a picture was not told", e);
    }
  }
  Encoding(const Encoding&) = delete;
  Encoding& operator=(const Encoding&) = delete;
  Queue& queue;
  std::shared_ptr<Job> job;
  std::optional<JobImage> image = {};  // none: it failed
};

// What the engine tells of a job, to the queue and the store.
class Running final : public JobEvents {
 public:
  Running(Service& s, std::shared_ptr<Job> job) : service_(s), job_(std::move(job)) {}

  bool progress(const JobProgress& p) override {
    JobProgress now = p;
    now.preview = preview_number_;
    service_.queue().progress(*job_, now);
    return !job_->cancel && !job_->skip;
  }
  bool wants_preview() override {
    const double now = steady_time();
    return service_.is_looked_at() && now - previewed_ >= preview_interval;
  }
  void preview(const Tensor& pixels) override {
    previewed_ = steady_time();
    preview_number_ = service_.set_preview(job_->id, pixels);
  }
  void picture(MadePicture p) override {
    const auto encoding = std::make_shared<Encoding>(service_.queue(), job_);
    const auto made = std::chrono::system_clock::now();  // in order, whichever is encoded first
    service_.codec().add([&s = service_, encoding, made, p = std::move(p)]() mutable {
      const Job& job = *encoding->job;
      try {
        const JobSpec& spec = job.spec;
        std::string fault;
        if (p.complete) std::exchange(p.complete, {})(p);
        auto bytes = encoded(s, job, p);
        JobImage image{.index = p.index, .seed = p.seed, .batch = p.batch};
        const std::string tag = tag_of(job, p.index);
        if (job.of_before) image.id = s.store().with_tag(tag);
        if (image.id.empty())
          image.id =
              s.store().add(std::move(bytes), {spec.format, p.seed, made, spec.keeps, tag}, &fault);
        if (!fault.empty()) s.queue().warn(job, fault), s.say(fault);
        encoding->image = std::move(image);
      } catch (const std::exception& e) {
        s.queue().warn(job, e.what());
      }
    });
  }
  void warn(const std::string& text) override {
    service_.queue().warn(*job_, service_.catalogue().for_clients(text));
  }
  void model(const std::string& name, bool ready) override { service_.set_model(name, ready); }
  std::shared_ptr<const Job> next() override {
    const auto waiting = service_.queue().waiting_jobs();
    return waiting.empty() ? nullptr : waiting.front();
  }

 private:
  Service& service_;
  std::shared_ptr<Job> job_;
  int64_t preview_number_ = 0;
  double previewed_ = -1e9;
};

}  // namespace

void Service::work() {
  while (const auto job = queue_->next()) {
    const auto others = joined_to(job);
    if (others.empty())
      run_job(job, 0);
    else
      run_batch(others);
    unload_if_asked();
    tell_loaded();
  }
}

void Service::unload_if_asked() {
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(unload_, false) || !device_fault_.empty()) return;
  }
  engine_->release();
  tell_loaded();
}

// A job may have failed while it loaded another model, or given all back.
void Service::tell_loaded() {
  const std::string name = device_fault().empty() ? engine_->loaded() : "";
  if (model() != std::pair(name, !name.empty())) set_model(name, !name.empty());
}

std::unique_ptr<JobEvents> Service::events_of(const std::shared_ptr<Job>& job) {
  return std::make_unique<Running>(*this, job);
}

int64_t Service::first_of(const Job& job) const {
  int64_t first = job.done_before;
  while (job.of_before && first < job.spec.images() && !store_.with_tag(tag_of(job, first)).empty())
    ++first;
  return first;
}

void Service::run_job(const std::shared_ptr<Job>& job, int64_t first) {
  Running events(*this, job);
  try {
    first = std::max(first, first_of(*job));
    if (first < job->spec.images()) run_pictures(*engine_, *job, first, events);
    end_job(*job, JobStatus::completed);
  } catch (const Cancelled&) {
    end_job(*job, JobStatus::cancelled);
  } catch (const DeviceLost& e) {
    fail_job(*job, {500, "device_lost", e.what()});
    lose_device(e.what());
  } catch (const OutOfMemory& e) {
    engine_->release();
    fail_job(*job, {500, "out_of_memory", e.what()});
  } catch (const HttpFault& e) {
    fail_job(*job, {e.status, e.code, e.what()});
  } catch (const Error& e) {
    fail_job(*job, {500, "generation_failed", e.what()});
  } catch (const std::bad_alloc&) {
    engine_->release();
    fail_job(*job, {500, "out_of_memory", "serve: the host has not enough memory for this job"});
  } catch (const std::exception& e) {
    fail_job(*job, {500, "generation_failed", str("serve: ", e.what())});
  }
}

void Service::end_job(const Job& job, JobStatus status) {
  if (status == JobStatus::completed) {
    const std::lock_guard lock(mutex_);
    last_error_.clear();
  }
  queue_->finish(job, status);
}

void Service::fail_job(const Job& job, JobError error) {
  if (options_.log) say(str("job ", printable(job.id), " failed: ", error.message.substr(0, 300)));
  error.message = catalogue_->for_clients(std::move(error.message));
  {
    const std::lock_guard lock(mutex_);
    last_error_ = error.message;
  }
  queue_->finish(job, JobStatus::failed, error);
}

// The job that lost it has failed, so that the next process does not begin with it; those that wait
// stay in the folder for that process.
void Service::lose_device(const std::string& sentence) {
  {
    const std::lock_guard lock(mutex_);
    device_fault_ = sentence;
  }
  queue_->close(false);
}

}  // namespace ebb::server
