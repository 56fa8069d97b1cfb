#include "apps/server/several_inits.h"

#include <algorithm>

#include "diffusion/solver/run.h"

namespace ebb::server {
namespace {

// Tells of picture `index` of a job what an engine tells of a job of that picture alone.
class OnePicture final : public JobEvents {
 public:
  OnePicture(JobEvents& to, int64_t index, int64_t of) : to_(to), index_(index), of_(of) {}

  bool progress(const JobProgress& p) override {
    JobProgress now = p;
    now.image = index_, now.images = of_;
    now.share = (static_cast<double>(index_) + p.share) / static_cast<double>(of_);
    now.seconds_left = -1;
    return to_.progress(now);
  }
  bool wants_preview() override { return to_.wants_preview(); }
  void preview(const Tensor& pixels) override { to_.preview(pixels); }
  void picture(MadePicture p) override {
    p.index = index_;
    to_.picture(std::move(p));
  }
  void warn(const std::string& text) override { to_.warn(text); }
  void model(const std::string& name, bool ready) override { to_.model(name, ready); }

 private:
  JobEvents& to_;
  int64_t index_, of_;
};

}  // namespace

void run_pictures(Engine& engine, const Job& job, int64_t first, JobEvents& events) {
  const std::vector<std::string>& more = job.spec.more_inits;
  if (more.empty()) return engine.run(job, first, events);
  const int64_t all = job.spec.images();
  for (int64_t i = first; i < all; ++i) {
    Job one;
    one.id = job.id, one.file = job.file, one.created = job.created;
    one.spec = job.spec;
    cli::GenerateFlags& o = one.spec.flags;
    const size_t init = static_cast<size_t>(i) % (more.size() + 1);
    if (init > 0) o.modes.init = more[init - 1];
    o.n = 1, o.generate.batch = 1, o.first_image += i;
    one.spec.more_inits.clear();
    OnePicture told(events, i, all);
    try {
      engine.run(one, 0, told);
    } catch (const Cancelled&) {
      if (!job.skip.exchange(false) || job.cancel) throw;
    }
  }
}

}  // namespace ebb::server
