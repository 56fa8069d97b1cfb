// Service: the parts of the server together: HTTP, routes of the dialects, queue, worker, codec
// threads, store, catalogue.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <typeindex>
#include <vector>

#include "apps/server/catalogue.h"
#include "apps/server/engine.h"
#include "apps/server/finished_tasks.h"
#include "apps/server/guard.h"
#include "apps/server/http.h"
#include "apps/server/options.h"
#include "apps/server/queue.h"
#include "apps/server/route.h"
#include "apps/server/settings.h"
#include "apps/server/store.h"
#include "apps/server/styles.h"
#include "apps/server/tasks.h"
#include "apps/server/timed_tasks.h"
#include "apps/server/training_runs.h"

namespace ebb::server {

struct ServiceOptions {
  std::vector<std::string> addresses = {"127.0.0.1"};
  uint16_t port = 0;
  std::vector<CatalogueFolder> folders;
  std::string out;  // the gallery; "": none
  std::string lora_dir, embedding_dir, options_file;
  std::vector<std::string> runs;  // folders of `ebb train`
  std::vector<Style> styles;      // of prompts
  GuardOptions guard;
  Limits limits;
  QueueLimits queue;
  MemoryLimits memory;
  std::chrono::milliseconds tidy{10'000};         // between looks for what is to be forgotten
  std::chrono::milliseconds folder_time{10'000};  // that requests wait for folders
  std::chrono::milliseconds last_answers{4'000};  // behind stop()
  int64_t max_batch = 1;                          // pictures of joined jobs
  int64_t batch_window = 0;                       // milliseconds to wait for them
  bool drain = false, keep_orphans = false, log = false, log_prompts = false;
};

class Service {
 public:
  using MakeEngine = std::function<std::unique_ptr<Engine>(const Catalogue&)>;
  // Listens. Throws Error.
  Service(ServiceOptions options, const MakeEngine& engine);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  void run();   // until stop() and all is answered
  void stop();  // any thread
  uint16_t port() const { return http_->port(); }

  // ---- for dialects; any thread
  Queue& queue() { return *queue_; }
  Store& store() { return store_; }
  Catalogue& catalogue() { return *catalogue_; }
  Options& options() { return settings_; }
  const FinishedTasks& finished() const { return finished_; }  // that the queue has forgotten
  TrainingRuns& training() { return training_; }
  const ServiceOptions& given() const { return options_; }
  const Guard& guard() const { return guard_; }
  SettingsSource source();
  Tasks& codec() { return codec_; }
  TimedTasks& folders() { return folders_; }  // of On::folder
  TimedTasks& scans() { return scans_; }      // that wait for the catalogue
  // What a protocol keeps beside jobs and pictures, made where it is first asked for.
  template <class T>
  T& of_protocol() {
    const std::lock_guard lock(mutex_);
    auto& held = of_protocols_[typeid(T)];
    if (!held) held = std::make_shared<T>();
    return *static_cast<T*>(held.get());
  }
  const std::vector<Route>& routes() const { return routes_; }
  // What the handler throws becomes an answer, as of the call's route.
  void answer_later(const Call& call, const Handler& handler) const;
  // Likewise, on a codec thread, once the folders of models are read as they are now; 503 where
  // that takes too long.
  void answer_behind_scan(const Call& call, const Handler& handler);
  // Queues it, as a job of the peer's address. Throws HttpFault.
  std::shared_ptr<const Job> submit(const Call& call, JobSpec spec);
  // Likewise, and answers once it is finished. The peer that leaves before cancels it.
  using Render = std::function<Reply(const JobView&)>;
  // `queued` is called once it is taken.
  void answer_when_done(const Call& call, JobSpec spec, Render render,
                        const std::function<void()>& queued = {});
  // The job ends where the peer leaves before it is answered, unless such jobs are to go on.
  void cancel_on_leave(const Call& call, const std::shared_ptr<const Job>& job);
  // Answers with the memory that it would take, {"bytes","limit","text"}: null but for a text that
  // says why where it cannot be, all null where the device has something to do.
  void answer_plan(const Call& call, JobSpec spec);
  // Somebody looks at previews for a while.
  void look();
  bool is_looked_at() const;
  struct PreviewPicture {
    std::string job;
    int64_t number = 0;
    Tensor pixels;
  };
  std::optional<PreviewPicture> preview(std::string_view job) const;  // the latest of a job
  int64_t set_preview(const std::string& job, const Tensor& pixels);  // its number
  void set_model(const std::string& name, bool ready);
  std::pair<std::string, bool> model() const;  // that is loaded, and whether it is ready
  std::string last_error() const;              // of the job that ended last; "": none
  std::string device_fault() const;  // why no job can run in this process any more; "": they can
  void unload();                     // now, or behind the job that runs
  void say(const std::string& line) const;  // to the log

 private:
  Admission admit(const Request& r);
  void handle(std::shared_ptr<const Request> request, std::shared_ptr<Exchange> exchange);
  const Route* route_of(const Request& r, std::vector<std::string>* parts) const;
  // One with this path, and the methods of all that have it.
  const Route* route_at(const std::string& path, std::string& methods) const;
  void work();
  void forget_in_time(const std::stop_token& stop);
  void unload_if_asked();
  void tell_loaded();
  void run_job(const std::shared_ptr<Job>& job, int64_t first);
  void end_job(const Job& job, JobStatus status);
  void fail_job(const Job& job, JobError error);
  void lose_device(const std::string& sentence);
  int64_t first_of(const Job& job) const;  // picture that is not stored
  std::unique_ptr<JobEvents> events_of(const std::shared_ptr<Job>& job);
  // Batches: service_batch.cpp.
  std::vector<std::shared_ptr<Job>> joined_to(const std::shared_ptr<Job>& job);
  void run_batch(const std::vector<std::shared_ptr<Job>>& jobs);
  void say_refused(const std::string& method, const std::string& path, int status) const;

  ServiceOptions options_;
  Guard guard_;
  Store store_;
  Options settings_;
  FinishedTasks finished_;
  TrainingRuns training_;
  std::unique_ptr<Catalogue> catalogue_;
  std::unique_ptr<Queue> queue_;
  std::unique_ptr<Engine> engine_;
  std::vector<Route> routes_;
  mutable std::mutex mutex_;
  std::map<std::type_index, std::shared_ptr<void>> of_protocols_;
  std::deque<PreviewPicture> previews_;  // one a job, the latest behind
  int64_t preview_number_ = 0;
  double looked_ = -1e9;
  std::string model_, last_error_, device_fault_;
  bool model_ready_ = false, unload_ = false;
  std::atomic<bool> stopping_ = false, ending_ = false;  // once what is drained has ended
  Tasks codec_;
  std::unique_ptr<HttpServer> http_;
  TimedTasks folders_, scans_;  // they answer to http_
  std::jthread worker_;
};

}  // namespace ebb::server
