#include "train/job_facts.h"

#include "base/error.h"
#include "base/version.h"
#include "train/team.h"

namespace ebb::train {

std::vector<ranks::Fact> facts_of(const TrainJob& job, const Context& context) {
  TrainConfig settings = job.config;
  settings.threads = 0;
  settings.gpus.clear();
  const int64_t last = job.config.resume ? last_checkpoint(job.config.out) : -1;
  return {{"version", version},
          {"settings", to_json(settings)},
          {"model", job.info.model},
          {"network", job.info.model_config},
          {"diffusion", job.info.diffusion_config},
          {"data", job.data},
          device_fact(*context.device),
          {"checkpoint", last < 0 ? "none" : str(last)},
          {"contents of the checkpoint",
           last < 0 || !job.ranks ? "none" : str(checkpoint_hash(job.config.out, last))}};
}

}  // namespace ebb::train
